//! Frames that no honest peer sends, one by one.

use mpj_datatypes::{Datatype, Primitive};
use mpj_devices::{ANY_SOURCE, Fault, Mode, Pattern, Started};

use super::device::{EAGER_LIMIT, Gets, Step};
use super::fixture::{Fixture, WORLD};
use super::head_encoding::*;
use super::pending_ops::{PendingOps, frame, scene};

type Steps = Vec<Step>;

#[test]
fn sender_of_a_malformed_frame_is_reported_dead() {
    type Make = fn(&PendingOps) -> Steps;
    let cases: &[(&str, Make)] = &[
        ("no head", |_| vec![frame(vec![], 0)]),
        ("a short head", |_| vec![frame(vec![2; 7], 0)]),
        ("a head between short and long", |_| vec![frame(vec![2; 20], 0)]),
        ("a long head that is cut off", |_| vec![frame(vec![2; 41], 0)]),
        ("a head too long", |_| vec![frame(vec![2; 45], 0)]),
        ("a key too long", |_| vec![frame(rts(0, 1, 100), 129)]),
        ("a streamed key too long", |_| vec![Step::Begin(1, rts(0, 1, 100), 129)]),
        ("kind 0", |_| vec![frame(head(0, 1, 0, 1, [0; 4]), 0)]),
        ("the kind after the last", |_| vec![frame(head(10, 1, 0, 1, [0; 4]), 0)]),
        ("kind 255", |_| vec![frame(head(255, 1, 0, 1, [0; 4]), 0)]),
        ("a channel that is not bound", |_| vec![frame(eager(1), 8)]),
        ("the last channel", |_| vec![frame(eager(u16::MAX), 8)]),
        ("an RTS on a channel that is not bound", |_| vec![frame(rts(9, 1, 1), 8)]),
        ("the rank of another peer", |_| vec![frame(bind(3, WORLD, 2), 0), frame(eager(3), 8)]),
        ("the rank of the receiver", |_| vec![frame(bind(3, WORLD, 0), 0), frame(eager(3), 8)]),
        ("a rank beyond the group", |_| vec![frame(bind(3, WORLD, 4), 0), frame(eager(3), 8)]),
        ("an absurd rank", |_| vec![frame(bind(3, WORLD, u32::MAX), 0), frame(eager(3), 8)]),
        ("CTS for a synchronous send", |s| vec![frame(reply(CTS, 0, s.sync, 1), 0)]),
        ("CTS for a receive", |s| vec![frame(reply(CTS, 0, s.recv, 1), 0)]),
        ("FIN for a receive", |s| vec![frame(reply(FIN, 0, s.recv, 0), 0)]),
        ("NACK for a send", |s| vec![frame(nack(WORLD, s.send), 0)]),
        ("NACK for a synchronous send", |s| vec![frame(nack(WORLD, s.sync), 0)]),
        ("refusal of a receive", |s| vec![frame(refusal(WORLD, s.recv), 0)]),
        ("NACK of an unknown kind", |s| vec![frame(head(NACK, 0, 0, 0, [WORLD, 0, s.recv, 2]), 0)]),
        ("data for a send", |s| vec![frame(reply(DATA, 0, s.send, 0), 9)]),
        ("data for a synchronous send", |s| vec![frame(reply(DATA, 0, s.sync, 0), 9)]),
        ("data that skips", |s| vec![frame(reply(DATA, 0, s.recv, 1), 9)]),
        ("data far away", |s| vec![frame(reply(DATA, 0, s.recv, u64::MAX), 9)]),
        ("data that comes twice", |s| vec![frame(reply(DATA, 0, s.recv, 0), 9); 2]),
        ("data beyond the end", |s| vec![frame(reply(DATA, 0, s.recv, 0), 901)]),
        ("a streamed head of an unknown kind", |_| vec![Step::Begin(1, head(77, 0, 0, 0, [0; 4]), 9)]),
        ("a streamed body of a credit", |_| vec![Step::Begin(1, reply(CREDIT, 0, 0, 1), 9)]),
        ("a streamed body without end", |_| vec![Step::Begin(1, eager(0), usize::MAX)]),
        ("a streamed body of a terabyte", |_| vec![Step::Begin(1, eager(0), 1 << 40)]),
        ("streamed data that skips", |s| {
            vec![Step::Begin(1, reply(DATA, 0, s.recv, 3), 9), Step::Bytes(1, vec![1; 9]), Step::Landed(1)]
        }),
        ("streamed data beyond the end", |s| {
            let data = reply(DATA, 0, s.recv, 0);
            vec![Step::Begin(1, data, 2000), Step::Bytes(1, vec![1; 2000]), Step::Landed(1)]
        }),
        ("streamed data beyond all offsets, for an operation that has completed", |_| {
            let data = reply(DATA, 0, 1 << 40, u64::MAX);
            vec![Step::Begin(1, data, 9), Step::Bytes(1, vec![1; 9]), Step::Landed(1)]
        }),
        ("pieces after a body of an unknown kind", |_| {
            let begin = Step::Begin(1, head(77, 0, 0, 0, [0; 4]), 9);
            vec![begin, Step::Bytes(1, vec![1; 9]), Step::Landed(1)]
        }),
    ];
    for (what, make) in cases {
        let scene = scene();
        scene.fixture.play(make(&scene));
        scene.assert_offender_is_dead(what);
    }
}

#[test]
fn replies_to_completed_operations_are_ignored() {
    let scene = scene();
    let unknown = [0, 1, u64::MAX, 1 << 32 | 77, scene.sync + 1_000, scene.send ^ 1 << 63];
    for number in unknown {
        for kind in [CTS, DATA, FIN] {
            scene.fixture.play([frame(reply(kind, 0, number, 0), 9)]);
        }
        for context in [WORLD, 77] {
            scene.fixture.play([frame(nack(context, number), 0), frame(refusal(context, number), 0)]);
        }
    }
    assert_eq!(scene.fixture.death(), None);
    // The operation numbers of one peer are invalid for another.
    scene.fixture.play([Step::Frame(2, bind(0, WORLD, 2), vec![])]);
    for number in [scene.sync, scene.send, scene.recv] {
        for kind in [CTS, DATA, FIN] {
            scene.fixture.play([Step::Frame(2, reply(kind, 0, number, 0), vec![1; 9])]);
        }
    }
    assert_eq!(scene.fixture.death(), None);
    // The operations still work.
    let PendingOps { fixture, rendezvous, sync, send, recv, sends, .. } = scene;
    fixture.play([frame(reply(DATA, 0, recv, 0), 900), frame(reply(FIN, 0, sync, 0), 0)]);
    fixture.play([frame(reply(CTS, 0, send, 5), 0)]);
    let (outcome, memory) = rendezvous.finish().unwrap();
    assert_eq!((outcome.unwrap().bytes, &memory[..900]), (900, &[7u8; 900][..]));
    for send in sends {
        let Started::Pending(completion) = send else { panic!("pending") };
        assert!(completion.outcome().is_some_and(Result::is_ok));
    }
    let pieces = fixture.sent().into_iter().filter(|s| s.1[0] == DATA).map(|s| s.2.len()).sum::<usize>();
    assert_eq!(pieces, 20_000);
}

#[test]
fn excess_credit_grants_no_more_than_the_limit() {
    let fixture = Fixture::new();
    fixture.play([frame(bind(0, WORLD, 1), 0)]);
    for _ in 0..3 {
        fixture.play([frame(reply(CREDIT, 0, 0, u64::MAX), 0)]);
    }
    let sends: Vec<_> =
        (0..3000).map(|_| fixture.send(1, vec![0; EAGER_LIMIT], Mode::Standard).unwrap()).collect();
    let eager: usize = fixture.sent().iter().map(|sent| sent.2.len()).sum();
    assert!(eager <= 8 << 20, "{eager} bytes were sent eagerly");
    assert!(sends.iter().any(|send| matches!(send, Started::Pending(_))));
    assert_eq!(fixture.death(), None);
}

#[test]
fn absurd_rendezvous_length_fails_only_its_receive() {
    for get in [false, true] {
        let fixture = Fixture::with(if get { Gets::Fail } else { Gets::None });
        let posted = fixture.post_bytes(ANY_SOURCE, 100);
        fixture.play([frame(bind(0, WORLD, 1), 0), frame(rts(0, 9, u64::MAX), 8)]);
        let (outcome, memory) = posted.finish().unwrap();
        assert_eq!(
            outcome,
            Err(Fault::Truncated { source: 1, tag: 1, immediate: 0, sent: usize::MAX, room: 100 })
        );
        assert_eq!(memory, [0xaa; 100]);
        fixture.play([frame(rts(0, 9, u64::MAX), 8), frame(rts(0, 10, 60), 8)]);
        let any = Pattern { source: ANY_SOURCE, tag: 1 };
        assert_eq!(fixture.engine.probe(&fixture.world, any).unwrap().bytes, usize::MAX);
        let (outcome, _) = fixture.post_bytes(1, 100).finish().unwrap();
        assert!(matches!(outcome, Err(Fault::Truncated { .. })));
        // The receiver requests the body in frames: it has no get, or the get fails because the memory was revoked.
        let posted = fixture.post_bytes(1, 100);
        let (op, mine) = fixture.take_ops(1, CTS)[0];
        assert_eq!(op, 10);
        fixture.play([frame(reply(DATA, 0, mine, 0), 60)]);
        assert_eq!(posted.finish().unwrap().0.unwrap().bytes, 60);
        fixture.assert_others_communicate();
    }
}

#[test]
fn invalid_types_match_no_receive() {
    let real = || Datatype::primitive(Primitive::F64);
    let pair = Datatype::structure(&[(1, 0, Datatype::of::<i32>()), (1, 8, Datatype::of::<f64>())]).unwrap();
    for (code, words) in [
        (99, [0; 4]),
        (255, [1, 1, 0, 0]),
        (0, [0; 4]),
        (0, [u64::MAX; 4]),
        (0, [0, u64::MAX, 0, 0]),
        (0, [0, 1, 0, 0]),
        (Primitive::F64 as u8, [0; 4]),
    ] {
        for shape in [real(), pair.clone(), Datatype::primitive(Primitive::Bool)] {
            let fixture = Fixture::new();
            let posted = fixture.post(&fixture.world, Pattern { source: 1, tag: 1 }, shape, 16 * 16, 16);
            fixture.play([frame(bind(0, WORLD, 1), 0), frame(head(2, code, 0, 1, words), 13)]);
            let (outcome, memory) = posted.finish().unwrap();
            assert!(matches!(outcome, Err(Fault::TypeMismatch { .. })), "code {code}: {outcome:?}");
            assert!(memory.iter().all(|byte| *byte == 0xaa));
        }
    }
}

#[test]
fn forged_rank_is_reported_after_the_join() {
    let fixture = Fixture::new();
    fixture.play([frame(bind(5, 70, 2), 0), frame(eager(5), 8), frame(rts(5, 1, 50_000), 8)]);
    fixture.play([Step::Frame(2, bind(6, 70, 2), vec![]), Step::Frame(2, eager(6), b"mine".to_vec())]);
    let late = fixture.engine.join(70, [0, 1, 2].into_iter().collect(), 0).unwrap();
    let posted = fixture.post(&late, Pattern { source: 2, tag: 1 }, Datatype::primitive(BYTES), 100, 100);
    let (outcome, memory) = posted.finish().unwrap();
    assert_eq!((outcome.map(|e| e.bytes), &memory[..4]), (Ok(4), &b"mine"[..]));
    assert_eq!(fixture.death(), Some(1));
    fixture.assert_others_communicate();
}

/// The queued frame of a synchronous message refers to the sender's memory. A peer that replies before the frame is
/// sent cannot have received it, and must not make the sender release that memory.
#[test]
fn premature_reply_does_not_free_a_queued_synchronous_send() {
    let op = 1 << 32;
    for answered in [reply(FIN, 0, op, 0), refusal(WORLD, op)] {
        let fixture = Fixture::new();
        fixture.play((1..4).map(|rank| Step::Frame(rank, bind(0, WORLD, rank), vec![])));
        fixture.stop_endpoints(true);
        let Started::Pending(send) = fixture.send(1, vec![7; 100], Mode::Synchronous).unwrap() else {
            panic!("a queued synchronous send is complete");
        };
        fixture.play([Step::Frame(1, answered, vec![])]);
        assert!(matches!(send.outcome(), Some(Err(Fault::Dead { rank: 1, .. }))), "{send:?}");
        fixture.stop_endpoints(false);
        fixture.play([]);
        assert_eq!(fixture.take_ops(1, EAGER_SYNC), [], "sent from memory that was given back");
        fixture.assert_others_communicate();
    }
}
