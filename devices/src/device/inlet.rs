use std::fmt;

use super::{OpToken, PeerId};

/// The receiving end for all peers.
///
/// # Safety
/// * If [`Sink::begin`] returns [`Landing::Into`], the inlet writes the `len` bytes of that body and nothing else, and
///   only within [`progress`](Self::progress).
/// * [`Sink::landed`] is called only when all of these bytes are written.
/// * At most one body of each peer is in transfer, from `begin` to [`Sink::landed`] or [`Sink::peer_lost`]. The inlet
///   writes no more of it after that.
/// * [`Sink::completed`] is called once for each operation that was [started](super::OpStatus::InProgress), when the
///   device no longer uses its bytes; with `Ok` only if all of them have moved. [`Sink::quiesced`] is called once for
///   each [`QuiesceStatus::InProgress`](super::QuiesceStatus::InProgress).
///
/// The trait is `unsafe`, so safe code cannot report memory as written:
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
#[expect(unsafe_code, reason = "messages are delivered from memory that an inlet reports as written")]
pub unsafe trait Inlet: Send + fmt::Debug {
    /// Passes arrived frames and completed operations to `sink`, up to a limit; never blocks. Returns their number; the
    /// inlet may count other progress, too. The sink may call the device and its endpoints, so the inlet must not hold
    /// a lock that they take.
    fn progress(&mut self, sink: &mut dyn Sink) -> usize;

    /// Returns whether a poll needs a system call, which costs more than a poll of memory. A rank that also has cheaper
    /// devices polls this one less often.
    fn needs_syscall(&self) -> bool {
        false
    }

    /// Checks the receiving end as [`Endpoint::verify`](super::Endpoint::verify) checks an endpoint. If values for a
    /// peer were overwritten, it calls [`Sink::peer_lost`] for that peer.
    fn verify(&mut self, _sink: &mut dyn Sink) {}

    /// Ends the body in transfer from a peer that has died, by [`Sink::peer_lost`]. The engine calls it when others
    /// report the death, because the connection might stay open. By then, the inlet has normally passed on all complete
    /// frames that were sent before the death.
    ///
    /// The engine does not call it for a peer that exits normally, because everything that such a peer has sent has
    /// arrived. A device that passes on only complete frames has nothing to do.
    fn abort_body(&mut self, _peer: PeerId, _sink: &mut dyn Sink) {}
}

/// The destination of the body of an arriving frame.
#[derive(Debug)]
pub enum Landing {
    /// Write it to the memory at this address, which has the length of the body and stays valid until
    /// [`Sink::landed`] or [`Sink::peer_lost`].
    Into(*mut u8),
    /// Pass it to [`Sink::piece`], in order, in pieces of any length.
    Pieces,
}

/// The engine's side of an [`Inlet`]: it receives the frames.
///
/// # Safety
/// If [`begin`](Self::begin) returns [`Landing::Into`], the memory is valid for writes of `len` bytes and not used
/// otherwise, until [`landed`](Self::landed) or [`peer_lost`](Self::peer_lost) is called for that peer. If neither is
/// called, this holds for as long as the inlet is used, with this sink or another.
#[expect(unsafe_code, reason = "an inlet writes to the memory that the sink names")]
pub unsafe trait Sink {
    /// Handles a frame whose body is complete. `body` need not outlive the call.
    fn frame(&mut self, from: PeerId, head: &[u8], body: &[u8]);

    /// Handles a head whose body of `len` bytes follows; returns the destination of the body. Each peer has at most one
    /// body in transfer.
    fn begin(&mut self, from: PeerId, head: &[u8], len: usize) -> Landing;

    /// Handles the next bytes of a body that goes to [`Landing::Pieces`].
    fn piece(&mut self, from: PeerId, bytes: &[u8]);

    /// Reports that all bytes of a body have arrived.
    fn landed(&mut self, from: PeerId);

    /// Reports that no more frames will come from a peer, and why; a body in transfer is discarded.
    fn peer_lost(&mut self, from: PeerId, why: &str);

    /// Reports the completion of an operation that an endpoint has [started](super::OpStatus::InProgress): `Ok` if all
    /// of its bytes have moved, otherwise the reason why not.
    fn completed(&mut self, op: OpToken, outcome: Result<(), String>);

    /// Reports that a peer can no longer access the memory for which [`Device::quiesce`](super::Device::quiesce) was
    /// called.
    fn quiesced(&mut self, op: OpToken);
}
