//! Failures of jobs without a launcher: all processes end, with the right codes.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::Test;
use super::env::{SECRET, codes, free_port, run_job, start_job, start_rank};
use super::job::{Ended, Job, kill, limit, pid, wait_for_exit, watch};

pub(crate) const TESTS: &[Test] = &[
    ("failure_ends_all_processes_with_its_code", failure_ends_all_processes_with_its_code),
    ("killed_processes_end_the_environment_job", killed_processes_end_the_environment_job),
    ("failed_job_ends_without_a_reader_of_its_errors", failed_job_ends_without_a_reader_of_its_errors),
    ("lack_of_descriptors_ends_the_job", lack_of_descriptors_ends_the_job),
    ("stopped_processes_of_a_failed_job_are_killed", stopped_processes_of_a_failed_job_are_killed),
    (
        "abort_ends_the_host_of_the_rank_if_rank_0_is_stopped",
        abort_ends_the_host_of_the_rank_if_rank_0_is_stopped,
    ),
    ("killed_rank_0_is_named_on_all_hosts", killed_rank_0_is_named_on_all_hosts),
    (
        "child_with_the_descriptors_of_a_killed_rank_hides_nothing",
        child_with_the_descriptors_of_a_killed_rank_hides_nothing,
    ),
    ("rank_that_computes_prints_why_it_is_killed", rank_that_computes_prints_why_it_is_killed),
    ("time_limit_holds_after_the_ranks_have_returned", time_limit_holds_after_the_ranks_have_returned),
    ("job_that_times_out_prints_one_table_of_its_waits", job_that_times_out_prints_one_table_of_its_waits),
    ("interrupted_job_prints_one_table_of_its_waits", interrupted_job_prints_one_table_of_its_waits),
    ("table_names_a_rank_that_does_not_respond", table_names_a_rank_that_does_not_respond),
    ("ranks_print_their_waits_without_rank_0", ranks_print_their_waits_without_rank_0),
];

fn failure_ends_all_processes_with_its_code() {
    for hosts in ["aaa", "abb"] {
        for (role, code, line) in [
            ("abort", 42, "mpj: rank 1 aborted the job with code 42: enough"),
            ("error", 1, "mpj: rank 1 returned an error: recv: rank 8 is out of range"),
            ("panic", 101, "mpj: rank 1 panicked: an odd number"),
        ] {
            let begun = Instant::now();
            let ended = run_job(hosts, role, &[]);
            let codes = codes(&ended);
            assert!(
                codes.contains(&Some(code)) && !codes.contains(&Some(0)),
                "{role} on {hosts}: {ended:#?}"
            );
            let own = ended.iter().flat_map(|ended| &ended.err).filter(|line| line.starts_with("mpj: "));
            let own: Vec<&String> = own.collect();
            assert!(own.len() == 1 && own[0].starts_with(line), "{role} on {hosts}: {ended:#?}");
            assert!(begun.elapsed() < limit(60), "{role}: {:?}", begun.elapsed());
        }
    }
}

/// A killed rank, a killed agent and a killed rank 0 end all processes of the job.
fn killed_processes_end_the_environment_job() {
    for (hosts, victim) in [("aaa", 2), ("aaa", 0), ("abb", 0), ("abb", 1), ("abb", 2)] {
        let jobs = start_job(hosts, "wait", &[]);
        let pids: Vec<u32> = jobs.iter().map(|job| pid(&job.lines(1, " is ")[0])).collect();
        kill(&[pids[victim]], "-KILL");
        pids.into_iter().for_each(|pid| wait_for_exit(pid, Duration::from_secs(20)));
        let ended: Vec<Ended> = jobs.into_iter().map(Job::end).collect();
        assert!(ended.iter().all(|ended| ended.code != Some(0)), "{hosts} {victim}: {ended:#?}");
    }
    // A rank that computes, and makes no call, ends as well.
    let jobs = start_job("aabb", "hang", &[]);
    jobs[3].lines(1, "rank 3 computes");
    jobs[1].signal("-KILL");
    let ended: Vec<Ended> = jobs.into_iter().map(Job::end).collect();
    assert!(ended.iter().all(|ended| ended.code != Some(0)), "{ended:#?}");
}

/// The process of rank 0 ends the job even if nobody reads its standard error, or the reader has exited.
fn failed_job_ends_without_a_reader_of_its_errors() {
    for is_read in [true, false] {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let (port, reader) = (free_port(), is_read.then_some(reader));
        let mut first = Command::new(std::env::current_exe().unwrap());
        let at = format!("localhost:{port}");
        first.args(["rank", "abort"]).stdin(Stdio::null()).stdout(Stdio::null());
        first.envs([("MPJ_RANK", "0"), ("MPJ_SIZE", "3"), ("MPJ_RENDEZVOUS", &at), ("MPJ_SECRET", SECRET)]);
        first.envs([("MPJ_HOST", "a"), ("MPJ_NIO_INTERFACES", "lo")]).env_remove("RUST_BACKTRACE");
        let mut first = first.stderr(writer.try_clone().unwrap()).spawn().unwrap();
        // Without a reader, this fails at once.
        std::thread::spawn(move || while writer.write_all(&[b'x'; 4096]).is_ok() {});
        let start = |(rank, host): (usize, &str)| {
            start_rank(rank, 3, port, "abort", &[("MPJ_HOST", host), ("MPJ_NIO_INTERFACES", "lo")])
        };
        let others = [(1, "a"), (2, "b")].map(start);
        wait_for_exit(first.id(), Duration::from_secs(60));
        assert_eq!(first.wait().unwrap().code(), Some(42));
        let ended = others.map(Job::end);
        assert!(ended.iter().all(|ended| ended.code != Some(0)), "{ended:#?}");
        drop(reader);
    }
}

/// Without descriptors for its agent, a process does not wait for itself forever.
fn lack_of_descriptors_ends_the_job() {
    let start = |(limited, limit): (usize, u32)| {
        let (port, program) = (free_port(), std::env::current_exe().unwrap());
        (0..3).map(move |rank| {
            let limit = if rank == limited { limit } else { 1000 };
            let mut command = Command::new("sh");
            command.args(["-c", &format!("ulimit -n {limit}; exec \"$@\""), "sh"]).arg(&program);
            command.args(["rank", "fine"]).env_remove("RUST_BACKTRACE").stdin(Stdio::null());
            command.env("MPJ_RANK", rank.to_string()).envs([("MPJ_SIZE", "3"), ("MPJ_SECRET", SECRET)]);
            command.env("MPJ_RENDEZVOUS", format!("localhost:{port}")).env("MPJ_NIO_INTERFACES", "lo");
            command.envs([("MPJ_HOST", if rank == 2 { "b" } else { "a" }), ("MPJ_RENDEZVOUS_TIMEOUT", "10")]);
            watch(&mut command).0
        })
    };
    let limits = [(0, 11), (0, 14), (0, 17), (2, 8), (2, 11), (2, 14)];
    // If a process does not end, the test hangs and fails.
    let jobs: Vec<Job> = limits.into_iter().flat_map(start).collect();
    let ended: Vec<Ended> = jobs.into_iter().map(Job::end).collect();
    assert!(ended.iter().all(|ended| ended.code == Some(1)), "{ended:#?}");
}

fn stopped_processes_of_a_failed_job_are_killed() {
    let jobs = start_job("abb", "wait", &[]);
    let pids: Vec<u32> = jobs.iter().map(|job| pid(&job.lines(1, " is ")[0])).collect();
    kill(&[pids[2]], "-STOP");
    kill(&[pids[0]], "-KILL");
    let ended: Vec<Ended> = jobs.into_iter().map(Job::end).collect();
    assert_eq!(ended[2].signal, Some(9), "{ended:#?}");
}

fn abort_ends_the_host_of_the_rank_if_rank_0_is_stopped() {
    for rank in ["1", "2"] {
        let mut jobs = start_job("abb", &format!("abort-of-stopped:{rank}"), &[]);
        let first = jobs.remove(0);
        let ended: Vec<Ended> = jobs.into_iter().map(Job::end).collect();
        let line = format!("mpj: rank {rank} aborted the job with code 42: enough (the process of rank 0");
        assert!(ended[0].err.iter().any(|said| said.starts_with(&line)), "{ended:#?}");
        assert_eq!(codes(&ended), [Some(42); 2], "{ended:#?}");
        first.signal("-CONT");
        let ended = first.end();
        assert_ne!(ended.code, Some(0), "{ended:#?}");
    }
}

fn killed_rank_0_is_named_on_all_hosts() {
    let jobs = start_job("aab", "barrier-without-0", &[]);
    kill(&[pid(&jobs[0].lines(1, " is ")[0])], "-KILL");
    let ended: Vec<Ended> = jobs.into_iter().map(Job::end).collect();
    for other in &ended[1..] {
        let names_it = |line: &String| line.starts_with("mpj: ") && line.contains("rank 0");
        assert!(other.err.iter().any(names_it), "{ended:#?}");
    }
}

/// A child of a killed process keeps the connections of that process open. Other hosts detect the exit of rank 0 only
/// by its connections, so rank 0 is not killed here if there are two hosts.
fn child_with_the_descriptors_of_a_killed_rank_hides_nothing() {
    for (hosts, victim) in [("aab", 1), ("aaa", 0), ("aaa", 2), ("abb", 2)] {
        let begun = Instant::now();
        let ended = run_job(hosts, &format!("killed-with-child:{victim}"), &[]);
        assert!(ended.iter().all(|ended| ended.code != Some(0)), "{hosts} {victim}: {ended:#?}");
        // The child lives for 60 s.
        assert!(begun.elapsed() < limit(20), "{hosts} {victim}: {:?}", begun.elapsed());
    }
}

fn rank_that_computes_prints_why_it_is_killed() {
    let jobs = start_job("aaaa", "hang", &[]);
    jobs[3].lines(1, "rank 3 computes");
    jobs[0].signal("-KILL");
    let ended: Vec<Ended> = jobs.into_iter().map(Job::end).collect();
    let line = "mpj: the launcher, or the first rank of this host, has exited: this process is killed";
    assert!(ended[3].err.iter().any(|said| said == line), "{ended:#?}");
}

/// The process of rank 0 waits for the others, of which rank 3 computes for ever.
fn time_limit_holds_after_the_ranks_have_returned() {
    let port = free_port();
    let rank = |rank| start_rank(rank, 4, port, if rank == 3 { "hang" } else { "fine" }, limits(rank));
    fn limits(rank: usize) -> &'static [(&'static str, &'static str)] {
        if rank == 3 { &[] } else { &[("MPJ_TIMEOUT", "3")] }
    }
    let ended: Vec<Ended> = (0..4).map(rank).collect::<Vec<Job>>().into_iter().map(Job::end).collect();
    assert_eq!(ended[0].code, Some(124), "{ended:#?}");
    let line =
        "mpj: timeout reached (MPJ_TIMEOUT); the process was terminated: the ranks of this process have";
    assert!(ended[0].err.iter().any(|said| said.starts_with(line)), "{ended:#?}");
    assert_ne!(ended[3].code, Some(0), "{ended:#?}");
}

/// Asserts that the processes of a job have printed these lines once, in the error output of one of them.
fn assert_one_table(ended: &[Ended], lines: &[&str]) {
    for line in lines {
        let count = ended.iter().flat_map(|ended| &ended.err).filter(|err| err.starts_with(line)).count();
        assert_eq!(count, 1, "'{line}': {ended:#?}");
    }
}

fn job_that_times_out_prints_one_table_of_its_waits() {
    for hosts in ["aaaa", "abab"] {
        let ended = run_job(hosts, "ring", &[("MPJ_TIMEOUT", "4")]);
        assert_eq!(codes(&ended), [Some(124); 4], "{ended:#?}");
        assert_one_table(
            &ended,
            &[
                "mpj: timeout of 4 s reached; the job was terminated:",
                "  rank 0: recv from rank 1",
                "  rank 3: recv from rank 0",
                "  a cycle of waiting ranks: 0 → ",
            ],
        );
    }
}

fn interrupted_job_prints_one_table_of_its_waits() {
    let jobs = start_job("aabb", "hang", &[]);
    jobs[3].lines(1, "rank 3 computes");
    // The ranks print nothing before they wait.
    std::thread::sleep(Duration::from_secs(1));
    jobs.iter().for_each(|job| job.signal("-INT"));
    let ended: Vec<Ended> = jobs.into_iter().map(Job::end).collect();
    assert!(ended.iter().all(|ended| ended.code != Some(0)), "{ended:#?}");
    assert_one_table(
        &ended,
        &[
            "mpj: interrupted; what the ranks wait for:",
            "  rank 0: recv from rank 3",
            "  ranks 1 and 2: barrier, for ",
            "  rank 3: in no blocking call",
            "  ranks 0 and 3 have not entered: barrier",
        ],
    );
}

fn table_names_a_rank_that_does_not_respond() {
    let jobs = start_job("aaaa", "hang", &[("MPJ_TIMEOUT", "4")]);
    jobs[3].lines(1, "rank 3 computes");
    jobs[3].signal("-STOP");
    let ended: Vec<Ended> = jobs.into_iter().map(Job::end).collect();
    assert_one_table(&ended, &["  rank 3: did not respond", "  ranks 1 and 2: barrier, for "]);
    assert_eq!(ended[3].signal, Some(9), "{ended:#?}");
}

/// Rank 0 is stopped.
fn ranks_print_their_waits_without_rank_0() {
    let jobs = start_job("aabb", "hang", &[("MPJ_TIMEOUT", "4")]);
    jobs[3].lines(1, "rank 3 computes");
    jobs[0].signal("-STOP");
    let after_timeout = Duration::from_secs(4);
    std::thread::sleep(after_timeout + Duration::from_secs(4));
    jobs[0].signal("-CONT");
    let ended: Vec<Ended> = jobs.into_iter().map(Job::end).collect();
    assert_one_table(&ended, &["  rank 1: barrier, for ", "  rank 2: barrier, for "]);
}
