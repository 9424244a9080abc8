//! Generalized requests: operations of the program, which are waited for like those of the library (MPI 4.1 §13.2).

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use mpj_devices::{Channel, Engine, Listener};

use super::comm::Comm;
use super::request::{OpInfo, Request};
use crate::error::{Error, ErrorClass, Result};
use crate::status::Status;

const CALL: &str = "generalized request";

/// Called by a cancel of the request, on that thread. Returns whether the operation was cancelled.
pub type CancelHook = Box<dyn Fn() -> bool + Send + Sync>;

/// The state that a request and its [`Completer`] share.
pub(super) struct Generalized {
    comm: Comm,
    outcome: OnceLock<Result<Status>>,
    listener: Mutex<Option<Listener>>,
    on_cancel: Option<CancelHook>,
}

/// Completes a generalized request. If it is dropped, the request fails with [`ErrorClass::Request`].
#[derive(Debug)]
#[must_use = "the request fails when this is dropped"]
pub struct Completer(Arc<Generalized>);

/// Creates a request that completes when its [`Completer`] says so, on any thread (MPI_Grequest_start). A cancel of the
/// request calls `on_cancel`, which holds no lock of the library.
///
/// ```
/// use mpj::{Status, raw};
///
/// # mpj::threads(1, |world| {
/// let (completer, request) = raw::generalized(world.as_raw(), None)?;
/// std::thread::spawn(move || completer.complete(Ok(Status::new(None, 0, 12))));
/// assert_eq!(request.wait()?.bytes(), 12);
/// # Ok::<(), mpj::Error>(()) }).unwrap();
/// ```
///
/// # Errors
/// The communicator was freed.
pub fn generalized(comm: &Comm, on_cancel: Option<CancelHook>) -> Result<(Completer, Request)> {
    comm.check_not_freed(CALL)?;
    let (outcome, listener) = (OnceLock::new(), Mutex::default());
    let shared = Arc::new(Generalized { comm: comm.clone(), outcome, listener, on_cancel });
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
            self.0.complete(Err(Error::new(
                ErrorClass::Request,
                CALL,
                "it was dropped before it was complete",
            )));
        }
    }
}

impl Generalized {
    fn complete(&self, outcome: Result<Status>) {
        let _ = self.outcome.set(outcome);
        self.comm.engine().wake_all();
        let listener = self.listener().take();
        if let Some(listener) = listener {
            listener.notify();
        }
    }

    fn listener(&self) -> MutexGuard<'_, Option<Listener>> {
        self.listener.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a listener. The caller must then check whether the request is already complete.
    pub(super) fn listen(&self, listener: Listener) {
        let entry = listener.entry();
        let old = self.listener().replace(listener);
        if let Some(old) = old {
            old.notify_replaced(entry);
        }
    }

    pub(super) fn is_listening(&self) -> bool {
        self.listener().is_some()
    }

    pub(super) fn outcome(&self) -> Option<Result<Status>> {
        self.outcome.get().cloned()
    }

    pub(super) fn wait(&self) -> Result<Status> {
        let (engine, info, channel) = self.wait_target();
        engine.wait_for(&mut (), |()| self.outcome(), |()| info.wait_reason(channel))
    }

    pub(super) fn cancel(&self) -> bool {
        self.outcome.get().is_none() && self.on_cancel.as_ref().is_some_and(|on_cancel| on_cancel())
    }

    pub(super) fn wait_target(&self) -> (&Arc<Engine>, OpInfo, &Arc<Channel>) {
        (self.comm.engine(), OpInfo::generalized(CALL), self.comm.p2p())
    }
}

impl fmt::Debug for Generalized {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Generalized").field(&self.outcome).finish()
    }
}
