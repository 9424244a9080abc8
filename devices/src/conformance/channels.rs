//! Contexts, groups, late joins, and freed channels.

use std::time::Duration;

use super::Member;
use super::owned::bytes;
use crate::{ANY_SOURCE, ANY_TAG, Group};

fn everybody(m: &Member) -> Group {
    Group::Range { first: 0, len: m.size }
}

pub(super) fn contexts_do_not_mix(m: &Member) {
    let others: Vec<Member> = (0..5).map(|i| m.join_also(1 << 40 | i, everybody(m), m.rank)).collect();
    let mut sends = Vec::new();
    for (i, other) in others.iter().enumerate() {
        for len in [8, m.rendezvous_len()] {
            sends.push((other, other.isend(m.next(), 1, bytes(i as u64 + 1, len))));
        }
    }
    for (i, other) in others.iter().enumerate().rev() {
        for len in [8, m.rendezvous_len()] {
            let (envelope, got) = other.recv::<u8>(ANY_SOURCE, ANY_TAG, m.rendezvous_len());
            assert_eq!((envelope.source, envelope.bytes), (m.previous(), len));
            assert!(got == bytes(i as u64 + 1, len));
        }
    }
    for (other, send) in sends {
        send.wait(other).unwrap();
    }
}

pub(super) fn late_join_receives_earlier_messages(m: &Member) {
    const LATE: u64 = 77;
    let last = m.size - 1;
    let lengths = [0, 8, 100, m.protocol_limits()[0], m.rendezvous_len()];
    if m.rank == last {
        m.barrier();
        std::thread::sleep(Duration::from_millis(30));
        m.engine.progress();
        let late = m.join_also(LATE, everybody(m), m.rank);
        for from in m.others() {
            for len in lengths {
                assert!(late.recv::<u8>(from as i32, 1, len).1 == bytes(u64::from(from) + 1, len));
            }
        }
        return;
    }
    let early = m.join_also(LATE, everybody(m), m.rank);
    let sends: Vec<_> =
        lengths.iter().map(|len| early.isend(last, 1, bytes(u64::from(m.rank) + 1, *len))).collect();
    m.barrier();
    sends.into_iter().for_each(|send| assert!(send.wait(&early).is_ok()));
}

/// Ranks are numbered by their position in the group.
pub(super) fn groups_may_have_any_order(m: &Member) {
    let exchange_in_ring = |m: &Member| {
        let send = m.isend(m.next(), 1, vec![m.rank; 3]);
        let (envelope, got) = m.recv::<u32>(ANY_SOURCE, 1, 3);
        assert_eq!((envelope.source, got), (m.previous(), vec![m.previous(); 3]));
        send.wait(m).unwrap();
    };
    let backwards = m.join_also(90, (0..m.size).rev().collect(), m.size - 1 - m.rank);
    exchange_in_ring(&backwards);
    // Groups of the even and of the odd ranks. A group can consist of one rank, which sends to itself.
    let half: Group = (0..m.size).filter(|rank| rank % 2 == m.rank % 2).collect();
    let half = m.join_also(91 + u64::from(m.rank % 2), half, m.rank / 2);
    exchange_in_ring(&half);
    if m.rank > 0 {
        let rest = Group::Range { first: 1, len: m.size - 1 };
        exchange_in_ring(&m.join_also(93, rest, m.rank - 1));
    }
}

/// With more than two ranks, the groups have different sizes, and the second one has another order than the job.
pub(super) fn ranks_of_an_intercommunicator_are_those_of_the_remote_group(m: &Member) {
    let first = m.size.div_ceil(3);
    let inter = m.join_inter(94, first);
    let world_rank = |remote| inter.world.group().peer(remote).unwrap().0;
    assert_eq!(inter.size, if m.rank < first { m.size - first } else { first });
    let lengths = [8, m.rendezvous_len()];
    let mut sends = Vec::new();
    for to in 0..inter.size {
        let seed = u64::from(m.rank * m.size + world_rank(to)) + 1;
        sends.extend(lengths.map(|len| inter.isend(to, 1, bytes(seed, len))));
    }
    let mut next = vec![lengths.iter(); inter.size as usize];
    for _ in 0..2 * inter.size {
        let (envelope, got) = inter.recv::<u8>(ANY_SOURCE, ANY_TAG, m.rendezvous_len());
        let len = *next[envelope.source as usize].next().unwrap();
        assert!(got == bytes(u64::from(world_rank(envelope.source) * m.size + m.rank) + 1, len));
    }
    sends.into_iter().for_each(|send| assert!(send.wait(&inter).is_ok()));
}

pub(super) fn channels_are_created_and_freed_repeatedly(m: &Member) {
    for i in 0..300 {
        let channel = m.join_also(1000 + i, everybody(m), m.rank);
        let send = channel.isend(m.next(), 1, vec![i; 4]);
        let long =
            channel.isend(m.next(), 2, bytes(i + 1, if i % 50 == 0 { m.rendezvous_len() } else { 100 }));
        assert_eq!(channel.recv::<u64>(m.previous() as i32, 1, 4).1, [i; 4]);
        channel.recv::<u8>(m.previous() as i32, 2, m.rendezvous_len());
        send.wait(&channel).unwrap();
        long.wait(&channel).unwrap();
        m.engine.free(&channel.world);
    }
}

pub(super) fn freeing_a_channel_returns_credit(m: &Member) {
    let len = m.protocol_limits()[0].min(8 << 10);
    let each = m.engine.credit.max / 8 / len as u64;
    for i in 0..24 {
        let channel = m.join_also(2000 + i, everybody(m), m.rank);
        // Messages beyond the credit use rendezvous, and the receiver refuses them when it frees the channel.
        let sends: Vec<_> = (0..each).map(|_| channel.isend(m.next(), 1, vec![0u8; len])).collect();
        let posted = channel.irecv::<u8>(m.previous() as i32, 9, 1);
        m.barrier();
        m.engine.free(&channel.world);
        assert_eq!(posted.wait(&channel).0, Err(crate::Fault::Freed));
        drop(sends);
        m.barrier();
    }
    let send = m.isend(m.next(), 1, vec![0u8; len]);
    for _ in 0..1000 {
        m.engine.progress();
    }
    m.barrier();
    assert!(send.has_ended(), "the credit for an eager message is available again");
    m.recv::<u8>(m.previous() as i32, 1, len);
}

/// The message arrives before or after its receiver frees the channel.
pub(super) fn refused_synchronous_send_fails(m: &Member) {
    for is_early in [true, false] {
        let channel = m.join_also(3000 + u64::from(is_early), everybody(m), m.rank);
        if m.rank > 0 {
            if is_early {
                m.barrier();
            }
            m.engine.free(&channel.world);
            if !is_early {
                m.barrier();
            }
        } else {
            if !is_early {
                m.barrier();
            }
            let send =
                |to| [channel.issend(to, 1, vec![7; 3]), channel.isend(to, 2, vec![7u8; m.rendezvous_len()])];
            let sends: Vec<_> = m.others().map(|to| (to, send(to))).collect();
            if is_early {
                m.barrier();
            }
            for (rank, sends) in sends {
                for send in sends {
                    assert_eq!(send.wait(&channel), Err(crate::Fault::Refused { rank }));
                }
            }
        }
        m.barrier();
    }
}
