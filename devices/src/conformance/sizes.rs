//! Messages of critical lengths, with content that depends on the rank and the length.

use std::sync::Arc;

use mpj_pool::RawBuffer;

use super::Member;
use super::owned::bytes;
use crate::matching::Pattern;
use crate::message::{BlockSlot, Target};

/// Returns lengths in bytes below, at and above the limits of the devices, and others from 0 to 8 MiB.
pub(super) fn lengths(m: &Member) -> Vec<usize> {
    let mut lengths = vec![0, 1, 7, 8, 47, 48, 49, 55, 56, 57, 64, 1000, 4096, 64 << 10, 1 << 20, 8 << 20];
    for limit in m.protocol_limits() {
        lengths.extend([limit - 1, limit, limit + 1, 2 * limit - 1, 2 * limit + 1]);
    }
    lengths.sort_unstable();
    lengths.dedup();
    lengths
}

fn seed(rank: u32, len: usize) -> u64 {
    u64::from(rank + 1) << 32 | len as u64
}

pub(super) fn expected_messages_of_every_size_arrive(m: &Member) {
    for (i, len) in lengths(m).into_iter().enumerate() {
        let receive = m.irecv::<u8>(m.previous() as i32, i as i32, len + 3);
        m.barrier();
        m.send(m.next(), i as i32, &bytes(seed(m.rank, len), len));
        let (envelope, got) = m.received(receive);
        assert_eq!((envelope.source, envelope.tag, envelope.bytes), (m.previous(), i as i32, len));
        assert!(got == bytes(seed(m.previous(), len), len), "{len} bytes");
    }
}

pub(super) fn unexpected_messages_of_every_size_arrive(m: &Member) {
    for (i, len) in lengths(m).into_iter().enumerate() {
        let send = m.isend(m.next(), i as i32, bytes(seed(m.rank, len), len));
        m.barrier();
        let (envelope, got) = m.recv::<u8>(m.previous() as i32, i as i32, len);
        assert_eq!(envelope.bytes, len);
        assert!(got == bytes(seed(m.previous(), len), len), "{len} bytes");
        send.wait(m).unwrap();
    }
}

/// Half of the receives are posted before their message arrives. Each gets a block for its message unless it is empty.
pub(super) fn messages_of_unknown_length_arrive(m: &Member) {
    for (i, len) in lengths(m).into_iter().enumerate() {
        let pattern = Pattern { source: m.previous() as i32, tag: i as i32 };
        let slot = Arc::<BlockSlot>::default();
        let post = |slot| m.engine.recv(&m.world, pattern, Target::of_any_length(slot)).unwrap();
        let send = || m.isend(m.next(), i as i32, bytes(seed(m.rank, len), len));
        let (send, receive) = if i % 2 == 0 {
            let receive = post(Arc::clone(&slot));
            m.barrier();
            (send(), receive)
        } else {
            let send = send();
            m.barrier();
            (send, post(Arc::clone(&slot)))
        };
        let envelope = m.engine.wait(receive).unwrap();
        assert_eq!((envelope.source, envelope.bytes), (m.previous(), len));
        let block = Arc::into_inner(slot).expect("the operation has dropped its reference").into_block();
        assert_eq!(block.is_some(), len > 0);
        if let Some(block) = block {
            // SAFETY: the receive has written the message to the block.
            #[expect(unsafe_code, reason = "see above")]
            let got = unsafe { block.as_uninit()[..len].assume_init_ref() };
            assert!(got == bytes(seed(m.previous(), len), len), "{len} bytes");
        }
        send.wait(m).unwrap();
    }
}

pub(super) fn synchronous_messages_of_every_size_arrive(m: &Member) {
    for (i, len) in lengths(m).into_iter().enumerate() {
        let send = m.issend(m.next(), i as i32, bytes(seed(m.rank, len), len));
        let (_, got) = m.recv::<u8>(m.previous() as i32, i as i32, len);
        assert!(got == bytes(seed(m.previous(), len), len), "{len} bytes");
        send.wait(m).unwrap();
    }
}

/// Empty messages of both modes match receives of another type. An empty message to the rank itself also arrives.
pub(super) fn empty_messages_match_receives_of_other_types(m: &Member) {
    for to in m.others() {
        m.send::<u8>(to, 1, &[]);
        m.send::<f64>(to, 2, &[]);
    }
    let sends: Vec<_> = m.others().map(|to| m.issend::<u8>(to, 3, Vec::new())).collect();
    for from in m.others() {
        for tag in [3, 2, 1] {
            let (envelope, got) = m.recv::<i32>(from as i32, tag, 4);
            assert_eq!((envelope.source, envelope.tag, envelope.bytes, got.len()), (from, tag, 0, 0));
        }
    }
    sends.into_iter().for_each(|send| assert!(send.wait(m).is_ok()));
    let send = m.isend::<u8>(m.rank, 4, Vec::new());
    assert_eq!(m.recv::<u8>(m.rank as i32, 4, 0).0.bytes, 0);
    send.wait(m).unwrap();
}

pub(super) fn messages_of_every_size_to_self_arrive(m: &Member) {
    let me = m.rank as i32;
    for (i, len) in lengths(m).into_iter().enumerate() {
        let (tag, data) = (i as i32, bytes(seed(m.rank, len), len));
        m.send(m.rank, tag, &data);
        assert!(m.recv::<u8>(me, tag, len).1 == data, "{len} bytes, standard, unexpected");
        let send = m.issend(m.rank, tag, data.clone());
        m.engine.progress();
        assert!(!send.has_ended(), "synchronous before its match");
        assert!(m.recv::<u8>(me, tag, len).1 == data, "{len} bytes, synchronous, unexpected");
        send.wait(m).unwrap();
        let receives = [m.irecv::<u8>(me, tag, len), m.irecv::<u8>(me, tag, len)];
        m.send(m.rank, tag, &data);
        m.issend(m.rank, tag, data.clone()).wait(m).unwrap();
        for receive in receives {
            assert!(m.received(receive).1 == data, "{len} bytes, expected");
        }
    }
}

pub(super) fn long_sends_before_receives_do_not_deadlock(m: &Member) {
    for len in [m.rendezvous_len(), 1 << 20] {
        let sends: Vec<_> = m
            .others()
            .flat_map(|to| [(to, 0), (to, 1)])
            .map(|(to, tag)| m.isend(to, tag, bytes(seed(m.rank, len + to as usize), len)))
            .collect();
        for from in m.others() {
            for tag in [1, 0] {
                let (_, got) = m.recv::<u8>(from as i32, tag, len);
                assert!(got == bytes(seed(from, len + m.rank as usize), len), "{len} bytes from {from}");
            }
        }
        sends.into_iter().for_each(|send| assert!(send.wait(m).is_ok()));
    }
}
