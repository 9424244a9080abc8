//! The parsing of what agents receive, for fuzzing.

use std::net::SocketAddr;

use super::messages::{FromRoot, ToRoot};
use super::reports::{ExitReport, ReportRun};
use super::root_card::RootCard;
use crate::boot::wire::{FrameDecoder, ToLauncher, ToProcess, WireExit, encode_frame};

/// Parses the card of a root, and returns its text.
pub fn root_card(text: &str) -> Option<String> {
    RootCard::parse(text).ok().map(|card| card.to_text())
}

/// Takes the next message to or from a root, and returns it as a frame. Returns `None` if it has not arrived in full.
///
/// # Errors
/// The bytes are not a message of this kind.
pub fn next_frame(frames: &mut FrameDecoder, is_to_root: bool) -> Result<Option<Vec<u8>>, String> {
    let frame = if is_to_root {
        frames.next::<ToRoot>().map(|message| message.map(|message| encode_frame(&message)))
    } else {
        frames.next::<FromRoot>().map(|message| message.map(|message| encode_frame(&message)))
    };
    frame.map_err(|e| e.to_string())?.transpose().map_err(|e| e.to_string())
}

/// Returns frames of messages to or from a root.
pub fn sample_frames(is_to_root: bool) -> Vec<Vec<u8>> {
    let at = SocketAddr::from(([10, 0, 0, 1], 5));
    let report = ExitReport::Exited(WireExit::Died("panicked".into()));
    let to_root = [
        ToRoot::FromProcess { rank: 3, message: ToLauncher::Fence { id: 7 } },
        ToRoot::ExitReports(vec![ReportRun { first: 2, len: 2, report }]),
        ToRoot::Watch { at },
        ToRoot::PeerCut { host: 1, cause: "no answer".into() },
    ];
    let from_root = [
        FromRoot::ToProcess { rank: 3, message: ToProcess::FenceDone { id: 7, result: Ok(()) } },
        FromRoot::ToJoined(ToProcess::JobEnds { code: 1 }),
        FromRoot::JobEnds { code: 7 },
        FromRoot::Watch { at },
        FromRoot::WatchPeer { host: 1, at },
    ];
    let frames = match is_to_root {
        true => to_root.iter().map(encode_frame).collect::<Result<Vec<_>, _>>(),
        false => from_root.iter().map(encode_frame).collect(),
    };
    frames.unwrap_or_default()
}
