//! Operations that wait for a reply or a body from their peer. Frames carry the numbers that identify them.

use super::slab::Slab;
use crate::completion::{Completer, Completion, Outcome};
use crate::device::{MemoryDesc, PeerId, Registration};
use crate::fault::Fault;
use crate::message::{Envelope, Source, Target};

/// A pending operation. Registrations precede the memory that they register, so that they are dropped first.
#[derive(Debug)]
pub(crate) enum Op {
    /// A message whose body waits here for [`FrameKind::Cts`](crate::header::FrameKind) or
    /// [`FrameKind::Fin`](crate::header::FrameKind). If it has a registration, the peer may be reading the body.
    Rendezvous {
        peer: PeerId,
        registration: Option<Registration>,
        source: Source,
        message: Envelope,
        completer: Completer,
    },
    /// An eager message that waits for its match. While its frame, number `seq`, is queued, the frame owns the memory.
    EagerSync {
        peer: PeerId,
        message: Envelope,
        seq: u64,
        completer: Completer,
    },
    RecvOp(RecvOp),
}

/// A receive that has matched an RTS; `sender_op` is the operation at the sender.
#[derive(Debug)]
pub(crate) struct RecvOp {
    pub(crate) peer: PeerId,
    pub(crate) sender_op: u64,
    /// The registration of the target, if any. Dropped before the target, and before the operation completes.
    pub(crate) registration: Option<Registration>,
    pub(crate) target: Target,
    pub(crate) message: Envelope,
    /// Number of bytes that have landed.
    pub(crate) received: usize,
    pub(crate) completer: Completer,
    pub(crate) owner: BufferOwner,
}

#[derive(Debug)]
pub(crate) enum BufferOwner {
    Engine,
    Device {
        /// Number of writes that have not ended, plus one while pieces are still to be posted.
        writes: u32,
        failed: bool,
        /// The fault with which the operation completes after the last write, if it has failed meanwhile.
        fault: Option<Fault>,
    },
}

impl BufferOwner {
    pub(crate) const ONE_WRITE: BufferOwner = BufferOwner::Device { writes: 1, failed: false, fault: None };
}

#[derive(Debug)]
pub(crate) enum WriteDone {
    Pending,
    Complete(RecvOp),
    Failed(Op, Fault),
    /// A write has failed and no write is under way: request all of the body of `sender_op` by a CTS.
    Refetch {
        sender_op: u64,
    },
}

impl Op {
    pub(crate) fn peer(&self) -> PeerId {
        match self {
            Op::Rendezvous { peer, .. } | Op::EagerSync { peer, .. } | Op::RecvOp(RecvOp { peer, .. }) => {
                *peer
            }
        }
    }

    pub(crate) fn message(&self) -> Envelope {
        match self {
            Op::Rendezvous { message, .. }
            | Op::EagerSync { message, .. }
            | Op::RecvOp(RecvOp { message, .. }) => *message,
        }
    }

    fn is_device_owned(&self) -> bool {
        matches!(self, Op::RecvOp(RecvOp { owner: BufferOwner::Device { .. }, .. }))
    }

    fn completer(&self) -> &Completer {
        match self {
            Op::Rendezvous { completer, .. }
            | Op::EagerSync { completer, .. }
            | Op::RecvOp(RecvOp { completer, .. }) => completer,
        }
    }

    /// Completes the operation. Neither a device nor a peer may access its memory any more, except a peer that views
    /// exported memory, which the device keeps.
    pub(crate) fn complete(self, outcome: Outcome) {
        let completer = match self {
            Op::Rendezvous { completer, source, registration, .. } => {
                drop((registration, source));
                completer
            }
            Op::EagerSync { completer, .. } => completer,
            Op::RecvOp(RecvOp { completer, target, registration, .. }) => {
                drop((registration, target));
                completer
            }
        };
        completer.complete(outcome);
    }
}

/// A table of operations, identified by numbers.
///
/// # Invariants
/// 1. A receive that a device owns stays in the table, with its target: [`get`](Self::get) does not return it, and
///    [`take`](Self::take) and [`take_failed`](Self::take_failed) leave it there. Only
///    [`end_device_write`](Self::end_device_write), which is called when a write has ended or will not be made, and
///    [`reclaim_all`](Self::reclaim_all), which is called after the devices were dropped, change that. So the user's
///    memory is not returned while a device may write to it.
#[derive(Debug, Default)]
pub(crate) struct Ops(Slab<Op>);

impl Ops {
    pub(crate) fn insert(&mut self, op: Op) -> u64 {
        self.0.insert(op)
    }

    /// Returns the operation that `peer` names by `number`, if it is an operation with that peer that no device owns.
    pub(crate) fn get(&mut self, number: u64, peer: PeerId) -> Option<&mut Op> {
        self.0.get(number).filter(|op| op.peer() == peer && !op.is_device_owned())
    }

    /// Returns a receive from `peer`, even if a device owns it.
    fn recv_op(&mut self, number: u64, peer: PeerId) -> Option<&mut RecvOp> {
        match self.0.get(number)? {
            Op::RecvOp(recv) if recv.peer == peer => Some(recv),
            _ => None,
        }
    }

    /// Gives a receive to a device, which writes the next `len` bytes to the returned address. Returns `None` if there
    /// is no such receive, if a device owns it already, or if the bytes are not the next ones of the message or not
    /// contiguous in memory.
    pub(crate) fn begin_device_write(
        &mut self,
        number: u64,
        peer: PeerId,
        at: usize,
        len: usize,
    ) -> Option<*mut u8> {
        let Op::RecvOp(RecvOp { target, message, received, owner, .. }) = self.get(number, peer)? else {
            return None;
        };
        if at != *received || len > message.bytes - *received {
            return None;
        }
        let to = target.contiguous_mut(at, len)?;
        *owner = BufferOwner::ONE_WRITE;
        Some(to)
    }

    /// Adds a write of `at..at + len` to a receive that a device owns. Returns `None` if no device owns the receive, if
    /// the receive or a write has failed, or if the range exceeds the target.
    pub(crate) fn add_device_write(
        &mut self,
        number: u64,
        peer: PeerId,
        at: usize,
        len: usize,
    ) -> Option<(MemoryDesc, Option<Registration>)> {
        let recv = self.recv_op(number, peer)?;
        let BufferOwner::Device { writes, failed: false, fault: None } = &mut recv.owner else {
            return None;
        };
        let memory = recv.target.for_device(at, len)?;
        *writes += 1;
        Some((memory, recv.registration.clone()))
    }

    /// Ends a device write to a receive. `landed` is the number of bytes written, or `None` if the write failed.
    pub(crate) fn end_device_write(&mut self, number: u64, peer: PeerId, landed: Option<usize>) -> WriteDone {
        let Some(recv) = self.recv_op(number, peer) else { return WriteDone::Pending };
        let BufferOwner::Device { writes, failed, fault } = &mut recv.owner else {
            return WriteDone::Pending;
        };
        match landed {
            Some(len) => recv.received += len,
            None => *failed = true,
        }
        *writes -= 1;
        if *writes > 0 {
            return WriteDone::Pending;
        }
        let (failed, fault) = (*failed, fault.take());
        recv.owner = BufferOwner::Engine;
        if let Some(fault) = fault {
            return self.0.take(number).map_or(WriteDone::Pending, |op| WriteDone::Failed(op, fault));
        }
        if failed {
            recv.received = 0;
            return WriteDone::Refetch { sender_op: recv.sender_op };
        }
        if recv.received < recv.message.bytes {
            return WriteDone::Pending;
        }
        match self.0.take(number) {
            Some(Op::RecvOp(recv)) => WriteDone::Complete(recv),
            _ => WriteDone::Pending,
        }
    }

    /// Reclaims all receives after the devices were dropped; returns those that failed while a device owned them.
    pub(crate) fn reclaim_all(&mut self) -> Vec<(Op, Fault)> {
        let mut failed = Vec::new();
        for (number, op) in self.0.iter_mut() {
            if let Op::RecvOp(RecvOp { owner, .. }) = op
                && let BufferOwner::Device { fault: Some(fault), .. } =
                    std::mem::replace(owner, BufferOwner::Engine)
            {
                failed.push((number, fault));
            }
        }
        failed.into_iter().filter_map(|(number, fault)| Some((self.0.take(number)?, fault))).collect()
    }

    pub(crate) fn take(&mut self, number: u64, peer: PeerId) -> Option<Op> {
        self.get(number, peer)?;
        self.0.take(number)
    }

    /// Takes the send that completes `completion`, and its number.
    pub(crate) fn take_send(&mut self, completion: &Completion) -> Option<(u64, Op)> {
        let ours = |op: &Op| !matches!(op, Op::RecvOp(_)) && op.completer().is_for(completion);
        let number = self.0.find(ours)?;
        Some((number, self.0.take(number)?))
    }

    pub(crate) fn take_rendezvous_sends(&mut self, which: impl Fn(&Op) -> bool) -> Vec<(Op, Envelope)> {
        let mut picked = Vec::new();
        for (number, op) in self.0.iter_mut() {
            if let Op::Rendezvous { message, .. } = &*op
                && which(op)
            {
                picked.push((number, *message));
            }
        }
        picked.into_iter().filter_map(|(number, message)| Some((self.0.take(number)?, message))).collect()
    }

    /// Takes the operations for which `why` returns a fault. A receive that a device owns fails after its writes.
    pub(crate) fn take_failed(&mut self, mut why: impl FnMut(&Op) -> Option<Fault>) -> Vec<(Op, Fault)> {
        let mut taken = Vec::new();
        for (number, op) in self.0.iter_mut() {
            let Some(fault) = why(op) else { continue };
            match op {
                Op::RecvOp(RecvOp { owner: BufferOwner::Device { fault: failed, .. }, .. }) => {
                    failed.get_or_insert(fault);
                }
                _ => taken.push((number, fault)),
            }
        }
        taken.into_iter().filter_map(|(number, fault)| Some((self.0.take(number)?, fault))).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether a closing rank may ignore all of them. It may ignore a send that has been received, and a failed
    /// receive from an exited peer, even if a device still holds the memory of that receive.
    pub(crate) fn allows_close(
        &self,
        has_exited: impl Fn(PeerId) -> bool,
        is_received: impl Fn(&Op) -> bool,
    ) -> bool {
        self.0.iter().all(|op| match op {
            Op::RecvOp(RecvOp { peer, owner: BufferOwner::Device { fault: Some(_), .. }, .. }) => {
                has_exited(*peer)
            }
            op => is_received(op),
        })
    }
}

#[cfg(test)]
mod tests;
