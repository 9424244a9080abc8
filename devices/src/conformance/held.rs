//! Sends that a rank starts in a row before it computes: no device keeps them back for long.

use std::time::Duration;

use super::Member;
use super::owned::bytes;
use crate::Exit;

/// Messages in a row: few enough that every device has room for them, where it is not set to have hardly any.
const ROW: u64 = 4;

/// A device with a lower eager limit is set to have so little room that messages wait for it, which is for who looks.
const ROOM: usize = 64;

/// Makes no call of the engine's until the others have left, of which this rank hears by other means.
fn compute(m: &Member) {
    let has_left = |rank| m.roster().since(0).iter().any(|e| e.rank == rank && e.exit != Exit::Closing);
    while !m.others().all(has_left) {
        m.roster().request_exits();
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Connects all ranks with each other: messages that wait for that are for who looks, too.
fn meet(m: &Member) {
    let sends: Vec<_> = m.others().map(|to| m.isend(to, 2, vec![1u8])).collect();
    m.others().for_each(|from| assert_eq!(m.recv::<u8>(from as i32, 2, 1).1, [1]));
    sends.into_iter().for_each(|send| assert!(send.wait(m).is_ok()));
    m.barrier();
}

/// Rank 0 starts messages to everybody and then computes; if it `waits`, it waits for them before.
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

/// Messages that were started leave though their rank makes no other call.
pub(super) fn a_row_of_sends_leaves_though_its_rank_computes(m: &Member) {
    a_row(m, false);
}

/// Messages that were waited for are on their way.
pub(super) fn sends_that_were_waited_for_have_left(m: &Member) {
    a_row(m, true);
}
