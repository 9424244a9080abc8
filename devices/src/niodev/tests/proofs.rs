//! Tests of the handshake without sockets, and of headers.

use std::sync::Arc;

use super::super::frame::{BODY_MAX, HEADER, NioFrameKind, NioHeader};
use super::super::handshake::{Handshake, HandshakeAction, Identity, NIODEV, Nonce, Refusal, Verdict};
use super::key;
use crate::device::HEAD_MAX;
use crate::site::JobKey;

fn identity(rank: u32) -> Arc<Identity> {
    Arc::new(Identity { key: key(1), rank, size: 4, purpose: NIODEV })
}

/// Passes bytes to a handshake, at most `chunk` at a time; returns the action that all of them together require.
fn feed(to: &mut Handshake, mut bytes: &[u8], chunk: usize) -> Result<HandshakeAction, Refusal> {
    loop {
        let room = to.room();
        let count = room.len().min(bytes.len()).min(chunk);
        room[..count].copy_from_slice(&bytes[..count]);
        bytes = &bytes[count..];
        let step = to.received(count)?;
        if bytes.is_empty() || !matches!(step, HandshakeAction::ReadMore) {
            assert!(bytes.is_empty());
            return Ok(step);
        }
    }
}

fn sent_bytes(step: Result<HandshakeAction, Refusal>) -> Vec<u8> {
    match step {
        Ok(HandshakeAction::Send(bytes)) => bytes,
        other => panic!("{other:?}"),
    }
}

#[test]
fn handshake_succeeds_for_every_chunk_size() {
    for chunk in [1, 2, 7, 100] {
        let (mut one, hello) = Handshake::connect(identity(1), 2, [1; 32]);
        let mut two = Handshake::accept(identity(2), [2; 32]);
        let challenge = sent_bytes(feed(&mut two, &hello, chunk));
        assert_eq!(two.from(), 1);
        let proof = sent_bytes(feed(&mut one, &challenge, chunk));
        assert!(one.awaits_verdict());
        assert!(matches!(feed(&mut two, &proof, chunk), Ok(HandshakeAction::PeerProven)));
        let verdict = feed(&mut one, &[Verdict::Accept.to_byte()], chunk);
        assert!(matches!(verdict, Ok(HandshakeAction::Decided(Verdict::Accept))));
    }
}

#[test]
fn verdict_before_a_proof_is_rejected() {
    for verdict in [Verdict::Accept, Verdict::Duplicate, Verdict::Full] {
        let (mut one, _) = Handshake::connect(identity(1), 2, [1; 32]);
        assert_eq!(feed(&mut one, &[verdict.to_byte()], 1).unwrap_err(), Refusal::Noise);
    }
}

#[test]
fn hellos_of_strangers_are_refused() {
    let hello = |id: Identity, to| Handshake::connect(Arc::new(id), to, [1; 32]).1;
    let refused = |bytes: &[u8]| feed(&mut Handshake::accept(identity(2), [2; 32]), bytes, 9).unwrap_err();
    let with = |rank| Identity { key: key(1), rank, size: 4, purpose: NIODEV };
    assert_eq!(refused(b"GET / HTTP/1.1\r\n"), Refusal::Noise);
    assert_eq!(refused(&[0; 5]), Refusal::Noise);
    assert_eq!(refused(&hello(with(1), 3)), Refusal::Rank, "addressed to another rank");
    assert_eq!(refused(&hello(with(2), 2)), Refusal::Rank, "claims the rank of the receiver");
    assert_eq!(refused(&hello(with(4), 2)), Refusal::Rank, "claims a rank that does not exist");
    let other = JobKey { job: 78, secret: [1; 32] };
    assert_eq!(
        refused(&hello(Identity { key: Arc::new(other), rank: 1, size: 4, purpose: NIODEV }, 2)),
        Refusal::Job
    );
    let mut version = hello(with(1), 2);
    version[4] += 1;
    assert_eq!(refused(&version), Refusal::Noise);
}

#[test]
fn wrong_key_is_refused_by_both_sides() {
    let wrong = Arc::new(Identity { key: key(9), rank: 1, size: 4, purpose: NIODEV });
    let (mut one, hello) = Handshake::connect(wrong, 2, [1; 32]);
    let mut two = Handshake::accept(identity(2), [2; 32]);
    let challenge = sent_bytes(feed(&mut two, &hello, 100));
    assert_eq!(feed(&mut one, &challenge, 100).unwrap_err(), Refusal::Key);
    assert_eq!(feed(&mut two, &[0; 32], 100).unwrap_err(), Refusal::Key);
}

#[test]
fn a_replayed_proof_is_refused() {
    let handshake = |mine: Nonce| {
        let (one, hello) = Handshake::connect(identity(1), 2, [1; 32]);
        let mut two = Handshake::accept(identity(2), mine);
        let challenge = sent_bytes(feed(&mut two, &hello, 100));
        (one, two, challenge)
    };
    let (mut one, _, challenge) = handshake([2; 32]);
    let recorded = sent_bytes(feed(&mut one, &challenge, 100));
    let (_, mut fresh, _) = handshake([3; 32]);
    assert_eq!(feed(&mut fresh, &recorded, 100).unwrap_err(), Refusal::Key);
}

#[test]
fn a_reflected_proof_is_refused() {
    let (_, hello) = Handshake::connect(identity(1), 2, [1; 32]);
    let mut two = Handshake::accept(identity(2), [2; 32]);
    let challenge = sent_bytes(feed(&mut two, &hello, 100));
    // An attacker sends the accepting side's proof back as the connecting side's.
    assert_eq!(feed(&mut two, &challenge[40..], 100).unwrap_err(), Refusal::Key);
}

#[test]
fn hello_with_a_changed_bit_fails_the_handshake() {
    for bit in 0..56 * 8 {
        let (mut one, mut hello) = Handshake::connect(identity(1), 2, [1; 32]);
        hello[bit / 8] ^= 1 << (bit % 8);
        let mut two = Handshake::accept(identity(2), [2; 32]);
        // The three bytes of padding have no meaning.
        if (5..8).contains(&(bit / 8)) {
            continue;
        }
        let Ok(HandshakeAction::Send(challenge)) = feed(&mut two, &hello, 100) else { continue };
        assert_eq!(feed(&mut one, &challenge, 100).unwrap_err(), Refusal::Key, "bit {bit}");
    }
}

#[test]
fn headers_round_trip_and_invalid_ones_are_rejected() {
    for header in [
        NioHeader::data(0, 0),
        NioHeader::data(HEAD_MAX, BODY_MAX),
        NioHeader::bare(NioFrameKind::Goodbye),
        NioHeader::bare(NioFrameKind::Settle),
    ] {
        assert_eq!(NioHeader::parse(&header.to_bytes()), Some(header));
    }
    let mut long = NioHeader::data(8, 8).to_bytes();
    long[15] = 0x80;
    assert_eq!(NioHeader::parse(&long), None, "2^63 bytes");
    assert_eq!(NioHeader::parse(&NioHeader::data(8, BODY_MAX + 1).to_bytes()), None);
    assert_eq!(NioHeader::parse(&NioHeader::data(57, 0).to_bytes()), None);
    assert_eq!(NioHeader::parse(&[0; HEADER]), None);
    assert_eq!(NioHeader::parse(&[255; HEADER]), None);
}
