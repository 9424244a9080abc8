//! The order of messages: if two messages of one sender match a receive, it gets the one that was sent first.

use super::owned::bytes;
use super::{Member, Receiving};
use crate::{ANY_SOURCE, ANY_TAG, Fault, Started};

/// Returns the length in bytes of message `i`. Most are short; some are at or above the eager limit.
fn length(m: &Member, i: u64) -> usize {
    let limits = m.protocol_limits();
    match i % 97 {
        13 => limits[0],
        31 => limits[0] + 1,
        64 => m.rendezvous_len(),
        _ => (i * 7919 % 130) as usize,
    }
}

fn seed(from: u32, to: u32, i: u64) -> u64 {
    u64::from(from) << 40 | u64::from(to) << 32 | i
}

pub(super) fn messages_of_each_pair_arrive_in_order(m: &Member) {
    const MESSAGES: u64 = 500;
    let mut sends = Vec::new();
    for i in 0..MESSAGES {
        for to in m.others() {
            sends.push(m.isend(to, 7, bytes(seed(m.rank, to, i), length(m, i))));
        }
    }
    for i in 0..MESSAGES {
        for from in m.others() {
            let (envelope, got) = m.recv::<u8>(from as i32, 7, m.rendezvous_len());
            assert_eq!((envelope.source, envelope.tag, envelope.bytes), (from, 7, length(m, i)));
            assert!(got == bytes(seed(from, m.rank, i), length(m, i)), "message {i} from {from}");
        }
    }
    sends.into_iter().for_each(|send| assert!(send.wait(m).is_ok()));
}

/// All other ranks send numbered messages to rank 0, which receives them by `pattern` and checks each sender's order.
fn funnel(m: &Member, pattern: impl Fn(u64) -> (i32, i32), tag: impl Fn(u64) -> i32) {
    const MESSAGES: u64 = 400;
    if m.rank > 0 {
        let sends: Vec<_> =
            (0..MESSAGES).map(|i| m.isend(0, tag(i), vec![i; 1 + length(m, i) / 8])).collect();
        return sends.into_iter().for_each(|send| assert!(send.wait(m).is_ok()));
    }
    let mut next = vec![0u64; m.size as usize];
    for i in 0..MESSAGES * u64::from(m.size - 1) {
        let (source, wanted) = pattern(i);
        let (envelope, got) = m.recv::<u64>(source, wanted, m.rendezvous_len());
        let next = &mut next[envelope.source as usize];
        assert_eq!(got.first(), Some(&*next), "the order of messages from {}", envelope.source);
        assert_eq!(envelope.tag, tag(*next));
        assert_eq!(got, vec![*next; 1 + length(m, *next) / 8]);
        *next += 1;
    }
    assert_eq!(&next[1..], vec![MESSAGES; m.size as usize - 1]);
}

pub(super) fn any_source_keeps_each_senders_order(m: &Member) {
    funnel(m, |_| (ANY_SOURCE, 5), |_| 5);
}

pub(super) fn any_tag_keeps_the_order(m: &Member) {
    let senders = u64::from(m.size - 1);
    funnel(m, |i| ((1 + i % senders) as i32, ANY_TAG), |i| (i * 31 % 17) as i32);
}

pub(super) fn any_source_and_tag_keep_the_order(m: &Member) {
    funnel(m, |_| (ANY_SOURCE, ANY_TAG), |i| (i * 31 % 17) as i32);
}

/// If several receives match a message, the first one posted gets it, whatever wildcards it has.
pub(super) fn receives_match_in_posting_order(m: &Member) {
    let from = m.previous() as i32;
    let patterns = [
        (ANY_SOURCE, 1),
        (from, 1),
        (from, ANY_TAG),
        (from, 2),
        (ANY_SOURCE, ANY_TAG),
        (from, 1),
        (ANY_SOURCE, 2),
    ];
    let receives: Vec<_> = patterns.iter().map(|(source, tag)| m.irecv::<u64>(*source, *tag, 1)).collect();
    m.barrier();
    for (i, tag) in [1, 2, 1, 2, 1, 2, 1].into_iter().enumerate() {
        m.send(m.next(), tag, &[i as u64]);
    }
    let expected = [0, 2, 1, 3, 4, 6, 5];
    for (receive, message) in receives.into_iter().zip(expected) {
        assert_eq!(m.received(receive).1, [message]);
    }
}

fn cancel(m: &Member, receive: Receiving<i32>) {
    let Ok(Started::Pending(completion)) = &receive.started else { panic!("the receive has matched") };
    assert!(m.engine.cancel_receive(&m.world, completion));
    assert_eq!(receive.wait(m).0, Err(Fault::Cancelled));
}

/// Receives match in posting order in a long queue that has wildcards and cancelled receives.
pub(super) fn long_queue_of_receives_matches_in_order(m: &Member) {
    const MESSAGES: i32 = 1000;
    let from = m.previous() as i32;
    let mut posted = Vec::new();
    for tag in (0..MESSAGES).rev() {
        let (source, wanted) = match tag % 10 {
            3 => (ANY_SOURCE, tag),
            6 if tag > MESSAGES / 2 => (from, ANY_TAG),
            9 if tag > MESSAGES / 2 => (ANY_SOURCE, ANY_TAG),
            _ => (from, tag),
        };
        posted.push((wanted, m.irecv::<i32>(source, wanted, 1)));
        if tag % 4 == 0 {
            cancel(m, m.irecv::<i32>(source, wanted, 1));
        }
    }
    m.barrier();
    let sends: Vec<_> = (0..MESSAGES).map(|tag| m.isend(m.next(), tag, vec![tag])).collect();
    // Each message matches the first remaining receive that accepts it.
    let mut unmatched = Vec::new();
    for tag in 0..MESSAGES {
        match posted.iter().position(|(wanted, _)| [tag, ANY_TAG].contains(wanted)) {
            Some(at) => assert_eq!(m.received(posted.remove(at).1).1, [tag]),
            None => unmatched.push(tag),
        }
    }
    assert_eq!(unmatched.len(), posted.len(), "some receives of one tag have no message left");
    posted.into_iter().for_each(|(_, receive)| cancel(m, receive));
    // A rank that closed earlier would fail pending receives of other ranks before those are cancelled.
    m.barrier();
    for tag in unmatched.into_iter().rev() {
        assert_eq!(m.recv::<i32>(from, tag, 1).1, [tag]);
    }
    sends.into_iter().for_each(|send| assert!(send.wait(m).is_ok()));
}

pub(super) fn receives_complete_in_any_wait_order(m: &Member) {
    for len in [8, m.protocol_limits()[0], m.rendezvous_len()] {
        let receives: Vec<_> = (0..20).map(|_| m.irecv::<u8>(m.previous() as i32, 3, len)).collect();
        let sends: Vec<_> = (0..20).map(|i| m.isend(m.next(), 3, bytes(i + 1, len))).collect();
        for (i, receive) in receives.into_iter().enumerate().rev() {
            assert!(m.received(receive).1 == bytes(i as u64 + 1, len));
        }
        sends.into_iter().rev().for_each(|send| assert!(send.wait(m).is_ok()));
    }
}
