//! Generalized requests: operations of the program, which are waited for like those of the library (MPI 4.1 §13.2).

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, Once, OnceLock, PoisonError, Weak};

use mpj_devices::{Channel, Engine, FailureListener, Listener};

use super::comm::Comm;
use super::request::{OpInfo, Request};
use crate::error::{Error, ErrorClass, Result};
use crate::status::Status;

const CALL: &str = "generalized request";

/// Called by each wait or test that returns the outcome of a completed request, on that thread, with the status of
/// [`Completer::complete`]. Its result is the outcome; if it panics, the request fails. It is not called if the request
/// was completed with an error.
pub type QueryHook = Box<dyn Fn(Status) -> Result<Status> + Send + Sync>;

/// Called by a cancel of the request, on that thread; the argument says whether the request is complete. Returns whether
/// the operation was cancelled; a panic means that it was not.
pub type CancelHook = Box<dyn Fn(bool) -> bool + Send + Sync>;

/// The functions that a generalized request calls. They may take locks and wait for messages.
///
/// They are dropped when both the request and its [`Completer`] have been dropped. So the drop of a value that a hook has
/// captured replaces the `free_fn` of MPI.
#[derive(Default)]
pub struct GeneralizedHooks {
    /// The `query_fn` of MPI.
    pub query: Option<QueryHook>,
    /// The `cancel_fn` of MPI.
    pub cancel: Option<CancelHook>,
}

impl fmt::Debug for GeneralizedHooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (query, cancel) = (self.query.is_some(), self.cancel.is_some());
        f.debug_struct("GeneralizedHooks").field("query", &query).field("cancel", &cancel).finish()
    }
}

/// The state that a request and its [`Completer`] share.
pub(super) struct Generalized {
    comm: Comm,
    outcome: OnceLock<Result<Status>>,
    listener: Mutex<Option<Listener>>,
    /// Registers this value as a [`FailureListener`].
    registration: Once,
    hooks: GeneralizedHooks,
}

/// Completes a generalized request. If it is dropped, the request fails with [`ErrorClass::Request`].
#[derive(Debug)]
#[must_use = "the request fails when this is dropped"]
pub struct Completer(Arc<Generalized>);

/// Creates a request that its [`Completer`] completes, on any thread (MPI_Grequest_start).
///
/// ```
/// use mpj::Status;
/// use mpj::raw::{self, GeneralizedHooks};
///
/// # mpj::threads(1, |world| {
/// let (completer, request) = raw::generalized(world.as_raw(), GeneralizedHooks::default())?;
/// std::thread::spawn(move || completer.complete(Ok(Status::new(None, 0, 12))));
/// assert_eq!(request.wait()?.bytes(), 12);
/// # Ok::<(), mpj::Error>(()) }).unwrap();
/// ```
///
/// The request fails if all operations of the rank fail, for example after an abort between thread ranks.
///
/// # Errors
/// The communicator was freed.
pub fn generalized(comm: &Comm, hooks: GeneralizedHooks) -> Result<(Completer, Request)> {
    comm.check_not_freed(CALL)?;
    let (outcome, listener, registration) = (OnceLock::new(), Mutex::default(), Once::new());
    let shared = Arc::new(Generalized { comm: comm.clone(), outcome, listener, registration, hooks });
    Ok((Completer(Arc::clone(&shared)), Request::generalized(shared)))
}

impl Completer {
    /// Completes the request with this outcome (MPI_Grequest_complete).
    pub fn complete(self, outcome: Result<Status>) {
        self.0.complete(outcome);
    }
}

impl Drop for Completer {
    fn drop(&mut self) {
        if self.0.outcome.get().is_none() {
            let dropped = Error::new(ErrorClass::Request, CALL, "it was dropped before it was complete");
            self.0.complete(Err(self.0.comm.named(dropped)));
        }
    }
}

impl Generalized {
    fn complete(&self, outcome: Result<Status>) {
        let _ = self.outcome.set(outcome);
        self.notify();
        // After the notification, because a sleeping set checks only the slots that its listener has recorded.
        self.comm.engine().wake_all();
    }

    fn notify(&self) {
        let listener = self.listener().take();
        if let Some(listener) = listener {
            listener.notify();
        }
    }

    fn listener(&self) -> MutexGuard<'_, Option<Listener>> {
        self.listener.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a listener. The caller must then check whether the request is already complete.
    pub(super) fn listen(self: &Arc<Self>, listener: Listener) {
        self.registration.call_once(|| {
            let this: Weak<Self> = Arc::downgrade(self);
            self.comm.engine().listen_failure(this);
        });
        let entry = listener.entry();
        let old = self.listener().replace(listener);
        if let Some(old) = old {
            old.notify_replaced(entry);
        }
    }

    pub(super) fn is_listening(&self) -> bool {
        self.listener().is_some()
    }

    /// Returns the outcome if the request is complete. The request fails with all other operations of the rank, for
    /// example after an abort. Does not call a hook, so it may be called under a lock.
    pub(super) fn outcome(&self) -> Option<Result<Status>> {
        if let Some(fault) = self.comm.engine().failure() {
            let _ = self.outcome.set(Err(self.comm.fault(CALL, fault.clone())));
        }
        self.outcome.get().cloned()
    }

    /// Passes an outcome to the query hook.
    pub(super) fn query(&self, outcome: Result<Status>) -> Result<Status> {
        match &self.hooks.query {
            Some(query) => outcome.and_then(|status| {
                let queried = catch_unwind(AssertUnwindSafe(|| query(status)));
                queried
                    .unwrap_or_else(|_| Err(Error::new(ErrorClass::Other, CALL, "its query hook panicked")))
            }),
            None => outcome,
        }
    }

    pub(super) fn wait(&self) -> Result<Status> {
        let (engine, info, channel) = self.wait_target();
        self.query(engine.wait_for(&mut (), |()| self.outcome(), |()| info.wait_reason(channel)))
    }

    pub(super) fn cancel(&self) -> bool {
        let is_complete = self.outcome.get().is_some();
        let cancel = |cancel: &CancelHook| catch_unwind(AssertUnwindSafe(|| cancel(is_complete)));
        self.hooks.cancel.as_ref().is_some_and(|hook| cancel(hook).unwrap_or(false))
    }

    pub(super) fn wait_target(&self) -> (&Arc<Engine>, OpInfo, &Arc<Channel>) {
        (self.comm.engine(), OpInfo::generalized(CALL), self.comm.p2p())
    }
}

impl FailureListener for Generalized {
    fn rank_failed(&self) {
        self.notify();
    }
}

impl fmt::Debug for Generalized {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Generalized").field(&self.outcome).finish()
    }
}
