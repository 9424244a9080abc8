//! What devices have in hand: moves of memory that were started and have not ended, under the tokens that come back.
//!
//! A token that comes back twice, or that nobody was given, names nothing, and nothing happens.

use std::sync::{Arc, OnceLock};

use super::channel::Channel;
use super::ops::Op;
use super::slab::Slab;
use super::{Engine, lock};
use crate::completion::Completer;
use crate::device::{Body, Device, MemoryDesc, OpToken, PeerId, QuiesceStatus, Registration};
use crate::fault::Fault;
use crate::layout::{Envelope, Source};

/// What waits for a token.
#[derive(Debug)]
pub(crate) enum DeviceOp {
    /// `len` bytes on their way into the receive `op`.
    Get { channel: Arc<Channel>, op: u64, peer: PeerId, len: usize },
    /// A piece of a body that is sent from where it lies.
    SendZcopy { peer: PeerId, sending: Arc<StreamedSend> },
    /// An operation that has failed, and whose memory the peer may still reach.
    Quiesce { op: Box<Op>, fault: Fault },
}

/// A message whose body is on its way in frames. It ends when nobody holds it any more: not the outbox, for it has pieces
/// to send, nor a device that sends one from where it lies.
#[derive(Debug)]
pub(crate) struct StreamedSend {
    source: Option<Source>,
    /// The source as a device is shown it, where it takes lent bodies; and what it has made of that. Dropped before the source.
    pub(crate) lent: Option<(MemoryDesc, Option<Registration>)>,
    pub(crate) message: Envelope,
    ender: Option<Completer>,
    /// What it fails with.
    fault: OnceLock<Fault>,
}

impl StreamedSend {
    pub(crate) fn new(
        source: Source,
        lent: Option<(MemoryDesc, Option<Registration>)>,
        message: Envelope,
        ender: Completer,
    ) -> Arc<Self> {
        let (source, ender) = (Some(source), Some(ender));
        Arc::new(StreamedSend { source, lent, message, ender, fault: OnceLock::new() })
    }

    /// Returns `len` bytes from `position` on, as a device takes them.
    pub(crate) fn body(&self, position: usize, len: usize) -> Body<'_> {
        self.source.as_ref().map_or(Body::Empty, |source| source.body(position, len))
    }

    /// Has it fail at its end; the first fault stays.
    pub(crate) fn fail(&self, fault: &Fault) {
        let _ = self.fault.set(fault.clone());
    }
}

impl Drop for StreamedSend {
    fn drop(&mut self) {
        drop((self.lent.take(), self.source.take()));
        let outcome = self.fault.take().map_or(Ok(self.message), Err);
        if let Some(ender) = self.ender.take() {
            ender.complete(outcome);
        }
    }
}

/// The moves of one engine.
#[derive(Debug, Default)]
pub(crate) struct DeviceOps(Slab<DeviceOp>);

impl DeviceOps {
    fn take(&mut self, OpToken(number): OpToken, is_due: impl Fn(&DeviceOp) -> bool) -> Option<DeviceOp> {
        self.0.get(number).filter(|it| is_due(it))?;
        self.0.take(number)
    }

    /// Keeps a send that has failed, and has its device quiesce the memory. Also returns whether the send was received.
    ///
    /// The operation keeps the only copy of its registration. It cannot be taken out before this returns, so the device is
    /// never asked about memory that has been given back.
    fn quiesce(&mut self, device: &dyn Device, op: Op, fault: Fault) -> (OpToken, QuiesceStatus, bool) {
        let token = OpToken(self.0.insert(DeviceOp::Quiesce { op: Box::new(op), fault }));
        let Some(DeviceOp::Quiesce { op, .. }) = self.0.get(token.0) else {
            return (token, QuiesceStatus::Done, false);
        };
        let Op::Send { peer, registration: Some(registration), .. } = &**op else {
            return (token, QuiesceStatus::Done, false);
        };
        let quiet = device.quiesce(*peer, registration, token);
        (token, quiet, device.is_received(registration))
    }

    /// Whether a rank need not wait for any of them before it leaves: memory that peers which have ended may reach is not
    /// waited for, and receives are [operations](super::ops::Ops).
    pub(crate) fn allows_close(&self, has_ended: impl Fn(PeerId) -> bool) -> bool {
        self.0.iter().all(|it| match it {
            DeviceOp::SendZcopy { peer, .. } => has_ended(*peer),
            DeviceOp::Get { .. } | DeviceOp::Quiesce { .. } => true,
        })
    }

    /// Takes all of them back: there are no devices any more.
    pub(crate) fn drain(&mut self) -> Vec<DeviceOp> {
        self.0.drain()
    }
}

impl Engine {
    /// Notes a move before a device is asked for it, so that its end finds it.
    pub(crate) fn begin_device_op(&self, what: DeviceOp) -> OpToken {
        OpToken(lock(&self.moves).0.insert(what))
    }

    /// Forgets a move that was not started.
    pub(crate) fn drop_device_op(&self, token: OpToken) -> Option<DeviceOp> {
        lock(&self.moves).take(token, |_| true)
    }

    /// Ends a move.
    pub(crate) fn device_op_done(&self, token: OpToken, outcome: Result<(), String>) {
        let taken = lock(&self.moves).take(token, |it| !matches!(it, DeviceOp::Quiesce { .. }));
        match taken {
            Some(DeviceOp::Get { channel, op, peer, len }) => {
                self.get_piece_done(&channel, peer, op, outcome.is_ok().then_some(len));
            }
            Some(DeviceOp::SendZcopy { peer, sending }) => {
                if let Err(why) = outcome {
                    sending.fail(&Fault::Unreachable { rank: peer.0, why: why.into() });
                }
            }
            Some(DeviceOp::Quiesce { .. }) | None => (),
        }
    }

    /// Ends an operation whose memory no peer reaches any more.
    pub(crate) fn quiesce_done(&self, token: OpToken) {
        let taken = lock(&self.moves).take(token, |it| matches!(it, DeviceOp::Quiesce { .. }));
        let Some(DeviceOp::Quiesce { op, fault }) = taken else { return };
        let outcome = match &*op {
            // It was cancelled too late.
            Op::Send { message, .. } if fault == Fault::Cancelled && self.is_viewed_send(&op) => Ok(*message),
            _ => Err(fault),
        };
        op.complete(outcome);
    }

    /// Ends an operation that has failed: at once, or when its peer does not reach its memory any more. Returns false if it was
    /// cancelled too late: its receiver views the message in place, and so it has been sent.
    pub(crate) fn fail_op(&self, op: Op, fault: Fault) -> bool {
        let device = match &op {
            Op::Send { peer, registration: Some(_), .. } => {
                self.peers.get(*peer).and_then(|peer| self.device_of(peer))
            }
            _ => None,
        };
        let Some(device) = device else {
            op.complete(Err(fault));
            return true;
        };
        let is_cancelled = fault == Fault::Cancelled;
        let (token, quiet, is_received) = lock(&self.moves).quiesce(device, op, fault);
        if quiet == QuiesceStatus::Done {
            self.quiesce_done(token);
        }
        !(is_cancelled && is_received)
    }
}
