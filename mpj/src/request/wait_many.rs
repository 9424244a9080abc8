//! Waiting for several operations at once (all, any or some of them), owned, scoped or mixed.

use std::fmt;
use std::sync::Arc;

use mpj_devices::{Channel, Engine};

use super::scope::State;
use super::scope_ops::ScopeOps;
use crate::error::Result;
use crate::raw::{self, OpInfo, PendingOp, look, until, until_all};
use crate::status::Status;

/// An operation that can be waited for together with others: a [`Request`](crate::Request), a
/// [`ScopedSend`](crate::ScopedSend), a [`ScopedRecv`](crate::ScopedRecv), an [`ActiveRequest`](crate::ActiveRequest)
/// of a persistent collective, or a [`RequestRef`] of any of these.
///
/// Operations of one type go into one vector. For operations of different types, wait for their [`RequestRef`]s; then
/// each operation returns its own buffer at once:
/// ```
/// use mpj::Waitable;
///
/// # mpj::threads(2, |world| {
/// let other = 1 - world.rank();
/// let numbers = world.irecv([0.0; 3], other, 1)?;
/// let letters = world.irecv(vec!['?'; 2], other, 2)?;
/// let sent = world.isend(['x', 'y'], other, 2)?;
/// world.send(&[0.5; 3], other, 1)?;
///
/// let mut open = vec![numbers.watch(), letters.watch(), sent.watch()];
/// while let Some((_place, outcome)) = mpj::wait_any(&mut open) {
///     outcome?;
/// }
/// drop(open);
/// let ((numbers, _), (letters, _)) = (numbers.wait()?, letters.wait()?);
/// assert_eq!((numbers, letters), ([0.5; 3], vec!['x', 'y']));
/// # Ok::<(), mpj::Error>(()) }).unwrap();
/// ```
pub trait Waitable {
    /// The result of waiting for the operation.
    type Outcome;

    /// Waits until the operation has completed.
    fn wait(self) -> Self::Outcome;

    /// Returns a reference that can be waited for and leaves the operation in place.
    fn watch(&self) -> RequestRef<'_>;
}

/// A reference to an operation, independent of the type of its buffer: see [`Waitable`].
#[derive(Clone, Copy)]
pub struct RequestRef<'r>(RefTarget<'r>);

#[derive(Clone, Copy)]
enum RefTarget<'r> {
    Owned(&'r raw::Request),
    Scoped(&'r ScopeOps<'r>, &'r State),
    Prepared(&'r raw::PersistentCollective),
    /// The request was waited for already.
    Spent,
}

impl fmt::Debug for RequestRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Watch({})", if self.outcome().is_some() { "ended" } else { "under way" })
    }
}

impl<'r> RequestRef<'r> {
    pub(super) fn owned(request: Option<&'r raw::Request>) -> Self {
        RequestRef(request.map_or(RefTarget::Spent, RefTarget::Owned))
    }

    pub(super) fn scoped(desk: &'r ScopeOps<'r>, state: &'r State) -> Self {
        RequestRef(RefTarget::Scoped(desk, state))
    }

    pub(super) fn prepared(prepared: &'r raw::PersistentCollective) -> Self {
        RequestRef(RefTarget::Prepared(prepared))
    }

    fn outcome(self) -> Option<Result<Status>> {
        match self.0 {
            RefTarget::Prepared(prepared) => Some(prepared.task().outcome()?.map(|()| Status::empty())),
            RefTarget::Owned(request) => request.outcome(),
            RefTarget::Scoped(desk, state) => state.outcome(desk),
            RefTarget::Spent => Some(Ok(Status::empty())),
        }
    }

    /// Returns whether the operation has completed; if it has not, makes progress once and checks again. A loop that
    /// calls this until it returns true terminates when the operation completes.
    pub fn has_ended(self) -> bool {
        self.outcome().is_some() || {
            look(&[self]);
            self.outcome().is_some()
        }
    }

    /// Returns the engine, the description and the channel of a pending operation; may be `None` if it has completed.
    fn open(self) -> Option<(&'r Arc<Engine>, OpInfo, &'r Arc<Channel>)> {
        match self.0 {
            RefTarget::Owned(request) => request.open(),
            RefTarget::Prepared(prepared) => Some(OpInfo::collective(prepared.task())),
            RefTarget::Scoped(desk, State::Open(place)) => {
                let comm = desk.comm().as_raw();
                Some((comm.engine(), desk.about(place)?, comm.p2p()))
            }
            RefTarget::Scoped(_, State::Complete | State::Held) | RefTarget::Spent => None,
        }
    }
}

impl<O: Waitable> PendingOp for O {
    fn has_ended(&self) -> bool {
        self.watch().outcome().is_some()
    }

    fn open(&self) -> Option<(&Arc<Engine>, OpInfo, &Arc<Channel>)> {
        self.watch().open()
    }
}

impl Waitable for RequestRef<'_> {
    type Outcome = Result<Status>;

    fn wait(self) -> Self::Outcome {
        until(&[self], false, || self.outcome())
    }

    fn watch(&self) -> RequestRef<'_> {
        *self
    }
}

/// Waits for all operations and returns their outcomes in the same order (MPI_Waitall).
pub fn wait_all<O: Waitable>(operations: Vec<O>) -> Vec<O::Outcome> {
    until_all(&operations);
    operations.into_iter().map(O::wait).collect()
}

/// Waits until one of the operations has completed, removes it, and returns its index and outcome; `None` if
/// `operations` is empty (MPI_Waitany).
///
/// ```
/// # mpj::threads(3, |world| {
/// if world.rank() == 0 {
///     let mut open = vec![world.irecv([0u8; 1], 1, 0)?, world.irecv([0u8; 1], 2, 0)?];
///     let mut sum = 0;
///     while let Some((_place, outcome)) = mpj::wait_any(&mut open) {
///         sum += outcome?.0[0];
///     }
///     assert_eq!(sum, 3);
/// } else {
///     world.send(&[world.rank() as u8], 0, 0)?;
/// }
/// # Ok::<(), mpj::Error>(()) }).unwrap();
/// ```
pub fn wait_any<O: Waitable>(operations: &mut Vec<O>) -> Option<(usize, O::Outcome)> {
    if operations.is_empty() {
        return None;
    }
    let place = until(operations, true, || first(operations));
    Some((place, operations.remove(place).wait()))
}

/// Waits until at least one of the operations has completed, removes all completed ones, and returns their former
/// indices and outcomes. An empty list returns at once (MPI_Waitsome).
pub fn wait_some<O: Waitable>(operations: &mut Vec<O>) -> Vec<(usize, O::Outcome)> {
    if !operations.is_empty() {
        until(operations, true, || first(operations));
    }
    take_completed(operations)
}

/// Makes progress once, and returns all outcomes if all operations have completed (MPI_Testall).
///
/// # Errors
/// Returns the operations if at least one is still pending.
pub fn test_all<O: Waitable>(operations: Vec<O>) -> Result<Vec<O::Outcome>, Vec<O>> {
    look(&operations);
    if operations.iter().all(|o| o.watch().outcome().is_some()) {
        return Ok(operations.into_iter().map(O::wait).collect());
    }
    Err(operations)
}

/// Makes progress once; if one of the operations has completed, removes it and returns its index and outcome
/// (MPI_Testany).
pub fn test_any<O: Waitable>(operations: &mut Vec<O>) -> Option<(usize, O::Outcome)> {
    look(operations);
    let place = first(operations)?;
    Some((place, operations.remove(place).wait()))
}

/// Makes progress once, removes the completed operations, and returns their former indices and outcomes (MPI_Testsome).
pub fn test_some<O: Waitable>(operations: &mut Vec<O>) -> Vec<(usize, O::Outcome)> {
    look(operations);
    take_completed(operations)
}

/// Returns the index of the first completed operation.
fn first<O: Waitable>(operations: &[O]) -> Option<usize> {
    operations.iter().position(|o| o.watch().outcome().is_some())
}

fn take_completed<O: Waitable>(operations: &mut Vec<O>) -> Vec<(usize, O::Outcome)> {
    // Check each operation once: those that complete meanwhile stay for the next call.
    let ended: Vec<bool> = operations.iter().map(|o| o.watch().outcome().is_some()).collect();
    let mut places = 0..;
    let taken = operations.extract_if(.., |_| places.next().is_some_and(|place: usize| ended[place]));
    let at = ended.iter().enumerate().filter(|(_, ended)| **ended).map(|(place, _)| place);
    at.zip(taken.map(O::wait)).collect()
}
