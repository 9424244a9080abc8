//! The name of a communicator, and the names that it gives to its children.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Comm;

/// The maximum length of a parent's name in a derived name, in bytes. A longer name is replaced by `…`.
const MAX_PARENT_NAME: usize = 64;

/// A name, and the numbers of the calls that have created communicators. All ranks count alike, so a new communicator
/// has the same name on all its ranks, unless they have renamed its parent differently.
#[derive(Debug)]
pub(super) struct Names(Mutex<State>);

#[derive(Debug)]
struct State {
    name: Arc<str>,
    counts: BTreeMap<&'static str, u32>,
}

impl Names {
    pub(super) fn new(name: &str) -> Self {
        Names(Mutex::new(State { name: name.into(), counts: BTreeMap::new() }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self) -> Arc<str> {
        Arc::clone(&self.state().name)
    }

    pub(super) fn set(&self, name: &str) -> Arc<str> {
        let mut state = self.state();
        state.name = name.into();
        Arc::clone(&state.name)
    }

    /// Returns the name of the communicator that the next `call` creates. Only calls that all ranks make in the same
    /// order may use this.
    pub(super) fn numbered_child(&self, call: &'static str) -> String {
        let mut state = self.state();
        let count = state.counts.entry(call).or_default();
        *count += 1;
        let number = *count;
        format!("{}.{call} {number}", state.parent())
    }

    /// Returns the name of a communicator that `call` creates, distinguished by `what`.
    pub(super) fn child(&self, call: &str, what: &str) -> String {
        format!("{}.{call} {what}", self.state().parent())
    }
}

impl State {
    fn parent(&self) -> &str {
        if self.name.len() > MAX_PARENT_NAME { "…" } else { &self.name }
    }
}

impl Comm {
    /// Returns the name (MPI_Comm_get_name). Without [`set_name`](Self::set_name), it says how the communicator was
    /// created, such as `world.dup 1`.
    pub fn name(&self) -> Arc<str> {
        self.inner.names.get()
    }

    /// Sets the name on this rank (MPI_Comm_set_name). Errors, wait reports and traces show it.
    pub fn set_name(&self, name: &str) {
        let name = self.inner.names.set(name);
        self.describe_channels(&name);
    }
}
