use std::fmt::Debug;

use mpj::boot::wire::{
    DeathGroup, ExitRun, FrameDecoder, MAX_MESSAGE, ProtocolVersion, ToLauncher, ToProcess, Welcome,
    WireExit, encode_frame,
};
use mpj::report::{RankStats, RankWaits, Wait};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::input::Input;
use crate::peak_memory;

/// Feeds valid and invalid frames in pieces to the decoder of a process or of the launcher. A message that it accepts
/// must be the same after it has been encoded and decoded again.
pub fn control(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    if input.flag() {
        feed_frames::<ToProcess>(&mut input, to_process)
    } else {
        feed_frames::<ToLauncher>(&mut input, to_launcher)
    }
}

pub(crate) fn feed_frames<T>(input: &mut Input<'_>, choose: fn(&mut Input<'_>) -> T)
where
    T: Serialize + DeserializeOwned + PartialEq + Debug,
{
    let mut wire = Vec::new();
    for _ in 0..input.below(6) {
        let mut bytes = encode_frame(&choose(input)).expect("a short message");
        for _ in 0..input.below(3) {
            let at = input.below(bytes.len());
            bytes[at] = input.byte();
        }
        if input.below(8) == 7 {
            bytes[..4].copy_from_slice(&(input.edge() as u32).to_le_bytes());
        }
        wire.extend(bytes);
    }
    wire.extend(input.bytes(40));
    let mut frames = FrameDecoder::default();
    let mut rest = wire.as_slice();
    while !rest.is_empty() {
        let (now, later) = rest.split_at(rest.len().min(1 + input.below(80)));
        frames.push(now);
        rest = later;
        loop {
            let (next, peak) = peak_memory::measure(|| frames.next::<T>());
            assert!(peak <= 256 * wire.len() + (64 << 10), "{peak} bytes for {}", wire.len());
            match next {
                Ok(None) => break,
                Ok(Some(message)) => {
                    let mut again = FrameDecoder::default();
                    again.push(&encode_frame(&message).expect("no longer than it was"));
                    assert_eq!(again.next::<T>(), Ok(Some(message)));
                }
                Err(malformed) => {
                    assert!(!malformed.to_string().is_empty() && malformed.to_string().len() < MAX_MESSAGE);
                    return;
                }
            }
        }
    }
}

fn text(input: &mut Input<'_>) -> String {
    "é".repeat(input.below(20))
}

fn exit(input: &mut Input<'_>) -> WireExit {
    match input.below(4) {
        0 => WireExit::Closing,
        3 => WireExit::ClosingExcept((0..input.below(5)).map(|_| input.edge()).collect()),
        1 => WireExit::Left,
        _ => WireExit::Died(text(input)),
    }
}

fn death_group(input: &mut Input<'_>) -> DeathGroup {
    let cause = text(input);
    DeathGroup {
        cause,
        runs: (0..input.below(4)).map(|_| (input.edge() as u32, input.edge() as u32)).collect(),
    }
}

fn exit_run(input: &mut Input<'_>) -> ExitRun {
    ExitRun { first: input.edge() as u32, len: input.edge() as u32, exit: exit(input) }
}

fn stats(input: &mut Input<'_>) -> RankStats {
    let devices = (0..input.below(4)).map(|_| text(input)).collect();
    RankStats { devices, totals: std::array::from_fn(|_| (input.edge(), input.edge())) }
}

fn call(input: &mut Input<'_>) -> (u64, u32) {
    (input.edge(), input.edge() as u32)
}

fn wait(input: &mut Input<'_>) -> Wait {
    Wait {
        what: text(input),
        millis: input.edge(),
        peer: input.flag().then(|| input.edge() as u32),
        call: input.flag().then(|| call(input)),
    }
}

fn waits(input: &mut Input<'_>) -> RankWaits {
    RankWaits {
        waits: (0..input.below(4)).map(|_| wait(input)).collect(),
        calls: (0..input.below(4)).map(|_| call(input)).collect(),
    }
}

fn to_process(input: &mut Input<'_>) -> ToProcess {
    let id = input.edge();
    let done = |input: &mut Input<'_>| if input.flag() { Ok(()) } else { Err(text(input)) };
    match input.below(7) {
        0 => ToProcess::Welcome(Welcome {
            job: id,
            secret: input.array(),
            hosts: (0..input.below(4)).map(|_| (input.edge() as u32, input.edge() as u32)).collect(),
            first_rank: input.edge() as u32,
            ranks_here: input.edge() as u32,
            devices: input.flag().then(|| (0..input.below(4)).map(|_| text(input)).collect()),
            has_segment: input.flag(),
        }),
        1 => ToProcess::Died((0..input.below(4)).map(|_| death_group(input)).collect()),
        2 if input.flag() => ToProcess::Value { id, value: Err(text(input)) },
        2 => ToProcess::Value { id, value: Ok(input.bytes(50).to_vec()) },
        3 => ToProcess::OrderlyExits((0..input.below(4)).map(|_| exit_run(input)).collect()),
        4 => ToProcess::QueryBlocked { job_ends: input.flag() },
        5 => ToProcess::JobEnds { code: input.byte() },
        _ => ToProcess::FenceDone { id, result: done(input) },
    }
}

fn to_launcher(input: &mut Input<'_>) -> ToLauncher {
    let (id, rank) = (input.edge(), input.edge() as u32);
    match input.below(11) {
        0 => ToLauncher::Hello(ProtocolVersion { version: id as u32, mpj_version: text(input) }),
        1 => ToLauncher::Put { rank, key: text(input), value: input.bytes(50).to_vec() },
        2 => ToLauncher::Get { id, rank, key: text(input) },
        3 => ToLauncher::Fence { id },
        4 => ToLauncher::Exited { rank, exit: exit(input) },
        5 => ToLauncher::PeerLost { rank, cause: text(input) },
        6 => ToLauncher::QueryExits,
        7 => ToLauncher::FailedDueTo { rank, cause_rank: id as u32 },
        8 => ToLauncher::Stats { rank, stats: stats(input) },
        9 => ToLauncher::BlockedReport { rank, waits: input.flag().then(|| waits(input)) },
        _ => ToLauncher::Abort { rank, code: id as i32, reason: text(input) },
    }
}
