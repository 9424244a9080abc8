//! A simulation of the agents and processes of a job in virtual time, without sockets. It drives the real [`Router`] of
//! each host, and so the real monitor of the job.
//!
//! | file | contents |
//! |---|---|
//! | `mod` | the jobs and faults that are simulated, and the table |
//! | `job` | the event queue, the processes, and the faults |
//! | `agent`, `turn` | the state of an agent, and a pass of its event loop |
//! | `packet` | the frames, and what they cost |
//! | `process` | the messages and the knowledge of a process |
//!
//! `cargo test --release -p mpj --lib simulated_jobs -- --ignored --nocapture` prints the table of `docs/scale.md`.

mod agent;
mod job;
mod packet;
mod process;
mod turn;

use std::time::Duration;

use job::Job;
use packet::Counts;
use process::Failure;

use crate::boot::control_plane::INTERVAL;

/// An event in a job that has started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Event {
    /// The process of a rank is killed. The other ranks continue.
    Death(u32),
    /// The process of a rank is killed, and all other ranks fail because of it, with the same error.
    AllFail(u32),
    /// The process of a rank is killed, and all other ranks fail because of it, each with an error of its own.
    AllFailOwn(u32),
    /// A host and its agent are lost.
    HostLoss(u32),
    /// All ranks leave.
    OrderlyEnd,
}

/// Starts a job, and returns it with the counts of the start.
fn started(ranks: u32, hosts: u32) -> (Job, Counts) {
    let mut job = Job::new(ranks, hosts, u64::from(ranks));
    job.start();
    job.run();
    assert_eq!(job.joined(), ranks);
    let counts = job.take_counts();
    check_start(ranks, hosts, counts);
    (job, counts)
}

/// Runs an event of a started job to its end, and checks what the processes have learned.
fn run(job: &mut Job, event: Event) -> Counts {
    let ranks = job.ranks();
    let deaths = match event {
        Event::Death(rank) => job.kill(rank, Failure::Continue),
        Event::AllFail(rank) => {
            job.kill(rank, Failure::SameError);
            ranks
        }
        Event::AllFailOwn(rank) => {
            job.kill(rank, Failure::OwnError);
            ranks
        }
        Event::HostLoss(host) => job.lose_host(host),
        Event::OrderlyEnd => {
            job.leave();
            0
        }
    };
    job.run();
    match event {
        Event::OrderlyEnd => job.check_orderly_end(),
        _ => job.check_deaths(deaths),
    }
    job.take_counts()
}

/// Returns the number of hosts of a job: 128 ranks each.
fn hosts_of(ranks: u32) -> u32 {
    ranks.div_ceil(128)
}

fn events_of(ranks: u32) -> Vec<Event> {
    let mut events = vec![Event::OrderlyEnd];
    if ranks > 1 {
        events.extend([Event::Death, Event::AllFail, Event::AllFailOwn].map(|event| event(ranks / 2)));
    }
    if hosts_of(ranks) > 1 {
        events.push(Event::HostLoss(hosts_of(ranks) / 2));
    }
    events
}

#[expect(clippy::print_stdout, reason = "prints a table")]
fn print_table(sizes: &[u32]) {
    println!(
        "{:>6} {:>5}  {:<16} {:>9} {:>9} {:>11} {:>11} {:>9} {:>9}  {:>9}",
        "ranks", "hosts", "event", "frames in", "out", "bytes in", "out", "busy ms", "end ms", "other out"
    );
    for ranks in sizes.iter().copied() {
        let hosts = hosts_of(ranks);
        let row = |event: String, counts: Counts| {
            let Counts { root, other, elapsed } = counts;
            println!(
                "{ranks:>6} {hosts:>5}  {event:<16} {:>9} {:>9} {:>11} {:>11} {:>9.1} {:>9.1}  {:>9}",
                root.frames_in,
                root.frames_out,
                root.bytes_in,
                root.bytes_out,
                millis(root.busy),
                millis(elapsed),
                other.frames_out
            );
        };
        row("start".into(), started(ranks, hosts).1);
        for event in events_of(ranks) {
            let (mut job, _) = started(ranks, hosts);
            let counts = run(&mut job, event);
            check_bounds(ranks, hosts, event, counts);
            row(format!("{event:?}"), counts);
        }
    }
}

/// The largest length of a cause, of a run of ranks, and of what a rank sends at the start, in bytes.
const CAUSE: u64 = 150;
const RUN: u64 = 8;
const CARDS: u64 = 400;

/// Limits the work of a start: the root gets the hello and the cards of each rank, and another agent passes on those of
/// its host. Each process gets one welcome, which contains the hosts.
fn check_start(ranks: u32, hosts: u32, Counts { root, other, .. }: Counts) {
    let (all, local) = (u64::from(ranks), u64::from(ranks.div_ceil(hosts)));
    let welcomes = local * (100 + RUN * u64::from(hosts));
    assert!(root.frames_in <= 2 * all && root.frames_out <= local, "{root:?}");
    assert!(root.bytes_in <= CARDS * all && root.bytes_out <= welcomes, "{root:?}");
    assert!(other.frames_in <= 2 * local && other.frames_out <= 3 * local, "{other:?}");
    assert!(other.bytes_in <= CARDS * local && other.bytes_out <= CARDS * local + welcomes, "{other:?}");
}

/// Limits the work after an event: the frames of an agent grow with its connections and not with the ranks.
///
/// An agent sends at most one message per interval to the root, and one to each of its processes. The root sends one to
/// each other agent.
fn check_bounds(ranks: u32, hosts: u32, event: Event, counts: Counts) {
    let (local, hosts) = (u64::from(ranks.div_ceil(hosts)), u64::from(hosts));
    let intervals = 2 + counts.elapsed.as_millis() as u64 / INTERVAL.as_millis() as u64;
    let Counts { root, other, .. } = counts;
    assert!(root.frames_in <= 3 * local + intervals * hosts, "{event:?}: {root:?}");
    assert!(root.frames_out <= intervals * (local + hosts), "{event:?}: {root:?}");
    assert!(other.frames_in <= 3 * local + intervals, "{event:?}: {other:?}");
    assert!(other.frames_out <= intervals * (local + 1), "{event:?}: {other:?}");
    // Two causes per interval, each other cause once, and one run for each host and interval.
    let causes = if matches!(event, Event::AllFailOwn(_)) { 258 } else { 0 };
    let deaths = (2 * intervals + causes) * CAUSE + RUN * intervals * hosts;
    let exits = (2 * intervals + causes.min(local)) * CAUSE + RUN * local;
    let own_exits = 3 * local * CAUSE;
    assert!(root.bytes_in <= own_exits + hosts * exits, "{event:?}: {root:?}");
    assert!(root.bytes_out <= (local + hosts) * deaths, "{event:?}: {root:?}");
    assert!(other.bytes_in <= own_exits + deaths, "{event:?}: {other:?}");
    assert!(other.bytes_out <= exits + local * deaths, "{event:?}: {other:?}");
}

/// Runs a job with faults at random places and times, some of them during the start.
fn run_random_faults(mut job: Job) {
    job.start();
    let deaths = job.random_faults();
    job.run();
    job.check_deaths(deaths);
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[test]
fn simulated_processes_learn_all_deaths_in_one_order() {
    print_table(&[1, 2, 64, 512]);
    // Jobs with any number of ranks per host.
    for seed in 0..40 {
        run_random_faults(Job::random(seed));
    }
}

#[test]
#[ignore = "prints the table of docs/scale.md, which is slow without --release"]
fn simulated_jobs_of_all_sizes() {
    print_table(&[1, 64, 512, 4096, 65_536]);
    for (ranks, seeds) in [(4096, 0..40), (65_536, 0..10)] {
        for seed in seeds {
            run_random_faults(Job::new(ranks, hosts_of(ranks), seed));
        }
    }
}
