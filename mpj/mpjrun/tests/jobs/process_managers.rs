//! Checks of jobs under a process manager: Hydra, Open MPI.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::boot_cases::CASES;
use super::job::{Ended, Job, kill, limit, pid, wait_for_exit, watch};
use super::message_programs::PROGRAMS;
use super::mismatch::time_factor;
use super::program::say;

#[derive(Clone, Copy)]
pub(crate) struct Manager {
    pub(crate) program: &'static str,
    /// The arguments of all jobs, separated by spaces.
    pub(crate) args: &'static str,
    /// The name of Debian's package.
    pub(crate) package: &'static str,
}

impl Manager {
    /// Returns whether the process manager is missing, and prints that.
    pub(crate) fn is_missing(&self) -> bool {
        let mut version = Command::new(self.program);
        let version = version.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        let is_missing = !version.is_ok_and(|status| status.success());
        if is_missing {
            say(&format!("SKIPPED no {} (Debian: apt-get install {})", self.program, self.package));
        }
        is_missing
    }

    /// Starts a job whose ranks run a role of this binary.
    pub(crate) fn start(&self, args: &str, role: &str) -> Job {
        let mut command = Command::new(self.program);
        command.args(self.args.split_whitespace()).args(args.split_whitespace());
        command.arg(std::env::current_exe().unwrap()).args(["rank", role]);
        command.env_remove("RUST_BACKTRACE").stdin(Stdio::null());
        watch(&mut command).0
    }

    pub(crate) fn run(&self, args: &str, role: &str) -> Ended {
        self.start(args, role).end()
    }

    pub(crate) fn boot_suite_passes(&self, args: &str, sizes: &[u32]) {
        if self.is_missing() {
            return;
        }
        for &ranks in sizes {
            for case in CASES.iter().filter(|case| case.min_ranks <= ranks) {
                let ended = self.run(&format!("{args} -n {ranks}"), &format!("boot:{}", case.name));
                let done = ended.out.iter().filter(|line| line.starts_with("done")).count();
                assert_eq!(done, ranks as usize, "{} on {ranks} ranks: {ended:#?}", case.name);
                let is_expected = match case.name {
                    "abort_is_a_death_with_its_code_and_reason" => ended.code == Some(42),
                    name => ended.code == Some(0) || name.contains("died") || name.contains("losses"),
                };
                assert!(is_expected, "{} on {ranks} ranks: {ended:#?}", case.name);
            }
        }
    }

    pub(crate) fn message_programs_run(&self, args: &str) {
        if self.is_missing() {
            return;
        }
        for (name, _) in PROGRAMS {
            let ended = self.run(&format!("{args} -n 5"), &format!("messages:{name}"));
            let done = ended.out.iter().filter(|line| line.ends_with("is done")).count();
            assert_eq!((ended.code, done), (Some(0), 5), "{name}: {ended:#?}");
        }
    }

    /// The process manager exits with the code of a failure, and one line of `mpj` names its cause.
    pub(crate) fn failures_give_the_exit_code(&self) {
        if self.is_missing() {
            return;
        }
        for (role, code, line) in [
            ("abort", 42, "mpj: rank 1 aborted the job with code 42: enough"),
            ("error", 1, "mpj: rank 1 returned an error: recv: rank 8 is out of range"),
            ("panic", 101, "mpj: rank 1 panicked: an odd number"),
        ] {
            let begun = Instant::now();
            let ended = self.run("-n 3", role);
            assert_eq!(ended.code, Some(code), "{role}: {ended:#?}");
            let own: Vec<&String> = ended.err.iter().filter(|text| text.starts_with("mpj: ")).collect();
            assert!(own.len() == 1 && own[0].starts_with(line), "{role}: {ended:#?}");
            assert!(begun.elapsed() < limit(60), "{role}: {:?}", begun.elapsed());
        }
        assert_eq!(self.run("-n 3", "exit5-after").code, Some(5), "a code after mpj::run");
    }

    /// Rank 1 never starts. `variable` is the name of the variable with the rank of a process.
    pub(crate) fn missing_ranks_of_the_host_are_listed(&self, variable: &str) {
        if self.is_missing() {
            return;
        }
        let seconds = (5 * time_factor()).to_string();
        let mut command = Command::new(self.program);
        command.args(self.args.split_whitespace()).args(["-n", "3", "sh", "-c"]);
        command.arg(format!("[ ${variable} = 1 ] && exec sleep 100; exec \"$RANKS\" rank fine"));
        command.env("RANKS", std::env::current_exe().unwrap()).env("MPJ_RENDEZVOUS_TIMEOUT", &seconds);
        let ended = watch(command.env_remove("RUST_BACKTRACE").stdin(Stdio::null())).0.end();
        let why = "MPJ_RENDEZVOUS_TIMEOUT is the limit; missing on this host: rank 1";
        assert!(ended.err.iter().any(|line| line.starts_with("mpj: ") && line.ends_with(why)), "{ended:#?}");
        assert_ne!(ended.code, Some(0), "{ended:#?}");
    }

    /// A killed rank, a killed agent and a killed process manager end all processes of the job.
    pub(crate) fn killed_processes_end_the_job(&self) {
        if self.is_missing() {
            return;
        }
        for victim in [Some(2), Some(0), None] {
            let job = self.start("-n 3", "wait");
            let there = job.lines(3, " is ");
            let pids: Vec<u32> = there.iter().map(|line| pid(line)).collect();
            let of_rank = |rank| {
                there.iter().find(|line| line.contains(&format!("rank {rank} "))).map(|line| pid(line))
            };
            kill(&[victim.map_or(job.pid(), |rank| of_rank(rank).unwrap())], "-KILL");
            pids.into_iter().for_each(|pid| wait_for_exit(pid, Duration::from_secs(20)));
            let ended = job.end();
            assert_ne!(ended.code, Some(0), "{victim:?}: {ended:#?}");
        }
    }

    /// Ranks 2 and 3 are on another host than rank 0, whose agent cannot end the job.
    pub(crate) fn abort_ends_the_job_of_a_stopped_rank_0(&self, args: &str) {
        if self.is_missing() {
            return;
        }
        for rank in ["2", "3"] {
            let job = self.start(&format!("{args} -n 4"), &format!("abort-of-stopped:{rank}"));
            let stopped = pid(&job.lines(1, "rank 0 stops")[0]);
            let ended = job.end();
            assert_eq!(ended.code, Some(42), "{ended:#?}");
            wait_for_exit(stopped, Duration::from_secs(20));
        }
    }
}

/// Asserts that each pair of ranks on one host used `device`, and the others TCP.
pub(crate) fn assert_pairs(ended: &Ended, host_of_rank: &str, device: &str) {
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let said: BTreeSet<&str> = ended.out.iter().map(String::as_str).collect();
    let (ranks, hosts) = (host_of_rank.len(), host_of_rank.as_bytes());
    let pairs = (0..ranks * ranks).map(|at| (at / ranks, at % ranks)).filter(|(from, to)| from != to);
    let used = |from: usize, to: usize| if hosts[from] == hosts[to] { device } else { "niodev" };
    let wanted: Vec<String> =
        pairs.map(|(from, to)| format!("pair {from} {to} {}", used(from, to))).collect();
    assert_eq!(said, wanted.iter().map(String::as_str).collect());
}

/// Waits until no other test and no other program uses the hosts of `netns-hosts`. So the time limit of a job does not
/// include this wait. While the guard exists, no other test uses them.
pub(crate) fn lock_hosts() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    // Without the program, `netns-hosts` skips the test.
    let _ = Command::new("flock").args(["/tmp/mpj-netns-hosts.lock", "true"]).status();
    guard
}

/// Runs a role on the three hosts of `netns-hosts`: `script` starts its arguments there. Returns `None`, and prints
/// why, if this machine cannot have these hosts.
pub(crate) fn run_on_hosts(script: &str, role: &str) -> Option<Ended> {
    let _guard = lock_hosts();
    let mut command = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/check/netns-hosts"));
    command.args(["3", "bash", "-c", script, "bash"]).arg(std::env::current_exe().unwrap());
    command.args(["rank", role]).env_remove("RUST_BACKTRACE").stdin(Stdio::null());
    let ended = watch(&mut command).0.end();
    if ended.code == Some(77) {
        ended.err.iter().for_each(|line| say(line));
        return None;
    }
    Some(ended)
}

/// A job on three hosts ends without a rank left if the process of the process manager on the second host is killed.
/// `script` starts the job.
pub(crate) fn killed_proxy_ends_the_job(script: &str, proxy: &str) {
    let script = format!(
        "export MET=$(mktemp -d); ({script}) & job=$!; pids() {{ ip netns pids $NETNS_PREFIX-$1; }}; \
         for i in {{1..600}}; do [ $(ls $MET | wc -l) = 6 ] && break; sleep 0.1; done; \
         for pid in $(pids h1); do [ $(cat /proc/$pid/comm) = {proxy} ] && kill -KILL $pid && echo killed; done; \
         wait $job; code=$?; ranks=$(basename $1); ranks=${{ranks:0:15}}; \
         left() {{ for host in h0 h1 h2; do for pid in $(pids $host); do cat /proc/$pid/comm; done; done \
                   | grep -c $ranks; }}; \
         for i in {{1..200}}; do [ $(left) = 0 ] && break; sleep 0.1; done; \
         echo $(left) left; rm -r $MET; exit $code"
    );
    let Some(ended) = run_on_hosts(&script, "cut") else { return };
    assert_eq!(ended.out, ["killed", "0 left"], "{ended:#?}");
    assert_ne!(ended.code, Some(0), "{ended:#?}");
}

/// Runs one process without a process manager, with these variables.
pub(crate) fn run_alone(variables: &[(&str, &str)]) -> Ended {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["rank", "fine"]).envs(variables.iter().copied()).stdin(Stdio::null());
    watch(&mut command).0.end()
}

/// Asserts that one process with these variables reports an error of `mpj` with this text.
pub(crate) fn assert_refused(variables: &[(&str, &str)], why: &str) {
    let ended = run_alone(variables);
    let said = ended.err.iter().any(|line| line.starts_with("mpj: ") && line.contains(why));
    assert!(said && ended.code == Some(1), "{variables:?}: {ended:#?}");
}
