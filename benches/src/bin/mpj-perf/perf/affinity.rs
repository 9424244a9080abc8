//! The cores that ranks and threads run on.

use std::sync::{Mutex, OnceLock, PoisonError};

use mpj::Intracomm;
use mpj::devices::cores::{BIND, Bind, Cores};

use super::Failure;

/// Returns the binding of ranks to cores if the command line does not give one.
pub(crate) fn preset() -> Result<Bind, String> {
    let mut config = mpj::config::Config::default();
    if let Some(value) = std::env::var_os("MPJ_BIND") {
        config.read(&BIND, &value.to_string_lossy()).map_err(|wrong| wrong.why)?;
    }
    Ok(config.choice(&BIND))
}

/// Returns the cores that this process was allowed to run on at the first call.
pub(crate) fn at_start() -> &'static Cores {
    static AT_START: OnceLock<Cores> = OnceLock::new();
    AT_START.get_or_init(Cores::allowed)
}

/// Binds each thread of this process that is a rank to its share of the process's cores. A process with a single rank
/// keeps the binding that its launcher has set. Collective; call it once.
pub(crate) fn bind(world: &Intracomm, how: Bind) -> Result<(), Failure> {
    static RANKS: Mutex<Vec<usize>> = Mutex::new(Vec::new());
    at_start();
    RANKS.lock().unwrap_or_else(PoisonError::into_inner).push(world.rank());
    world.barrier()?;
    let ranks = RANKS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if let Some(shares) = how.cores(ranks.len())?.filter(|_| ranks.len() > 1) {
        let before = ranks.iter().filter(|rank| **rank < world.rank()).count();
        // If binding is not permitted, the report says that the ranks are not bound.
        let _ = shares[before].bind();
    }
    Ok(())
}

/// Binds this thread to the core at index `place` of those allowed at the start, if there are `needed` cores. Returns
/// whether that succeeded.
pub(super) fn keep_to(place: usize, needed: usize) -> bool {
    let shares = at_start().shares(needed.max(place + 1));
    shares.is_some_and(|shares| shares[place].first().bind().is_ok())
}
