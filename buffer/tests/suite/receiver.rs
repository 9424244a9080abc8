//! Valid and invalid messages that are received in portions.

use std::io::{self, ErrorKind, Read};
use std::sync::Arc;

use crate::common::Heap;
use mpj_buffer::pool::{Growth, Magazine, Pool, global};
use mpj_buffer::{Buffer, FormatError, ReceiveError, Received, Receiver};
use proptest::collection::vec;
use proptest::prelude::*;

const LIMIT: usize = 1 << 20;

/// A message with `bytes` bytes in its static part, and an object of `objects` numbers of two bytes.
fn message(bytes: usize, objects: usize) -> Vec<u8> {
    let mut buffer = Buffer::new(Heap::new(bytes + 128)).unwrap();
    let payload: Vec<u8> = (0..bytes).map(|i| i as u8).collect();
    buffer.write(&payload).unwrap();
    if objects > 0 {
        buffer.write_object(&vec![300u16; objects]).unwrap();
    }
    buffer.commit().to_vec()
}

fn feed<P: Pool>(receiver: &mut Receiver<P>, pieces: &[&[u8]]) -> (Vec<Vec<u8>>, Option<ReceiveError>) {
    let mut got = Vec::new();
    for mut piece in pieces.iter().copied() {
        loop {
            match receiver.feed(&mut piece) {
                Ok(Some(message)) => got.push(message.to_vec()),
                Ok(None) => break assert!(piece.is_empty()),
                Err(error) => return (got, Some(error)),
            }
        }
    }
    (got, None)
}

/// A non-blocking socket: every other read returns `WouldBlock`.
struct Socket<'a> {
    pieces: Vec<&'a [u8]>,
    ready: bool,
}

impl Read for Socket<'_> {
    fn read(&mut self, dst: &mut [u8]) -> io::Result<usize> {
        self.ready = !self.ready;
        if !self.ready {
            return Err(ErrorKind::WouldBlock.into());
        }
        let Some(piece) = self.pieces.first_mut() else { return Ok(0) };
        let count = piece.read(dst)?;
        if piece.is_empty() {
            self.pieces.remove(0);
        }
        Ok(count)
    }
}

fn read<P: Pool>(
    receiver: &mut Receiver<P>,
    socket: &mut Socket<'_>,
) -> (Vec<Vec<u8>>, Option<ReceiveError>) {
    let mut got = Vec::new();
    loop {
        match receiver.read(&mut *socket) {
            Ok(Received::Message(message)) => got.push(message.to_vec()),
            Ok(Received::Pending) => {}
            Ok(Received::End) => return (got, None),
            Err(error) => return (got, Some(error)),
        }
    }
}

#[test]
fn bytes_may_arrive_one_by_one() {
    let sent = [message(0, 0), message(100, 30), message(17, 0)];
    let wire = sent.concat();
    let mut receiver = Receiver::new(global(), LIMIT);
    let mut ends = Vec::new();
    for (at, byte) in wire.iter().enumerate() {
        let mut piece = core::slice::from_ref(byte);
        if let Some(message) = receiver.feed(&mut piece).unwrap() {
            assert_eq!(message.to_vec(), sent[ends.len()]);
            ends.push(at + 1);
        }
        assert!(piece.is_empty());
        assert_eq!(receiver.has_partial_message(), ends.last() != Some(&(at + 1)));
    }
    let lengths = sent.iter().map(Vec::len);
    assert!(ends.iter().copied().eq(lengths.scan(0, |end, len| {
        *end += len;
        Some(*end)
    })));
}

#[test]
fn one_read_may_return_several_messages() {
    let sent: Vec<_> = (0..300).map(|i| message(i, i % 3)).collect();
    let wire = sent.concat();
    let mut calls = 0;
    let mut receiver = Receiver::new(global(), LIMIT);
    let mut stream = Counted(&wire, &mut calls);
    for expected in &sent {
        let Ok(Received::Message(message)) = receiver.read(&mut stream) else { panic!("a message") };
        assert_eq!(message.to_vec(), *expected);
    }
    assert!(matches!(receiver.read(&mut stream), Ok(Received::End)));
    assert!(calls <= wire.len() / 30_000 + 3, "{calls} reads for {} bytes", wire.len());
}

struct Counted<'a>(&'a [u8], &'a mut usize);

impl Read for Counted<'_> {
    fn read(&mut self, dst: &mut [u8]) -> io::Result<usize> {
        *self.1 += 1;
        self.0.read(dst)
    }
}

#[test]
fn truncated_message_differs_from_the_end_of_the_stream() {
    let wire = message(50, 3);
    for len in 1..wire.len() {
        let mut socket = Socket { pieces: vec![&wire[..len]], ready: false };
        let (got, error) = read(&mut Receiver::new(global(), LIMIT), &mut socket);
        assert!(got.is_empty());
        assert!(matches!(error, Some(ReceiveError::Io(e)) if e.kind() == ErrorKind::UnexpectedEof), "{len}");
        let mut receiver = Receiver::new(global(), LIMIT);
        assert!(feed(&mut receiver, &[&wire[..len]]).1.is_none());
        assert!(receiver.has_partial_message());
    }
    let mut socket = Socket { pieces: vec![&wire], ready: false };
    assert!(
        matches!(read(&mut Receiver::new(global(), LIMIT), &mut socket), (got, None) if got == [wire.clone()])
    );
}

#[test]
fn message_that_is_too_long_waits_for_a_higher_limit() {
    let sent = [message(10, 0), message(1000, 0), message(20, 0)];
    let wire = sent.concat();
    let pool = Arc::new(Magazine::growing(Growth::default(), mpj_buffer::pool::Heap::create));
    let mut receiver = Receiver::new(Arc::clone(&pool), sent[1].len() - 1);
    let mut rest = &wire[..];
    assert_eq!(receiver.feed(&mut rest).unwrap().unwrap().to_vec(), sent[0]);
    for _ in 0..3 {
        let error = receiver.feed(&mut rest).unwrap_err();
        assert!(matches!(&error, ReceiveError::TooLong { len, header, .. }
            if *len == sent[1].len() as u64 && *header == sent[1][..16]));
        assert_eq!(pool.stats().live_blocks, 0, "a block before the length was accepted");
    }
    receiver.set_limit(sent[1].len());
    let (got, error) = feed(&mut receiver, &[rest]);
    assert!(error.is_none());
    assert_eq!(got, sent[1..]);
}

#[test]
fn message_waits_for_a_block() {
    let wire = message(20_000, 0);
    let pool = Magazine::growing(Growth::default().limit(1 << 20), mpj_buffer::pool::Heap::create);
    let mut held = Vec::new();
    while let Ok(block) = pool.alloc(wire.len()) {
        held.push(block);
    }
    let mut receiver = Receiver::new(&pool, LIMIT);
    let mut rest = &wire[..];
    for _ in 0..3 {
        assert!(
            matches!(receiver.feed(&mut rest), Err(ReceiveError::Alloc { header, .. }) if header == wire[..16])
        );
    }
    held.clear();
    assert_eq!(receiver.feed(&mut rest).unwrap().unwrap().to_vec(), wire);
}

#[test]
fn stream_that_is_not_a_message_keeps_failing() {
    let mut receiver = Receiver::new(global(), LIMIT);
    let mut rest = &b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n"[..];
    for _ in 0..3 {
        let error = receiver.feed(&mut rest).unwrap_err();
        assert!(matches!(error, ReceiveError::Format(FormatError::Magic { found }) if found == *b"GET "));
    }
}

#[test]
fn invalid_message_is_dropped() {
    let (good, mut bad) = (message(5, 0), message(5, 0));
    bad[16] = 99;
    let wire = [&bad[..], &good].concat();
    let mut receiver = Receiver::new(global(), LIMIT);
    let mut rest = &wire[..];
    let error = receiver.feed(&mut rest).unwrap_err();
    assert!(matches!(error, ReceiveError::Format(FormatError::UnknownKind { at: 16, found: 99 })));
    assert_eq!(receiver.feed(&mut rest).unwrap().unwrap().to_vec(), good);
}

#[test]
fn announced_length_allocates_one_block() {
    let pool = Magazine::growing(Growth::default(), mpj_buffer::pool::Heap::create);
    let mut wire = message(0, 0);
    wire[8..16].copy_from_slice(&(LIMIT as u64).to_ne_bytes());
    let mut receivers: Vec<_> = (0..3).map(|_| Receiver::new(&pool, LIMIT)).collect();
    for receiver in &mut receivers {
        assert!(feed(receiver, &[&wire[..16]]).1.is_none());
    }
    assert_eq!(pool.stats().live_blocks, 3);
    drop(receivers);
    assert_eq!(pool.stats().live_blocks, 0);
}

fn cut(wire: &[u8], mut places: Vec<usize>) -> Vec<&[u8]> {
    places.iter_mut().for_each(|place| *place %= wire.len() + 1);
    places.sort_unstable();
    places.push(wire.len());
    let mut from = 0;
    let pieces = places.into_iter().map(|to| &wire[core::mem::replace(&mut from, to)..to]);
    pieces.filter(|piece| !piece.is_empty()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn messages_do_not_depend_on_the_portions(
        sizes in vec((0usize..3000, 0usize..40), 0..8),
        places in vec(any::<usize>(), 0..30),
        truncated in proptest::option::of(any::<usize>()),
    ) {
        let sent: Vec<_> = sizes.into_iter().map(|(bytes, objects)| message(bytes, objects)).collect();
        let mut wire = sent.concat();
        if let Some(len) = truncated {
            wire.truncate(len % (wire.len() + 1));
        }
        let (mut whole, mut end) = (0, 0);
        while whole < sent.len() && end + sent[whole].len() <= wire.len() {
            end += sent[whole].len();
            whole += 1;
        }
        let pieces = cut(&wire, places);
        let mut receiver = Receiver::new(global(), LIMIT);
        let (got, error) = feed(&mut receiver, &pieces);
        prop_assert!(error.is_none());
        prop_assert_eq!(&got, &sent[..whole]);
        prop_assert_eq!(receiver.has_partial_message(), end < wire.len());

        let (got, error) = read(&mut Receiver::new(global(), LIMIT), &mut Socket { pieces, ready: false });
        prop_assert_eq!(&got, &sent[..whole]);
        prop_assert_eq!(error.is_some(), end < wire.len());
    }

    #[test]
    fn random_bytes_are_an_error_or_incomplete(
        good in 0usize..3,
        bytes in vec(any::<u8>(), 0..200),
        places in vec(any::<usize>(), 0..10),
    ) {
        prop_assume!(!bytes.starts_with(b"mpjb"));
        let sent = vec![message(30, 1); good];
        let wire = [sent.concat(), bytes.clone()].concat();
        let (got, error) = feed(&mut Receiver::new(global(), LIMIT), &cut(&wire, places));
        prop_assert_eq!(got, sent);
        prop_assert_eq!(error.is_some(), bytes.len() >= 16);
    }

    #[test]
    fn wrong_byte_gives_the_same_result_in_portions(
        at in any::<usize>(),
        value in any::<u8>(),
        places in vec(any::<usize>(), 0..10),
    ) {
        let mut wire = message(30, 2);
        let at = at % wire.len();
        wire[at] = value;
        let whole = Buffer::from_bytes(Heap::new(wire.len()), &wire);
        let mut receiver = Receiver::new(global(), 4096);
        let (got, error) = feed(&mut receiver, &cut(&wire, places));
        match whole {
            Ok(_) => prop_assert_eq!(got, [wire]),
            Err(refused) => {
                prop_assert!(got.is_empty());
                match error {
                    Some(ReceiveError::Format(_)) => {}
                    Some(ReceiveError::TooLong { len, .. }) => prop_assert!(len > 4096),
                    Some(other) => prop_assert!(false, "{other}"),
                    None => {
                        let waits = matches!(refused.error, FormatError::Truncated { at: 0, .. });
                        prop_assert!(waits, "{}", refused.error);
                    }
                }
            }
        }
    }
}

#[test]
fn receive_errors_convert_to_io_errors() {
    fn read(limit: usize, wire: &[u8]) -> std::io::Result<()> {
        let mut receiver = Receiver::new(global(), limit);
        let mut rest = wire;
        receiver.feed(&mut rest)?;
        Ok(())
    }
    let wire = message(1000, 0);
    let error = read(100, &wire).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData);
    assert!(error.to_string().contains("exceeds the limit of 100"), "{error}");
    assert_eq!(read(LIMIT, &[0xff; 64]).unwrap_err().kind(), ErrorKind::InvalidData);
    let lost = ReceiveError::Io(ErrorKind::ConnectionReset.into());
    assert_eq!(std::io::Error::from(lost).kind(), ErrorKind::ConnectionReset);
}
