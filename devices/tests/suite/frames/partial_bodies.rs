//! After a receive has failed with a part of its body, every `bool` and `char` in its memory is valid, even if the peer
//! sent invalid bytes.

use std::sync::Arc;

use mpj_datatypes::{Datatype, Primitive};
use mpj_devices::{Channel, Exit, Fault, Pattern};

use super::device::{Gets, Step};
use super::fixture::{Fixture, Posted, WORLD};
use super::head_encoding::*;

const SUB: u64 = 50;
const LEN: usize = 30_000;

/// The byte that a hostile peer sends. It is not a valid `bool`, and four such bytes are not a valid `char`.
const BAD: u8 = 0xdb;

/// Returns a fixture whose peer 1 has bound channel 0 to the world, and channel 1 to `SUB` of ranks 0 and 1.
fn fixture(gets: Gets) -> (Fixture, Arc<Channel>) {
    let fixture = Fixture::with(gets);
    let sub = fixture.engine.join(SUB, [0, 1].into_iter().collect(), 0).unwrap();
    fixture.play([Step::Frame(1, bind(0, WORLD, 1), vec![]), Step::Frame(1, bind(1, SUB, 1), vec![])]);
    (fixture, sub)
}

fn post(fixture: &Fixture, channel: &Arc<Channel>, primitive: Primitive) -> Posted {
    let shape = Datatype::primitive(primitive);
    fixture.post(channel, Pattern { source: 1, tag: 1 }, shape, LEN, LEN / primitive.size())
}

fn typed(primitive: Primitive, mut head: Vec<u8>) -> Vec<u8> {
    head[1] = primitive as u8;
    head
}

/// Returns a pending rendezvous receive of bools, and its operation number.
fn rendezvous(gets: Gets) -> (Fixture, Arc<Channel>, Posted, u64) {
    let (fixture, sub) = fixture(gets);
    let posted = post(&fixture, &sub, Primitive::Bool);
    let head = typed(Primitive::Bool, rts(1, 5, LEN as u64));
    fixture.play([Step::Frame(1, head, vec![1; 8])]);
    let (5, mine) = fixture.take_ops(1, CTS)[0] else { panic!("a CTS for operation 5") };
    (fixture, sub, posted, mine)
}

fn assert_no_bad_bool(posted: Posted, fault: impl Fn(&Fault) -> bool) {
    let (outcome, memory) = posted.finish().expect("the receive has ended");
    assert!(outcome.as_ref().is_err_and(fault), "{outcome:?}");
    // The memory had 0xaa before.
    let bad = memory.iter().filter(|byte| ![0, 1, 0xaa].contains(*byte)).count();
    assert_eq!(bad, 0, "invalid bools in memory of a failed receive");
}

fn half() -> Vec<u8> {
    vec![BAD; LEN / 2]
}

#[test]
fn death_after_a_piece_leaves_valid_memory() {
    let (fixture, _sub, posted, mine) = rendezvous(Gets::None);
    fixture.play([Step::Frame(1, reply(DATA, 1, mine, 0), vec![BAD; 1000]), Step::Lost(1)]);
    assert_no_bad_bool(posted, |fault| matches!(fault, Fault::Dead { rank: 1, .. }));
}

#[test]
fn cancel_after_a_piece_leaves_valid_memory() {
    let (fixture, _sub, posted, mine) = rendezvous(Gets::None);
    fixture.play([Step::Frame(1, reply(DATA, 1, mine, 0), vec![BAD; 1000])]);
    fixture.play([Step::Frame(1, nack(SUB, mine), vec![])]);
    assert_no_bad_bool(posted, |fault| matches!(fault, Fault::SendCancelled { rank: 1 }));
}

#[test]
fn engine_drop_after_a_piece_leaves_valid_memory() {
    let (fixture, sub, posted, mine) = rendezvous(Gets::None);
    fixture.play([Step::Frame(1, reply(DATA, 1, mine, 0), vec![BAD; 1000])]);
    drop((fixture, sub));
    assert_no_bad_bool(posted, |_| true);
}

#[test]
fn death_after_half_a_streamed_piece_leaves_valid_memory() {
    for then in [Step::Lost(1), Step::Landed(1)] {
        let (fixture, _sub, posted, mine) = rendezvous(Gets::None);
        fixture.play([Step::Begin(1, reply(DATA, 1, mine, 0), LEN / 2), Step::Bytes(1, half())]);
        fixture.roster.report(1, Exit::Died("elsewhere".into()));
        // The engine aborts the body. Later events for it have no effect.
        fixture.play([]);
        fixture.play([then]);
        assert_no_bad_bool(posted, |fault| matches!(fault, Fault::Dead { rank: 1, .. }));
    }
}

#[test]
fn get_that_fails_half_way_leaves_valid_memory() {
    let (fixture, _sub, posted, _mine) = rendezvous(Gets::Fail);
    fixture.roster.report(1, Exit::Died("elsewhere".into()));
    fixture.play([]);
    assert_no_bad_bool(posted, |fault| matches!(fault, Fault::Dead { rank: 1, .. }));
}

#[test]
fn engine_drop_while_a_device_writes_leaves_valid_memory() {
    let (fixture, sub) = fixture(Gets::None);
    let shape = Datatype::primitive(Primitive::Bool);
    let posted = fixture.post(&sub, Pattern { source: 1, tag: 1 }, shape, 500, 500);
    fixture.play([Step::Begin(1, typed(Primitive::Bool, eager(1)), 500), Step::Bytes(1, vec![BAD; 100])]);
    drop((fixture, sub));
    assert_no_bad_bool(posted, |_| true);
}

/// The connection of an honest peer breaks within a `char`. The first bytes of the new `char` and the last bytes of the
/// old memory would not be a valid `char`.
#[test]
fn connection_that_breaks_within_a_char_leaves_valid_memory() {
    let apart = Datatype::of::<char>().vector(100, 1, 2).unwrap();
    let body: Vec<u8> = std::iter::repeat_n(0x1d800u32.to_ne_bytes(), 100).flatten().collect();
    for (shape, count, stride) in [(Datatype::primitive(Primitive::Char), 100, 4), (apart, 1, 8)] {
        for cut in 200..=204 {
            let (fixture, sub) = fixture(Gets::None);
            let pattern = Pattern { source: 1, tag: 1 };
            let posted = fixture.post(&sub, pattern, shape.clone(), 99 * stride + 4, count);
            let head = typed(Primitive::Char, eager(1));
            fixture.play([Step::Begin(1, head, 400), Step::Bytes(1, body[..cut].to_vec()), Step::Lost(1)]);
            let (outcome, memory) = posted.finish().unwrap();
            assert!(outcome.is_err());
            for (i, bytes) in memory.chunks(stride).enumerate() {
                let bits = u32::from_ne_bytes(bytes[..4].try_into().unwrap());
                let valid = bits == 0xaaaa_aaaa || char::from_u32(bits).is_some();
                assert!(valid, "cut at {cut}: item {i} is {bits:#x}");
            }
        }
    }
}

#[test]
fn connection_that_breaks_within_a_structure_leaves_valid_memory() {
    let pair =
        Datatype::structure(&[(1, 0, Datatype::of::<bool>()), (1, 4, Datatype::of::<char>())]).unwrap();
    let pairs = pair.resized(0, 8).unwrap();
    // A packed pair has 5 bytes: the connection breaks at each position of a pair.
    for cut in 10..=15 {
        let (fixture, sub) = fixture(Gets::None);
        let posted = fixture.post(&sub, Pattern { source: 1, tag: 1 }, pairs.clone(), 80, 10);
        let signature = pair.signature().repeat(10);
        let head = head(2, 0, 1, 1, [signature.hash, signature.count, 0, 0]);
        fixture.play([Step::Begin(1, head, 50), Step::Bytes(1, vec![BAD; cut]), Step::Lost(1)]);
        let (outcome, memory) = posted.finish().unwrap();
        assert!(outcome.is_err());
        for (i, item) in memory.chunks(8).enumerate() {
            let bits = u32::from_ne_bytes(item[4..].try_into().unwrap());
            assert!([0, 1, 0xaa].contains(&item[0]), "cut at {cut}: bool {i} is {}", item[0]);
            assert!(
                bits == 0xaaaa_aaaa || char::from_u32(bits).is_some(),
                "cut at {cut}: char {i} is {bits:#x}"
            );
            assert_eq!(item[1..4], [0xaa; 3], "a gap");
        }
    }
}
