//! Mismatched collectives between processes, and a rank that is far ahead of the others.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use mpj::{Error, World};

use super::Test;
use super::job::{run, run_sh};
use super::mismatch::{Program, lengths, operations, play, refusals, roots};
use super::program::say;

pub(crate) const TESTS: &[Test] = &[
    ("mismatched_collectives_fail_on_all_ranks", mismatched_collectives_fail_on_all_ranks),
    ("collectives_match_although_a_rank_is_far_ahead", collectives_match_although_a_rank_is_far_ahead),
    ("unreachable_member_fails_the_collective_of_all", unreachable_member_fails_the_collective_of_all),
];

type Programs = fn(usize) -> Vec<Program>;

const PROGRAMS: [(&str, Programs); 4] =
    [("lengths", lengths), ("operations", operations), ("roots", roots), ("refusals", refusals)];

pub(crate) fn programs_of(role: &str) -> Option<Programs> {
    PROGRAMS.iter().find(|(name, _)| *name == role).map(|(_, programs)| *programs)
}

pub(crate) fn run_programs(programs: Programs) -> ExitCode {
    mpj::run(|world| {
        let programs = programs(world.size());
        programs.iter().try_for_each(|program| play(&world, program))?;
        say(&format!("{} programs", programs.len()));
        Ok::<(), String>(())
    })
}

fn mismatched_collectives_fail_on_all_ranks() {
    for ranks in [2, 3, 5] {
        for device in ["shmdev", "niodev"] {
            for (role, _) in PROGRAMS {
                let ended = run(&format!("-n {ranks} --devices {device}"), role);
                let done = ended.out.iter().filter(|line| line.ends_with("programs")).count();
                assert_eq!((ended.code, done), (Some(0), ranks), "{role} by {device}: {ended:#?}");
                say(&format!("{ranks} × {device}: {role}: {}", ended.out[0]));
            }
        }
    }
}

/// Rank 0 has only `shmdev`, so it does not reach rank 2 on another host. Rank 1 reaches both.
fn unreachable_member_fails_the_collective_of_all() {
    let no_niodev = "test $MPJ_RANK = 0 && export MPJ_NIO_LISTEN_ADDRESS=203.0.113.1";
    for algorithm in ["linear", "dissemination"] {
        let ended = run_sh(
            &format!("-n 3 -x MPJ_SIMULATED_HOSTS=a:2,b:1 -x MPJ_COLL_BARRIER={algorithm}"),
            &format!("{no_niodev}; exec $RANKS rank partly-connected"),
        );
        let failed = ended.out.iter().filter(|line| line.starts_with("the barrier failed")).count();
        assert_eq!((ended.code, failed), (Some(0), 3), "{algorithm}: {ended:#?}");
    }
}

/// Ranks 0 and 2 leave only after the barrier of rank 1 has failed.
pub(crate) fn partly_connected(world: &World) -> Result<(), String> {
    let error = world.barrier().expect_err("two members have no device in common");
    say(&format!("the barrier failed: {error}"));
    let result = match world.rank() {
        1 => world.send(&[0u8], 0, 5).and_then(|()| world.send(&[0u8], 2, 5)),
        _ => world.recv(&mut [0u8], 1, 5).map(drop),
    };
    result.map_err(|error| error.to_string())
}

/// Rank 0 starts this number of broadcasts before another rank has received the first.
const AHEAD: usize = 300_000;

fn collectives_match_although_a_rank_is_far_ahead() {
    let ended = run("-n 3 --devices shmdev -x MPJ_EAGER_CREDIT=1000000000", "far-ahead");
    assert_eq!(ended.code, Some(0), "{ended:#?}");
}

/// Rank 2 is late, so rank 1 waits for it, while rank 0 needs neither of them.
pub(crate) fn far_ahead(world: &World) -> Result<(), Error> {
    let begun = Instant::now();
    while world.rank() == 2 && begun.elapsed() < Duration::from_secs(4) {
        // Probe for rank 1, because rank 0 might already have left.
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
