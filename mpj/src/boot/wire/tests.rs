//! Tests of complete, truncated and hostile frames.

use super::*;

fn samples() -> Vec<ToLauncher> {
    vec![
        ToLauncher::Hello(ProtocolVersion::own()),
        ToLauncher::Put { rank: 3, key: "cards".into(), value: vec![0; 300] },
        ToLauncher::Ended { rank: 1, end: WireExit::Died("ü".repeat(10)) },
        ToLauncher::Abort { rank: 2, code: -1, why: String::new() },
    ]
}

#[test]
fn messages_survive_any_cut() {
    let bytes: Vec<u8> = samples().iter().flat_map(|m| encode_frame(m).unwrap()).collect();
    for piece in [1, 3, 7, 1000] {
        let (mut frames, mut got) = (FrameDecoder::default(), Vec::new());
        for bytes in bytes.chunks(piece) {
            frames.push(bytes);
            while let Some(message) = frames.next::<ToLauncher>().unwrap() {
                got.push(message);
            }
        }
        assert_eq!(got, samples());
    }
}

#[test]
fn hostile_bytes_are_errors() {
    let refused = |bytes: &[u8]| {
        let mut frames = FrameDecoder::default();
        frames.push(bytes);
        frames.next::<ToLauncher>().unwrap_err().why
    };
    assert!(refused(&[0xff; 8]).contains("the limit"));
    assert!(refused(&[1, 0, 0, 0, 99]).contains("no control message"));
    assert!(refused(&[6, 0, 0, 0, 4, 7, 0, 0, 0, 0]).contains("after the end"));
    // A vector that claims 2^60 elements is rejected before memory is allocated for it.
    let mut long = vec![0, 0, 0, 0, 1, 0, 0];
    long.extend([0xff; 8]);
    long.push(0x0f);
    long[0] = (long.len() - 4) as u8;
    assert!(refused(&long).contains("no control message"));
}

/// The encoding of the first message is the same in every version, so any launcher can read the version in it.
#[test]
fn the_first_message_never_changes_its_form() {
    let hello = ToLauncher::Hello(ProtocolVersion { version: 300, of: "9.8".into() });
    assert_eq!(encode_frame(&hello).unwrap(), [7, 0, 0, 0, 0, 0xac, 2, 3, b'9', b'.', b'8']);
}

#[test]
fn too_long_is_refused_and_long_causes_are_cut() {
    let put = ToLauncher::Put { rank: 0, key: String::new(), value: vec![0; LIMIT] };
    assert!(encode_frame(&put).unwrap_err().why.contains("too many"));
    let WireExit::Died(cause) = WireExit::from(&Exit::Died("ü".repeat(1 << 20).into())) else {
        panic!("not dead")
    };
    assert_eq!(cause.len(), CAUSE);
}
