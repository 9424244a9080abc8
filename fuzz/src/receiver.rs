use std::io::{self, ErrorKind, Read};

use mpj_buffer::{Buffer, MESSAGE_HEADER_LEN, ReceiveError, Received, Receiver};
use mpj_pool::DefaultPool;

use crate::input::Input;
use crate::peak_memory;
use crate::reference_parser;
use crate::sections::message;

const LIMIT: usize = 2000;

/// Passes messages, some with invalid fields, to a receiver in pieces: by `feed`, and from a reader that acts as a
/// non-blocking socket. The receiver returns the same messages as a second parser, and no length field makes it exceed
/// the memory limit.
pub fn receiver(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut wire = Vec::new();
    for _ in 0..input.below(5) {
        wire.extend(message(&mut input));
    }
    let cut = wire.len().saturating_sub(input.below(30));
    wire.truncate(cut);
    let (taken, end) = parse_all(&wire);

    let choices = input.rest();
    let (fed, peak) = peak_memory::measure(|| feed(&wire, &mut Input::new(choices)));
    // The pool's blocks are mapped pages, which are not counted; the tables of a new region are.
    assert!(peak <= 4 * wire.len() + (256 << 10), "{peak} bytes for {}", wire.len());
    let (read, ended) = read(&wire, &mut Input::new(choices));
    assert!(fed.0.iter().map(Vec::as_slice).eq(taken.iter().copied()), "fed");
    assert!(read.iter().map(Vec::as_slice).eq(taken.iter().copied()), "read");
    assert_eq!((fed.1, ended), (end, end));

    let mut stream = &wire[..];
    for message in &taken {
        match Buffer::read_from(&mut stream, mpj_pool::global(), LIMIT) {
            Ok(one) => assert_eq!(one.to_vec(), *message),
            Err(error) => panic!("{error}"),
        }
    }
    assert!(Buffer::read_from(stream, mpj_pool::global(), LIMIT).is_err());
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    AtBoundary,
    Truncated,
    TooLong,
    Invalid,
}

/// Parses messages up to the first one that is invalid, truncated or too long.
fn parse_all(mut bytes: &[u8]) -> (Vec<&[u8]>, End) {
    let mut taken = Vec::new();
    loop {
        let Some(header) = bytes.first_chunk::<MESSAGE_HEADER_LEN>() else {
            return (taken, if bytes.is_empty() { End::AtBoundary } else { End::Truncated });
        };
        let total = u64::from_le_bytes(header[8..].try_into().expect("8 bytes"));
        let total = if header[5] == b'>' { total.swap_bytes() } else { total };
        let known = header.starts_with(b"mpjb\x01") && b"<>".contains(&header[5]);
        if !known || header[6] > 1 || header[7] != 0 || total < MESSAGE_HEADER_LEN as u64 {
            return (taken, End::Invalid);
        }
        if total > LIMIT as u64 {
            return (taken, End::TooLong);
        }
        let Some((message, later)) = bytes.split_at_checked(total as usize) else {
            return (taken, End::Truncated);
        };
        if reference_parser::parse(message).is_none() {
            return (taken, End::Invalid);
        }
        taken.push(message);
        bytes = later;
    }
}

fn stream_end(error: &ReceiveError) -> End {
    assert!(!error.to_string().is_empty());
    match error {
        ReceiveError::TooLong { .. } => End::TooLong,
        ReceiveError::Format(_) => End::Invalid,
        ReceiveError::Io(e) if e.kind() == ErrorKind::UnexpectedEof => End::Truncated,
        other => panic!("{other}"),
    }
}

fn feed(mut bytes: &[u8], choices: &mut Input<'_>) -> (Vec<Vec<u8>>, End) {
    let mut receiver: Receiver<&DefaultPool> = Receiver::new(mpj_pool::global(), LIMIT);
    let mut got = Vec::new();
    while !bytes.is_empty() {
        let (mut now, later) = bytes.split_at(bytes.len().min(1 + choices.below(100)));
        bytes = later;
        loop {
            match receiver.feed(&mut now) {
                Ok(Some(message)) => got.push(message.to_vec()),
                Ok(None) => break assert!(now.is_empty()),
                Err(error) => return (got, stream_end(&error)),
            }
        }
    }
    (got, if receiver.has_partial_message() { End::Truncated } else { End::AtBoundary })
}

struct Socket<'a, 'b>(&'a [u8], &'a mut Input<'b>);

impl Read for Socket<'_, '_> {
    fn read(&mut self, dst: &mut [u8]) -> io::Result<usize> {
        match self.1.below(16) {
            14 => Err(ErrorKind::WouldBlock.into()),
            15 => Err(ErrorKind::Interrupted.into()),
            some => self.0.read(&mut dst[..1 + 10 * some]),
        }
    }
}

fn read(bytes: &[u8], choices: &mut Input<'_>) -> (Vec<Vec<u8>>, End) {
    let mut receiver = Receiver::new(mpj_pool::global(), LIMIT);
    let (mut socket, mut got) = (Socket(bytes, choices), Vec::new());
    loop {
        match receiver.read(&mut socket) {
            Ok(Received::Message(message)) => got.push(message.to_vec()),
            Ok(Received::Pending) => {}
            Ok(Received::End) => return (got, End::AtBoundary),
            Err(error) => return (got, stream_end(&error)),
        }
    }
}
