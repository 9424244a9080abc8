//! Short messages of a rank that then computes: no device delays them for long.

use std::time::Duration;

use super::Member;
use super::owned::{Layout, Sending, bytes};
use crate::{Coalesce, Exit, Mode};

/// The number of messages to each rank. A device whose limits are at least [`MIN_LIMIT`] has space for them.
const MESSAGES: u64 = 4;

/// If a device has a lower limit in bytes, messages might wait for space, which requires polling. The cases then do
/// nothing.
const MIN_LIMIT: usize = 64;

/// Makes no progress until the other ranks have exited. This rank learns of their exits from the roster.
fn compute(m: &Member) {
    let has_exited = |rank| m.roster().since(0).iter().any(|e| e.rank == rank && e.exit != Exit::Closing);
    while !m.others().all(has_exited) {
        m.roster().request_exits();
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Connects all ranks with each other, because messages that wait for a connection would require polling.
fn connect_all(m: &Member) {
    let sends: Vec<_> = m.others().map(|to| m.isend(to, 2, vec![1u8])).collect();
    m.others().for_each(|from| assert_eq!(m.recv::<u8>(from as i32, 2, 1).1, [1]));
    sends.into_iter().for_each(|send| assert!(send.wait(m).is_ok()));
    m.barrier();
}

fn isend_coalesced(m: &Member, to: u32, data: Vec<u8>) -> Sending<u8> {
    let layout = Layout::all(&data);
    let start = |source| m.send_as(to, 1, source, Mode::Standard, Coalesce::Allowed);
    Sending::start(data, layout, start).unwrap()
}

/// Rank 0 starts messages to all other ranks and then computes. If `waits` is true, it first waits for the sends.
fn start_sends_and_compute(m: &Member, waits: bool) {
    if m.protocol_limits().iter().any(|limit| *limit < MIN_LIMIT) {
        return;
    }
    connect_all(m);
    if m.rank != 0 {
        for i in 0..MESSAGES {
            assert!(m.recv::<u8>(0, 1, 8).1 == bytes(i + 1, i as usize + 1), "message {i}");
        }
        return m.engine.close();
    }
    let all = (0..MESSAGES).flat_map(|i| m.others().map(move |to| (i, to)));
    let sends: Vec<_> = all.map(|(i, to)| isend_coalesced(m, to, bytes(i + 1, i as usize + 1))).collect();
    assert!(sends.iter().all(Sending::has_ended), "the devices have space");
    if waits {
        sends.into_iter().for_each(|send| assert!(send.wait(m).is_ok()));
    }
    compute(m);
}

pub(super) fn sends_leave_while_their_rank_computes(m: &Member) {
    start_sends_and_compute(m, false);
}

pub(super) fn completed_sends_have_left(m: &Member) {
    start_sends_and_compute(m, true);
}
