//! A rank that does not poll, has exited or has died must not block messages between the other ranks.

use std::time::Duration;

use super::Member;
use super::owned::{Sending, bytes, keep_for_ever};
use crate::{Exit, Fault, Group};

/// The number of messages to the idle rank.
const UNREAD: u64 = 300;

/// Starts the messages to the idle rank, rank 1. Stops at the first fault, which `is_expected` must accept.
fn send_unread(m: &Member, is_expected: impl Fn(&Fault) -> bool) -> Vec<Sending<u8>> {
    let eager = m.protocol_limits()[0];
    let send = |i| match m.try_isend(1, 1, bytes(i + 1, if i % 10 == 0 { eager } else { 100 })) {
        Ok(send) => Some(send),
        Err(fault) => {
            assert!(is_expected(&fault), "{fault:?}");
            None
        }
    };
    (0..UNREAD).map_while(send).collect()
}

fn exchange_among_others(m: &Member, without_rank_1: &Member) {
    for (i, len) in
        [8, 48, 100, 1000, m.protocol_limits()[0], m.rendezvous_len()].repeat(20).into_iter().enumerate()
    {
        let send = without_rank_1.isend(without_rank_1.next(), 7, bytes(i as u64 + 1, len));
        assert!(
            without_rank_1.recv::<u8>(without_rank_1.previous() as i32, 7, len).1 == bytes(i as u64 + 1, len)
        );
        send.wait(without_rank_1).unwrap();
    }
}

fn without_rank_1(m: &Member) -> Member {
    let group: Group = (0..m.size).filter(|rank| *rank != 1).collect();
    m.join_also(61, group, m.rank - u32::from(m.rank > 1))
}

/// Rank 1 does not poll before all ranks above 1 have exited. It learns of their exits from the roster.
pub(super) fn rank_that_does_not_poll_does_not_block_others(m: &Member) {
    m.barrier();
    if m.rank == 1 {
        let has_exited = |rank| m.roster().since(0).iter().any(|e| e.rank == rank && e.exit != Exit::Closing);
        while !(2..m.size).all(has_exited) {
            m.roster().request_exits();
            std::thread::sleep(Duration::from_millis(1));
        }
        for i in 0..UNREAD {
            let len = m.protocol_limits()[0].max(100);
            let (message, got) = m.recv::<u8>(0, 1, len);
            assert!(got == bytes(i + 1, message.bytes), "message {i}");
        }
        return;
    }
    let sends = if m.rank == 0 { send_unread(m, |_| false) } else { Vec::new() };
    exchange_among_others(m, &without_rank_1(m));
    if m.rank > 1 {
        return m.engine.close();
    }
    sends.into_iter().for_each(|send| assert!(send.wait(m).is_ok()));
}

pub(super) fn exited_rank_with_unread_messages_does_not_block_others(m: &Member) {
    let without_rank_1 = (m.rank != 1).then(|| without_rank_1(m));
    m.barrier();
    let Some(without_rank_1) = without_rank_1 else {
        std::thread::sleep(Duration::from_millis(50));
        return m.engine.close();
    };
    let has_left = |fault: &Fault| matches!(fault, Fault::Left { rank: Some(1) });
    for send in send_unread(m, has_left) {
        let outcome = send.wait(m);
        assert!(outcome.as_ref().err().is_none_or(has_left), "{outcome:?}");
    }
    exchange_among_others(m, &without_rank_1);
}

pub(super) fn dead_rank_with_unread_messages_does_not_block_others(m: &Member) {
    let without_rank_1 = (m.rank != 1).then(|| without_rank_1(m));
    m.barrier();
    let Some(without_rank_1) = without_rank_1 else {
        std::thread::sleep(Duration::from_millis(50));
        keep_for_ever(m.engine.clone());
        return m.report_dead();
    };
    let is_dead = |fault: &Fault| matches!(fault, Fault::Dead { rank: 1, .. });
    for send in send_unread(m, is_dead) {
        let outcome = send.wait(m);
        assert!(outcome.as_ref().err().is_none_or(is_dead), "{outcome:?}");
    }
    while m.world.broken().is_none() {
        m.engine.progress();
    }
    exchange_among_others(m, &without_rank_1);
}
