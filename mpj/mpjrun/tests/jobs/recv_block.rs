//! Messages that processes read in the sender's memory.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use mpj::buffer::Buffer;
use mpj::pool::Pool;
use mpj::{Error, World};

use crate::Test;
use crate::block_programs::{is_whole, ring, sender_leaves_with_lent_block};
use crate::job::{limit, run};
use crate::program::{kill_me, say};
use crate::usage::sh;

pub(crate) const TESTS: &[Test] = &[
    ("messages_are_read_in_place", messages_are_read_in_place),
    ("jobs_with_little_address_space_copy", jobs_with_little_address_space_copy),
    ("received_block_outlives_its_sender", received_block_outlives_its_sender),
    ("block_of_killed_receiver_is_returned", block_of_killed_receiver_is_returned),
    ("block_of_exited_receiver_is_returned", block_of_exited_receiver_is_returned),
    ("block_stays_readable_after_its_receiver_failed", block_stays_readable_after_its_receiver_failed),
    ("block_that_no_rank_can_view_is_sent_eagerly", block_that_no_rank_can_view_is_sent_eagerly),
];

fn messages_are_read_in_place() {
    // The minimum and the maximum number of the six long messages that are read in place. The first ones might be sent
    // before the ranks are connected.
    for (how, ranks, min, max) in [
        ("--devices shmdev", 2, 4, 6),
        ("--devices shmdev", 5, 4, 6),
        ("--devices shmdev --ranks-per-process 2", 4, 4, 6),
        ("--devices smdev --ranks-per-process 3", 3, 6, 6),
        ("--devices niodev", 3, 0, 0),
        // Without address space for pool blocks, all messages are copied. With little space, some are copied.
        ("--devices shmdev -x MPJ_SHM_POOL_MIB=0", 3, 0, 0),
        ("--devices shmdev -x MPJ_SHM_POOL_MIB=1", 3, 1, 5),
        ("--devices shmdev --data-path buffered", 2, 0, 0),
        ("--devices smdev --ranks-per-process 2 --data-path buffered", 2, 0, 0),
    ] {
        let ended = run(&format!("-n {ranks} {how}"), "recv-block");
        assert_eq!((ended.code, ended.out.len(), ended.err.len()), (Some(0), ranks, 0), "{how}: {ended:#?}");
        for line in &ended.out {
            let found: usize = line.rsplit(' ').next().unwrap().parse().unwrap();
            assert!((min..=max).contains(&found), "{how}: {line}");
        }
    }
}

/// If the address space is limited, the job runs without address space for pool blocks.
fn jobs_with_little_address_space_copy() {
    for limit in [1_000_000, 2_110_000, 3_000_000] {
        let ended =
            sh(&format!("ulimit -v {limit}; exec $MPJRUN -n 2 --devices shmdev $RANKS rank recv-block"));
        assert_eq!(ended.code, Some(0), "{limit}: {ended:#?}");
    }
}

fn received_block_outlives_its_sender() {
    for dev in ["shmdev", "niodev"] {
        let ended = run(&format!("-n 3 --devices {dev}"), "recv-block-sender_leaves_with_lent_block");
        assert_eq!(
            (ended.code, &ended.out[..]),
            (Some(0), &["the block is unchanged".to_owned()][..]),
            "{ended:#?}"
        );
    }
}

fn block_of_killed_receiver_is_returned() {
    let ended = run("-n 2 --devices shmdev --on-failure=continue --grace 0", "recv-block-killed");
    ended.expect(137, &["rank 1 (pid ", "SIGKILL"]);
    assert!(ended.out.iter().any(|line| line == "the block was returned"), "{ended:#?}");
}

fn block_of_exited_receiver_is_returned() {
    let ended = run("-n 3 --devices shmdev", "recv-block-left");
    assert_eq!(
        (ended.code, &ended.out[..]),
        (Some(0), &["the block was returned".to_owned()][..]),
        "{ended:#?}"
    );
}

fn block_stays_readable_after_its_receiver_failed() {
    let ended = run("-n 4 --ranks-per-process 2 --devices shmdev --on-failure=continue", "recv-block-failed");
    assert!(ended.out.iter().any(|line| line == "the block is unchanged"), "{ended:#?}");
}

fn block_that_no_rank_can_view_is_sent_eagerly() {
    for path in ["auto", "buffered"] {
        let ended = run(&format!("-n 2 --devices shmdev --data-path {path}"), "recv-block-elsewhere");
        assert_eq!((ended.code, ended.err.len()), (Some(0), 0), "{path}: {ended:#?}");
    }
}

/// Both ranks send blocks of the global pool, which is not shared, before they receive.
pub(crate) fn run_elsewhere(world: &World) -> Result<(), Error> {
    let other = 1 - world.rank();
    for len in [4000, 8000] {
        let mut message = Buffer::with_capacity(8 * len + 100).map_err(|error| error.to_string()).unwrap();
        message.write(&vec![world.rank() as u64; len]).unwrap();
        world.isend(message.commit(), other, 1)?.wait()?;
        let mut received =
            world.recv_block(other, 1)?.0.try_into_buffer().map_err(|error| error.to_string()).unwrap();
        assert_eq!(received.view::<u64>().unwrap(), vec![other as u64; len]);
    }
    Ok(())
}

pub(crate) fn run_ring(world: &World) -> Result<(), Error> {
    let found = ring(world).unwrap_or_else(|error| panic!("{error}"));
    say(&format!("rank {}: {found}", world.rank()));
    Ok(())
}

/// The block that rank 1 still reads after its rank function has returned.
pub(crate) static HELD: Mutex<Option<mpj::ReceivedBlock>> = Mutex::new(None);

pub(crate) fn run_leavers(world: &World) -> Result<(), Error> {
    if let Some(block) = sender_leaves_with_lent_block(world).unwrap_or_else(|error| panic!("{error}")) {
        *HELD.lock().unwrap() = Some(block);
    }
    Ok(())
}

/// The block that rank 2 passes to rank 3 before it fails.
static HELD_BY_FAILED: Mutex<Option<mpj::ReceivedBlock>> = Mutex::new(None);

/// Checks the block in [`HELD`], if any. Called after the rank function has returned.
pub(crate) fn check_held() {
    if let Some(block) = HELD.lock().unwrap().take() {
        assert!(is_whole(&block));
        say("the block is unchanged");
    }
}

/// Rank 1 is killed while it reads a block. Rank 0 gets the block back and continues.
pub(crate) fn run_killed(world: &World) -> Result<(), Error> {
    const LEN: usize = 1 << 20;
    if world.rank() == 1 {
        let (block, _) = world.recv_block(0, 0)?;
        assert!(block.is_zero_copy());
        kill_me("-KILL");
    }
    let failed = world.isend(world.alloc_slice(5u8, LEN)?, 1, 0)?.wait().unwrap_err();
    assert_eq!(failed.error().failed_rank(), Some(1), "{failed}");
    let (_, block) = failed.into_parts();
    assert_eq!(block.map(|block| block.iter().all(|byte| *byte == 5)), Some(true));
    say("the block was returned");
    Ok(())
}

/// Rank 1 leaves without an error and reads a block until its process exits. Then rank 0 gets the block back.
pub(crate) fn run_left(world: &World) -> Result<(), Error> {
    const LEN: usize = 1 << 20;
    let (me, last_tag) = (world.rank(), i32::MAX);
    match me {
        0 => {
            let failed = world.isend(world.alloc_slice(5u8, LEN)?, 1, 0)?.wait().unwrap_err();
            assert!(failed.to_string().contains("rank 1 has left"), "{failed}");
            // The error contains the block if the process of rank 1 has already exited.
            drop(failed);
            let begun = Instant::now();
            // Exporting a block checks for returned blocks.
            for tag in 0.. {
                world.isend(world.alloc_slice(6u8, LEN)?, 2, tag)?.wait()?;
                if world.pool().stats().live_blocks == 0 {
                    break;
                }
                assert!(begun.elapsed() < limit(20), "the block was not returned");
                std::thread::sleep(Duration::from_millis(5));
            }
            world.send(&[0u8], 2, last_tag)?;
            say("the block was returned");
        }
        1 => {
            let (block, _) = world.recv_block(0, 0)?;
            assert!(block.is_zero_copy());
            std::mem::forget(block);
        }
        _ => while world.recv(&mut vec![0u8; LEN], 0, mpj::ANY_TAG)?.tag() != last_tag {},
    }
    Ok(())
}

/// Rank 2 fails after it has passed its block to rank 3 of the same process. Rank 0, in another process, gets the error
/// that rank 2 has died.
pub(crate) fn run_failed(world: &World) -> Result<(), Error> {
    const LEN: usize = 1 << 20;
    let me = world.rank();
    let others = world.split((me != 2).then_some(0), 0)?;
    match me {
        0 => {
            let failed = world.isend(world.alloc_slice(5u8, LEN)?, 2, 0)?.wait().unwrap_err();
            assert_eq!(failed.error().failed_rank(), Some(2), "{failed}");
            // Write to the block if rank 0 got it back.
            if let (_, Some(mut block)) = failed.into_parts() {
                block.fill(9);
            }
            for _ in 0..4 {
                std::mem::forget(world.alloc_slice(9u8, LEN)?);
            }
            others.unwrap().send(&[0u8], 2, 0)?;
        }
        2 => {
            let (block, _) = world.recv_block(0, 0)?;
            assert!(block.is_zero_copy());
            *HELD_BY_FAILED.lock().unwrap() = Some(block);
            return Err(world.recv_block(4, 0).unwrap_err());
        }
        3 => {
            others.unwrap().recv(&mut [0u8], 0, 0)?;
            let block = HELD_BY_FAILED.lock().unwrap().take().expect("rank 2 has stored it");
            assert!(block.iter().all(|byte| *byte == 5), "rank 0 has written to the block");
            say("the block is unchanged");
        }
        _ => (),
    }
    Ok(())
}
