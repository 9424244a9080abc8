//! What devices have in hand: moves of memory that were started and have not ended, under the tokens that come back.
//!
//! A token that comes back twice, or that nobody was given, names nothing, and nothing happens.

use std::sync::{Arc, OnceLock};

use super::channel::Channel;
use super::ops::Op;
use super::slab::Slab;
use super::{Engine, lock};
use crate::completion::Ender;
use crate::device::{Body, Device, Memory, PeerId, Quiet, Registration, Token};
use crate::fault::Fault;
use crate::layout::{Envelope, Source};

/// What waits for a token.
#[derive(Debug)]
pub(crate) enum Move {
    /// `len` bytes on their way into the receive `op`.
    Got { channel: Arc<Channel>, op: u64, peer: PeerId, len: usize },
    /// A piece of a body that is sent from where it lies.
    Lent { peer: PeerId, sending: Arc<Sending> },
    /// An operation that has failed, and whose memory the peer may still reach.
    Quiet { op: Box<Op>, fault: Fault },
}

/// A message whose body is on its way in frames. It ends when nobody holds it any more: not the outbox, for it has pieces
/// to send, nor a device that sends one from where it lies.
#[derive(Debug)]
pub(crate) struct Sending {
    source: Option<Source>,
    /// The source as a device is shown it, where it takes lent bodies; and what it has made of that. Dropped before the source.
    pub(crate) lent: Option<(Memory, Option<Registration>)>,
    pub(crate) message: Envelope,
    ender: Option<Ender>,
    /// What it fails with.
    fault: OnceLock<Fault>,
}

impl Sending {
    pub(crate) fn new(
        source: Source,
        lent: Option<(Memory, Option<Registration>)>,
        message: Envelope,
        ender: Ender,
    ) -> Arc<Self> {
        let (source, ender) = (Some(source), Some(ender));
        Arc::new(Sending { source, lent, message, ender, fault: OnceLock::new() })
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

impl Drop for Sending {
    fn drop(&mut self) {
        drop((self.lent.take(), self.source.take()));
        let outcome = self.fault.take().map_or(Ok(self.message), Err);
        if let Some(ender) = self.ender.take() {
            ender.end(outcome);
        }
    }
}

/// The moves of one engine.
#[derive(Debug, Default)]
pub(crate) struct Moves(Slab<Move>);

impl Moves {
    fn take(&mut self, Token(number): Token, is_due: impl Fn(&Move) -> bool) -> Option<Move> {
        self.0.get(number).filter(|it| is_due(it))?;
        self.0.take(number)
    }

    /// Keeps a send that has failed, and has its device quiesce the memory. Also returns whether the send was received.
    ///
    /// The operation keeps the only copy of its registration. It cannot be taken out before this returns, so the device is
    /// never asked about memory that has been given back.
    fn quiesce(&mut self, device: &dyn Device, op: Op, fault: Fault) -> (Token, Quiet, bool) {
        let token = Token(self.0.insert(Move::Quiet { op: Box::new(op), fault }));
        let Some(Move::Quiet { op, .. }) = self.0.get(token.0) else { return (token, Quiet::Now, false) };
        let Op::Send { peer, registration: Some(registration), .. } = &**op else {
            return (token, Quiet::Now, false);
        };
        let quiet = device.quiesce(*peer, registration, token);
        (token, quiet, device.is_received(registration))
    }

    /// Whether a rank need not wait for any of them before it leaves: memory that peers which have ended may reach is not
    /// waited for, and receives are [operations](super::ops::Ops).
    pub(crate) fn is_settled(&self, has_ended: impl Fn(PeerId) -> bool) -> bool {
        self.0.iter().all(|it| match it {
            Move::Lent { peer, .. } => has_ended(*peer),
            Move::Got { .. } | Move::Quiet { .. } => true,
        })
    }

    /// Takes all of them back: there are no devices any more.
    pub(crate) fn drain(&mut self) -> Vec<Move> {
        self.0.drain()
    }
}

impl Engine {
    /// Notes a move before a device is asked for it, so that its end finds it.
    pub(crate) fn note_move(&self, what: Move) -> Token {
        Token(lock(&self.moves).0.insert(what))
    }

    /// Forgets a move that was not started.
    pub(crate) fn forget_move(&self, token: Token) -> Option<Move> {
        lock(&self.moves).take(token, |_| true)
    }

    /// Ends a move.
    pub(crate) fn end_move(&self, token: Token, outcome: Result<(), String>) {
        let taken = lock(&self.moves).take(token, |it| !matches!(it, Move::Quiet { .. }));
        match taken {
            Some(Move::Got { channel, op, peer, len }) => {
                self.end_get(&channel, peer, op, outcome.is_ok().then_some(len));
            }
            Some(Move::Lent { peer, sending }) => {
                if let Err(why) = outcome {
                    sending.fail(&Fault::Unreachable { rank: peer.0, why: why.into() });
                }
            }
            Some(Move::Quiet { .. }) | None => (),
        }
    }

    /// Ends an operation whose memory no peer reaches any more.
    pub(crate) fn end_quiet(&self, token: Token) {
        let taken = lock(&self.moves).take(token, |it| matches!(it, Move::Quiet { .. }));
        let Some(Move::Quiet { op, fault }) = taken else { return };
        let outcome = match &*op {
            // It was cancelled too late.
            Op::Send { message, .. } if fault == Fault::Cancelled && self.is_received(&op) => Ok(*message),
            _ => Err(fault),
        };
        op.end(outcome);
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
            op.end(Err(fault));
            return true;
        };
        let is_cancelled = fault == Fault::Cancelled;
        let (token, quiet, is_received) = lock(&self.moves).quiesce(device, op, fault);
        if quiet == Quiet::Now {
            self.end_quiet(token);
        }
        !(is_cancelled && is_received)
    }
}
