//! A rank that receives nothing, because it is busy, has left or has died, does not block the other ranks.

use std::sync::{Condvar, Mutex};
use std::time::Duration;

use crate::common::{job, ranks};
use mpj::{Error, World};

/// Number of messages to the rank that receives nothing.
const UNREAD: usize = 200;

/// Sends messages of many sizes from rank 0 to the last rank of `world`.
fn first_to_last(world: &World, fill: u8) -> mpj::Result<()> {
    let last = world.size() - 1;
    for len in [1, 100, 3000, 16_000, 100_000].repeat(10) {
        if world.rank() == 0 {
            world.send(&vec![fill; len], last, 1)?;
        } else if world.rank() == last {
            let mut got = vec![0; len];
            world.recv(&mut got, 0, 1)?;
            assert!(got.iter().all(|byte| *byte == fill));
        }
    }
    Ok(())
}

/// Rank 1 makes no progress until rank 2 has received all messages of rank 0.
#[test]
fn busy_rank_does_not_block_others() {
    let exchange_done = (Mutex::new(false), Condvar::new());
    ranks(3, |world| {
        world.barrier()?;
        match world.rank() {
            0 => {
                let sends: Vec<_> =
                    (0..UNREAD).map(|i| world.isend([i as u8; 100], 1, 0)).collect::<Result<_, _>>()?;
                first_to_last(&world, 6)?;
                sends.into_iter().try_for_each(|send| send.wait().map(drop).map_err(Error::from))
            }
            1 => {
                let waiting = exchange_done.1.wait_while(exchange_done.0.lock().unwrap(), |done| !*done);
                drop(waiting.unwrap());
                (0..UNREAD).try_for_each(|i| {
                    let mut got = [0; 100];
                    world.recv(&mut got, 0, 0)?;
                    assert_eq!(got, [i as u8; 100]);
                    Ok(())
                })
            }
            _ => {
                first_to_last(&world, 6)?;
                *exchange_done.0.lock().unwrap() = true;
                exchange_done.1.notify_all();
                Ok(())
            }
        }
    });
}

#[test]
fn messages_to_a_rank_that_leaves_do_not_block_others() {
    ranks(3, |world| {
        world.barrier()?;
        if world.rank() == 1 {
            std::thread::sleep(Duration::from_millis(100));
            return Ok(());
        }
        if world.rank() == 0 {
            let sends: Vec<_> =
                (0..UNREAD).map(|_| world.isend([5u8; 100], 1, 0)).collect::<Result<_, _>>()?;
            mpj::wait_all(sends);
        }
        first_to_last(&world, 6)
    });
}

#[test]
fn messages_to_a_dead_rank_do_not_block_others() {
    let outcome = job(3, |world| {
        let text = |e: Error| e.to_string();
        let rest = world.split(Some(u32::from(world.rank() == 1)), 0).map_err(text)?.unwrap();
        world.barrier().map_err(text)?;
        if world.rank() == 1 {
            std::thread::sleep(Duration::from_millis(100));
            return Err("its computation failed".to_string());
        }
        if world.rank() == 0 {
            let sends: Vec<_> = (0..UNREAD).map_while(|_| world.isend([5u8; 100], 1, 0).ok()).collect();
            mpj::wait_all(sends);
        }
        for len in [1, 100, 3000, 100_000].repeat(10) {
            if rest.rank() == 0 {
                rest.send(&vec![6u8; len], 1, 1).map_err(text)?;
            } else {
                rest.recv(&mut vec![0u8; len], 0, 1).map_err(text)?;
            }
        }
        Ok(())
    });
    let error = outcome.unwrap_err();
    assert_eq!((error.rank(), error.to_string().contains("its computation failed")), (1, true), "{error}");
}
