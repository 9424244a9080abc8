//! Jobs without a launcher: the variables of each process state its rank, and the ranks meet at rank 0.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::Test;
use super::boot_cases::CASES;
use super::job::{Ended, Job, limit, watch};
use super::message_programs::PROGRAMS;
use super::mismatch::time_factor;
use super::process_managers::lock_hosts;
use super::program::say;

pub(crate) const TESTS: &[Test] = &[
    ("boot_suite_passes_under_the_environment", boot_suite_passes_under_the_environment),
    ("message_programs_run_under_the_environment", message_programs_run_under_the_environment),
    ("ranks_share_memory_with_those_of_their_host", ranks_share_memory_with_those_of_their_host),
    ("ranks_may_have_process_id_namespaces_of_their_own", ranks_may_have_process_id_namespaces_of_their_own),
    ("rank_0_may_come_last", rank_0_may_come_last),
    ("rank_2_may_come_90_s_late", rank_2_may_come_90_s_late),
    ("job_of_two_hosts_ends_when_its_ranks_have_left", job_of_two_hosts_ends_when_its_ranks_have_left),
    ("environment_hosts_with_a_late_name", environment_hosts_with_a_late_name),
    ("missing_ranks_are_listed_at_the_deadline", missing_ranks_are_listed_at_the_deadline),
    ("ranks_that_do_not_match_are_rejected", ranks_that_do_not_match_are_rejected),
    ("strangers_do_not_keep_ranks_out", strangers_do_not_keep_ranks_out),
];

pub(crate) const SECRET: &str = "0123456789abcdef, only for tests";

/// Returns a port that is free now. It is below those that Linux gives to sockets without a port, which might take it
/// before rank 0 listens.
pub(crate) fn free_port() -> u16 {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    // Test programs that run at the same time try different ports.
    let first = std::process::id() % 20_000 * 331;
    let mut ports =
        std::iter::repeat_with(|| (10_000 + (first + COUNT.fetch_add(1, Ordering::Relaxed)) % 20_000) as u16);
    ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).unwrap()
}

pub(crate) fn start(role: &str, variables: &[(&str, &str)]) -> Job {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["rank", role]).env_remove("RUST_BACKTRACE").stdin(Stdio::null());
    command.envs(variables.iter().copied());
    watch(&mut command).0
}

/// Starts rank `rank` of a job whose rank 0 listens at a port of this machine.
pub(crate) fn start_rank(rank: usize, size: usize, port: u16, role: &str, variables: &[(&str, &str)]) -> Job {
    let (rank, size) = (rank.to_string(), size.to_string());
    let at = format!("localhost:{port}");
    let own = [("MPJ_RANK", &*rank), ("MPJ_SIZE", &size), ("MPJ_RENDEZVOUS", &at), ("MPJ_SECRET", SECRET)];
    start(role, &[&own[..], variables].concat())
}

/// Starts a job whose ranks are on the hosts that the letters of `hosts` name, all of which are this machine.
pub(crate) fn start_job(hosts: &str, role: &str, variables: &[(&str, &str)]) -> Vec<Job> {
    let port = free_port();
    let own = |rank: usize| [("MPJ_HOST", &hosts[rank..=rank]), ("MPJ_NIO_INTERFACES", "lo")];
    let rank = |rank| start_rank(rank, hosts.len(), port, role, &[&own(rank)[..], variables].concat());
    (0..hosts.len()).map(rank).collect()
}

pub(crate) fn run_job(hosts: &str, role: &str, variables: &[(&str, &str)]) -> Vec<Ended> {
    start_job(hosts, role, variables).into_iter().map(Job::end).collect()
}

pub(crate) fn codes(ended: &[Ended]) -> Vec<Option<i32>> {
    ended.iter().map(|ended| ended.code).collect()
}

/// Returns whether a process has printed an error of `mpj` with this text.
pub(crate) fn has_error(ended: &Ended, text: &str) -> bool {
    ended.err.iter().any(|line| line.starts_with("mpj: ") && line.contains(text))
}

fn boot_suite_passes_under_the_environment() {
    for hosts in ["aa", "aaaa", "abab", "abcc"] {
        for case in CASES.iter().filter(|case| case.min_ranks as usize <= hosts.len()) {
            let ended = run_job(hosts, &format!("boot:{}", case.name), &[]);
            for (rank, ended) in ended.iter().enumerate() {
                let is_done = ended.out.iter().any(|line| *line == format!("done {rank}"));
                assert!(is_done, "{} on {hosts}, rank {rank}: {ended:#?}", case.name);
            }
            let codes = codes(&ended);
            let is_expected = match case.name {
                "abort_is_a_death_with_its_code_and_reason" => codes.contains(&Some(42)),
                name => {
                    codes.iter().all(|code| *code == Some(0))
                        || name.contains("died")
                        || name.contains("losses")
                }
            };
            assert!(is_expected, "{} on {hosts}: {ended:#?}", case.name);
        }
    }
}

fn message_programs_run_under_the_environment() {
    for (hosts, (name, _)) in
        ["aaaaa", "abbca"].into_iter().flat_map(|hosts| PROGRAMS.iter().map(move |p| (hosts, p)))
    {
        let ended = run_job(hosts, &format!("messages:{name}"), &[]);
        let done = ended.iter().flat_map(|ended| &ended.out).filter(|line| line.ends_with("is done")).count();
        assert!(
            done == 5 && ended.iter().all(|ended| ended.code == Some(0)),
            "{name} on {hosts}: {ended:#?}"
        );
    }
}

/// Asserts that each pair of ranks on one host used `shmdev`, and the others TCP.
pub(crate) fn assert_pairs(ended: &[Ended], hosts: &str) {
    assert!(ended.iter().all(|ended| ended.code == Some(0)), "{ended:#?}");
    let said: BTreeSet<String> = ended.iter().flat_map(|ended| ended.out.iter().cloned()).collect();
    let (ranks, hosts) = (hosts.len(), hosts.as_bytes());
    let pairs = (0..ranks * ranks).map(|at| (at / ranks, at % ranks)).filter(|(from, to)| from != to);
    let used = |from: usize, to: usize| if hosts[from] == hosts[to] { "shmdev" } else { "niodev" };
    assert_eq!(said, pairs.map(|(from, to)| format!("pair {from} {to} {}", used(from, to))).collect());
}

fn ranks_share_memory_with_those_of_their_host() {
    for hosts in ["aaa", "aabb", "abba"] {
        assert_pairs(&run_job(hosts, "pairs", &[]), hosts);
    }
    // Without `MPJ_HOST`, and with a secret in a file.
    let (port, dir) = (free_port(), std::env::temp_dir());
    let file = dir.join(format!("mpj-secret-{}", std::process::id()));
    let with_file = |rank: usize| {
        let (rank, at) = (rank.to_string(), format!("127.0.0.1:{port}"));
        let file = file.to_str().unwrap();
        let own =
            [("MPJ_SIZE", "3"), ("MPJ_RENDEZVOUS", &at), ("MPJ_SECRET_FILE", file), ("MPJ_RANK", &rank)];
        start("pairs", &own)
    };
    std::fs::write(&file, format!("{SECRET}\n")).unwrap();
    assert!(Command::new("chmod").arg("644").arg(&file).status().unwrap().success());
    assert!(has_error(&with_file(0).end(), "every user can access it (mode 644): chmod o= it"));
    assert!(Command::new("chmod").arg("600").arg(&file).status().unwrap().success());
    let ended: Vec<Ended> = [0, 1, 2].map(with_file).into_iter().map(Job::end).collect();
    assert_pairs(&ended, "aaa");
    std::fs::remove_file(file).unwrap();
}

/// As in containers of one pod: the kernel reports the process id 0 for a process of another namespace.
fn ranks_may_have_process_id_namespaces_of_their_own() {
    const UNSHARE: [&str; 4] = ["--pid", "--fork", "--kill-child", "--mount-proc"];
    let can_unshare = Command::new("unshare").args(UNSHARE).arg("true").stderr(Stdio::null()).status();
    if !can_unshare.is_ok_and(|status| status.success()) {
        say("SKIPPED: this process cannot make process id namespaces");
        return;
    }
    // Rank 0 runs the agent of the host.
    for apart in 0..3 {
        let port = free_port();
        let jobs = (0..3).map(|rank| {
            let (rank_text, at) = (rank.to_string(), format!("localhost:{port}"));
            let mut command = if rank == apart {
                let mut command = Command::new("unshare");
                command.args(UNSHARE).arg(std::env::current_exe().unwrap());
                command
            } else {
                Command::new(std::env::current_exe().unwrap())
            };
            command.args(["rank", "exchange"]).env_remove("RUST_BACKTRACE").stdin(Stdio::null());
            let own = [
                ("MPJ_RANK", &*rank_text),
                ("MPJ_SIZE", "3"),
                ("MPJ_RENDEZVOUS", &at),
                ("MPJ_SECRET", SECRET),
            ];
            watch(command.envs(own)).0
        });
        let ended: Vec<Ended> = jobs.collect::<Vec<_>>().into_iter().map(Job::end).collect();
        assert_eq!(codes(&ended), [Some(0); 3], "rank {apart} is apart: {ended:#?}");
    }
}

/// An agent that missed the exit of the last rank of its host would wait for 10 s more.
fn job_of_two_hosts_ends_when_its_ranks_have_left() {
    let begun = Instant::now();
    let ended = run_job("ab", "leave-late", &[]);
    assert_eq!(codes(&ended), [Some(0); 2], "{ended:#?}");
    assert!(begun.elapsed() < limit(9), "{:?}", begun.elapsed());
}

fn rank_0_may_come_last() {
    let port = free_port();
    let others = [1, 2].map(|rank| start_rank(rank, 3, port, "pairs", &[]));
    std::thread::sleep(Duration::from_secs(3));
    let first = start_rank(0, 3, port, "pairs", &[]);
    let [one, two] = others;
    assert_pairs(&[first, one, two].map(Job::end), "aaa");
}

/// Runs only on request, because it takes 90 s.
fn rank_2_may_come_90_s_late() {
    if std::env::var_os("TEST_LATE_RANK").is_none() {
        return say("SKIPPED, takes 90 s: TEST_LATE_RANK is not set");
    }
    let port = free_port();
    let on_host = |rank: usize, host| {
        start_rank(rank, 4, port, "pairs", &[("MPJ_HOST", host), ("MPJ_NIO_INTERFACES", "lo")])
    };
    let others = [on_host(0, "a"), on_host(1, "a"), on_host(3, "b")];
    std::thread::sleep(Duration::from_secs(90));
    let late = on_host(2, "b");
    let [zero, one, three] = others;
    assert_pairs(&[zero, one, late, three].map(Job::end), "aabb");
}

/// Each host is a network namespace, and has a bridge with the same address as on the others. The name of rank 0's host
/// becomes known only after the other ranks have waited for some time.
fn environment_hosts_with_a_late_name() {
    let netns = concat!(env!("CARGO_MANIFEST_DIR"), "/check/netns-hosts");
    let on_hosts = |role: &str| {
        let script = r#"
            names=$(mktemp)
            trap 'rm -f "$names"' EXIT
            start() {
              $NETNS_EXEC "h$(($1 / 2))" "exec unshare -m sh -c 'mount --bind $names /etc/hosts &&
                export MPJ_RANK=$1 MPJ_SIZE=6 MPJ_RENDEZVOUS=first.test:7000 MPJ_SECRET=$SECRET &&
                exec $RANKS rank $ROLE'" &
            }
            for rank in 1 2 3 4 5; do start $rank; done
            sleep 2
            echo "10.78.0.10 first.test" >"$names"
            start 0
            code=0
            for job in $(jobs -p); do wait $job || { last=$?; [ $last -gt $code ] && code=$last; }; done
            exit $code"#;
        let _guard = lock_hosts();
        let mut command = Command::new(netns);
        command.args(["3", "bash", "-c", script]).env_remove("RUST_BACKTRACE").stdin(Stdio::null());
        command.env("NETNS_PREFIX", "mpje").env("RANKS", std::env::current_exe().unwrap());
        command.env("SECRET", "0123456789abcdef").env("ROLE", role);
        watch(&mut command).0.end()
    };
    let ended = on_hosts("pairs");
    if ended.code == Some(77) {
        return ended.err.iter().for_each(|line| say(line));
    }
    assert_pairs(&[ended], "aabbcc");
    let ended = on_hosts("abort");
    assert_eq!(ended.code, Some(42), "{ended:#?}");
    let ended = on_hosts("kill");
    assert_eq!(ended.code, Some(137), "{ended:#?}");
}

fn missing_ranks_are_listed_at_the_deadline() {
    let port = free_port();
    let seconds = (5 * time_factor()).to_string();
    let limit = [("MPJ_RENDEZVOUS_TIMEOUT", &*seconds)];
    let ended = [0, 2, 5].map(|rank| start_rank(rank, 7, port, "fine", &limit)).map(Job::end);
    for ended in &ended {
        let why = "ranks 1, 3-4, 6 did not come to the rendezvous at localhost:";
        assert!(ended.code == Some(1) && has_error(ended, why), "{ended:#?}");
        assert!(has_error(ended, &format!("within {seconds} s")), "{ended:#?}");
    }
    // Rank 0 is missing.
    let ended = start_rank(1, 2, port, "fine", &[("MPJ_RENDEZVOUS_TIMEOUT", "1")]).end();
    assert!(has_error(&ended, "rank 1 did not reach rank 0 at localhost:"), "{ended:#?}");
    assert!(ended.code == Some(1) && has_error(&ended, "Connection refused"), "{ended:#?}");
    // Its name is unknown.
    let unknown = [("MPJ_RENDEZVOUS", "no-such-host.invalid:7000"), ("MPJ_RENDEZVOUS_TIMEOUT", "1")];
    let ended = start_rank(1, 2, port, "fine", &unknown).end();
    assert!(ended.code == Some(1) && has_error(&ended, "no-such-host.invalid: "), "{ended:#?}");
}

fn ranks_that_do_not_match_are_rejected() {
    let limit = ("MPJ_RENDEZVOUS_TIMEOUT", "60");
    // Two ranks with one number.
    let port = free_port();
    let ended = [0, 1, 1].map(|rank| start_rank(rank, 3, port, "fine", &[limit])).map(Job::end);
    for ended in &ended {
        assert!(ended.code == Some(1) && has_error(ended, "two processes have rank 1"), "{ended:#?}");
    }
    // Another number of ranks.
    let port = free_port();
    let ended =
        [(0, 2), (1, 3)].map(|(rank, size)| start_rank(rank, size, port, "fine", &[limit])).map(Job::end);
    for ended in &ended {
        let why = "was started as one of 3 ranks, but rank 0 as one of 2";
        assert!(ended.code == Some(1) && has_error(ended, why), "{ended:#?}");
    }
    // Another secret.
    let port = free_port();
    let first = start_rank(0, 2, port, "fine", &[("MPJ_RENDEZVOUS_TIMEOUT", "5")]);
    let ended = start_rank(1, 2, port, "fine", &[limit, ("MPJ_SECRET", "another secret of a job")]).end();
    assert!(ended.code == Some(1) && has_error(&ended, "have different keys: MPJ_SECRET"), "{ended:#?}");
    let ended = first.end();
    assert!(
        ended.code == Some(1) && has_error(&ended, "processes with rank 1 may have another key"),
        "{ended:#?}"
    );
    // Two processes with rank 0, or another program at the port.
    let port = free_port();
    let _other = TcpListener::bind(("127.0.0.1", port)).unwrap();
    let ended = start_rank(0, 2, port, "fine", &[limit]).end();
    assert!(ended.code == Some(1) && has_error(&ended, "is in use; MPJ_RENDEZVOUS"), "{ended:#?}");
    let ended = start_rank(1, 2, port, "fine", &[("MPJ_RENDEZVOUS_TIMEOUT", "1"), ("MPJ_HOST", "b")]).end();
    assert!(ended.code == Some(1) && has_error(&ended, "did not reach rank 0"), "{ended:#?}");
}

fn strangers_do_not_keep_ranks_out() {
    let port = free_port();
    let first = start_rank(0, 2, port, "pairs", &[]);
    let begun = Instant::now();
    let connect = || loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(stream) => break stream,
            Err(_) => assert!(begun.elapsed() < Duration::from_secs(60), "rank 0 does not listen"),
        }
    };
    let mut strangers: Vec<TcpStream> = (0..100).map(|_| connect()).collect();
    strangers[3].write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    // The beginning of a hello, which never continues.
    strangers[4].write_all(b"MPJ>\x02").unwrap();
    let ended = [first, start_rank(1, 2, port, "pairs", &[])].map(Job::end);
    assert_pairs(&ended, "aa");
    strangers[3].set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    assert!(!matches!(strangers[3].read(&mut [0]), Ok(1..)), "a stranger gets no bytes");
}
