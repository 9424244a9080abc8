//! Buffers that live until their operations have ended, even if the case panics.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use mpj_datatypes::{Datatype, Equivalent, Primitive, Receivable};

use super::Member;
use crate::{Buf, ChainSegment, Envelope, Fault, KeepAlive, Sent, Source, Started, Target};

/// A type of items that cases send.
pub trait Item: Receivable + Send + Sync + PartialEq + fmt::Debug + Default {}
impl<T: Receivable + Send + Sync + PartialEq + fmt::Debug + Default> Item for T {}

/// The number and the datatype of a buffer's items.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub(super) count: usize,
    pub(super) datatype: Datatype,
}

impl Layout {
    pub(super) fn all<T: Equivalent>(items: &[T]) -> Self {
        Layout { count: items.len(), datatype: T::datatype() }
    }

    pub(super) fn typed(count: usize, datatype: &Datatype) -> Self {
        Layout { count, datatype: datatype.clone() }
    }

    pub(super) fn packed(count: usize) -> Self {
        Layout { count, datatype: Datatype::primitive(Primitive::Packed) }
    }

    /// Panics unless the layout is within a buffer of `bytes` bytes.
    fn check(&self, bytes: usize) {
        let (low, high) = self.datatype.byte_bounds(self.count).expect("a case's layout");
        assert!(low >= 0 && high <= bytes as i64, "the layout exceeds its buffer");
    }
}

/// A started send.
#[derive(Debug)]
pub struct Sending<T> {
    sent: Sent,
    data: Arc<Vec<T>>,
}

impl Sending<u8> {
    /// Starts a send of bytes in pieces, which are stored in reverse order. The boundaries in `cuts` ascend.
    pub(super) fn in_pieces(
        bytes: &[u8],
        cuts: &[usize],
        datatype: &Datatype,
        send: impl FnOnce(Source) -> Result<Sent, Fault>,
    ) -> Result<Self, Fault> {
        let edges: Vec<usize> = std::iter::once(0).chain(cuts.iter().copied()).chain([bytes.len()]).collect();
        let data =
            Arc::new(edges.windows(2).rev().flat_map(|e| &bytes[e[0]..e[1]]).copied().collect::<Vec<u8>>());
        let segments =
            edges.windows(2).map(|e| ChainSegment::from(&data[bytes.len() - e[1]..][..e[1] - e[0]]));
        let buf = Buf::chain(segments, datatype);
        let keep: KeepAlive = Arc::clone(&data) as KeepAlive;
        // SAFETY: the segments are in the vector; `keep` keeps it alive, and there is no `&mut` to it.
        #[expect(unsafe_code, reason = "the engine takes raw memory")]
        let source = unsafe { Source::new(buf, Some(keep)) };
        Ok(Sending { sent: send(source.expect("whole items"))?, data })
    }
}

impl<T: Item> Sending<T> {
    pub(super) fn start(
        data: Vec<T>,
        layout: Layout,
        send: impl FnOnce(Source) -> Result<Sent, Fault>,
    ) -> Result<Self, Fault> {
        layout.check(size_of_val(data.as_slice()));
        let data = Arc::new(data);
        let keep: KeepAlive = Arc::clone(&data) as KeepAlive;
        let buf = Buf::read_only(data.as_ptr().cast(), layout.count, layout.datatype);
        // SAFETY: the layout was checked to be within the vector; `keep` keeps it alive, and there is no `&mut` to it.
        #[expect(unsafe_code, reason = "the engine takes raw memory")]
        let source = unsafe { Source::new(buf, Some(keep)) };
        Ok(Sending { sent: send(source.expect("a case's sizes are small"))?, data })
    }

    /// Returns whether the operation is complete.
    pub fn has_ended(&self) -> bool {
        match &self.sent {
            Sent::Posted | Sent::Coalesced => true,
            Sent::Pending(completion) => completion.outcome().is_some(),
        }
    }

    /// Returns whether the send has failed.
    pub fn has_failed(&self) -> bool {
        matches!(&self.sent, Sent::Pending(completion) if matches!(completion.outcome(), Some(Err(_))))
    }

    /// Waits for the completion as programs do, and panics if the engine still has a reference to the memory.
    ///
    /// # Errors
    /// The fault of the send.
    pub fn wait(self, member: &Member) -> Result<(), Fault> {
        let outcome = member.wait_sent(self.sent);
        assert_eq!(Arc::strong_count(&self.data), 1, "a completed send keeps its memory");
        outcome
    }
}

/// A started receive.
#[derive(Debug)]
pub struct Receiving<T> {
    pub(super) started: Result<Started, Fault>,
    memory: Arc<Mutex<Vec<T>>>,
}

impl<T: Item> Receiving<T> {
    pub(super) fn start(
        mut memory: Vec<T>,
        layout: Layout,
        recv: impl FnOnce(Target) -> Result<Started, Fault>,
    ) -> Self {
        layout.check(size_of_val(memory.as_slice()));
        let buf = Buf::new(memory.as_mut_ptr().cast(), layout.count, layout.datatype);
        let memory = Arc::new(Mutex::new(memory));
        let keep: KeepAlive = Arc::clone(&memory) as KeepAlive;
        // SAFETY: the layout was checked to be within the vector; `keep` keeps it alive, and the mutex is not locked
        // before the target is dropped: `wait` takes the vector out only when it has the last reference.
        #[expect(unsafe_code, reason = "the engine takes raw memory")]
        let target = unsafe { Target::new(buf, Some(keep)) };
        Receiving { started: recv(target.expect("a case's sizes are small")), memory }
    }

    /// Returns whether the operation is complete.
    pub fn has_ended(&self) -> bool {
        match &self.started {
            Ok(Started::Pending(completion)) => completion.outcome().is_some(),
            Ok(Started::Done(_)) | Err(_) => true,
        }
    }

    /// Waits for the completion; returns the outcome and the memory. Panics if the engine still has a reference to it.
    pub fn wait(self, member: &Member) -> (Result<Envelope, Fault>, Vec<T>) {
        let outcome = self.started.and_then(|started| member.engine.wait(started));
        let memory = Arc::into_inner(self.memory).expect("a completed receive keeps its memory");
        (outcome, memory.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Keeps a value forever, reachable from a static so that leak detectors do not report it.
pub(super) fn keep_for_ever(value: impl Send + 'static) {
    static FORGOTTEN: Mutex<Vec<Box<dyn Any + Send>>> = Mutex::new(Vec::new());
    FORGOTTEN.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(value));
}

/// Returns `len` bytes that depend on the seed and the position.
pub(super) fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(len + 8);
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    while out.len() < len {
        state = random(state);
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.truncate(len);
    out
}

/// Returns the next state of a xorshift generator; `state` must not be 0.
pub(super) fn random(state: u64) -> u64 {
    let state = state ^ (state << 13);
    let state = state ^ (state >> 7);
    state ^ (state << 17)
}
