//! Senders that are faster than their receivers: they do not deadlock, messages keep their order, and the receiver's
//! memory stays within the credit.

use std::time::{Duration, Instant};

use mpj_pool::Pool;

use super::Member;
use super::owned::bytes;
use crate::Pattern;

/// All other ranks flood rank 0, which sleeps, then makes progress without receiving, and then receives everything.
fn flood(m: &Member, messages: u64, len: usize) {
    let before = mpj_pool::global().stats().live_bytes;
    m.barrier();
    if m.rank > 0 {
        let mut pending = Vec::new();
        for i in 0..messages {
            let mut data = bytes(u64::from(m.rank) << 32 | (i + 1), len);
            data[..8].copy_from_slice(&i.to_le_bytes());
            let send = m.isend(0, 1, data);
            if !send.has_ended() {
                pending.push(send);
            }
        }
        pending.into_iter().for_each(|send| assert!(send.wait(m).is_ok()));
        return m.barrier();
    }
    std::thread::sleep(Duration::from_millis(100));
    let until = Instant::now() + Duration::from_millis(200);
    while Instant::now() < until {
        let nothing = m.engine.iprobe(&m.world, Pattern { source: 1, tag: 2 });
        assert_eq!(nothing, Ok(None));
    }
    let held = mpj_pool::global().stats().live_bytes.saturating_sub(before);
    // A pool block can be twice as large as its content.
    let bound = 2 * m.engine.credit.max * u64::from(m.size - 1);
    assert!(held <= bound, "{held} bytes are buffered, the credit allows {bound}");
    for i in 0..messages {
        for from in m.others() {
            let (_, got) = m.recv::<u8>(from as i32, 1, len);
            assert_eq!(got[..8], i.to_le_bytes(), "the order of messages from {from}");
            assert!(got[8..] == bytes(u64::from(from) << 32 | (i + 1), len)[8..]);
        }
    }
    m.barrier();
}

/// Messages of 16 bytes. There are fewer with several senders, because a receive can pass over messages of other ranks,
/// and with a small credit, because most messages then use rendezvous.
pub(super) fn flood_of_small_messages_stays_within_the_credit(m: &Member) {
    let messages = if m.size == 2 { 200_000 } else { 50_000 };
    flood(m, messages.min(m.engine.credit.max / 4) / u64::from(m.size - 1), 16);
}

pub(super) fn flood_of_eager_messages_stays_within_the_credit(m: &Member) {
    flood(m, 2000, 8 << 10);
}

pub(super) fn circular_floods_do_not_deadlock(m: &Member) {
    let len = |i: u64| match i {
        _ if i % 503 == 1 => m.rendezvous_len(),
        _ if i % 41 == 7 => 8 << 10,
        _ => 8 + (i % 60) as usize,
    };
    const MESSAGES: u64 = 10_000;
    let sends: Vec<_> = (0..MESSAGES).map(|i| m.isend(m.next(), 1, bytes(i + 1, len(i)))).collect();
    for i in 0..MESSAGES {
        let (_, got) = m.recv::<u8>(m.previous() as i32, 1, m.rendezvous_len().max(8 << 10));
        assert!(got == bytes(i + 1, len(i)), "message {i}");
    }
    sends.into_iter().for_each(|send| assert!(send.wait(m).is_ok()));
}
