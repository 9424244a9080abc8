use mpj_datatypes::{Primitive, Signature};

use super::*;
use crate::buf::Buf;
use crate::completion::{Completion, pair};

const PEER: PeerId = PeerId(3);
const FREED: Fault = Fault::Freed;

fn receive(memory: &mut [u8]) -> (Ops, u64, Completion) {
    // SAFETY: the memory outlives the operation in every test.
    #[expect(unsafe_code, reason = "see above")]
    let target = unsafe { Target::new(Buf::new(memory.as_mut_ptr(), memory.len(), Primitive::U8), None) };
    let (completer, completion) = pair();
    let message = Envelope {
        source: 0,
        tag: 0,
        immediate: 0,
        code: Primitive::U8 as u8,
        signature: Signature::EMPTY,
        bytes: memory.len(),
    };
    let mut ops = Ops::default();
    let number = ops.insert(Op::RecvOp(RecvOp {
        peer: PEER,
        sender_op: 0,
        target: target.unwrap(),
        message,
        received: 0,
        completer,
        owner: BufferOwner::Engine,
        registration: None,
    }));
    (ops, number, completion)
}

#[test]
fn receive_fails_only_after_the_device_write() {
    let mut memory = [0; 100];
    let (mut ops, number, completion) = receive(&mut memory);
    assert!(ops.begin_device_write(number, PEER, 0, 60).is_some());
    assert!(ops.get(number, PEER).is_none() && ops.take(number, PEER).is_none());
    assert!(ops.begin_device_write(number, PEER, 0, 60).is_none(), "twice");
    assert!(ops.take_failed(|_| Some(FREED)).is_empty());
    assert!(ops.take_failed(|_| Some(Fault::Cancelled)).is_empty(), "the first fault stays");
    assert!(!ops.is_empty() && completion.outcome().is_none());
    let WriteDone::Failed(op, fault) = ops.end_device_write(number, PEER, Some(60)) else {
        panic!("expected `Failed`")
    };
    assert_eq!(fault, FREED);
    op.complete(Err(fault));
    assert!(ops.is_empty() && completion.outcome().is_some());
    assert!(matches!(ops.end_device_write(number, PEER, Some(0)), WriteDone::Pending), "it is removed");
}

#[test]
fn receive_continues_after_a_device_write() {
    let mut memory = [0; 100];
    let (mut ops, number, _completion) = receive(&mut memory);
    for (at, len) in [(1, 10), (0, 101), (0, usize::MAX), (usize::MAX, 1)] {
        assert!(ops.begin_device_write(number, PEER, at, len).is_none(), "{len} bytes at {at}");
    }
    assert!(ops.begin_device_write(number, PeerId(4), 0, 10).is_none(), "another peer's");
    assert!(ops.begin_device_write(number, PEER, 0, 60).is_some());
    assert!(matches!(ops.end_device_write(number, PeerId(4), Some(60)), WriteDone::Pending));
    assert!(ops.get(number, PEER).is_none(), "a device still owns it");
    assert!(matches!(ops.end_device_write(number, PEER, Some(60)), WriteDone::Pending));
    assert!(ops.begin_device_write(number, PEER, 60, 39).is_some());
    assert!(matches!(ops.end_device_write(number, PEER, Some(39)), WriteDone::Pending));
    assert!(ops.begin_device_write(number, PEER, 99, 1).is_some());
    assert!(matches!(ops.end_device_write(number, PEER, Some(1)), WriteDone::Complete(_)));
    assert!(ops.is_empty());
}

#[test]
fn device_owns_a_receive_until_its_last_write() {
    for (failing, fails) in [(None, false), (Some(1), false), (None, true), (Some(0), true)] {
        let mut memory = [0; 100];
        let (mut ops, number, _completion) = receive(&mut memory);
        assert!(ops.add_device_write(number, PEER, 0, 10).is_none(), "no device owns it yet");
        assert!(ops.begin_device_write(number, PEER, 0, 100).is_some());
        for at in [0, 40, 80] {
            let len = 40.min(100 - at);
            assert!(ops.add_device_write(number, PEER, at, len).is_some());
        }
        // The first write stood for the pieces that were still to be posted.
        assert!(matches!(ops.end_device_write(number, PEER, Some(0)), WriteDone::Pending));
        if fails {
            assert!(ops.take_failed(|_| Some(FREED)).is_empty());
        }
        for (i, len) in [20, 40].into_iter().enumerate() {
            let landed = (failing != Some(i)).then_some(len);
            assert!(matches!(ops.end_device_write(number, PEER, landed), WriteDone::Pending));
            assert!(ops.get(number, PEER).is_none(), "a device still owns it");
            if fails || failing == Some(i) {
                assert!(ops.add_device_write(number, PEER, 0, 1).is_none(), "no more writes");
            }
        }
        match ops.end_device_write(number, PEER, Some(40)) {
            WriteDone::Failed(_, fault) => assert!(fails && fault == FREED),
            WriteDone::Refetch { sender_op: 0 } => {
                assert!(!fails && failing.is_some() && ops.get(number, PEER).is_some())
            }
            WriteDone::Complete(recv) => assert!(!fails && failing.is_none() && recv.received == 100),
            WriteDone::Refetch { .. } | WriteDone::Pending => panic!("the last write has ended"),
        }
    }
}
