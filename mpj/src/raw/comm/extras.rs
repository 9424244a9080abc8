//! The data that only some communicators have. It is allocated when it is first set, so other communicators pay one
//! pointer for it.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, OnceLock};

use super::Comm;
use crate::error::{Error, ErrorClass, Result};

/// The topology of a communicator: a type of the module that attached it.
pub(crate) type Topology = Arc<dyn Any + Send + Sync>;

#[derive(Default)]
pub(super) struct Extras {
    topology: OnceLock<Topology>,
}

impl fmt::Debug for Extras {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Extras").field("has_topology", &self.topology.get().is_some()).finish()
    }
}

impl Comm {
    fn extras(&self) -> Option<&Extras> {
        self.inner.extras.get().map(|extras| &**extras)
    }

    fn extras_mut(&self) -> &Extras {
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

    /// Copies to a new duplicate what it inherits.
    pub(super) fn copy_extras_to(&self, duplicate: &Comm) {
        if let Some(topology) = self.topology() {
            let _ = duplicate.extras_mut().topology.set(Arc::clone(topology));
        }
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
