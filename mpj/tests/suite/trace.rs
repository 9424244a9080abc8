//! A job with one process has one trace file. Each test runs itself again in a separate process, with the variables
//! that enable the trace.

use std::path::Path;
use std::process::{Command, Output};

use crate::common::trace::{Folder, Trace, exchange};

const IS_JOB: &str = "TRACED_JOB";

/// If this process was started for `job`, runs it and returns `None`. Otherwise starts such a process, with a trace in
/// `path`, and returns its output.
fn traced(test: &str, path: &Path, set: &[(&str, &str)], job: impl FnOnce()) -> Option<Output> {
    if std::env::var_os(IS_JOB).is_some() {
        job();
        return None;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("trace::{test}"), "--nocapture"]).envs(set.iter().copied());
    let output = command.env(IS_JOB, "1").env("MPJ_TRACE", path).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    Some(output)
}

fn library_lines(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stderr);
    text.lines().filter(|line| line.starts_with("mpj: ")).map(str::to_owned).collect()
}

#[test]
fn one_file_has_waits_messages_and_collectives() {
    let folder = Folder::new("threads");
    let path = folder.0.join("job.json");
    let job = || {
        mpj::threads(3, |world| exchange(&world)).unwrap();
    };
    let Some(output) = traced("one_file_has_waits_messages_and_collectives", &path, &[], job) else {
        return;
    };
    assert_eq!(library_lines(&output), [""; 0]);
    assert_eq!(folder.files(), ["job.json".to_owned()].into());
    let trace = Trace::read(&path);
    let names = [(0, "rank 0"), (1, "rank 1"), (2, "rank 2")].map(|(rank, name)| (rank, name.to_owned()));
    assert_eq!(trace.ranks(), names.into());
    trace.assert_nested();
    let pairs = trace.assert_flows();
    for pair in ["0 to 1", "1 to 2", "2 to 0"] {
        assert!(pairs[pair] >= 8, "{pairs:?}");
    }
    let all = [0, 1, 2].into();
    for name in [
        "eager sent",
        "synchronous eager sent",
        "RTS sent",
        "eager arrived",
        "unexpected message received",
        "RTS arrived",
        "get",
        "body fetched",
        "registered",
        "ssend",
        "allreduce",
        "iallreduce",
        "barrier",
        "split",
    ] {
        assert_eq!(trace.ranks_with(name), all, "{name}");
    }
    for (name, count) in [("allreduce", 1000), ("iallreduce", 10)] {
        let calls = trace.events(name);
        assert!(
            calls.iter().all(|call| call["args"]["count"] == count && call["args"]["ranks"] == 3),
            "{calls:?}"
        );
    }
    let got = trace.events("body fetched");
    assert!(
        got.iter().all(|got| got["args"]["bytes"] == 300_000 && got["args"]["device"] == "smdev"),
        "{got:?}"
    );
    for rank in 0..3 {
        let copied = trace.counter(rank, "copies, bytes:", "all").unwrap();
        assert!(copied >= 8 * 2000, "{copied}");
        // The vector that `isend` owns, and the slice that is sent without copies.
        assert_eq!(trace.counter(rank, "smdev, bytes:", "registered"), Some(600_000));
    }
}

#[test]
fn rejected_message_ends_at_its_receiver() {
    let folder = Folder::new("refused");
    let path = folder.0.join("job.json");
    let job = || {
        mpj::threads(2, |world| {
            let (long, mut short) = (vec![1u8; 300_000], [0u8; 3]);
            let left = world.dup()?;
            if world.rank() == 0 {
                let early = world.isend(long.clone(), 1, 1)?;
                world.send(&[0u8], 1, 3)?;
                early.wait()?;
                world.send(&long, 1, 2)?;
                world.barrier()?;
                let _ = left.send(&long, 1, 1);
            } else {
                drop(left);
                world.recv(&mut [0u8], 0, 3)?;
                for tag in [1, 2] {
                    let refused = world.recv(&mut short, 0, tag).unwrap_err();
                    assert_eq!(refused.class(), mpj::ErrorClass::Truncate);
                }
                world.barrier()?;
            }
            world.barrier()
        })
        .unwrap();
    };
    if traced("rejected_message_ends_at_its_receiver", &path, &[], job).is_none() {
        return;
    }
    let trace = Trace::read(&path);
    trace.assert_nested();
    trace.assert_flows();
    let refused = trace.events("rendezvous refused");
    assert!(refused.iter().all(|event| event["args"]["from"] == 0) && refused.len() == 3, "{refused:?}");
}

#[test]
fn failure_of_a_rank_is_an_event_on_other_ranks() {
    let folder = Folder::new("fails");
    let path = folder.0.join("job.json");
    let job = || {
        let ended = mpj::threads(3, |world| {
            exchange(&world)?;
            match world.rank() {
                1 => {
                    // The other ranks send these after their exchange, so they have received all earlier messages.
                    [0, 2].into_iter().try_for_each(|from| world.recv(&mut [0u8], from, 0).map(drop))?;
                    panic!("an \"odd\" number\n")
                }
                _ => world.send(&[0u8], 1, 0).and_then(|()| world.recv(&mut [0u8], 1, 0).map(drop)),
            }
        });
        assert_eq!(ended.unwrap_err().rank(), 1);
    };
    if traced("failure_of_a_rank_is_an_event_on_other_ranks", &path, &[], job).is_none() {
        return;
    }
    let trace = Trace::read(&path);
    assert_eq!(trace.ranks().len(), 3);
    trace.assert_nested();
    trace.assert_flows();
    let deaths = trace.events("a rank has died");
    let of_1 = |event: &&serde_json::Value| event["args"]["rank"] == 1;
    let why: Vec<_> = deaths.into_iter().filter(of_1).map(|event| &event["args"]["why"]).collect();
    assert!(!why.is_empty() && why.iter().all(|why| *why == "panicked: an \"odd\" number\n"), "{why:?}");
}

#[test]
fn events_beyond_the_limit_are_counted() {
    let folder = Folder::new("limit");
    let path = folder.0.join("job.json");
    let set = [("MPJ_TRACE_MAX_EVENTS", "10")];
    let job = || {
        mpj::threads(2, |world| exchange(&world)).unwrap();
    };
    if traced("events_beyond_the_limit_are_counted", &path, &set, job).is_none() {
        return;
    }
    let trace = Trace::read(&path);
    let dropped = trace.events("events dropped (MPJ_TRACE_MAX_EVENTS)");
    assert_eq!(dropped.len(), 2);
    assert!(dropped.iter().all(|event| event["args"]["events"].as_u64() > Some(10)), "{dropped:?}");
}

#[test]
fn single_process_job_is_traced() {
    let folder = Folder::new("alone");
    let path = folder.0.join("job.json");
    let job = || {
        let world = mpj::init().unwrap();
        world.barrier().unwrap();
    };
    if traced("single_process_job_is_traced", &path, &[], job).is_none() {
        return;
    }
    assert_eq!(folder.files(), ["job.json".to_owned()].into());
    assert_eq!(Trace::read(&path).ranks_with("barrier"), [0].into());
}

#[test]
fn rank_may_change_its_directory() {
    let folder = Folder::new("moved");
    let path = folder.0.join("job.json");
    let job = || {
        std::env::set_current_dir(std::env::var_os("FOLDER").unwrap()).unwrap();
        mpj::threads(2, |world| {
            std::env::set_current_dir("/").unwrap();
            exchange(&world)
        })
        .unwrap();
    };
    let set = [("FOLDER", folder.0.to_str().unwrap())];
    let test = "rank_may_change_its_directory";
    let Some(output) = traced(test, Path::new("job.json"), &set, job) else { return };
    assert_eq!(library_lines(&output), [""; 0]);
    assert_eq!(folder.files(), ["job.json".to_owned()].into());
    assert_eq!(Trace::read(&path).ranks_with("barrier"), [0, 1].into());
}

#[test]
fn unwritable_trace_file_is_reported_and_job_continues() {
    const TEST: &str = "unwritable_trace_file_is_reported_and_job_continues";
    let folder = Folder::new("cannot");
    let job = || {
        mpj::threads(3, |world| exchange(&world)).unwrap();
    };
    let Some(output) = traced(TEST, &folder.0.join("nowhere/job.json"), &[], job) else { return };
    let lines = library_lines(&output);
    let says_why = |line: &String| line.contains("the job is not traced") && line.contains("No such file");
    assert!(lines.len() == 1 && says_why(&lines[0]), "{output:?}");
    // This process, which does not run the job, holds the lock of the file.
    let path = folder.0.join("job.json");
    let taken = std::fs::File::create(&path).unwrap();
    taken.lock().unwrap();
    let output = traced(TEST, &path, &[], || ()).expect("this is not the job");
    let lines = library_lines(&output);
    assert!(lines.len() == 1 && lines[0].contains("another job is traced there"), "{output:?}");
    assert_eq!(folder.files(), ["job.json".to_owned()].into());
}
