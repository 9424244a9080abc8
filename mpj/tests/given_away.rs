//! Buffers that were given away and whose own drop does something: it waits for a message, or panics.

use std::sync::atomic::{AtomicU32, Ordering};

use mpj::raw::Buf;
use mpj::{Intracomm, SendBuf};

mod common;

/// Waits for a message of rank 1 when it is dropped.
struct Waits(Vec<u8>, Intracomm);

#[expect(unsafe_code, reason = "the trait is unsafe to implement")]
// SAFETY: the bytes stay where they are as long as the value does.
unsafe impl SendBuf for Waits {
    fn send_buf(&self) -> Buf {
        Buf::slice(&self.0[..])
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.1.recv(&mut [0u8], 1, 5).unwrap();
    }
}

#[mpj::test(ranks = 2, timeout = "30s")]
fn a_drop_may_wait_for_a_message(world: mpj::World) -> mpj::Result<()> {
    if world.rank() == 0 {
        drop(world.isend(Waits(vec![1; 1 << 20], world.comm().clone()), 1, 1)?);
        // It ends while this waits for something else.
        world.recv(&mut [0u8], 1, 6)?;
    } else {
        world.recv(&mut vec![0u8; 1 << 20], 0, 1)?;
        world.send(&[1u8], 0, 5)?;
        world.send(&[1u8], 0, 6)?;
    }
    world.barrier()
}

static PANICS: AtomicU32 = AtomicU32::new(0);

struct Panics(Vec<u8>);

#[expect(unsafe_code, reason = "the trait is unsafe to implement")]
// SAFETY: the bytes stay where they are as long as the value does.
unsafe impl SendBuf for Panics {
    fn send_buf(&self) -> Buf {
        Buf::slice(&self.0[..])
    }
}

impl Drop for Panics {
    fn drop(&mut self) {
        PANICS.fetch_add(1, Ordering::Relaxed);
        panic!("a drop that panics, as it should here");
    }
}

#[mpj::test(ranks = 3, timeout = "30s")]
fn the_panic_of_a_drop_stops_no_other_message(world: mpj::World) -> mpj::Result<()> {
    const MANY: usize = 600;
    const LONG: usize = 1 << 20;
    if world.rank() == 0 {
        // None of them is received before all are sent.
        let to_one: Vec<_> = (0..MANY).map(|_| world.isend([1u8; 4], 1, 1)).collect::<Result<_, _>>()?;
        drop(world.isend(Panics(vec![7; LONG]), 1, 1)?);
        let to_two: Vec<_> = (0..MANY).map(|_| world.isend([2u8; 4], 2, 1)).collect::<Result<_, _>>()?;
        world.send(&[0u8], 1, 9)?;
        world.send(&[0u8], 2, 9)?;
        for send in to_one.into_iter().chain(to_two) {
            send.wait()?;
        }
        world.barrier()?;
        assert_eq!(PANICS.load(Ordering::Relaxed), 1);
    } else {
        world.recv(&mut [0u8], 0, 9)?;
        for _ in 0..MANY {
            world.recv(&mut [0u8; 4], 0, 1)?;
        }
        if world.rank() == 1 {
            world.recv(&mut vec![0u8; LONG], 0, 1)?;
        }
        world.barrier()?;
    }
    Ok(())
}

static COLLECTIVE: AtomicU32 = AtomicU32::new(0);

struct PanicsInCollective([u64; 1]);

#[expect(unsafe_code, reason = "the trait is unsafe to implement")]
// SAFETY: the array stays where it is as long as it is borrowed, and the value is not moved during the call.
unsafe impl SendBuf for PanicsInCollective {
    fn send_buf(&self) -> Buf {
        Buf::slice(&self.0[..])
    }
}

impl Drop for PanicsInCollective {
    fn drop(&mut self) {
        COLLECTIVE.fetch_add(1, Ordering::Relaxed);
        panic!("a drop that panics, as it should here");
    }
}

#[mpj::test(ranks = 2, timeout = "30s")]
fn a_collective_that_nobody_waits_for_may_be_the_last_to_keep_it(world: mpj::World) -> mpj::Result<()> {
    if world.rank() == 0 {
        let mine = PanicsInCollective([1]);
        drop(world.iallreduce(mine, [0u64], mpj::Op::Sum)?);
        world.send(&[0u8], 1, 1)?;
        // It ends while this waits for something else.
        world.recv(&mut [0u8], 1, 2)?;
    } else {
        world.recv(&mut [0u8], 0, 1)?;
        world.iallreduce([2u64], [0u64], mpj::Op::Sum)?.wait()?;
        world.send(&[0u8], 0, 2)?;
    }
    world.barrier()?;
    assert_eq!(COLLECTIVE.load(Ordering::Relaxed), 1);
    Ok(())
}
