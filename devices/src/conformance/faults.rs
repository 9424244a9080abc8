//! Faults that fail one receive while its sender succeeds and the next message arrives. Also packed messages and
//! synchronous sends.

use mpj_datatypes::{Datatype, Primitive};

use super::Member;
use super::owned::{Layout, bytes};
use crate::{Content, Fault, Mode};

/// Sends a message that its receive must reject, and then one that fits: in both modes, expected and unexpected.
fn assert_rejected(m: &Member, to: u32, len: usize, room: Layout, check: impl Fn(Fault)) {
    let from = if to == m.rank { m.rank } else { m.previous() };
    let post = || m.post(from as i32, 1, vec![0xaau8; 2 * len + 16], room.clone());
    for mode in [Mode::Standard, Mode::Synchronous] {
        for expected in [true, false] {
            let posted = expected.then(post);
            m.barrier();
            let data = bytes(9, len);
            let layout = Layout::all(&data);
            let bad = m.start(to, 1, data, layout, mode).unwrap();
            let good = m.isend(to, 1, bytes(10, len));
            m.barrier();
            let (outcome, memory) = posted.unwrap_or_else(post).wait(m);
            check(outcome.expect_err("the receive must reject the message"));
            assert!(memory.iter().all(|byte| *byte == 0xaa), "the target was written");
            assert!(m.recv::<u8>(from as i32, 1, len).1 == bytes(10, len), "the next message");
            bad.wait(m).unwrap();
            good.wait(m).unwrap();
        }
    }
}

fn assert_truncation(m: &Member, to: u32) {
    let source = if to == m.rank { m.rank } else { m.previous() };
    for (len, room) in [
        (1, 0),
        (48, 47),
        (1000, 999),
        (m.protocol_limits()[0], 8),
        (m.rendezvous_len(), m.rendezvous_len() - 1),
    ] {
        let short = Layout::all(&vec![0u8; room]);
        assert_rejected(m, to, len, short, |fault| {
            assert_eq!(fault, Fault::Truncated { source, tag: 1, immediate: 0, sent: len, room });
        });
    }
}

fn assert_type_mismatch(m: &Member, to: u32) {
    let source = if to == m.rank { m.rank } else { m.previous() };
    for len in [8, 48, 1000, m.protocol_limits()[0] / 8 * 8, m.rendezvous_len() / 8 * 8] {
        let real = Layout::typed(len / 8, &Datatype::of::<f64>());
        let (sent, expected) =
            (Content::Uniform(Primitive::U8, len), Content::Uniform(Primitive::F64, len / 8));
        assert_rejected(m, to, len, real, |fault| {
            assert_eq!(fault, Fault::TypeMismatch { source, tag: 1, immediate: 0, sent, expected });
        });
        let signed = Datatype::of::<i8>().vector(len, 1, 2).unwrap();
        assert_rejected(m, to, len, Layout::typed(1, &signed), |fault| {
            assert!(matches!(fault, Fault::TypeMismatch { .. }), "{fault:?}");
        });
    }
}

pub(super) fn truncation_fails_only_its_receive(m: &Member) {
    assert_truncation(m, m.next());
}

pub(super) fn type_mismatch_fails_only_its_receive(m: &Member) {
    assert_type_mismatch(m, m.next());
}

pub(super) fn faults_to_self_fail_only_their_receive(m: &Member) {
    assert_truncation(m, m.rank);
    assert_type_mismatch(m, m.rank);
}

pub(super) fn invalid_bool_and_char_are_rejected(m: &Member) {
    let (to, from) = (m.next(), m.previous());
    let invalid = |tag| Err(Fault::InvalidValue { source: from, tag, immediate: 0 });
    for many in [1, m.rendezvous_len()] {
        let flags: Vec<bool> = [true, false, true].repeat(many);
        let chars: Vec<char> = ['a', '\0', '😀'].repeat(many);
        let sends = (m.isend(to, 1, flags.clone()), m.isend(to, 2, chars.clone()));
        let invalid_flags: Vec<u8> = [0u8, 1, 2].repeat(many);
        let invalid_chars: Vec<u32> = [65u32, 0x11_0000, 0xd800].repeat(many);
        let bad = (
            m.start(to, 3, invalid_flags, Layout::packed(3 * many), Mode::Standard).unwrap(),
            m.start(to, 4, invalid_chars, Layout::packed(12 * many), Mode::Standard).unwrap(),
        );
        let (outcome, got) = m.irecv::<char>(from as i32, 4, 3 * many).wait(m);
        assert_eq!(outcome, invalid(4));
        assert!(got == ['A', '\0', '\0'].repeat(many));
        let (outcome, got) = m.irecv::<bool>(from as i32, 3, 3 * many).wait(m);
        assert_eq!(outcome, invalid(3));
        assert!(got == [false, true, false].repeat(many));
        assert!(m.recv::<char>(from as i32, 2, 3 * many).1 == chars);
        assert!(m.recv::<bool>(from as i32, 1, 3 * many).1 == flags);
        sends.0.wait(m).unwrap();
        sends.1.wait(m).unwrap();
        bad.0.wait(m).unwrap();
        bad.1.wait(m).unwrap();
    }
}

pub(super) fn packed_matches_every_type(m: &Member) {
    let (to, from) = (m.next(), m.previous() as i32);
    for len in [1, 100, m.rendezvous_len()] {
        let data: Vec<u64> = (0..len as u64).map(|i| i << 32 | 7).collect();
        let sends = [
            m.start(to, 1, data.clone(), Layout::packed(8 * len), Mode::Standard).unwrap(),
            m.isend(to, 2, data.clone()),
        ];
        assert!(m.recv::<u64>(from, 1, len).1 == data);
        assert!(m.recv_into(from, 2, vec![0u64; len], Layout::packed(8 * len)) == data);
        sends.into_iter().for_each(|send| assert!(send.wait(m).is_ok()));
    }
}

pub(super) fn synchronous_send_waits_for_the_match(m: &Member) {
    for len in [0, 8, 1000, m.protocol_limits()[0], m.rendezvous_len()] {
        let send = m.issend(m.next(), 1, bytes(5, len));
        m.barrier();
        for _ in 0..100 {
            m.engine.progress();
        }
        m.barrier();
        assert!(!send.has_ended(), "{len} bytes are not received yet");
        m.barrier();
        assert!(m.recv::<u8>(m.previous() as i32, 1, len).1 == bytes(5, len));
        send.wait(m).unwrap();
    }
}
