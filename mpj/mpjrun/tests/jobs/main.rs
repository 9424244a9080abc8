//! Tests of jobs whose ranks are processes: under `mpjrun`, under process managers, and without a launcher.
//!
//! This binary contains the tests and the programs of the ranks: `… rank ROLE` runs a role of [`program`], and
//! `… raw ROLE` one of [`raw_control`]. Each module with a `#[path]` is also a module of the tests of `mpj`, which run
//! its cases and programs on threads.

mod bind;
#[path = "../../../tests/suite/common/block_programs.rs"]
mod block_programs;
mod boot;
#[path = "../../../tests/suite/common/boot.rs"]
mod boot_cases;
mod collectives;
mod conformance;
mod connect;
mod cut_hosts;
mod deploy;
mod devices;
mod env;
mod env_failures;
mod env_variables;
mod exits;
mod failures;
mod hosts;
mod hydra;
mod intercomm;
mod io;
mod job;
mod large;
mod late_join;
#[path = "../../../tests/suite/common/messages.rs"]
mod message_programs;
mod messages;
#[path = "../../../tests/suite/common/mismatch.rs"]
mod mismatch;
mod networks;
mod parameters;
mod pmix;
mod process_managers;
mod program;
mod progress;
mod raw_control;
mod recv_block;
#[path = "../../../tests/suite/common/rival_faults.rs"]
mod rival_faults;
#[path = "../../../tests/suite/common/schedule/mod.rs"]
mod schedule;
mod schedules;
mod signals;
mod trace;
#[path = "../../../tests/suite/common/trace.rs"]
mod trace_file;
mod unexpected;
mod usage;
mod verbs;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

type Test = (&'static str, fn());

/// The default number of concurrent tests, even on hosts with fewer cores, because most ranks of these tests wait.
const CONCURRENT_TESTS: usize = 8;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match &args[..] {
        [first, role] if first == "rank" => return program::run_role(role),
        [first, role] if first == "raw" => return raw_control::run_role(role),
        _ => {}
    }
    let tests: Vec<Test> = [
        bind::TESTS,
        boot::TESTS,
        failures::TESTS,
        collectives::TESTS,
        deploy::TESTS,
        devices::TESTS,
        env::TESTS,
        env_failures::TESTS,
        env_variables::TESTS,
        connect::TESTS,
        cut_hosts::TESTS,
        exits::TESTS,
        hosts::TESTS,
        hydra::TESTS,
        intercomm::TESTS,
        io::TESTS,
        large::TESTS,
        late_join::TESTS,
        recv_block::TESTS,
        messages::TESTS,
        networks::TESTS,
        parameters::TESTS,
        pmix::TESTS,
        progress::TESTS,
        schedules::TESTS,
        signals::TESTS,
        trace::TESTS,
        unexpected::TESTS,
        usage::TESTS,
        verbs::TESTS,
    ]
    .concat();
    let trials = tests.into_iter().map(|(name, test)| {
        Trial::test(name, move || {
            test();
            Ok(())
        })
    });
    // These tests take longer than the cases of the conformance suite, so they start first.
    let trials = trials.chain(conformance::trials()).collect();
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(CONCURRENT_TESTS);
    libtest_mimic::run(&arguments, trials).exit_code()
}
