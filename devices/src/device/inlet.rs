//! The receiving end for all peers, and what it hands frames to.

use std::fmt;

use super::{OpToken, PeerId};

/// The receiving end for all peers.
///
/// # Safety
/// * Of what [`Sink::begin`] answers with [`Landing::Into`], the `len` bytes of that body are written and nothing else, and
///   only within [`progress`](Self::progress).
/// * [`Sink::landed`] is called only when all of them are.
/// * A peer has one body at a time: from `begin` to [`Sink::landed`] or [`Sink::peer_lost`], which ends the writing.
/// * [`Sink::completed`] is called once for each move that was [started](super::OpStatus::InProgress), when its bytes are not used any more;
///   with `Ok` only if all of them have moved. [`Sink::quiesced`] is called once for each [`QuiesceStatus::InProgress`](super::QuiesceStatus::InProgress).
///
/// So that code without `unsafe` cannot pass off memory as written:
/// ```compile_fail,E0200
/// # use mpj_devices::{Inlet, PeerId, Sink};
/// #[derive(Debug)]
/// struct Hollow;
///
/// impl Inlet for Hollow {
///     fn progress(&mut self, sink: &mut dyn Sink) -> usize {
///         sink.begin(PeerId(1), &[0; 40], 500);
///         sink.landed(PeerId(1));
///         1
///     }
/// }
/// ```
#[expect(unsafe_code, reason = "messages are delivered from memory that an inlet says it has written")]
pub unsafe trait Inlet: Send + fmt::Debug {
    /// Hands every frame that has arrived, and every move that has ended, to `sink`, up to a bound; never blocks. Returns
    /// how many. No lock is held meanwhile that a call of the device or a link takes.
    fn progress(&mut self, sink: &mut dyn Sink) -> usize;

    /// Returns whether a look for what has arrived asks the system, and so costs as much as many looks at memory. Where a rank
    /// has devices that need not ask, it looks at this one less often than at them.
    fn needs_syscall(&self) -> bool {
        false
    }

    /// As [`Endpoint::verify`](super::Endpoint::verify), of the receiving end: a peer whose memory was overwritten ends, by [`Sink::peer_lost`].
    fn verify(&mut self, _sink: &mut dyn Sink) {}

    /// Takes note that a peer has died, as others say: its connection may stay open for ever. A body from it that is under
    /// way ends, by [`Sink::peer_lost`]. What has come whole from before the death was handed over by then.
    ///
    /// A peer that [leaves](super::Endpoint::peer_gone) ends no body: it leaves when all that it has sent has arrived. A device that
    /// hands over whole frames alone has nothing to do.
    fn abort_body(&mut self, _peer: PeerId, _sink: &mut dyn Sink) {}
}

/// Where the body of an arriving frame goes.
#[derive(Debug)]
pub enum Landing {
    /// To these bytes, exactly as long as the body; they stay valid until [`Sink::landed`] or [`Sink::peer_lost`].
    Into(*mut u8),
    /// To [`Sink::piece`], in order, in pieces of any length.
    Pieces,
}

/// What an [`Inlet`] hands frames to.
///
/// # Safety
/// What [`begin`](Self::begin) answers with [`Landing::Into`] is valid for writes of `len` bytes, and used by nobody else,
/// until [`landed`](Self::landed) or [`peer_lost`](Self::peer_lost) is called for that peer; where neither is, as long as the inlet is
/// used, with this sink or another.
#[expect(unsafe_code, reason = "an inlet writes to where the sink says")]
pub unsafe trait Sink {
    /// Takes a frame whose body is all there. `body` need not outlive the call.
    fn frame(&mut self, from: PeerId, head: &[u8], body: &[u8]);

    /// Takes a head whose body of `len` bytes still comes; says where to. One body a peer at a time.
    fn begin(&mut self, from: PeerId, head: &[u8], len: usize) -> Landing;

    /// Takes the next bytes of a body that goes to [`Landing::Pieces`].
    fn piece(&mut self, from: PeerId, bytes: &[u8]);

    /// Ends a body: all of it has landed.
    fn landed(&mut self, from: PeerId);

    /// Tells that nothing more will come from a peer, and why; a body under way is void.
    fn peer_lost(&mut self, from: PeerId, why: &str);

    /// Tells that a move has ended that a link has [started](super::OpStatus::InProgress): its bytes have moved, or why they have not.
    fn completed(&mut self, op: OpToken, outcome: Result<(), String>);

    /// Tells that a peer does not reach the memory any more that [`Device::quiesce`](super::Device::quiesce) was asked about.
    fn quiesced(&mut self, op: OpToken);
}
