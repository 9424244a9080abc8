//! Random schedules of messages on threads: see `common/schedule`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::common::mismatch::time_factor;
use crate::common::schedule::{Budget, run};

#[test]
fn receives_of_random_schedules_get_the_messages_of_the_model() {
    for ranks in [2, 4] {
        let seed = Arc::new(AtomicU64::new(0));
        let (budget, current) = (Budget::from_env(), Arc::clone(&seed));
        let limit = (Duration::from_secs(60) + budget.time) * time_factor();
        let outcome = std::panic::catch_unwind(|| {
            mpj::testing::run(ranks, limit, move |world| {
                run(&world, budget, |seed| current.store(seed, Ordering::Relaxed)).map(drop)
            });
        });
        if let Err(panic) = outcome {
            let why = panic.downcast_ref::<String>().map_or("panicked", String::as_str);
            panic!("TEST_SEED={} on {ranks} ranks of smdev: {why}", seed.load(Ordering::Relaxed));
        }
    }
}
