//! Operations that devices execute, identified by tokens. A token that was never issued, or that comes back twice, has
//! no effect.

use std::sync::{Arc, OnceLock};

use super::channel::Channel;
use super::ops::Op;
use super::slab::Slab;
use super::{Engine, lock};
use crate::completion::Completer;
use crate::device::{Body, Device, MemoryDesc, OpToken, PeerId, QuiesceStatus, Registration};
use crate::fault::Fault;
use crate::message::{Envelope, Source};

#[derive(Debug)]
pub(crate) enum DeviceOp {
    Get {
        channel: Arc<Channel>,
        op: u64,
        peer: PeerId,
        len: usize,
    },
    SendZcopy {
        peer: PeerId,
        sending: Arc<StreamedSend>,
    },
    /// A send that has failed or was cancelled, and whose memory the peer might still access.
    Quiesce {
        op: Box<Op>,
        fault: Fault,
    },
}

/// A send whose body goes in DATA frames. It completes when its last handle is dropped. The outbox keeps a handle while
/// pieces are left to send, and so does the [`DeviceOp`] of each piece that a device is sending zero-copy.
#[derive(Debug)]
pub(crate) struct StreamedSend {
    source: Option<Source>,
    /// The source as the device sees it, and its registration, for a zero-copy send. Dropped before the source.
    pub(crate) zcopy: Option<(MemoryDesc, Option<Registration>)>,
    pub(crate) message: Envelope,
    completer: Option<Completer>,
    fault: OnceLock<Fault>,
}

impl StreamedSend {
    pub(crate) fn new(
        source: Source,
        zcopy: Option<(MemoryDesc, Option<Registration>)>,
        message: Envelope,
        completer: Completer,
    ) -> Arc<Self> {
        let (source, completer) = (Some(source), Some(completer));
        Arc::new(StreamedSend { source, zcopy, message, completer, fault: OnceLock::new() })
    }

    pub(crate) fn body(&self, position: usize, len: usize) -> Body<'_> {
        self.source.as_ref().map_or(Body::Empty, |source| source.body(position, len))
    }

    /// Records the fault with which the send will complete; the first fault stays.
    pub(crate) fn fail(&self, fault: &Fault) {
        let _ = self.fault.set(fault.clone());
    }
}

impl Drop for StreamedSend {
    fn drop(&mut self) {
        drop((self.zcopy.take(), self.source.take()));
        let outcome = self.fault.take().map_or(Ok(self.message), Err);
        if let Some(completer) = self.completer.take() {
            completer.complete(outcome);
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct DeviceOps(Slab<DeviceOp>);

impl DeviceOps {
    fn take(&mut self, OpToken(number): OpToken, is_due: impl Fn(&DeviceOp) -> bool) -> Option<DeviceOp> {
        self.0.get(number).filter(|it| is_due(it))?;
        self.0.take(number)
    }

    /// Stores a failed send, and calls its device to quiesce the memory. Also returns whether the send was received.
    /// The operation cannot be taken out before this returns, so the device never quiesces memory that was returned to
    /// the user.
    fn quiesce(&mut self, device: &dyn Device, op: Op, fault: Fault) -> (OpToken, QuiesceStatus, bool) {
        let token = OpToken(self.0.insert(DeviceOp::Quiesce { op: Box::new(op), fault }));
        let Some(DeviceOp::Quiesce { op, .. }) = self.0.get(token.0) else {
            return (token, QuiesceStatus::Done, false);
        };
        let Op::Rendezvous { peer, registration: Some(registration), .. } = &**op else {
            return (token, QuiesceStatus::Done, false);
        };
        let status = device.quiesce(*peer, registration, token);
        (token, status, device.is_received(registration))
    }

    /// Returns whether a rank can leave without waiting for these operations. The receives of gets are in
    /// [`Ops`](super::ops::Ops), which checks them; no rank waits for sends that are being quiesced.
    pub(crate) fn allows_close(&self, has_exited: impl Fn(PeerId) -> bool) -> bool {
        self.0.iter().all(|it| match it {
            DeviceOp::SendZcopy { peer, .. } => has_exited(*peer),
            DeviceOp::Get { .. } | DeviceOp::Quiesce { .. } => true,
        })
    }

    pub(crate) fn drain(&mut self) -> Vec<DeviceOp> {
        self.0.drain()
    }
}

impl Engine {
    /// Stores an operation before a device starts it, so that the completion finds the operation.
    pub(crate) fn begin_device_op(&self, what: DeviceOp) -> OpToken {
        OpToken(lock(&self.device_ops).0.insert(what))
    }

    pub(crate) fn drop_device_op(&self, token: OpToken) -> Option<DeviceOp> {
        lock(&self.device_ops).take(token, |_| true)
    }

    pub(crate) fn device_op_done(&self, token: OpToken, outcome: Result<(), String>) {
        let taken = lock(&self.device_ops).take(token, |it| !matches!(it, DeviceOp::Quiesce { .. }));
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

    pub(crate) fn quiesce_done(&self, token: OpToken) {
        let taken = lock(&self.device_ops).take(token, |it| matches!(it, DeviceOp::Quiesce { .. }));
        let Some(DeviceOp::Quiesce { op, fault }) = taken else { return };
        let outcome = match &*op {
            // The cancellation came too late.
            Op::Rendezvous { message, .. } if fault == Fault::Cancelled && self.is_received_send(&op) => {
                Ok(*message)
            }
            _ => Err(fault),
        };
        op.complete(outcome);
    }

    /// Fails an operation: at once, or when its peer can no longer access its memory. Returns false if a cancellation
    /// came too late, because the receiver views the message or has copied all of it.
    pub(crate) fn fail_op(&self, op: Op, fault: Fault) -> bool {
        let device = match &op {
            Op::Rendezvous { peer, registration: Some(_), .. } => {
                self.peers.get(*peer).and_then(|peer| self.device_of(peer))
            }
            _ => None,
        };
        let Some(device) = device else {
            op.complete(Err(fault));
            return true;
        };
        let is_cancelled = fault == Fault::Cancelled;
        let (token, status, is_received) = lock(&self.device_ops).quiesce(device, op, fault);
        if status == QuiesceStatus::Done {
            self.quiesce_done(token);
        }
        !(is_cancelled && is_received)
    }
}
