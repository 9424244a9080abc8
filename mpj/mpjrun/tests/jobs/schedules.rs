//! Random schedules of messages between processes, with every device except `ibvdev`: see
//! `mpj/tests/suite/common/schedule`.

use std::process::ExitCode;
use std::time::Duration;

use super::Test;
use super::job::start;
use super::mismatch::time_factor;
use super::program::say;
use super::schedule::{Budget, run};

pub(crate) const TESTS: &[Test] = &[(
    "receives_of_random_schedules_get_the_messages_of_the_model",
    receives_of_random_schedules_get_the_messages_of_the_model,
)];

const ROLE: &str = "schedules";

/// Arguments of `mpjrun`: each device except `ibvdev`, processes of several ranks, and several hosts.
const JOBS: [&str; 6] = [
    "-n 4 --devices smdev",
    "-n 3 --devices shmdev",
    "-n 4 --devices niodev",
    "-n 4 --ranks-per-process 2",
    "-n 5 -x MPJ_SIMULATED_HOSTS=a:2,b:3",
    "-n 3 -x MPJ_SIMULATED_HOSTS=a:1,b:2 -x MPJ_PROGRESS=thread",
];

pub(crate) fn run_role(role: &str) -> Option<ExitCode> {
    let run_all = |world: mpj::World| {
        let done = run(&world, Budget::from_env(), |seed| say(&format!("TEST_SEED={seed}")))?;
        say(&format!("rank {} has done {done} schedules", world.rank()));
        Ok::<(), String>(())
    };
    (role == ROLE).then(|| mpj::run(run_all))
}

/// How long each job starts schedules by default, in seconds.
const SECONDS: u64 = 2;

/// Returns the options of `mpjrun` that select the schedules. If `TEST_SEED` is not set, the first seed is the time in
/// milliseconds, so each run tests other schedules.
fn selection() -> String {
    if std::env::var_os("TEST_SEED").is_some() {
        return String::new();
    }
    let now = std::time::UNIX_EPOCH.elapsed().map_or(1, |time| time.as_millis());
    let default = format!("TEST_SECONDS={SECONDS}");
    let seconds = if std::env::var_os("TEST_SECONDS").is_some() { "TEST_SECONDS" } else { &default };
    format!("-x TEST_SEED={now} -x {seconds}")
}

fn receives_of_random_schedules_get_the_messages_of_the_model() {
    JOBS.iter().for_each(|args| run_job(args));
}

/// Runs schedules in a job with these arguments of `mpjrun`.
fn run_job(args: &str) {
    let limit = (Duration::from_secs(60 + SECONDS) + Budget::from_env().time) * time_factor();
    // The last seed in the output is that of a schedule that hangs or fails.
    let job = start(&format!("{args} {} --timeout {}", selection(), limit.as_secs()), ROLE);
    let ended = job.end_within(limit + Duration::from_secs(10));
    assert_eq!(ended.code, Some(0), "{args}: {ended:#?}");
    let counts: Vec<&str> =
        ended.out.iter().filter_map(|line| line.split_once(" has done ")).map(|(_, count)| count).collect();
    assert_eq!(counts.len().to_string(), args[3..4], "{args}: {ended:#?}");
    let first =
        ended.out.iter().find(|line| line.starts_with("TEST_SEED=")).expect("rank 0 prints each seed");
    say(&format!("{args}: {} from {first}", counts[0]));
}
