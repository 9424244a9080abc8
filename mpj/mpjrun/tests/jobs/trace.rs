//! The option `--trace`.

use std::fs;
use std::path::Path;
use std::time::Duration;

use mpj::{Error, World};

use crate::Test;
use crate::job::{Ended, kill, mpjrun, pid, run, run_sh, start, watch};
use crate::program::kill_me;
use crate::trace_file::{Folder, Trace, exchange};

pub(crate) const TESTS: &[Test] = &[
    ("every_device_is_traced", every_device_is_traced),
    ("trace_of_a_killed_rank_is_merged", trace_of_a_killed_rank_is_merged),
    ("trace_of_a_hanging_job_has_the_open_calls", trace_of_a_hanging_job_has_the_open_calls),
    (
        "trace_of_a_job_that_ends_during_a_query_has_the_open_calls",
        trace_of_a_job_that_ends_during_a_query_has_the_open_calls,
    ),
    ("ranks_without_a_trace_are_in_the_file", ranks_without_a_trace_are_in_the_file),
    ("unwritable_trace_is_not_a_failure", unwritable_trace_is_not_a_failure),
    ("full_disk_is_not_a_failure", full_disk_is_not_a_failure),
];

/// Exchanges messages. Then rank 1 waits until their events have been written, and kills itself.
pub(crate) fn killed(world: &World) -> Result<(), Error> {
    exchange(world)?;
    if world.rank() == 1 {
        std::thread::sleep(Duration::from_millis(1500));
        kill_me("-KILL");
    }
    world.recv(&mut [0u8], 1, 0).map(drop)
}

fn every_device_is_traced() {
    let folder = Folder::new("devices");
    for (device, more, processes, body) in [
        ("smdev", "", 1, "body fetched"),
        ("shmdev", "", 3, "body received in pieces"),
        ("niodev", "", 3, "body received in pieces"),
        ("auto", "--ranks-per-process 2", 2, "body fetched"),
    ] {
        let path = folder.0.join("job.json");
        // The second run replaces the file.
        for set in [format!("--trace {}", path.display()), format!("-x MPJ_TRACE={}", path.display())] {
            let ended = run(&format!("-n 3 --devices {device} {more} {set}"), "exchange");
            // The table of waits has two lines of header, a line for each rank, and a line for all ranks.
            assert_eq!((ended.code, ended.err.len()), (Some(0), 6), "{device}: {ended:#?}");
            assert!(
                ended.err[0].contains("events; how long each rank waited, and in which calls:"),
                "{ended:#?}"
            );
            assert!(
                ended.err[2..]
                    .iter()
                    .zip(["0", "1", "2", "all"])
                    .all(|(line, who)| line.trim().starts_with(who))
            );
            assert!(ended.err[5].contains(" %  "), "{ended:#?}");
            assert_eq!(folder.files(), ["job.json".to_owned()].into());
            let trace = Trace::read(&path);
            assert_eq!(trace.ranks().into_values().collect::<Vec<_>>(), ["rank 0", "rank 1", "rank 2"]);
            trace.assert_nested();
            let pairs = trace.assert_flows();
            assert!(["0 to 1", "1 to 2", "2 to 0"].iter().all(|pair| pairs[*pair] >= 8), "{pairs:?}");
            for name in ["eager sent", "RTS sent", "allreduce", "ssend"] {
                assert_eq!(trace.ranks_with(name).len(), 3, "{name} by {device}");
            }
            let calls = trace.events("ssend").into_iter().filter(|event| event["cat"] == "send").count();
            assert_eq!(calls, 3 * 4, "each blocking send is a slice, by {device}");
            let named = |event: &&serde_json::Value| event["args"]["communicator"] == "world";
            assert!(trace.events("allreduce").iter().all(named), "{device}");
            let arrived = trace.events("eager arrived");
            let by = |event: &&serde_json::Value| event["args"]["device"] == device;
            assert!(device == "auto" || arrived.iter().all(by), "{device}: {arrived:?}");
            assert!(!trace.ranks_with(body).is_empty(), "{body} by {device} in {processes}");
        }
    }
}

fn trace_of_a_killed_rank_is_merged() {
    let folder = Folder::new("killed");
    let path = folder.0.join("job.json");
    let ended = run(&format!("-n 3 --trace {}", path.display()), "exchange-killed");
    ended.expect(137, &["rank 1"]);
    assert_eq!(folder.files(), ["job.json".to_owned()].into());
    let trace = Trace::read(&path);
    assert_eq!(trace.ranks().len(), 3);
    trace.assert_nested();
    assert_eq!(trace.ranks_with("allreduce"), [0, 1, 2].into(), "what was recorded before was written");
    assert_eq!(trace.ranks_with("a rank has died"), [0, 2].into());
}

/// A rank in a blocking call is killed before the call returns. It records the call when `mpjrun` queries its waits.
fn trace_of_a_hanging_job_has_the_open_calls() {
    let folder = Folder::new("hanging");
    let path = folder.0.join("job.json");
    let ended = run(&format!("-n 4 --ranks-per-process 2 --timeout 5 --trace {}", path.display()), "hang");
    ended.expect(124, &["timeout of 5 s reached"]);
    assert_open_calls(&path, &[("recv", &[0]), ("wait: barrier", &[1, 2])]);
}

/// The end of the job must reach ranks that have been queried before. The query is pending because rank 0 is stopped.
fn trace_of_a_job_that_ends_during_a_query_has_the_open_calls() {
    let folder = Folder::new("queried");
    let path = folder.0.join("job.json");
    let job = start(&format!("-n 3 --trace {}", path.display()), "barrier-without-0");
    let stopped = pid(&job.lines(1, " is ")[0]);
    std::thread::sleep(Duration::from_secs(3));
    kill(&[stopped], "-STOP");
    job.signal("-QUIT");
    std::thread::sleep(Duration::from_millis(200));
    job.signal("-INT");
    assert_eq!(job.end().code, Some(130));
    assert_open_calls(&path, &[("wait: barrier", &[1, 2])]);
}

/// Asserts that a trace has these calls, in which these ranks waited for some seconds at the end of the job.
fn assert_open_calls(path: &Path, calls: &[(&str, &[u64])]) {
    let trace = Trace::read(path);
    trace.assert_nested();
    for (call, ranks) in calls {
        let open: Vec<_> =
            trace.events(call).into_iter().filter(|event| event["args"]["open"] == 1).collect();
        assert!(open.iter().all(|event| event["dur"].as_f64() > Some(2e6)), "{open:?}");
        let of: Vec<_> = open.iter().filter_map(|event| event["pid"].as_u64()).collect();
        assert_eq!(of, *ranks, "{call}");
    }
}

fn ranks_without_a_trace_are_in_the_file() {
    let folder = Folder::new("without");
    let path = folder.0.join("job.json");
    let ended = run(&format!("-n 2 --trace {}", path.display()), "never");
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let names: Vec<String> = Trace::read(&path).ranks().into_values().collect();
    assert_eq!(names, ["rank 0 (no trace)", "rank 1 (no trace)"]);
}

fn unwritable_trace_is_not_a_failure() {
    let folder = Folder::new("cannot");
    let path = folder.0.join("nowhere/job.json");
    let ended = run(&format!("-n 2 --trace {}", path.display()), "exchange");
    ended.expect(0, &["the job is not traced", "nowhere/job.json", "No such file"]);
    assert_eq!(ended.err.len(), 1, "{ended:#?}");
}

fn full_disk_is_not_a_failure() {
    let folder = Folder::new("full");
    let path = folder.0.join("job.json");
    // The disk is full when the files of the ranks are merged.
    std::os::unix::fs::symlink("/dev/full", &path).unwrap();
    let ended = run(&format!("-n 2 --trace {}", path.display()), "exchange");
    ended.expect(0, &["the trace is incomplete", "No space left on device", "job.json.rank*"]);
    assert_eq!(Trace::read(&folder.0.join("job.json.rank1")).ranks().len(), 1);
    fs::remove_file(&path).unwrap();
    // The disk is full when the ranks write.
    let script = "ulimit -f 2; trap '' XFSZ; exec $RANKS rank exchange";
    let ended = run_sh(&format!("-n 2 --devices niodev --trace {}", path.display()), script);
    let count = |ended: &Ended, rank: u32| {
        let part = format!("rank {rank}: its trace is incomplete: {}.rank{rank}: ", path.display());
        ended.err.iter().filter(|line| line.contains(&part)).count()
    };
    assert_eq!((ended.code, count(&ended, 0), count(&ended, 1)), (Some(0), 1, 1), "{ended:#?}");
    assert_eq!(Trace::read(&path).ranks().len(), 2);
    // A misspelt name of the variable is rejected.
    let mut command = mpjrun("-n 1 -x MPJ_TRCE=job.json true");
    watch(&mut command).0.end().expect(2, &["did you mean MPJ_TRACE?"]);
}
