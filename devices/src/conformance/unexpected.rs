//! Unexpected messages, probes, and cancelled receives.

use super::Member;
use super::owned::bytes;
use crate::{ANY_SOURCE, ANY_TAG, Fault, Pattern, Receive, Started};

pub(super) fn ten_thousand_unexpected_messages_keep_their_order(m: &Member) {
    const MESSAGES: u64 = 10_000;
    let sends: Vec<_> = (0..MESSAGES).map(|i| m.isend(m.next(), 1, vec![i; i as usize % 9])).collect();
    m.barrier();
    for i in 0..MESSAGES {
        assert_eq!(m.recv::<u64>(m.previous() as i32, 1, 9).1, vec![i; i as usize % 9]);
    }
    sends.into_iter().for_each(|send| assert!(send.wait(m).is_ok()));
}

pub(super) fn unexpected_messages_are_found_by_tag(m: &Member) {
    const MESSAGES: i32 = 2000;
    let sends: Vec<_> = (0..MESSAGES).map(|i| m.isend(m.next(), i, vec![i; i as usize % 40])).collect();
    m.barrier();
    for i in (0..MESSAGES).rev() {
        assert_eq!(m.recv::<i32>(m.previous() as i32, i, 40).1, vec![i; i as usize % 40]);
    }
    sends.into_iter().for_each(|send| assert!(send.wait(m).is_ok()));
}

/// A probe returns the envelope of the message that a receive would match, and leaves the message in the queue.
pub(super) fn probe_reports_the_next_message(m: &Member) {
    let (world, from) = (&m.world, m.previous());
    let any = Pattern { source: ANY_SOURCE, tag: ANY_TAG };
    assert_eq!(m.engine.iprobe(world, any), Ok(None));
    m.barrier();
    for (i, len) in [0, 1, 49, m.protocol_limits()[0], m.rendezvous_len()].into_iter().enumerate() {
        let tag = i as i32;
        let send = m.isend(m.next(), tag, bytes(u64::from(m.rank) + 1, len));
        let exact = Pattern { source: from as i32, tag };
        let envelope = m.engine.probe(world, exact).unwrap();
        assert_eq!((envelope.source, envelope.tag, envelope.bytes), (from, tag, len));
        assert_eq!(m.engine.probe(world, any).unwrap(), envelope, "a probe leaves the message in the queue");
        assert_eq!(m.engine.iprobe(world, exact), Ok(Some(envelope)));
        assert_eq!(m.engine.iprobe(world, Pattern { source: from as i32, tag: tag + 1 }), Ok(None));
        let (received, got) = m.recv::<u8>(from as i32, ANY_TAG, len);
        assert_eq!(received, envelope);
        assert!(got == bytes(u64::from(from) + 1, len));
        send.wait(m).unwrap();
        assert_eq!(m.engine.iprobe(world, exact), Ok(None));
        m.barrier();
    }
}

pub(super) fn mprobe_removes_the_message(m: &Member) {
    let from = m.previous();
    let any = Pattern { source: ANY_SOURCE, tag: ANY_TAG };
    for len in [0, 8, 1000, m.rendezvous_len()] {
        let sends = [1u64, 2].map(|seed| m.issend(m.next(), 5, bytes(seed, len)));
        let first = m.engine.mprobe(&m.world, any, "mprobe").unwrap();
        assert_eq!((first.envelope().source, first.envelope().bytes), (from, len));
        let second = loop {
            if let Some(message) = m.engine.improbe(&m.world, any).unwrap() {
                break message;
            }
        };
        assert_eq!(m.engine.iprobe(&m.world, any), Ok(None), "both messages are removed");
        for (message, seed) in [(second, 2), (first, 1)] {
            let memory = vec![0u8; len];
            let layout = super::owned::Layout::all(&memory);
            let receive = super::Receiving::start(memory, layout, |target| {
                message.recv(Receive::new(target)).started()
            });
            assert!(m.received(receive).1 == bytes(seed, len), "{len} bytes");
        }
        sends.into_iter().for_each(|send| assert!(send.wait(m).is_ok()));
        m.barrier();
    }
}

/// A cancelled receive gets no message, and its memory is unchanged. Messages match the remaining receives.
pub(super) fn cancel_removes_an_unmatched_receive(m: &Member) {
    let from = m.previous() as i32;
    let receives: Vec<_> = [(from, 1), (ANY_SOURCE, 1), (from, ANY_TAG), (from, 1)]
        .map(|(source, tag)| m.irecv::<u64>(source, tag, 1))
        .into();
    let completion = |at: usize| match &receives[at].started {
        Ok(Started::Pending(completion)) => completion,
        other => panic!("a receive without a message: {other:?}"),
    };
    for at in [0, 2] {
        let completion = completion(at);
        assert!(m.engine.cancel_receive(&m.world, completion));
        assert!(!m.engine.cancel_receive(&m.world, completion), "cancelled twice");
    }
    m.barrier();
    m.send(m.next(), 1, &[11u64]);
    m.send(m.next(), 1, &[12u64]);
    let late = completion(3);
    m.engine.wait_until(|| late.outcome().map(|_| ()));
    assert!(!m.engine.cancel_receive(&m.world, late), "cancelled after its completion");
    for (at, receive) in receives.into_iter().enumerate() {
        let (outcome, memory) = receive.wait(m);
        match at {
            0 | 2 => assert_eq!((outcome, memory), (Err(Fault::Cancelled), vec![0])),
            1 => assert_eq!((outcome.map(|e| e.bytes), memory), (Ok(8), vec![11])),
            _ => assert_eq!((outcome.map(|e| e.bytes), memory), (Ok(8), vec![12])),
        }
    }
}
