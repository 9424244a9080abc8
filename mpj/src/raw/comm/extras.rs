//! The data that only some communicators have. It is allocated when it is first set, so other communicators have only
//! an empty `OnceLock`.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::Comm;
use super::attributes::{AttributeList, Attributes, copy_all};
use crate::error::{Error, ErrorClass, Result};
use crate::info::Info;

/// The topology of a communicator: a type of the module that attached it.
pub(crate) type Topology = Arc<dyn Any + Send + Sync>;

/// An error handler of another interface. The functions of this crate return errors, and do not call it.
pub type ErrorHandler = Arc<dyn Any + Send + Sync>;

#[derive(Default)]
pub(super) struct Extras {
    topology: OnceLock<Topology>,
    pub(super) attributes: Attributes,
    info: Mutex<Info>,
    error_handler: Mutex<Option<ErrorHandler>>,
}

impl fmt::Debug for Extras {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Extras")
            .field("has_topology", &self.topology.get().is_some())
            .field("attributes", &self.attributes.len())
            .field("info", &*lock(&self.info))
            .finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The data that a duplicate gets from its original, as it was when the duplication began.
pub(super) struct Inherited {
    topology: Option<Topology>,
    attributes: AttributeList,
    info: Option<Info>,
}

impl Inherited {
    pub(super) fn of(comm: &Comm, info: Option<Info>) -> Self {
        let attributes = comm.extras().map(|extras| extras.attributes.snapshot());
        Inherited { topology: comm.topology().cloned(), attributes: attributes.unwrap_or_default(), info }
    }

    /// Runs the copy hooks, and passes everything to a new duplicate. If a hook fails, the other ranks, which already
    /// have the duplicate, are notified there.
    pub(super) fn pass_to(self, call: &'static str, original: &Comm, duplicate: Comm) -> Result<Comm> {
        let attributes = match copy_all(call, original, self.attributes) {
            Ok(attributes) => attributes,
            Err(error) => return duplicate.collective_of_any(call, |_| Err(error)),
        };
        if let Some(topology) = self.topology {
            let _ = duplicate.extras_mut().topology.set(topology);
        }
        if !attributes.is_empty() {
            duplicate.extras_mut().attributes.replace_all(attributes);
        }
        if let Some(info) = self.info {
            duplicate.set_info(info);
        }
        Ok(duplicate)
    }
}

impl fmt::Debug for Inherited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inherited").field("attributes", &self.attributes.len()).finish_non_exhaustive()
    }
}

impl Comm {
    pub(super) fn extras(&self) -> Option<&Extras> {
        self.inner.extras.get().map(|extras| &**extras)
    }

    pub(super) fn extras_mut(&self) -> &Extras {
        self.inner.extras.get_or_init(Box::default)
    }

    /// Returns the topology, if the communicator has one. A duplicate has the topology of its original.
    pub(crate) fn topology(&self) -> Option<&Topology> {
        self.extras()?.topology.get()
    }

    /// Attaches a topology.
    ///
    /// # Errors
    /// The communicator has one already.
    pub(crate) fn set_topology(&self, call: &'static str, topology: Topology) -> Result<()> {
        self.extras_mut()
            .topology
            .set(topology)
            .map_err(|_| Error::new(ErrorClass::Comm, call, "the communicator already has a topology"))
    }

    /// Returns the hints (MPI_Comm_get_info).
    pub fn info(&self) -> Info {
        self.extras().map_or_else(Info::default, |extras| lock(&extras.info).clone())
    }

    /// Replaces the hints on this rank (MPI_Comm_set_info). The library uses none. A duplicate has none, unless
    /// [`dup_with_info`](Self::dup_with_info) sets them.
    pub fn set_info(&self, info: Info) {
        let old = std::mem::replace(&mut *lock(&self.extras_mut().info), info);
        drop(old);
    }

    /// Returns the error handler that [`set_error_handler`](Self::set_error_handler) has stored.
    pub fn error_handler(&self) -> Option<ErrorHandler> {
        lock(&self.extras()?.error_handler).clone()
    }

    /// Stores an error handler for another interface. Communicators that are created from this one have it, too.
    pub fn set_error_handler(&self, handler: ErrorHandler) {
        let old = lock(&self.extras_mut().error_handler).replace(handler);
        drop(old);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicate_inherits_the_topology_and_a_split_does_not() {
        crate::threads(2, |world| {
            let comm = world.as_raw().dup()?;
            comm.set_topology("cart", Arc::new(7u8))?;
            let refused = comm.set_topology("graph", Arc::new(8u8)).expect_err("it has one");
            assert_eq!(refused.to_string(), "graph: the communicator already has a topology");
            let (duplicate, split) = (comm.dup()?, comm.split(0, 0)?.expect("has a color"));
            let topology = duplicate.topology().and_then(|topology| topology.downcast_ref::<u8>());
            assert_eq!((topology, split.topology().is_none()), (Some(&7), true));
            Ok::<(), Error>(())
        })
        .expect("both ranks agree");
    }
}
