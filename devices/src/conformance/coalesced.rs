//! Sends in succession before their rank computes: no device delays them for long.

use std::time::Duration;

use super::Member;
use super::owned::bytes;
use crate::Exit;

/// The number of messages in succession: few enough that every device has space for them, unless it is configured to
/// have very little.
const ROW: u64 = 4;

/// A device with a lower eager limit has so little space that messages wait for it, which requires polling.
const ROOM: usize = 64;

/// Makes no call of the engine until the other ranks have exited, which this rank learns from the roster.
fn compute(m: &Member) {
    let has_left = |rank| m.roster().since(0).iter().any(|e| e.rank == rank && e.exit != Exit::Closing);
    while !m.others().all(has_left) {
        m.roster().request_exits();
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Connects all ranks with each other: messages that wait for a connection require polling, too.
fn meet(m: &Member) {
    let sends: Vec<_> = m.others().map(|to| m.isend(to, 2, vec![1u8])).collect();
    m.others().for_each(|from| assert_eq!(m.recv::<u8>(from as i32, 2, 1).1, [1]));
    sends.into_iter().for_each(|send| assert!(send.wait(m).is_ok()));
    m.barrier();
}

/// Rank 0 starts messages to all ranks and then computes; if `waits`, it waits for them first.
fn a_row(m: &Member, waits: bool) {
    if m.limits().iter().any(|limit| *limit < ROOM) {
        return;
    }
    meet(m);
    if m.rank != 0 {
        for i in 0..ROW {
            assert!(m.recv::<u8>(0, 1, 8).1 == bytes(i + 1, i as usize + 1), "message {i}");
        }
        return m.engine.close();
    }
    let all = (0..ROW).flat_map(|i| m.others().map(move |to| (i, to)));
    let sends: Vec<_> = all.map(|(i, to)| m.isend(to, 1, bytes(i + 1, i as usize + 1))).collect();
    assert!(sends.iter().all(super::Sending::has_ended), "there is room");
    if waits {
        sends.into_iter().for_each(|send| assert!(send.wait(m).is_ok()));
    }
    compute(m);
}

/// Started messages are sent although their rank makes no other call.
pub(super) fn a_row_of_sends_leaves_though_its_rank_computes(m: &Member) {
    a_row(m, false);
}

/// Completed messages have been sent.
pub(super) fn sends_that_were_waited_for_have_left(m: &Member) {
    a_row(m, true);
}
