//! A channel of a communicator that this rank joins when it first needs it. Earlier messages wait.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mpj_devices::{Channel, Engine, run_deferred_drops, with_deferred_drops};

use super::{Comm, join_for_messages};
use crate::error::{Error, Result};

#[derive(Debug)]
pub(super) struct LazyChannel {
    /// The bits of the context that select the channel of a communicator.
    bits: u64,
    joined: Mutex<Option<Arc<Channel>>>,
}

impl LazyChannel {
    pub(super) fn new(bits: u64) -> Self {
        LazyChannel { bits, joined: Mutex::new(None) }
    }

    fn joined(&self) -> MutexGuard<'_, Option<Arc<Channel>>> {
        self.joined.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get_or_join(&self, comm: &Comm, call: &'static str) -> Result<Arc<Channel>> {
        // `join` applies earlier deaths, which can drop buffers of users.
        let channel = with_deferred_drops(|| {
            let mut joined = self.joined();
            if let Some(channel) = &*joined {
                return Ok(Arc::clone(channel));
            }
            let (engine, context) = (comm.engine(), comm.p2p().context() | self.bits);
            let remote = comm.inner.remote.as_ref();
            let channel = join_for_messages(engine, context, comm.group(), comm.rank(), remote)
                .map_err(|fault| Error::from_fault(call, fault))?;
            engine.describe(&channel, comm.name(), None);
            Ok(Arc::clone(joined.insert(channel)))
        });
        run_deferred_drops();
        channel
    }

    pub(super) fn describe(&self, engine: &Engine, name: &Arc<str>) {
        if let Some(channel) = &*self.joined() {
            engine.describe(channel, Arc::clone(name), None);
        }
    }

    /// Refuses the messages of the channel that match no posted receive. This rank starts no further operation there.
    pub(super) fn begin_free(&self, engine: &Engine, context: u64) {
        let joined = self.joined().clone();
        match joined {
            Some(channel) => engine.begin_free(&channel),
            None => engine.refuse(context | self.bits),
        }
    }

    /// Frees the channel, or refuses its messages if this rank has not joined it.
    pub(super) fn free(&mut self, engine: &Engine, context: u64) {
        match self.joined.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            Some(channel) => engine.free(&channel),
            None => engine.refuse(context | self.bits),
        }
    }
}
