//! A device that delivers bodies piece by piece, as sockets do: `begin`, `piece`, `landed`, `peer_lost`.

use mpj_datatypes::Datatype;
use mpj_devices::{ANY_SOURCE, Fault, Mode, Pattern};

use super::device::{EAGER_LIMIT, FRAGMENT, Step};
use super::fixture::{Fixture, WORLD, report_death};
use super::head_encoding::*;

fn fixture() -> Fixture {
    let fixture = Fixture::new();
    fixture.play((1..4).map(|rank| Step::Frame(rank, bind(0, WORLD, rank), vec![])));
    fixture
}

fn data(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 % 251) as u8).collect()
}

fn pieces(from: u32, body: &[u8]) -> Vec<Step> {
    body.chunks(97).map(|chunk| Step::Bytes(from, chunk.to_vec())).collect()
}

fn streamed(from: u32, head: Vec<u8>, body: &[u8]) -> Vec<Step> {
    let mut steps = vec![Step::Begin(from, head, body.len())];
    steps.extend(pieces(from, body));
    steps.push(Step::Landed(from));
    steps
}

#[test]
fn expected_messages_go_into_their_receive_buffer() {
    let fixture = fixture();
    for len in [0, 1, 100, EAGER_LIMIT] {
        let posted = fixture.post_bytes(1, len + 3);
        fixture.play(streamed(1, eager(0), &data(len)));
        let (outcome, memory) = posted.finish().unwrap();
        assert_eq!((outcome.unwrap().bytes, &memory[..len]), (len, &data(len)[..]));
        assert_eq!(memory[len..], [0xaa; 3]);
    }
}

#[test]
fn unexpected_messages_wait_for_their_receive() {
    let fixture = fixture();
    for len in [0, 1, 100, EAGER_LIMIT] {
        fixture.play(streamed(1, eager(0), &data(len)));
        let any = Pattern { source: ANY_SOURCE, tag: 1 };
        assert_eq!(fixture.engine.probe(&fixture.world, any).unwrap().bytes, len);
        let (outcome, memory) = fixture.post_bytes(1, len).finish().unwrap();
        assert_eq!((outcome.unwrap().bytes, memory), (len, data(len)));
    }
}

#[test]
fn receive_posted_during_the_body_gets_it() {
    let fixture = fixture();
    fixture.play([Step::Begin(1, eager_sync(0, 33), 500)]);
    fixture.play(pieces(1, &data(500)));
    let posted = fixture.post_bytes(1, 600);
    let next = fixture.post_bytes(1, 600);
    assert_eq!(fixture.take_ops(1, FIN), [], "not matched yet");
    fixture.play([Step::Landed(1)]);
    let (outcome, memory) = posted.finish().unwrap();
    assert_eq!((outcome.unwrap().bytes, &memory[..500]), (500, &data(500)[..]));
    assert_eq!(fixture.take_ops(1, FIN), [(33, 0)], "FIN after the match");
    assert_eq!(fixture.engine.stats().local.unexpected.bytes, 500, "copied out of its block");
    fixture.play(streamed(1, eager(0), &data(3)));
    assert_eq!(next.finish().unwrap().0.unwrap().bytes, 3);
}

#[test]
fn strided_memory_is_filled_piece_by_piece() {
    let fixture = fixture();
    let strided = Datatype::of::<[u8; 3]>().vector(200, 1, 2).unwrap();
    let pattern = Pattern { source: 1, tag: 1 };
    let posted = fixture.post(&fixture.world, pattern, strided, 199 * 6 + 3, 1);
    let code = mpj_datatypes::Primitive::U8 as u8;
    fixture.play(streamed(1, head(2, code, 0, 1, [0; 4]), &data(600)));
    let (outcome, memory) = posted.finish().unwrap();
    assert_eq!(outcome.unwrap().bytes, 600);
    for (i, item) in data(600).chunks(3).enumerate() {
        assert_eq!(&memory[6 * i..6 * i + 3], item);
    }
    assert!((0..199).all(|i| memory[6 * i + 3..6 * i + 6] == [0xaa; 3]));
}

/// A body counts as copied once, whether the device writes it to its destination or delivers it in pieces.
#[test]
fn streamed_bodies_count_as_copied() {
    let fixture = fixture();
    let copied = || fixture.engine.stats().devices[0].1.copied;
    let mut before = copied();
    let mut assert_copied = |bytes: u64, what: &str| {
        let now = copied();
        assert_eq!(now.bytes - before.bytes, bytes, "{what}");
        assert!(now.number > before.number, "{what}");
        before = now;
    };
    let posted = fixture.post_bytes(1, 200);
    fixture.play(streamed(1, eager(0), &data(200)));
    assert_copied(200, "to its place");
    fixture.play(streamed(1, eager(0), &data(300)));
    assert_copied(300, "to a block");
    let strided = Datatype::of::<u8>().vector(100, 1, 2).unwrap();
    let pattern = Pattern { source: 2, tag: 1 };
    let gathered = fixture.post(&fixture.world, pattern, strided, 199, 1);
    let code = mpj_datatypes::Primitive::U8 as u8;
    fixture.play(streamed(2, head(2, code, 0, 1, [0; 4]), &data(100)));
    assert_copied(100, "in pieces");
    let announced = fixture.post_bytes(3, 30_000);
    fixture.play([Step::Frame(3, rts(0, 5, 30_000), vec![])]);
    let (_, mine) = fixture.take_ops(3, CTS)[0];
    for (i, part) in data(30_000).chunks(FRAGMENT).enumerate() {
        fixture.play(streamed(3, reply(DATA, 0, mine, (i * FRAGMENT) as u64), part));
    }
    assert_copied(30_000, "by rendezvous");
    for posted in [posted, gathered, announced] {
        assert!(posted.finish().unwrap().0.is_ok());
    }
}

#[test]
fn truncated_message_is_dropped_and_the_next_is_received() {
    let fixture = fixture();
    let (posted, next) = (fixture.post_bytes(1, 99), fixture.post_bytes(1, 100));
    fixture.play(streamed(1, eager_sync(0, 44), &data(100)));
    let (outcome, memory) = posted.finish().unwrap();
    assert_eq!(outcome, Err(Fault::Truncated { source: 1, tag: 1, immediate: 0, sent: 100, room: 99 }));
    assert_eq!(memory, [0xaa; 99]);
    assert_eq!(fixture.take_ops(1, FIN), [(44, 0)]);
    fixture.play(streamed(1, eager(0), &data(100)));
    assert_eq!(next.finish().unwrap().1, data(100));
}

#[test]
fn bodies_of_several_peers_interleave() {
    let fixture = fixture();
    let posted: Vec<_> = (1..4).map(|rank| fixture.post_bytes(rank, 300)).collect();
    let bodies: Vec<Vec<u8>> = (1..4).map(|rank| vec![rank as u8; 300]).collect();
    fixture.play((1..4).map(|rank| Step::Begin(rank, eager(0), 300)));
    for part in 0..3 {
        fixture.play((1..4u32).map(|r| Step::Bytes(r, bodies[r as usize - 1][part * 100..][..100].to_vec())));
    }
    fixture.play((1..4).rev().map(Step::Landed));
    for (posted, body) in posted.into_iter().zip(bodies) {
        assert_eq!(posted.finish().unwrap().1, body);
    }
}

#[test]
fn rendezvous_bodies_arrive_as_streamed_data() {
    let fixture = fixture();
    let posted = fixture.post_bytes(1, 30_000);
    fixture.play([Step::Frame(1, rts(0, 5, 30_000), vec![])]);
    let (5, mine) = fixture.take_ops(1, CTS)[0] else { panic!("a CTS for operation 5") };
    let body = data(30_000);
    for (i, part) in body.chunks(FRAGMENT).enumerate() {
        fixture.play(streamed(1, reply(DATA, 0, mine, (i * FRAGMENT) as u64), part));
    }
    assert_eq!(posted.finish().unwrap().1, body);
}

#[test]
fn lost_peer_aborts_its_body() {
    let fixture = fixture();
    let (posted, next) = (fixture.post_bytes(1, 500), fixture.post_bytes(ANY_SOURCE, 500));
    let send = fixture.send(2, vec![0; 20_000], Mode::Standard).unwrap();
    fixture.play([Step::Begin(1, eager(0), 500), Step::Bytes(1, data(200))]);
    assert!(posted.completion().is_some_and(|c| c.outcome().is_none()), "the body is incomplete");
    fixture.play([Step::Lost(1)]);
    let (outcome, _) = posted.finish().unwrap();
    assert!(
        matches!(outcome, Err(Fault::Unreachable { rank: 1, .. } | Fault::Dead { rank: 1, .. })),
        "{outcome:?}"
    );
    assert!(matches!(next.finish().unwrap().0, Err(Fault::Dead { rank: 1, .. })));
    let mpj_devices::Started::Pending(send) = send else { panic!("an announced message") };
    assert!(matches!(send.outcome(), Some(Err(Fault::Dead { rank: 1, .. }))));
    assert_eq!(fixture.death(), Some(1));
    fixture.assert_others_communicate();
    fixture.engine.close();
}

#[test]
fn unexpected_body_of_a_lost_peer_is_dropped() {
    let fixture = fixture();
    fixture.play([Step::Begin(1, eager(0), 500), Step::Bytes(1, data(200)), Step::Lost(1)]);
    assert!(matches!(fixture.post_bytes(1, 500).finish().unwrap().0, Err(Fault::Dead { rank: 1, .. })));
    fixture.assert_others_communicate();
}

#[test]
fn death_elsewhere_does_not_free_memory_in_use() {
    let fixture = fixture();
    let posted = fixture.post_bytes(1, 500);
    fixture.play([Step::Begin(1, eager(0), 500), Step::Bytes(1, data(500)[..200].to_vec())]);
    report_death(&fixture, 3);
    fixture.play([]);
    assert!(posted.completion().is_some_and(|c| c.outcome().is_none()), "its memory is still written");
    fixture.play([Step::Bytes(1, data(500)[200..].to_vec()), Step::Landed(1)]);
    let (outcome, memory) = posted.finish().unwrap();
    assert!(outcome.is_err() || memory == data(500), "{outcome:?}");
}

#[test]
fn death_elsewhere_does_not_free_rendezvous_memory_in_use() {
    for lost in [false, true] {
        let fixture = fixture();
        let posted = fixture.post_bytes(1, 500);
        fixture.play([Step::Frame(1, rts(0, 5, 500), vec![])]);
        let (_, mine) = fixture.take_ops(1, CTS)[0];
        fixture.play([Step::Begin(1, reply(DATA, 0, mine, 0), 500), Step::Bytes(1, data(200))]);
        report_death(&fixture, 3);
        fixture.play([]);
        if lost {
            fixture.play([Step::Lost(1)]);
        } else {
            fixture.play([Step::Bytes(1, data(500)[200..].to_vec()), Step::Landed(1)]);
        }
        let (outcome, memory) = posted.finish().expect("the receive ends with its body");
        assert!(outcome.is_err() || memory == data(500), "{outcome:?}");
        fixture.engine.close();
    }
}

#[test]
fn reported_death_aborts_the_body() {
    for announced in [false, true] {
        let fixture = fixture();
        let posted = fixture.post_bytes(1, 500);
        let head = if announced {
            fixture.play([Step::Frame(1, rts(0, 5, 500), vec![])]);
            reply(DATA, 0, fixture.take_ops(1, CTS)[0].1, 0)
        } else {
            eager(0)
        };
        fixture.play([Step::Begin(1, head, 500), Step::Bytes(1, data(200))]);
        report_death(&fixture, 1);
        fixture.play([]);
        let (outcome, _) = posted.finish().expect("the receive ends with its sender");
        assert!(matches!(outcome, Err(Fault::Dead { rank: 1, .. })), "{outcome:?}");
        fixture.assert_others_communicate();
        fixture.engine.close();
    }
}

#[test]
fn engine_can_be_dropped_during_a_body() {
    for unexpected in [false, true] {
        let fixture = fixture();
        let posted = (!unexpected).then(|| fixture.post_bytes(1, 500));
        fixture.play([Step::Begin(1, eager(0), 500), Step::Bytes(1, data(200))]);
        drop(fixture);
        drop(posted);
    }
}
