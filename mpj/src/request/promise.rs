//! Promises: values of the program that are waited for like messages.

use std::fmt;
use std::sync::{Arc, OnceLock};

use super::owned::consumed_error;
use super::wait_many::{RequestRef, Waitable};
use crate::comm::Intracomm;
use crate::error::{Error, ErrorClass, Result};
use crate::raw;
use crate::status::Status;

impl Intracomm {
    /// Creates a request that completes when a thread of the program keeps its promise (MPI_Grequest_start). So a wait
    /// for several requests can include work of other threads.
    ///
    /// ```
    /// use mpj::Waitable;
    ///
    /// # mpj::threads(2, |world| {
    /// let other = 1 - world.rank();
    /// let (promise, computing) = world.promise::<u64>()?;
    /// std::thread::spawn(move || promise.keep((1..=100).sum()));
    /// let receiving = world.irecv([0u8], other, 0)?;
    /// world.send(&[7u8], other, 0)?;
    /// let mut pending = vec![computing.request_ref(), receiving.request_ref()];
    /// while let Some((_index, outcome)) = mpj::wait_any(&mut pending) {
    ///     outcome?;
    /// }
    /// assert_eq!((computing.wait()?, receiving.wait()?.0), (5050, [7]));
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// The communicator was freed.
    pub fn promise<T: Send + Sync>(&self) -> Result<(Promise<T>, PromisedRequest<T>)> {
        let created = raw::generalized(self.as_raw(), raw::GeneralizedHooks::default());
        let (completer, raw) = created.map_err(|error| error.with_call("promise"))?;
        let value = Arc::new(OnceLock::new());
        Ok((Promise { completer, value: Arc::clone(&value) }, PromisedRequest { raw: Some(raw), value }))
    }
}

/// The obligation to complete a [`PromisedRequest`]: see [`Intracomm::promise`]. If it is dropped, for example because
/// its thread panics, the request fails.
#[must_use = "the request fails when this is dropped"]
pub struct Promise<T> {
    completer: raw::Completer,
    value: Arc<OnceLock<T>>,
}

impl<T> Promise<T> {
    /// Completes the request with this value (MPI_Grequest_complete).
    pub fn keep(self, value: T) {
        let Promise { completer, value: slot } = self;
        let _ = slot.set(value);
        // Then the request finds the last reference, and takes the value.
        drop(slot);
        completer.complete(Ok(Status::empty()));
    }
}

/// A request for a value of another thread: see [`Intracomm::promise`].
#[must_use = "wait for the request, or drop it explicitly"]
pub struct PromisedRequest<T> {
    /// `None` after [`test`](Self::test) has returned the outcome.
    raw: Option<raw::Request>,
    value: Arc<OnceLock<T>>,
}

impl<T> PromisedRequest<T> {
    /// Waits for the value.
    ///
    /// # Errors
    /// [`ErrorClass::Request`] if the promise was dropped. An abort or a timeout of the job fails this request like all
    /// operations of the rank.
    pub fn wait(mut self) -> Result<T> {
        self.raw.take().ok_or_else(|| consumed_error("wait"))?.wait()?;
        self.take_value()
    }

    /// Returns the value if the promise was kept (MPI_Test).
    ///
    /// # Errors
    /// As [`wait`](Self::wait). [`ErrorClass::Request`] if an earlier call has returned the outcome.
    pub fn test(&mut self) -> Option<Result<T>> {
        let Some(raw) = &self.raw else { return Some(Err(consumed_error("test"))) };
        let outcome = raw.test().transpose()?;
        self.raw = None;
        Some(outcome.and_then(|_| self.take_value()))
    }

    fn take_value(&mut self) -> Result<T> {
        let value = Arc::into_inner(std::mem::take(&mut self.value)).and_then(OnceLock::into_inner);
        value.ok_or_else(|| {
            Error::new(ErrorClass::Intern, "promise", "the request is complete without its value")
        })
    }
}

impl<T> Waitable for PromisedRequest<T> {
    type Outcome = Result<T>;

    fn wait(self) -> Self::Outcome {
        PromisedRequest::wait(self)
    }

    fn test(&mut self) -> Option<Self::Outcome> {
        PromisedRequest::test(self)
    }

    fn request_ref(&self) -> RequestRef<'_> {
        RequestRef::owned(self.raw.as_ref())
    }
}

impl<T> fmt::Debug for Promise<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Promise")
    }
}

impl<T> fmt::Debug for PromisedRequest<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PromisedRequest").field(&self.raw).finish()
    }
}
