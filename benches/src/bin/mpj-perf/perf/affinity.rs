//! The cores that ranks and threads run on.

use std::sync::{Mutex, OnceLock, PoisonError};

use mpj::Intracomm;
use mpj::devices::cores::{BIND, Bind, Cores};

use super::Failure;

pub(crate) fn default_binding() -> Result<Bind, String> {
    let mut config = mpj::config::Config::default();
    if let Some(value) = std::env::var_os("MPJ_BIND") {
        config.set_text(&BIND, &value.to_string_lossy()).map_err(|error| error.why)?;
    }
    Ok(config.choice(&BIND))
}

/// Returns the cores on which the first caller of this function could run.
pub(crate) fn at_start() -> &'static Cores {
    static AT_START: OnceLock<Cores> = OnceLock::new();
    AT_START.get_or_init(Cores::allowed)
}

/// Binds each rank that is a thread to its share of the cores of the process. A process with a single rank keeps the
/// binding that its launcher has set. Collective; call it once.
pub(crate) fn bind(world: &Intracomm, binding: Bind) -> Result<(), Failure> {
    static RANKS: Mutex<Vec<usize>> = Mutex::new(Vec::new());
    at_start();
    RANKS.lock().unwrap_or_else(PoisonError::into_inner).push(world.rank());
    world.barrier()?;
    let ranks = RANKS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if let Some(shares) = binding.cores(ranks.len())?.filter(|_| ranks.len() > 1) {
        let before = ranks.iter().filter(|rank| **rank < world.rank()).count();
        // If binding is not permitted, the report shows unbound ranks.
        let _ = shares[before].bind();
    }
    Ok(())
}

/// Divides the cores of [`at_start`] into at least `needed` shares, and binds this thread to the first core of share
/// `index`. Returns whether that succeeded.
pub(super) fn bind_to_core(index: usize, needed: usize) -> bool {
    let shares = at_start().shares(needed.max(index + 1));
    shares.is_some_and(|shares| shares[index].first().bind().is_ok())
}
