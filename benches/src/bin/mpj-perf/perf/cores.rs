//! The cores a rank runs on.

use std::sync::OnceLock;

use mpj::Intracomm;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Returns the cores this thread may run on.
fn allowed() -> Vec<usize> {
    sched_getaffinity(None)
        .map_or_else(|_| Vec::new(), |set| (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect())
}

/// Returns the cores this thread may run on, as "0+1".
pub(super) fn affinity() -> String {
    allowed().iter().map(ToString::to_string).collect::<Vec<_>>().join("+")
}

/// Keeps each rank on a core of its own, if there are enough, as the native launchers do; ranks of one host.
pub(crate) fn bind(world: &Intracomm) {
    let cores = allowed();
    if world.size() <= cores.len() {
        let mut set = CpuSet::new();
        set.set(cores[world.rank()]);
        // Where that is forbidden the header tells: it names the cores.
        let _ = sched_setaffinity(None, &set);
    }
}

/// Keeps this thread on the core with that place among those allowed at the start, if there are `needed`; returns whether
/// it is there.
pub(super) fn keep_to(place: usize, needed: usize) -> bool {
    static AT_START: OnceLock<Vec<usize>> = OnceLock::new();
    let cores = AT_START.get_or_init(allowed);
    if cores.len() < needed.max(place + 1) {
        return false;
    }
    let mut set = CpuSet::new();
    set.set(cores[place]);
    sched_setaffinity(None, &set).is_ok()
}
