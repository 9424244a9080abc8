//! Waiting for all, any or some of several operations.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use mpj_devices::{Channel, Engine, Listener, WaitReason};

use super::scope::State;
use super::scope_ops::ScopeOps;
use crate::error::Result;
use crate::raw::{
    self, OpInfo, PendingOp, deadline, progress_all, wait_for, wait_for_all, wait_for_all_until,
    wait_for_until,
};
use crate::status::Status;

/// An operation that can be waited for together with others, such as a [`Request`](crate::Request), a
/// [`ScopedSend`](crate::ScopedSend), a [`ScopedRecv`](crate::ScopedRecv), an [`ActiveRequest`](crate::ActiveRequest)
/// of a persistent request, or a [`RequestRef`] of any other operation.
///
/// Operations of one type go into one vector. For operations of different types, wait for their [`RequestRef`]s.
/// Afterwards each operation returns its own buffer at once:
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
/// let mut pending = vec![numbers.request_ref(), letters.request_ref(), sent.request_ref()];
/// while let Some((_index, outcome)) = mpj::wait_any(&mut pending) {
///     outcome?;
/// }
/// drop(pending);
/// let ((numbers, _), (letters, _)) = (numbers.wait()?, letters.wait()?);
/// assert_eq!((numbers, letters), ([0.5; 3], vec!['x', 'y']));
/// # Ok::<(), mpj::Error>(()) }).unwrap();
/// ```
pub trait Waitable {
    /// The result of waiting for the operation.
    type Outcome;

    /// Waits until the operation has completed.
    fn wait(self) -> Self::Outcome;

    /// Makes progress once if the operation is pending, and returns its outcome if it has completed. After that
    /// outcome, `test` and `wait` return an error as the outcome, except those of a [`RequestRef`].
    fn test(&mut self) -> Option<Self::Outcome>;

    /// Waits until the operation has completed, but at most for `limit`. If it returns `None`, the operation is still
    /// pending.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// # mpj::threads(2, |world| {
    /// let other = 1 - world.rank();
    /// let mut receiving = world.irecv([0u8; 1], other, 0)?;
    /// assert!(receiving.wait_timeout(Duration::from_millis(1)).is_none(), "the other rank waits at the barrier");
    /// world.barrier()?;
    /// world.send(&[7u8], other, 0)?;
    /// let outcome = receiving.wait_timeout(Duration::from_secs(60)).expect("the other rank has sent");
    /// assert_eq!(outcome?.0, [7]);
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    fn wait_timeout(&mut self, limit: Duration) -> Option<Self::Outcome>
    where
        Self: Sized,
    {
        let is_complete = || self.request_ref().outcome().map(drop);
        wait_for_until(std::slice::from_ref(self), false, deadline(limit), is_complete)?;
        self.test()
    }

    /// Borrows the operation, without the type of its buffer. Waiting for the reference does not consume the operation.
    fn request_ref(&self) -> RequestRef<'_>;
}

/// A borrowed operation, without the type of its buffer: see [`Waitable`].
#[derive(Clone, Copy)]
pub struct RequestRef<'r>(RefTarget<'r>);

#[derive(Clone, Copy)]
enum RefTarget<'r> {
    Owned(&'r raw::Request),
    Scoped(&'r ScopeOps<'r>, &'r State),
    Persistent(&'r raw::PersistentOperation),
    Consumed,
}

impl fmt::Debug for RequestRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RequestRef({})", if self.outcome().is_some() { "complete" } else { "pending" })
    }
}

impl<'r> RequestRef<'r> {
    pub(crate) fn owned(request: Option<&'r raw::Request>) -> Self {
        RequestRef(request.map_or(RefTarget::Consumed, RefTarget::Owned))
    }

    pub(super) fn scoped(ops: &'r ScopeOps<'r>, state: &'r State) -> Self {
        RequestRef(RefTarget::Scoped(ops, state))
    }

    pub(super) fn persistent(request: Option<&'r raw::PersistentOperation>) -> Self {
        RequestRef(request.map_or(RefTarget::Consumed, RefTarget::Persistent))
    }

    pub(super) fn is_complete(self) -> bool {
        self.outcome().is_some()
    }

    /// Returns the engine of a pending operation.
    pub(super) fn engine(self) -> Option<&'r Arc<Engine>> {
        self.wait_target().map(|(engine, ..)| engine)
    }

    /// Describes the wait for a pending operation.
    pub(super) fn wait_reason(self) -> Option<WaitReason> {
        self.wait_target().filter(|_| !self.is_complete()).map(|(_, info, channel)| info.wait_reason(channel))
    }

    /// Registers the listener of the operation, as [`Completion::listen`](mpj_devices::Completion::listen) does, or
    /// notifies it if the operation is complete. Returns false if it cannot notify a listener: the caller must poll.
    pub(super) fn listen(self, listener: Listener) -> bool {
        match self.0 {
            RefTarget::Owned(request) => return request.listen(listener),
            RefTarget::Scoped(ops, State::Pending(slot)) => ops.listen(slot, listener),
            RefTarget::Persistent(request) => return request.listen(listener),
            RefTarget::Scoped(..) | RefTarget::Consumed => listener.notify(),
        }
        true
    }

    /// Returns whether a listener is registered and was not notified yet.
    pub(super) fn is_listening(self) -> bool {
        match self.0 {
            RefTarget::Owned(request) => request.is_listening(),
            RefTarget::Scoped(ops, State::Pending(slot)) => ops.is_listening(slot),
            RefTarget::Persistent(request) => request.is_listening(),
            RefTarget::Scoped(..) | RefTarget::Consumed => false,
        }
    }

    fn outcome(self) -> Option<Result<Status>> {
        match self.0 {
            RefTarget::Persistent(request) => request.outcome(),
            RefTarget::Owned(request) => request.outcome(),
            RefTarget::Scoped(ops, state) => state.outcome(ops),
            RefTarget::Consumed => Some(Ok(Status::empty())),
        }
    }

    /// Makes progress if the operation is pending, and returns whether it has completed (MPI_Request_get_status).
    pub fn poll_complete(self) -> bool {
        self.outcome().is_some() || {
            progress_all(&[self]);
            self.outcome().is_some()
        }
    }

    /// Returns the engine, the description and the channel of a pending operation, possibly `None` if it has completed.
    fn wait_target(self) -> Option<(&'r Arc<Engine>, OpInfo, &'r Arc<Channel>)> {
        match self.0 {
            RefTarget::Owned(request) => request.wait_target(),
            RefTarget::Persistent(request) => request.wait_target(),
            RefTarget::Scoped(ops, State::Pending(slot)) => {
                let comm = ops.comm();
                Some((comm.engine(), ops.info(slot)?, comm.p2p()))
            }
            RefTarget::Scoped(..) | RefTarget::Consumed => None,
        }
    }
}

impl<O: Waitable> PendingOp for O {
    fn is_complete(&self) -> bool {
        self.request_ref().outcome().is_some()
    }

    fn wait_target(&self) -> Option<(&Arc<Engine>, OpInfo, &Arc<Channel>)> {
        self.request_ref().wait_target()
    }
}

impl Waitable for RequestRef<'_> {
    type Outcome = Result<Status>;

    fn wait(self) -> Self::Outcome {
        wait_for(&[self], false, || self.outcome())
    }

    /// Returns the outcome whenever it is called: the reference does not take it from the operation.
    fn test(&mut self) -> Option<Self::Outcome> {
        self.poll_complete().then(|| self.outcome())?
    }

    fn request_ref(&self) -> RequestRef<'_> {
        *self
    }
}

/// Waits for all operations and returns their outcomes in the same order (MPI_Waitall).
pub fn wait_all<O: Waitable>(operations: Vec<O>) -> Vec<O::Outcome> {
    wait_for_all(&operations);
    operations.into_iter().map(O::wait).collect()
}

/// Waits until one of the operations has completed, removes it, and returns its index and outcome; `None` if
/// `operations` is empty (MPI_Waitany).
///
/// ```
/// # mpj::threads(3, |world| {
/// if world.rank() == 0 {
///     let mut pending = vec![world.irecv([0u8; 1], 1, 0)?, world.irecv([0u8; 1], 2, 0)?];
///     let mut sum = 0;
///     while let Some((_index, outcome)) = mpj::wait_any(&mut pending) {
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
    let index = wait_for(operations, true, || first_complete(operations));
    Some((index, operations.remove(index).wait()))
}

/// Waits until at least one of the operations has completed, removes all completed ones, and returns their former
/// indices and outcomes. Returns at once if `operations` is empty (MPI_Waitsome).
pub fn wait_some<O: Waitable>(operations: &mut Vec<O>) -> Vec<(usize, O::Outcome)> {
    if !operations.is_empty() {
        wait_for(operations, true, || first_complete(operations));
    }
    take_completed(operations)
}

/// Waits as [`wait_all`] does, but at most for `limit`. Removes the completed operations, and returns their former
/// indices and outcomes. The operations that are still pending stay in `operations`.
///
/// ```
/// use std::time::Duration;
///
/// # mpj::threads(2, |world| {
/// let other = 1 - world.rank();
/// let mut pending = vec![world.irecv([0u8; 1], other, 0)?, world.irecv([0u8; 1], other, 1)?];
/// world.send(&[5u8], other, 1)?;
/// let mut received = Vec::new();
/// while received.is_empty() {
///     received = mpj::wait_all_timeout(&mut pending, Duration::from_millis(10));
/// }
/// assert_eq!((received.len(), received[0].0, pending.len()), (1, 1, 1));
/// world.barrier()?;
/// world.send(&[6u8], other, 0)?;
/// mpj::wait_all(pending).into_iter().try_for_each(|outcome| outcome.map(drop))?;
/// # Ok::<(), mpj::Error>(()) }).unwrap();
/// ```
pub fn wait_all_timeout<O: Waitable>(operations: &mut Vec<O>, limit: Duration) -> Vec<(usize, O::Outcome)> {
    wait_for_all_until(operations, deadline(limit));
    take_completed(operations)
}

/// Waits as [`wait_any`] does, but at most for `limit`. Returns `None` if no operation has completed until then, or if
/// `operations` is empty.
pub fn wait_any_timeout<O: Waitable>(
    operations: &mut Vec<O>,
    limit: Duration,
) -> Option<(usize, O::Outcome)> {
    if operations.is_empty() {
        return None;
    }
    let index = wait_for_until(operations, true, deadline(limit), || first_complete(operations))?;
    Some((index, operations.remove(index).wait()))
}

/// Makes progress once. If all operations have completed, removes them and returns their outcomes in the same order;
/// otherwise none is removed (MPI_Testall).
pub fn test_all<O: Waitable>(operations: &mut Vec<O>) -> Option<Vec<O::Outcome>> {
    progress_all(operations);
    let all_complete = operations.iter().all(|o| o.request_ref().outcome().is_some());
    all_complete.then(|| operations.drain(..).map(O::wait).collect())
}

/// Makes progress once; if one of the operations has completed, removes it and returns its index and outcome
/// (MPI_Testany).
pub fn test_any<O: Waitable>(operations: &mut Vec<O>) -> Option<(usize, O::Outcome)> {
    progress_all(operations);
    let index = first_complete(operations)?;
    Some((index, operations.remove(index).wait()))
}

/// Makes progress once, removes the completed operations, and returns their former indices and outcomes (MPI_Testsome).
pub fn test_some<O: Waitable>(operations: &mut Vec<O>) -> Vec<(usize, O::Outcome)> {
    progress_all(operations);
    take_completed(operations)
}

fn first_complete<O: Waitable>(operations: &[O]) -> Option<usize> {
    operations.iter().position(|o| o.request_ref().outcome().is_some())
}

fn take_completed<O: Waitable>(operations: &mut Vec<O>) -> Vec<(usize, O::Outcome)> {
    // Check each operation once: an operation that completes after its check stays for the next call.
    let complete: Vec<bool> = operations.iter().map(|o| o.request_ref().outcome().is_some()).collect();
    let mut indices = 0..;
    let taken = operations.extract_if(.., |_| indices.next().is_some_and(|index: usize| complete[index]));
    let at = complete.iter().enumerate().filter(|(_, complete)| **complete).map(|(index, _)| index);
    at.zip(taken.map(O::wait)).collect()
}
