//! The duplication of a communicator as a request.

use std::marker::PhantomData;

use super::{Communicator, Intra};
use crate::error::Result;
use crate::raw;
use crate::request::{RequestRef, Waitable, consumed_error};

impl<K> Communicator<K> {
    /// Starts the duplication of this communicator (MPI_Comm_idup). It is a collective like any other: all ranks start
    /// the collectives of a communicator in the same order. The duplicate gets the attributes that this one has now,
    /// as far as their keys copy them ([`Key`](crate::Key)).
    ///
    /// ```
    /// # mpj::threads(3, |world| {
    /// let started = world.idup()?;
    /// // … computation …
    /// let twin = started.wait()?;
    /// twin.barrier()?;
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`dup`](Self::dup). The call fails if the communicator was freed, an earlier collective has failed, or this
    /// rank has too many communicators; the request returns other errors.
    pub fn idup(&self) -> Result<DupRequest<K>> {
        Ok(DupRequest { raw: Some(self.as_raw().idup(None)?), kind: PhantomData })
    }
}

/// A duplication in progress; see [`Communicator::idup`]. If it is dropped, this rank does not use the duplicate: collectives
/// of the duplicate fail on the other ranks, and messages to this rank are refused.
#[must_use = "this rank joins the duplicate in `wait` or `test`"]
#[derive(Debug)]
pub struct DupRequest<K = Intra> {
    /// `None` after [`test`](Self::test) has returned the outcome.
    raw: Option<raw::PendingDup>,
    kind: PhantomData<fn() -> K>,
}

impl<K> DupRequest<K> {
    /// Waits for the other ranks, and returns the duplicate.
    ///
    /// # Errors
    /// As [`dup`](Communicator::dup).
    pub fn wait(mut self) -> Result<Communicator<K>> {
        self.finish("wait")
    }

    /// Makes progress, and returns the duplicate if the other ranks have started the duplication.
    ///
    /// # Errors
    /// As [`dup`](Communicator::dup); [`ErrorClass::Request`](crate::ErrorClass::Request) if an earlier call has returned
    /// the outcome.
    pub fn test(&mut self) -> Option<Result<Communicator<K>>> {
        match &self.raw {
            Some(raw) if matches!(raw.request().test(), Ok(None)) => None,
            _ => Some(self.finish("test")),
        }
    }

    fn finish(&mut self, call: &'static str) -> Result<Communicator<K>> {
        self.raw.take().ok_or_else(|| consumed_error(call))?.wait().map(Communicator::new)
    }
}

impl<K> Waitable for DupRequest<K> {
    type Outcome = Result<Communicator<K>>;

    fn wait(self) -> Self::Outcome {
        DupRequest::wait(self)
    }

    fn test(&mut self) -> Option<Self::Outcome> {
        DupRequest::test(self)
    }

    fn request_ref(&self) -> RequestRef<'_> {
        RequestRef::owned(self.raw.as_ref().map(raw::PendingDup::request))
    }
}
