//! The cores that ranks and threads run on.

use std::sync::{Mutex, OnceLock, PoisonError};

use mpj::Intracomm;
use mpj::devices::cores::{BIND, Bind, Cores};

use super::Failure;

/// Returns how ranks are bound if the command line does not say it.
pub(crate) fn preset() -> Result<Bind, String> {
    let mut config = mpj::config::Config::default();
    if let Some(value) = std::env::var_os("MPJ_BIND") {
        config.read(&BIND, &value.to_string_lossy()).map_err(|wrong| wrong.why)?;
    }
    Ok(config.choice(&BIND))
}

/// Returns the cores this process may run on, as they were at the first call.
pub(crate) fn at_start() -> &'static Cores {
    static AT_START: OnceLock<Cores> = OnceLock::new();
    AT_START.get_or_init(Cores::allowed)
}

/// Binds the threads of this process that are ranks, each to its share of the cores of the process. A process of one rank is as
/// its launcher has left it. Collective, and called once.
pub(crate) fn bind(world: &Intracomm, how: Bind) -> Result<(), Failure> {
    static RANKS: Mutex<Vec<usize>> = Mutex::new(Vec::new());
    at_start();
    RANKS.lock().unwrap_or_else(PoisonError::into_inner).push(world.rank());
    world.barrier()?;
    let ranks = RANKS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if let Some(shares) = how.cores(ranks.len())?.filter(|_| ranks.len() > 1) {
        let before = ranks.iter().filter(|rank| **rank < world.rank()).count();
        // Where that is forbidden, the report says that the ranks are not bound.
        let _ = shares[before].bind();
    }
    Ok(())
}

/// Keeps this thread on the core with that place among those allowed at the start, if there are `needed`; returns whether
/// it is there.
pub(super) fn keep_to(place: usize, needed: usize) -> bool {
    let shares = at_start().shares(needed.max(place + 1));
    shares.is_some_and(|shares| shares[place].first().bind().is_ok())
}
