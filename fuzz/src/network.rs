//! The frames and the handshake of `niodev`.

use std::os::fd::OwnedFd;

use mpj_devices::device::{Landing, OpToken};
use mpj_devices::fuzzing::{Answer, FuzzConnection, FuzzHandshake};
use mpj_devices::{PeerId, Sink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType};

use crate::input::Input;

/// The result of a second parser for the frames of a connection.
#[derive(Default)]
struct Expected {
    frames: Vec<(Vec<u8>, Vec<u8>)>,
    /// Whether the connection ends right after a goodbye frame.
    orderly: bool,
}

const MAX_HEAD: usize = mpj_devices::device::HEAD_MAX;
const MAX_BODY: u64 = 16 << 20;

fn expected(mut rest: &[u8]) -> Expected {
    let mut expected = Expected::default();
    let mut goodbye = false;
    while rest.len() >= 16 {
        let (head, kind) = (usize::from(rest[0]), rest[2]);
        let body = rest[8..16].try_into().map(u64::from_le_bytes).expect("eight bytes");
        let sound =
            if kind == 0 { head <= MAX_HEAD && body <= MAX_BODY } else { kind < 3 && head == 0 && body == 0 };
        if rest[1] != 0xa1 || rest[3..8] != [0; 5] || !sound || goodbye {
            return expected;
        }
        goodbye |= kind == 1;
        let end = 16 + head + body as usize;
        let Some(frame) = rest.get(16..end) else { return expected };
        if kind == 0 {
            expected.frames.push((frame[..head].to_vec(), frame[head..].to_vec()));
        }
        rest = &rest[end..];
    }
    expected.orderly = goodbye && rest.is_empty();
    expected
}

/// Records frames. Every second body that begins is received in pieces.
#[derive(Default)]
struct Recorder {
    frames: Vec<(Vec<u8>, Vec<u8>)>,
    pending: Option<(Vec<u8>, Vec<u8>, usize)>,
    pieces: bool,
}

// SAFETY: the memory of the pending body does not move until the body has landed.
#[expect(unsafe_code, reason = "the trait's contract")]
unsafe impl Sink for Recorder {
    fn frame(&mut self, from: PeerId, head: &[u8], body: &[u8]) {
        assert!(from == PeerId(1) && self.pending.is_none());
        self.frames.push((head.to_vec(), body.to_vec()));
    }

    fn begin(&mut self, from: PeerId, head: &[u8], len: usize) -> Landing {
        assert!(from == PeerId(1) && self.pending.is_none());
        self.pieces = !self.pieces;
        let room = if self.pieces { Vec::new() } else { vec![0xee; len] };
        let (_, body, _) = self.pending.insert((head.to_vec(), room, len));
        if self.pieces { Landing::Pieces } else { Landing::Into(body.as_mut_ptr()) }
    }

    fn piece(&mut self, _from: PeerId, bytes: &[u8]) {
        let (_, body, len) = self.pending.as_mut().expect("a pending body");
        body.extend_from_slice(bytes);
        assert!(self.pieces && body.len() <= *len);
    }

    fn landed(&mut self, _from: PeerId) {
        let (head, body, len) = self.pending.take().expect("a pending body");
        assert_eq!(body.len(), len);
        self.frames.push((head, body));
    }

    fn peer_lost(&mut self, _from: PeerId, _why: &str) {}

    fn completed(&mut self, op: OpToken, _: Result<(), String>) {
        panic!("completion of an operation that was not started: {op:?}");
    }

    fn quiesced(&mut self, op: OpToken) {
        panic!("quiesce reply that was not requested: {op:?}");
    }
}

fn pair() -> (OwnedFd, OwnedFd) {
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::NONBLOCK, None)
        .expect("two sockets")
}

/// Sends frames, some of them invalid, in pieces of any length. Exactly the frames before the first invalid one arrive,
/// and the end of the connection is classified correctly.
pub fn network(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut wire = Vec::new();
    for _ in 0..input.below(8) {
        let kind = [0, 0, 0, 0, 0, 0, 1, 2][input.below(8)];
        let (head, body) = match (kind, input.below(8)) {
            (0, 0..6) => (input.below(MAX_HEAD + 1), input.below(400)),
            (0, 6) => (input.below(MAX_HEAD + 1), 8190 + input.below(5)),
            (0, _) => (8, 30_000 + input.below(40_000)),
            _ => (0, 0),
        };
        let mut header = [head as u8, 0xa1, kind, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        header[8..].copy_from_slice(&(body as u64).to_le_bytes());
        match input.below(24) {
            22 => header[8..].copy_from_slice(&input.edge().to_le_bytes()),
            23 => header[input.below(16)] = input.byte(),
            _ => (),
        }
        wire.extend(header);
        let seed = input.byte();
        wire.extend((0..head + body).map(|i| (i as u8).wrapping_mul(7) ^ seed));
    }
    if input.below(8) == 7 {
        wire.truncate(input.u32() as usize % (wire.len() + 1));
    }
    wire.extend(input.bytes(20));
    let expected = expected(&wire);
    let (ours, theirs) = pair();
    let mut connection = FuzzConnection::new(theirs, 1).expect("a poller");
    let mut recorder = Recorder::default();
    let mut rest = wire.as_slice();
    let mut closed = false;
    let end = loop {
        if !rest.is_empty() {
            let len = match input.below(4) {
                0 => rest.len(),
                1 => 1 + input.below(70_000),
                _ => 1 + input.below(40),
            };
            let len = rest.len().min(len);
            match rustix::net::send(&ours, &rest[..len], SendFlags::NOSIGNAL) {
                Ok(sent) => rest = &rest[sent..],
                Err(rustix::io::Errno::WOULDBLOCK) => (),
                Err(_) => rest = &[],
            }
        } else if !closed {
            closed = true;
            rustix::net::shutdown(&ours, Shutdown::Write).expect("a socket");
        }
        match connection.read(&mut recorder) {
            Ok(_) => (),
            Err(orderly) => break orderly,
        }
    };
    assert_eq!(end, expected.orderly);
    assert!(recorder.frames.len() <= expected.frames.len());
    assert!(recorder.frames == expected.frames, "{} of {}", recorder.frames.len(), expected.frames.len());
    let _ = rustix::net::recv(&ours, &mut [0u8; 8][..], RecvFlags::empty());
}

/// Two ranks perform the handshake while an attacker between them changes, truncates, extends or replaces messages. The
/// acceptor trusts the connector exactly if both have the same key and no byte that a receiver checks was changed.
pub fn handshake(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let same = !input.flag();
    let (nonce, other) = ([input.byte(); 32], [input.byte(); 32]);
    let (mut connector, hello) = FuzzHandshake::connect([1; 32], nonce);
    let mut acceptor = FuzzHandshake::accept([if same { 1 } else { 2 }; 32], other);
    let mut honest = same;
    let mut message = hello;
    let mut answers = Vec::new();
    for turn in 0..3 {
        let before = message.clone();
        match input.below(8) {
            0 => {
                let at = input.below(message.len().max(1)).min(message.len() - 1);
                message[at] ^= input.byte();
            }
            1 => message.truncate(input.below(message.len() + 1)),
            2 => message.extend(input.bytes(20)),
            3 => message = input.bytes(message.len()).to_vec(),
            _ => (),
        }
        // The receivers of the first two messages ignore bytes 5 to 7.
        let mut seen = (before, message.clone());
        if turn < 2 {
            for bytes in [&mut seen.0, &mut seen.1] {
                bytes.iter_mut().skip(5).take(3).for_each(|byte| *byte = 0);
            }
        }
        honest &= seen.1.starts_with(&seen.0);
        let receiver = if turn == 1 { &mut connector } else { &mut acceptor };
        let mut rest = message.as_slice();
        let answer = loop {
            let piece = rest.len().min(1 + input.below(100));
            let (taken, answer) = receiver.take(&rest[..piece]);
            assert!(taken <= piece);
            rest = &rest[taken..];
            if answer != Answer::More || rest.is_empty() {
                break answer;
            }
            assert!(taken > 0, "stuck");
        };
        let next = if let Answer::Say(bytes) = &answer { Some(bytes.clone()) } else { None };
        answers.push(answer);
        match next {
            Some(bytes) => message = bytes,
            None => break,
        }
    }
    let trusted = answers.contains(&Answer::Trusted);
    assert_eq!(trusted, honest, "{answers:?}");
}
