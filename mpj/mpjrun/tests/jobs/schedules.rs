//! Random schedules of messages between processes, with every device: see `mpj/tests/suite/common/schedule`.

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

/// Arguments of `mpjrun`: each device, processes of several ranks, and several hosts.
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

fn receives_of_random_schedules_get_the_messages_of_the_model() {
    for args in JOBS {
        let limit = (Duration::from_secs(60) + Budget::from_env().time) * time_factor();
        // The last seed in the output is that of a schedule that hangs or fails.
        let job = start(&format!("{args} --timeout {}", limit.as_secs()), ROLE);
        let ended = job.end_within(limit + Duration::from_secs(10));
        assert_eq!(ended.code, Some(0), "{args}: {ended:#?}");
        let counts: Vec<&str> = ended
            .out
            .iter()
            .filter_map(|line| line.split_once(" has done "))
            .map(|(_, count)| count)
            .collect();
        assert_eq!(counts.len().to_string(), args[3..4], "{args}: {ended:#?}");
        say(&format!("{args}: {}", counts[0]));
    }
}
