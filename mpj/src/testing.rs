//! Rank tests under plain `cargo test`: what [`#[mpj::test]`](macro@crate::test) expands to.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use crate::run::threads;
use crate::world::World;

/// What a test function may return.
pub trait Outcome {
    /// Turns it into a result with a printable error.
    ///
    /// # Errors
    /// The test's own.
    fn into_result(self) -> Result<(), String>;
}

impl Outcome for () {
    fn into_result(self) -> Result<(), String> {
        Ok(())
    }
}

impl<E: fmt::Debug> Outcome for Result<(), E> {
    fn into_result(self) -> Result<(), String> {
        self.map_err(|e| format!("{e:?}"))
    }
}

/// Runs a test as `ranks` thread ranks; one such test at a time, since they share the machine's cores.
///
/// # Panics
/// If a rank panics or returns an error: the test has failed.
pub fn run<O: Outcome>(ranks: usize, test: impl Fn(World) -> O + Send + Sync) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let result = {
        let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        threads(ranks, |world| test(world).into_result())
    };
    if let Err(error) = result {
        panic!("{error}");
    }
}
