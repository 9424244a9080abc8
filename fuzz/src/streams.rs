use mpj::boot::agent::fuzzing::{next_frame, sample_frames};
use mpj::boot::pmix::frames::{MAX_BODY, PmixFrames, frame};
use mpj::boot::rendezvous::messages::{FromServer, Joining, ToServer};
use mpj::boot::wire::{FrameDecoder, ProtocolVersion};

use crate::control::feed_frames;
use crate::input::Input;
use crate::peak_memory;

/// Feeds valid and invalid messages of agents, of ranks at a rendezvous and of PMIx servers to their decoders, in
/// pieces.
pub fn streams(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    match input.below(4) {
        0 => feed_frames::<ToServer>(&mut input, to_server),
        1 => feed_frames::<FromServer>(&mut input, from_server),
        2 => agents(&mut input),
        _ => pmix(&mut input),
    }
}

fn text(input: &mut Input<'_>) -> String {
    "é".repeat(input.below(20))
}

fn to_server(input: &mut Input<'_>) -> ToServer {
    match input.below(4) {
        0 => {
            let version = ProtocolVersion { version: input.edge() as u32, mpj_version: text(input) };
            let (size, host, at) = (input.edge() as u32, text(input), text(input));
            ToServer::Join(Box::new(Joining { version, size, host, at }))
        }
        1 => ToServer::Ready,
        2 => ToServer::Joined,
        _ => ToServer::Failed(text(input)),
    }
}

fn from_server(input: &mut Input<'_>) -> FromServer {
    match input.below(3) {
        0 => FromServer::Placed {
            hosts: (0..input.below(4)).map(|_| (input.edge() as u32, input.edge() as u32)).collect(),
            nonce: input.array(),
        },
        1 => {
            FromServer::Proceed { values: (0..input.below(3)).map(|_| (text(input), text(input))).collect() }
        }
        _ => FromServer::Refused(text(input)),
    }
}

/// Returns the next piece of bytes that arrive.
fn piece<'a>(input: &mut Input<'_>, rest: &mut &'a [u8]) -> &'a [u8] {
    let (now, later) = rest.split_at(rest.len().min(1 + input.below(80)));
    *rest = later;
    now
}

fn agents(input: &mut Input<'_>) {
    let is_to_root = input.flag();
    let samples = sample_frames(is_to_root);
    let mut wire = Vec::new();
    for _ in 0..input.below(6) {
        let mut bytes = samples[input.below(samples.len())].clone();
        for _ in 0..input.below(3) {
            let at = input.below(bytes.len());
            bytes[at] = input.byte();
        }
        wire.extend(bytes);
    }
    let mut frames = FrameDecoder::default();
    let mut rest = wire.as_slice();
    while !rest.is_empty() {
        frames.push(piece(input, &mut rest));
        loop {
            let (next, peak) = peak_memory::measure(|| next_frame(&mut frames, is_to_root));
            assert!(peak <= 256 * wire.len() + (64 << 10), "{peak} bytes for {}", wire.len());
            match next {
                Ok(None) => break,
                Ok(Some(again)) => {
                    let mut decoder = FrameDecoder::default();
                    decoder.push(&again);
                    assert_eq!(next_frame(&mut decoder, is_to_root), Ok(Some(again)));
                }
                Err(why) => return assert!(!why.is_empty()),
            }
        }
    }
}

/// Compares the frames with those that were sent.
fn pmix(input: &mut Input<'_>) {
    let sent: Vec<(u32, &[u8])> = (0..input.below(6)).map(|_| (input.u32(), input.bytes(30))).collect();
    let mut wire: Vec<u8> = sent.iter().flat_map(|(tag, body)| frame(7, *tag, body)).collect();
    let too_long = input.below(4) == 3;
    if too_long {
        let mut header = frame(7, 1, b"");
        let len = (MAX_BODY as u32 + 1).saturating_add(input.u32());
        header[8..].copy_from_slice(&u64::from(len.to_be()).to_ne_bytes());
        wire.extend(header);
    }
    let (mut frames, mut found, mut failed) = (PmixFrames::default(), Vec::new(), false);
    let mut rest = wire.as_slice();
    while !rest.is_empty() && !failed {
        frames.push(piece(input, &mut rest));
        loop {
            match frames.next_frame() {
                Ok(Some(frame)) => found.push(frame),
                Ok(None) => break,
                Err(why) => {
                    assert!(!why.is_empty());
                    failed = true;
                    break;
                }
            }
        }
    }
    assert_eq!(failed, too_long);
    assert_eq!(found, sent.iter().map(|(tag, body)| (*tag, body.to_vec())).collect::<Vec<_>>());
}
