//! Tests messages that processes read in place, in the sender's memory.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use mpj::pool::Pool;
use mpj::{Error, World};

use crate::Test;
use crate::blocks::{is_whole, leavers, ring};
use crate::job::run;
use crate::program::{kill_me, say};
use crate::usage::sh;

pub(crate) const TESTS: &[Test] = &[
    ("messages_are_read_where_they_lie", messages_are_read_where_they_lie),
    ("processes_that_may_map_little_do_without_blocks", little_room),
    ("what_is_looked_at_outlives_its_sender", outlives),
    ("a_killed_rank_holds_no_block", killed),
    ("a_process_that_has_ended_well_holds_no_block", left),
    ("a_process_whose_rank_has_failed_still_looks", failed),
];

fn messages_are_read_where_they_lie() {
    // The bounds on how many of the six long messages are read in place. The first one may be sent before the ranks are
    // connected.
    for (how, ranks, least, most) in [
        ("--dev shmdev", 2, 4, 6),
        ("--dev shmdev", 5, 4, 6),
        ("--dev shmdev --ranks-per-process 2", 4, 4, 6),
        // Ranks of one process have each other's cards from the start, so this includes the first message.
        ("--dev smdev --ranks-per-process 3", 3, 6, 6),
        ("--dev niodev", 3, 0, 0),
        // Without space for blocks, all messages are copied. With a little space, some are.
        ("--dev shmdev -x MPJ_SHM_POOL_MIB=0", 3, 0, 0),
        ("--dev shmdev -x MPJ_SHM_POOL_MIB=1", 3, 1, 5),
        // The parameter requests copies.
        ("--dev shmdev --path buffered", 2, 0, 0),
        ("--dev smdev --ranks-per-process 2 --path buffered", 2, 0, 0),
    ] {
        let ended = run(&format!("-n {ranks} {how}"), "lent");
        assert_eq!((ended.code, ended.out.len(), ended.err.len()), (Some(0), ranks, 0), "{how}: {ended:#?}");
        for line in &ended.out {
            let found: usize = line.rsplit(' ').next().unwrap().parse().unwrap();
            assert!((least..=most).contains(&found), "{how}: {line}");
        }
    }
}

/// If the address space is limited, the job runs without the space for blocks.
fn little_room() {
    for limit in [1_000_000, 2_110_000, 3_000_000] {
        let ended = sh(&format!("ulimit -v {limit}; exec $MPJRUN -n 2 --dev shmdev $RANKS rank lent"));
        assert_eq!(ended.code, Some(0), "{limit}: {ended:#?}");
    }
}

fn outlives() {
    for dev in ["shmdev", "niodev"] {
        let ended = run(&format!("-n 3 --dev {dev}"), "lent-leavers");
        assert_eq!((ended.code, &ended.out[..]), (Some(0), &["it is whole".to_owned()][..]), "{ended:#?}");
    }
}

fn killed() {
    let ended = run("-n 2 --dev shmdev --on-failure=continue --grace 0", "lent-killed");
    ended.expect(137, &["rank 1 (pid ", "SIGKILL"]);
    assert!(ended.out.iter().any(|line| line == "the block is home"), "{ended:#?}");
}

fn left() {
    let ended = run("-n 3 --dev shmdev", "lent-left");
    assert_eq!((ended.code, &ended.out[..]), (Some(0), &["the block is home".to_owned()][..]), "{ended:#?}");
}

fn failed() {
    let ended = run("-n 4 --ranks-per-process 2 --dev shmdev --on-failure=continue", "lent-failed");
    assert!(ended.out.iter().any(|line| line == "it is whole"), "{ended:#?}");
}

/// Prints how many messages were read in the sender's memory.
pub(crate) fn play_ring(world: &World) -> Result<(), Error> {
    let found = ring(world).unwrap_or_else(|error| panic!("{error}"));
    say(&format!("rank {}: {found}", world.rank()));
    Ok(())
}

/// Far longer than a process takes to exit.
const HANGS: Duration = Duration::from_secs(20);

/// The message that rank 1 still reads after its body has returned.
pub(crate) static KEPT: Mutex<Option<mpj::ReceivedBlock>> = Mutex::new(None);

pub(crate) fn play_leavers(world: &World) -> Result<(), Error> {
    if let Some(lent) = leavers(world).unwrap_or_else(|error| panic!("{error}")) {
        *KEPT.lock().unwrap() = Some(lent);
    }
    Ok(())
}

/// The message that rank 2 was reading when it failed.
static KEPT_FAILED: Mutex<Option<mpj::ReceivedBlock>> = Mutex::new(None);

/// Checks that the message is unchanged; called after the rank has left.
pub(crate) fn check_kept() {
    if let Some(lent) = KEPT.lock().unwrap().take() {
        assert!(is_whole(&lent));
        say("it is whole");
    }
}

/// Rank 1 is killed while it reads a block; rank 0 gets the block back and continues.
pub(crate) fn play_killed(world: &World) -> Result<(), Error> {
    const LEN: usize = 1 << 20;
    if world.rank() == 1 {
        let (lent, _) = world.recv_block(0, 0)?;
        assert!(lent.is_zero_copy());
        kill_me("-KILL");
    }
    let failed = world.isend(world.alloc_slice(5u8, LEN)?, 1, 0)?.wait().unwrap_err();
    assert_eq!(failed.error().failed_rank(), Some(1), "{failed}");
    let (_, block) = failed.into_parts();
    assert_eq!(block.map(|block| block.iter().all(|byte| *byte == 5)), Some(true));
    say("the block is home");
    Ok(())
}

/// Rank 1 reads a block until its process exits, and leaves in good order. Rank 0 gets the block back when the process
/// has exited.
pub(crate) fn play_left(world: &World) -> Result<(), Error> {
    const LEN: usize = 1 << 20;
    let (me, over) = (world.rank(), i32::MAX);
    match me {
        0 => {
            let failed = world.isend(world.alloc_slice(5u8, LEN)?, 1, 0)?.wait().unwrap_err();
            assert!(failed.to_string().contains("rank 1 has left"), "{failed}");
            // The process of rank 1 may already have exited, so that the error contains the block.
            drop(failed);
            let begun = Instant::now();
            // A rank that exports a block checks for returned blocks.
            for tag in 0.. {
                world.isend(world.alloc_slice(6u8, LEN)?, 2, tag)?.wait()?;
                if world.pool().stats().live_blocks == 0 {
                    break;
                }
                assert!(begun.elapsed() < HANGS, "it is kept for nobody");
                std::thread::sleep(Duration::from_millis(5));
            }
            world.send(&[0u8], 2, over)?;
            say("the block is home");
        }
        1 => {
            let (lent, _) = world.recv_block(0, 0)?;
            assert!(lent.is_zero_copy());
            std::mem::forget(lent);
        }
        _ => while world.recv(&mut vec![0u8; LEN], 0, mpj::ANY_TAG)?.tag() != over {},
    }
    Ok(())
}

/// Rank 2 fails, and passes its message to rank 3 in the same process. Rank 0, in another process, gets the error that
/// rank 2 has died.
pub(crate) fn play_failed(world: &World) -> Result<(), Error> {
    const LEN: usize = 1 << 20;
    let me = world.rank();
    let others = world.split((me != 2).then_some(0), 0)?;
    match me {
        0 => {
            let failed = world.isend(world.alloc_slice(5u8, LEN)?, 2, 0)?.wait().unwrap_err();
            assert_eq!(failed.error().failed_rank(), Some(2), "{failed}");
            // If rank 0 got the block back, it writes to it.
            if let (_, Some(mut block)) = failed.into_parts() {
                block.fill(9);
            }
            for _ in 0..4 {
                std::mem::forget(world.alloc_slice(9u8, LEN)?);
            }
            others.unwrap().send(&[0u8], 2, 0)?;
        }
        2 => {
            let (lent, _) = world.recv_block(0, 0)?;
            assert!(lent.is_zero_copy());
            *KEPT_FAILED.lock().unwrap() = Some(lent);
            return Err(world.recv_block(4, 0).unwrap_err());
        }
        3 => {
            others.unwrap().recv(&mut [0u8], 0, 0)?;
            let lent = KEPT_FAILED.lock().unwrap().take().expect("rank 2 has left it here");
            assert!(lent.iter().all(|byte| *byte == 5), "somebody writes to what is looked at");
            say("it is whole");
        }
        _ => (),
    }
    Ok(())
}
