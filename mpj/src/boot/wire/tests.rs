//! Tests of complete, truncated and hostile frames.

use super::*;

fn samples() -> Vec<ToLauncher> {
    vec![
        ToLauncher::Hello(ProtocolVersion::own()),
        ToLauncher::Put { rank: 3, key: "cards".into(), value: vec![0; 300] },
        ToLauncher::Exited { rank: 1, exit: WireExit::Died("ü".repeat(10)) },
        ToLauncher::Abort { rank: 2, code: -1, reason: String::new() },
    ]
}

#[test]
fn messages_are_decoded_from_pieces_of_any_length() {
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
    let error_of = |bytes: &[u8]| {
        let mut frames = FrameDecoder::default();
        frames.push(bytes);
        frames.next::<ToLauncher>().unwrap_err().reason
    };
    assert!(error_of(&[0xff; 8]).contains("exceeds the limit"));
    assert!(error_of(&[1, 0, 0, 0, 99]).contains("invalid control message"));
    assert!(error_of(&[6, 0, 0, 0, 4, 7, 0, 0, 0, 0]).contains("after its end"));
    // A vector that claims 2^60 elements is rejected before memory is allocated for it.
    let mut long = vec![0, 0, 0, 0, 1, 0, 0];
    long.extend([0xff; 8]);
    long.push(0x0f);
    long[0] = (long.len() - 4) as u8;
    assert!(error_of(&long).contains("invalid control message"));
}

/// Every version of `mpjrun` must be able to read the version.
#[test]
fn hello_has_the_same_encoding_in_all_versions() {
    let hello = ToLauncher::Hello(ProtocolVersion { version: 300, mpj_version: "9.8".into() });
    assert_eq!(encode_frame(&hello).unwrap(), [7, 0, 0, 0, 0, 0xac, 2, 3, b'9', b'.', b'8']);
}

#[test]
fn too_long_messages_are_errors_and_long_causes_are_truncated() {
    let put = ToLauncher::Put { rank: 0, key: String::new(), value: vec![0; MAX_MESSAGE] };
    assert!(encode_frame(&put).unwrap_err().reason.contains("exceeds the limit"));
    let WireExit::Died(cause) = WireExit::from(&Exit::Died("ü".repeat(1 << 20).into())) else {
        panic!("expected Died")
    };
    assert_eq!(cause.len(), MAX_CAUSE);
}
