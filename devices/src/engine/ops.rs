//! Operations that wait for an answer of their peer, named by numbers that travel.

use crate::completion::{Completion, Ender, Outcome};
use crate::device::{PeerId, RemoteKey};
use crate::fault::Fault;
use crate::layout::{Envelope, Source, Target};

/// An operation under way.
#[derive(Debug)]
pub(crate) enum Op {
    /// A message whose body waits here for [`Kind::Clear`](crate::header::Kind) or
    /// [`Kind::Done`](crate::header::Kind); `key` is the offer its peer may be reading from.
    Send { peer: PeerId, source: Source, message: Envelope, key: Option<RemoteKey>, ender: Ender },
    /// An eager message that waits for its match. Its frame holds the memory, and may wait for room at this place of the
    /// peer's outbox.
    Sync { peer: PeerId, message: Envelope, place: u64, ender: Ender },
    /// A matched receive whose body is coming in pieces.
    Recv { peer: PeerId, target: Target, message: Envelope, received: usize, ender: Ender, hands: Hands },
}

/// In whose hands the memory of a receive is.
#[derive(Debug, Default)]
pub(crate) enum Hands {
    /// The engine's.
    #[default]
    Ours,
    /// A device's, which writes to it; what the operation fails with when it comes back, if it has failed meanwhile.
    Lent(Option<Fault>),
}

impl Op {
    pub(crate) fn peer(&self) -> PeerId {
        match self {
            Op::Send { peer, .. } | Op::Sync { peer, .. } | Op::Recv { peer, .. } => *peer,
        }
    }

    fn is_lent(&self) -> bool {
        matches!(self, Op::Recv { hands: Hands::Lent(_), .. })
    }

    pub(crate) fn key(&self) -> Option<RemoteKey> {
        match self {
            Op::Send { key, .. } => *key,
            _ => None,
        }
    }

    fn ender(&self) -> &Ender {
        match self {
            Op::Send { ender, .. } | Op::Sync { ender, .. } | Op::Recv { ender, .. } => ender,
        }
    }

    /// Ends the operation; an offer must have been revoked before.
    pub(crate) fn end(self, outcome: Outcome) {
        let ender = match self {
            Op::Send { ender, source, .. } => {
                drop(source);
                ender
            }
            Op::Sync { ender, .. } => ender,
            Op::Recv { ender, target, .. } => {
                drop(target);
                ender
            }
        };
        ender.end(outcome);
    }
}

/// A table of operations; a number is never valid twice.
///
/// # Invariants
/// 1. A receive that is lent to a device stays in the table, with its target: [`get`](Self::get) does not show it,
///    [`take`](Self::take) and [`take_all`](Self::take_all) leave it. Only [`take_back`](Self::take_back), called when
///    the device has landed or lost the body, and [`take_all_back`](Self::take_all_back), called when no device runs
///    any more, end that. So the user's memory is not given back while a device may write to it.
#[derive(Debug, Default)]
pub(crate) struct Ops {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    op: Option<Op>,
}

impl Ops {
    pub(crate) fn insert(&mut self, op: Op) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            // Generations start at 1, so that 0 is no operation.
            self.slots.push(Slot { generation: 1, op: None });
            (self.slots.len() - 1) as u32
        });
        let slot = &mut self.slots[index as usize];
        slot.op = Some(op);
        u64::from(slot.generation) << 32 | u64::from(index)
    }

    /// Returns an operation by a number that came from `peer`, if it is one of that peer's.
    pub(crate) fn get(&mut self, number: u64, peer: PeerId) -> Option<&mut Op> {
        let slot = self.slots.get_mut(number as u32 as usize)?;
        let valid = u64::from(slot.generation) == number >> 32;
        slot.op.as_mut().filter(|op| valid && op.peer() == peer && !op.is_lent())
    }

    /// Lends a receive to a device, which writes its next `len` bytes where this says; `None` if `at` is not the next
    /// byte, or they have no run of memory.
    pub(crate) fn lend(&mut self, number: u64, peer: PeerId, at: usize, len: usize) -> Option<*mut u8> {
        let Op::Recv { target, message, received, hands, .. } = self.get(number, peer)? else { return None };
        if at != *received || len > message.bytes - *received {
            return None;
        }
        let to = target.run(at, len)?;
        *hands = Hands::Lent(None);
        Some(to)
    }

    /// Takes a receive back from a device that has written its next `len` bytes; returns it if it has failed meanwhile.
    pub(crate) fn take_back(&mut self, number: u64, peer: PeerId, len: usize) -> Option<(Op, Fault)> {
        let slot = self.slots.get_mut(number as u32 as usize)?;
        let valid = u64::from(slot.generation) == number >> 32;
        let op = slot.op.as_mut().filter(|op| valid && op.peer() == peer)?;
        let Op::Recv { received, hands, .. } = op else { return None };
        *received += len;
        let Hands::Lent(Some(fault)) = std::mem::take(hands) else { return None };
        Some((self.take(number, peer)?, fault))
    }

    /// Takes all receives back: there are no devices any more.
    pub(crate) fn take_all_back(&mut self) {
        for op in self.slots.iter_mut().filter_map(|slot| slot.op.as_mut()) {
            if let Op::Recv { hands, .. } = op {
                *hands = Hands::Ours;
            }
        }
    }

    pub(crate) fn take(&mut self, number: u64, peer: PeerId) -> Option<Op> {
        self.get(number, peer)?;
        let index = number as u32;
        let slot = self.slots.get_mut(index as usize)?;
        slot.generation = slot.generation.wrapping_add(1).max(1);
        self.free.push(index);
        slot.op.take()
    }

    /// Takes the send that ends `completion`, and its number.
    pub(crate) fn take_send(&mut self, completion: &Completion) -> Option<(u64, Op)> {
        let ours = |op: &Op| !matches!(op, Op::Recv { .. }) && op.ender().ends(completion);
        let at = self.slots.iter().position(|slot| slot.op.as_ref().is_some_and(ours))?;
        let slot = &self.slots[at];
        let number = u64::from(slot.generation) << 32 | at as u64;
        let peer = slot.op.as_ref()?.peer();
        Some((number, self.take(number, peer)?))
    }

    /// Takes the operations that `which` picks; one that is lent to a device fails with `fault` when it comes back.
    pub(crate) fn take_all(&mut self, mut which: impl FnMut(&Op) -> bool, fault: &Fault) -> Vec<Op> {
        let mut taken = Vec::new();
        for (index, slot) in self.slots.iter_mut().enumerate() {
            if slot.op.as_ref().is_some_and(&mut which) {
                if let Some(Op::Recv { hands: Hands::Lent(failed), .. }) = &mut slot.op {
                    failed.get_or_insert_with(|| fault.clone());
                    continue;
                }
                slot.generation = slot.generation.wrapping_add(1).max(1);
                self.free.push(index as u32);
                taken.extend(slot.op.take());
            }
        }
        taken
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots.len() == self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use mpj_datatypes::{Primitive, Signature};

    use super::*;
    use crate::buf::Buf;
    use crate::completion::{Completion, pair};

    const PEER: PeerId = PeerId(3);
    const FREED: Fault = Fault::Freed;

    fn receive(memory: &mut [u8]) -> (Ops, u64, Completion) {
        // SAFETY: the memory outlives the operation in every test.
        #[expect(unsafe_code, reason = "see above")]
        let target = unsafe { Target::new(Buf::new(memory.as_mut_ptr(), memory.len(), Primitive::U8), None) };
        let (ender, completion) = pair();
        let message = Envelope {
            source: 0,
            tag: 0,
            code: Primitive::U8 as u8,
            signature: Signature::EMPTY,
            bytes: memory.len(),
        };
        let mut ops = Ops::default();
        let number = ops.insert(Op::Recv {
            peer: PEER,
            target: target.unwrap(),
            message,
            received: 0,
            ender,
            hands: Hands::Ours,
        });
        (ops, number, completion)
    }

    #[test]
    fn what_is_lent_to_a_device_fails_only_when_it_comes_back() {
        let mut memory = [0; 100];
        let (mut ops, number, completion) = receive(&mut memory);
        assert!(ops.lend(number, PEER, 0, 60).is_some());
        assert!(ops.get(number, PEER).is_none() && ops.take(number, PEER).is_none());
        assert!(ops.lend(number, PEER, 0, 60).is_none(), "twice");
        assert!(ops.take_all(|_| true, &FREED).is_empty());
        assert!(ops.take_all(|_| true, &Fault::Cancelled).is_empty(), "the first fault stays");
        assert!(!ops.is_empty() && completion.outcome().is_none());
        let (op, fault) = ops.take_back(number, PEER, 60).unwrap();
        assert_eq!(fault, FREED);
        op.end(Err(fault));
        assert!(ops.is_empty() && completion.outcome().is_some());
        assert!(ops.take_back(number, PEER, 0).is_none(), "it is gone");
    }

    #[test]
    fn what_comes_back_whole_goes_on() {
        let mut memory = [0; 100];
        let (mut ops, number, _completion) = receive(&mut memory);
        for (at, len) in [(1, 10), (0, 101), (0, usize::MAX), (usize::MAX, 1)] {
            assert!(ops.lend(number, PEER, at, len).is_none(), "{len} bytes at {at}");
        }
        assert!(ops.lend(number, PeerId(4), 0, 10).is_none(), "another peer's");
        assert!(ops.lend(number, PEER, 0, 60).is_some());
        assert!(ops.take_back(number, PeerId(4), 60).is_none());
        assert!(ops.get(number, PEER).is_none(), "still lent");
        assert!(ops.take_back(number, PEER, 60).is_none());
        assert!(ops.lend(number, PEER, 60, 40).is_some());
        assert!(ops.take_back(number, PEER, 40).is_none());
        assert_eq!(ops.take_all(|_| true, &FREED).len(), 1);
    }
}
