//! Memory of unexpected messages: credit limits what they take at their receiver.

use std::process::ExitCode;

use mpj::{ANY_SOURCE, ANY_TAG, World};

use super::Test;
use super::job::{pid, run};
use super::program::say;

type Failure = Box<dyn std::error::Error + Send + Sync>;

pub(crate) const TESTS: &[Test] =
    &[("memory_of_unexpected_messages_is_bounded", memory_of_unexpected_messages_is_bounded)];

const ROLE: &str = "unexpected:";
/// The tags of the messages, in turns, and the tag of the last message.
const TAGS: usize = 100;
const LAST: i32 = TAGS as i32;
/// The number of receives that are posted at a time.
const WINDOW: usize = 100;

/// Runs `unexpected:COUNT:LEN`, messages of `LEN` bytes each.
pub(crate) fn run_role(role: &str) -> Option<ExitCode> {
    let (count, len) = role.strip_prefix(ROLE)?.split_once(':')?;
    let (count, len) = (count.parse().ok()?, len.parse().ok()?);
    Some(mpj::run(|world| flood(&world, count, len)))
}

/// Returns a line of `/proc/self/status` that has a number of KiB.
fn memory(name: &str) -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Rank 0 sends all messages before rank 1 receives the first one. Rank 1 prints by how many KiB its memory grew.
fn flood(world: &World, count: usize, len: usize) -> Result<(), Failure> {
    // Message n is the bytes from n on, so the sender needs no memory for each message.
    let bytes: Vec<u8> = (0..count + len).map(|at| (at * 7 + at / 256) as u8).collect();
    let tag = |number: usize| (number % TAGS) as i32;
    world.barrier()?;
    if world.rank() == 0 {
        if len < 32 {
            // The credit suffices for all of them, so no call waits for its receive.
            (0..count).try_for_each(|number| world.send(&bytes[number..number + len], 1, tag(number)))?;
            return Ok(world.send(&[0u8], 1, LAST)?);
        }
        world.scope(|scope| {
            for number in 0..count {
                scope.isend(&bytes[number..number + len], 1, tag(number))?;
            }
            scope.isend(&[0u8], 1, LAST).map(drop)
        })?;
        return Ok(());
    }
    let before = memory("VmRSS").ok_or("no VmRSS")?;
    world.recv(&mut [0u8], 0, LAST)?;
    for first in (0..count).step_by(WINDOW) {
        let started: mpj::Result<Vec<_>> =
            (0..WINDOW).map(|_| world.irecv(vec![0u8; len], ANY_SOURCE, ANY_TAG)).collect();
        for (number, receiving) in (first..).zip(started?) {
            let (got, status) = receiving.wait()?;
            let is_right = status.tag() == tag(number) && got == bytes[number..number + len];
            assert!(is_right, "message {number}: {status:?}");
        }
    }
    let peak = memory("VmHWM").ok_or("no VmHWM")?;
    say(&format!("grew by {}", peak.saturating_sub(before)));
    Ok(())
}

/// Longer messages exceed the credit: most of their bodies stay at the sender. With `smdev`, both ranks are in one
/// process, whose memory contains the sends that wait.
fn memory_of_unexpected_messages_is_bounded() {
    let short = (100_000, 8, 8 << 20);
    let long = (20_000, 1024, 1 << 20);
    for (device, (count, len, credit)) in
        [("smdev", short), ("shmdev", short), ("niodev", short), ("shmdev", long), ("niodev", long)]
    {
        let args = format!("-n 2 --devices {device} -x MPJ_EAGER_CREDIT={credit}");
        let ended = run(&args, &format!("{ROLE}{count}:{len}"));
        assert_eq!((ended.code, ended.out.len()), (Some(0), 1), "{args}: {ended:#?}");
        // The pool and the queue of messages grow in steps, up to twice the size.
        let limit = if len < 32 { 2 * credit } else { count * len / 2 };
        let grown = pid(&ended.out[0]) as usize * 1024;
        assert!(grown <= limit, "{args}, {count} × {len} bytes: {grown} bytes, at most {limit}");
    }
}
