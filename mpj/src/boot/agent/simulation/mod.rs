//! A simulation of the agents and processes of a job in virtual time, without sockets. It drives the real [`Router`] of
//! each host, and so the real monitor of the job.
//!
//! | file | contents |
//! |---|---|
//! | `mod` | the jobs and faults that are simulated, and the table |
//! | `job` | the event queue, the agents, and the cost of messages |
//! | `process` | the messages and the knowledge of a process |
//!
//! `cargo test --release -p mpj --lib simulated -- --ignored --nocapture` prints the table of `docs/scale.md`.

mod job;
mod process;

use std::time::Duration;

use job::{Counts, Job};

/// An event in a job that has started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Event {
    /// The process of a rank is killed. The other ranks continue.
    Death(u32),
    /// The process of a rank is killed, and all other ranks fail because of it.
    AllFail(u32),
    /// A host and its agent are lost.
    HostLoss(u32),
    /// All ranks leave.
    OrderlyEnd,
}

/// Starts a job, and returns it with the counts of the start.
fn started(ranks: u32, hosts: u32) -> (Job, Counts) {
    let mut job = Job::new(ranks, hosts);
    job.start();
    job.run();
    assert_eq!(job.joined(), ranks);
    let counts = job.take_counts();
    (job, counts)
}

/// Runs an event of a started job to its end, and checks what the processes have learned.
fn run(job: &mut Job, event: Event) -> Counts {
    let ranks = job.ranks();
    let deaths = match event {
        Event::Death(rank) => job.kill(rank, false),
        Event::AllFail(rank) => {
            job.kill(rank, true);
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
    let mut events = vec![Event::AllFail(ranks / 2), Event::OrderlyEnd];
    if ranks > 1 {
        events.push(Event::Death(ranks / 2));
    }
    if hosts_of(ranks) > 1 {
        events.push(Event::HostLoss(hosts_of(ranks) / 2));
    }
    events
}

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
            row(format!("{event:?}"), counts);
        }
    }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[test]
fn simulated_processes_learn_all_deaths_in_one_order() {
    print_table(&[1, 2, 64, 512]);
    // Faults at random places, at random times, in jobs with any number of ranks per host.
    for seed in 0..40 {
        let mut job = Job::random(seed);
        job.start();
        job.run();
        let deaths = job.random_faults();
        job.run();
        job.check_deaths(deaths);
    }
}

#[test]
#[ignore = "prints the table of docs/scale.md, which takes minutes"]
fn simulated_jobs_of_all_sizes() {
    print_table(&[1, 64, 512, 4096]);
}
