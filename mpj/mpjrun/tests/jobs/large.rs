//! Messages of 5 GiB, which have more than 2^32 elements. They need much memory and time, so the test runs only if the
//! variable [`ENABLE`] is set.

use std::time::{Duration, Instant};

use mpj::{BoxError, Datatype, View, ViewMut, World};

use super::Test;
use super::job::start;
use super::program::say;

pub(crate) const TESTS: &[Test] = &[(
    "messages_of_five_gib_arrive_on_every_device_except_ibvdev",
    messages_of_five_gib_arrive_on_every_device_except_ibvdev,
)];

const ENABLE: &str = "TEST_LARGE_MESSAGES";

/// The memory of both ranks. Without transparent huge pages, the sender needs less, because it writes to few pages.
const NEEDED_GIB: u64 = 11;

const LEN: usize = 5 << 30;
/// The strided layout: blocks of `BLOCK` bytes, each `STRIDE` bytes after the one before.
const BLOCK: usize = 1 << 16;
const STRIDE: usize = BLOCK + 4096;
const MEMORY: usize = LEN / BLOCK * STRIDE;

/// Not a multiple of the length of a piece on any device.
const MARK_DISTANCE: usize = 100_003;

/// Detects a hang; it does not check the speed.
const LIMIT: Duration = Duration::from_secs(900);

fn messages_of_five_gib_arrive_on_every_device_except_ibvdev() {
    if std::env::var_os(ENABLE).is_none() {
        return say(&format!("SKIPPED messages of 5 GiB: {ENABLE} is not set"));
    }
    let available = available_gib();
    if available < NEEDED_GIB {
        return say(&format!(
            "SKIPPED messages of 5 GiB: {available} of {NEEDED_GIB} GiB of memory are free"
        ));
    }
    for device in ["smdev", "shmdev", "niodev"] {
        let ended = start(&format!("-n 2 --devices {device}"), "large").end_within(LIMIT);
        assert_eq!((ended.code, ended.out.len()), (Some(0), 3), "{device}: {ended:#?}");
        ended.out.iter().for_each(|line| say(&format!("{device}: {line}")));
    }
}

fn available_gib() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) >> 20
}

/// Returns the positions of the bytes of a message that are not 0, with their values.
fn marks(tag: i32) -> impl Iterator<Item = (usize, u8)> {
    let value = move |at: usize| (at / MARK_DISTANCE % 83 + 1 + 83 * tag as usize) as u8;
    (0..LEN).step_by(MARK_DISTANCE).chain([LEN - 1]).map(move |at| (at, value(at)))
}

/// Returns the position of a byte of the message in the memory.
fn place(at: usize, is_strided: bool) -> usize {
    if is_strided { at / BLOCK * STRIDE + at % BLOCK } else { at }
}

/// Rank 0 sends to rank 1.
pub(crate) fn exchange(world: &World) -> Result<(), BoxError> {
    let strided = Datatype::of::<u8>().vector(LEN / BLOCK, BLOCK, STRIDE as isize)?;
    // The system provides these pages when they are written.
    let mut memory = vec![0u8; MEMORY];
    for (tag, [send_strided, recv_strided]) in (0..).zip([[false, false], [true, false], [false, true]]) {
        if world.rank() == 0 {
            marks(tag).for_each(|(at, value)| memory[place(at, send_strided)] = value);
            let begun = Instant::now();
            match send_strided {
                true => world.send(&View::new(&memory, 0, &strided, 1)?, 1, tag)?,
                false => world.send(&memory[..LEN], 1, tag)?,
            }
            say(&format!("message {tag} in {:.1} s", begun.elapsed().as_secs_f64()));
            marks(tag).for_each(|(at, _)| memory[place(at, send_strided)] = 0);
        } else {
            let status = match recv_strided {
                true => world.recv(&mut ViewMut::new(&mut memory, 0, &strided, 1)?, 0, tag)?,
                false => world.recv(&mut memory[..LEN], 0, tag)?,
            };
            assert_eq!((status.bytes(), status.count::<u8>()), (LEN, Some(LEN)));
            for (at, value) in marks(tag) {
                let found = std::mem::take(&mut memory[place(at, recv_strided)]);
                assert_eq!(found, value, "message {tag}, byte {at}");
            }
            // Each byte equals the one before it, and the first is 0. This is fast even without optimization.
            let is_clear = memory[0] == 0 && memory[1..] == memory[..MEMORY - 1];
            assert!(is_clear, "message {tag}: bytes between the marks are not 0");
        }
    }
    Ok(())
}
