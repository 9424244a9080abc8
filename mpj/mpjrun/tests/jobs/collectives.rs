//! Tests collectives that do not match, between processes: every rank gets an error, with every device.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use mpj::{Error, World};

use super::Test;
use super::job::run;
use super::mismatch::{Program, lengths, operations, play as play_one, refusals, roots};
use super::program::say;

pub(crate) const TESTS: &[Test] = &[
    (
        "collectives_that_do_not_fit_are_an_error_everywhere",
        collectives_that_do_not_fit_are_an_error_everywhere,
    ),
    (
        "a_rank_that_is_far_ahead_in_collectives_is_in_step",
        a_rank_that_is_far_ahead_in_collectives_is_in_step,
    ),
];

type Programs = fn(usize) -> Vec<Program>;

/// The programs of each role.
const PROGRAMS: [(&str, Programs); 4] =
    [("lengths", lengths), ("operations", operations), ("roots", roots), ("refusals", refusals)];

/// Returns the programs of a role.
pub(crate) fn find(role: &str) -> Option<Programs> {
    PROGRAMS.iter().find(|(name, _)| *name == role).map(|(_, programs)| *programs)
}

/// Runs programs as a rank.
pub(crate) fn play(programs: Programs) -> ExitCode {
    mpj::run(|world| {
        let programs = programs(world.size());
        programs.iter().try_for_each(|program| play_one(&world, program))?;
        say(&format!("{} programs", programs.len()));
        Ok::<(), String>(())
    })
}

fn collectives_that_do_not_fit_are_an_error_everywhere() {
    for ranks in [2, 3, 5] {
        for device in ["shmdev", "niodev"] {
            for (role, _) in PROGRAMS {
                let ended = run(&format!("-n {ranks} --dev {device}"), role);
                let done = ended.out.iter().filter(|line| line.ends_with("programs")).count();
                assert_eq!((ended.code, done), (Some(0), ranks), "{role} by {device}: {ended:#?}");
                say(&format!("{ranks} × {device}: {role}: {}", ended.out[0]));
            }
        }
    }
}

/// How many collectives rank 0 may be ahead: more than the sequence numbers in messages distinguish. The job gives it
/// credit for all of them.
const AHEAD: usize = 300_000;

fn a_rank_that_is_far_ahead_in_collectives_is_in_step() {
    let ended = run("-n 3 --dev shmdev -x MPJ_EAGER_CREDIT=1000000000", "far-ahead");
    assert_eq!(ended.code, Some(0), "{ended:#?}");
}

/// Rank 2 is late, so rank 1 waits for a long time, while rank 0 needs neither of them. Rank 2 keeps receiving
/// meanwhile.
pub(crate) fn far_ahead(world: &World) -> Result<(), Error> {
    let begun = Instant::now();
    while world.rank() == 2 && begun.elapsed() < Duration::from_secs(4) {
        // Probe for rank 1, which waits; rank 0 may already have left.
        assert!(world.iprobe(1, 0)?.is_none());
        std::thread::sleep(Duration::from_micros(100));
    }
    let mut all = vec![0u8; if world.rank() == 1 { world.size() } else { 0 }];
    world.gather(&[7u8], &mut all[..], 1)?;
    assert!(all.iter().all(|byte| *byte == 7));
    (0..AHEAD).try_for_each(|call| {
        let mut number = [if world.rank() == 0 { call } else { 0 }];
        world.bcast(&mut number, 0)?;
        assert_eq!(number, [call]);
        Ok(())
    })
}
