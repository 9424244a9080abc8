//! Random schedules of messages, checked against a model.
//!
//! A seed produces, on every rank, the same [phases](phase::Phase): communicators are created, duplicated, split and
//! freed, and several threads of each rank exchange messages in every mode of sends and receives. [`plan`] says why no
//! schedule deadlocks, and [`check`] which message each receive must get.
//!
//! A *lane* is one of these threads, with its number on the rank; it is not a lane of the engine (`docs/glossary.md`).

mod calls;
mod check;
mod comms;
mod lane;
mod parts;
mod phase;
mod plan;
mod random;
mod wait;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mpj::{Intracomm, World};
use mpj_devices::conformance::Member;

use check::Unreceived;
use lane::Lane;
use parts::Parts;
use phase::Phase;
use plan::CommPlan;
use random::{Random, mix};
use wait::Failure;

/// Which schedules to run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    pub(crate) first_seed: u64,
    /// No schedule starts later than this.
    pub(crate) time: Duration,
    /// The maximum number of schedules.
    pub(crate) max_schedules: u64,
}

impl Budget {
    /// Returns the budget that `TEST_SEED`, the first seed, and `TEST_SECONDS` set. `TEST_SEED` alone runs that one
    /// schedule. The default is one second of schedules from seed 1.
    pub(crate) fn from_env() -> Self {
        let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
        let (seed, seconds) = (number("TEST_SEED"), number("TEST_SECONDS"));
        Budget {
            first_seed: seed.unwrap_or(1),
            time: Duration::from_secs(seconds.unwrap_or(1)),
            max_schedules: if seed.is_some() && seconds.is_none() { 1 } else { u64::MAX },
        }
    }
}

/// Runs schedules, and returns their number. `begin` gets each seed on rank 0 before its schedule starts.
pub(crate) fn run(world: &World, budget: Budget, begin: impl Fn(u64)) -> Result<u64, String> {
    let text = |error: mpj::Error| error.to_string();
    let (lens, started) = (protocol_limits(world).map_err(text)?, Instant::now());
    let mut done = 0;
    loop {
        let goes_on = done < budget.max_schedules && (done == 0 || started.elapsed() < budget.time);
        if !world.bcast_value(goes_on, 0).map_err(text)? {
            return Ok(done);
        }
        let seed = budget.first_seed + done;
        if world.rank() == 0 {
            begin(seed);
        }
        run_schedule(world, seed, &lens).map_err(|why| {
            let devices: Vec<_> = world.stats().devices.into_iter().map(|(name, _)| name).collect();
            format!("schedule of TEST_SEED={seed} on {} ranks by {devices:?}: {why}", world.size())
        })?;
        done += 1;
    }
}

/// Returns the lengths at which a device of some rank changes its protocol, and other lengths, most of them powers of
/// two.
fn protocol_limits(world: &World) -> mpj::Result<Vec<usize>> {
    let member = Member::join(Arc::clone(world.engine())).expect("its contexts are unused");
    let mut mine = member.protocol_limits();
    mine.resize(8, 1);
    let mut all = vec![0; 8 * world.size()];
    world.allgather(&mine, &mut all)?;
    all.extend([1, 8, 44, 48, 64, 4096, 8192, 16_384, 65_536, 131_072]);
    all.sort_unstable();
    all.dedup();
    // Bound the memory and the time of a schedule. By default, no limit of a device is above 256 KiB.
    all.retain(|len| *len <= 1 << 20);
    Ok(all)
}

fn run_schedule(world: &World, seed: u64, lens: &[usize]) -> Result<(), String> {
    let text = |error: mpj::Error| error.to_string();
    let mut random = Random::new(seed);
    let mut live = vec![CommPlan { id: 0, members: (0..world.size()).collect() }];
    let mut comms = BTreeMap::from([(0, world.comm().clone())]);
    let buffer = world.attach(usize::MAX).map_err(text)?;
    for number in 0..1 + random.below(4) {
        let phase = Phase::new(&mut random, world.size(), &mut live, lens);
        for creation in &phase.creations {
            creation.perform(&mut comms, world.rank()).map_err(text)?;
        }
        let key = mix(seed) ^ mix(number as u64 + 1);
        run_phase(world, &comms, &phase, key).map_err(|why| format!("phase {number}: {why}"))?;
        phase.dropped.iter().for_each(|comm| drop(comms.remove(comm)));
    }
    buffer.detach().map_err(text)
}

fn run_phase(
    world: &World,
    comms: &BTreeMap<usize, Intracomm>,
    phase: &Phase,
    key: u64,
) -> Result<(), String> {
    let me = world.rank();
    let lane = |lane: usize, round: usize| Lane {
        comms,
        phase,
        me,
        lane,
        key: key.wrapping_add(mix(round as u64)),
        is_last_round: round + 1 == phase.rounds,
    };
    let text = |failure: Failure| failure.to_string();
    let lanes = 0..phase.programs[me].len();
    let persistent: Result<Vec<_>, Failure> = lanes.map(|number| lane(number, 0).persistent()).collect();
    let mut persistent = persistent.map_err(text)?;
    let mut parts = Parts::new(&phase.partitioned, comms, me).map_err(text)?;
    for round in 0..phase.rounds {
        let report = |thread: String, outcome: Result<(), String>| {
            let why = outcome.map_err(|why| format!("rank {me}, {thread}, round {round}: {why}"));
            // The other threads and ranks might wait for this thread.
            why.inspect_err(|why| world.abort(1, why))
        };
        let run = |(number, requests)| {
            let lane = lane(number, round);
            let records = lane.run(requests).map_err(text);
            let outcome = records.and_then(|all| Unreceived::new(phase, me, number).check(&lane, &all));
            report(format!("thread {number}"), outcome)
        };
        let partitioned = &phase.partitioned;
        let parts = &mut parts;
        let run_parts = move || {
            report("partitioned messages".into(), parts.run(partitioned, lane(0, round).key).map_err(text))
        };
        std::thread::scope(|threads| {
            let first = threads.spawn(run_parts);
            let lanes = persistent.iter_mut().enumerate().map(|lane| threads.spawn(move || run(lane)));
            let started: Vec<_> = std::iter::once(first).chain(lanes).collect();
            started.into_iter().try_for_each(|thread| thread.join().expect("a thread does not panic"))
        })?;
        world.barrier().map_err(|error| error.to_string())?;
    }
    Ok(())
}
