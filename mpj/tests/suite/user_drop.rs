//! User values with a `Drop` that waits for a message or panics.

use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Waker};

use mpj::raw::Buf;
use mpj::{ErrorClass, Intracomm, Op, RecvBuf, SendBuf};

/// Waits for a message from rank 1 when it is dropped.
struct Waits(Vec<u8>, Intracomm);

#[expect(unsafe_code, reason = "the trait is unsafe to implement")]
// SAFETY: the bytes stay at their address as long as the value lives.
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
fn drop_may_wait_for_a_message(world: mpj::World) -> mpj::Result<()> {
    if world.rank() == 0 {
        drop(world.isend(Waits(vec![1; 1 << 20], world.comm().clone()), 1, 1)?);
        // The send completes while this call waits for another message.
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
// SAFETY: the bytes stay at their address as long as the value lives.
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
fn panic_in_drop_does_not_affect_other_messages(world: mpj::World) -> mpj::Result<()> {
    const MANY: usize = 600;
    const LONG: usize = 1 << 20;
    if world.rank() == 0 {
        // No message is received before all have been sent.
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

static COLLECTIVE_DROPS: AtomicU32 = AtomicU32::new(0);

struct PanicsInCollective([u64; 1]);

#[expect(unsafe_code, reason = "the trait is unsafe to implement")]
// SAFETY: the array stays at its address as long as it is borrowed, and the value is not moved during the call.
unsafe impl SendBuf for PanicsInCollective {
    fn send_buf(&self) -> Buf {
        Buf::slice(&self.0[..])
    }
}

impl Drop for PanicsInCollective {
    fn drop(&mut self) {
        COLLECTIVE_DROPS.fetch_add(1, Ordering::Relaxed);
        panic!("a drop that panics, as it should here");
    }
}

#[mpj::test(ranks = 2, timeout = "30s")]
fn panic_in_drop_of_a_detached_collective_does_not_fail_other_calls(world: mpj::World) -> mpj::Result<()> {
    if world.rank() == 0 {
        let mine = PanicsInCollective([1]);
        drop(world.start(mpj::coll::allreduce(mine, [0u64], mpj::Op::Sum))?);
        world.send(&[0u8], 1, 1)?;
        // The collective completes while this call waits for another message.
        world.recv(&mut [0u8], 1, 2)?;
    } else {
        world.recv(&mut [0u8], 0, 1)?;
        world.start(mpj::coll::allreduce([2u64], [0u64], mpj::Op::Sum))?.wait()?;
        world.send(&[0u8], 0, 2)?;
    }
    world.barrier()?;
    assert_eq!(COLLECTIVE_DROPS.load(Ordering::Relaxed), 1);
    Ok(())
}

/// Counts its drops. A drop panics unless the thread is already panicking.
struct Bomb(&'static AtomicU32);

impl Drop for Bomb {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
        if !std::thread::panicking() {
            panic!("a drop that panics, as it should here");
        }
    }
}

static CAPTURED: AtomicU32 = AtomicU32::new(0);

#[mpj::test(ranks = 2, timeout = "30s")]
fn panic_in_drop_of_captured_values_does_not_fail_other_calls(world: mpj::World) -> mpj::Result<()> {
    let apart = world.dup()?;
    for round in 1..=3 {
        let bomb = Bomb(&CAPTURED);
        let op = Op::user(true, move |a: &u32, b: &u32| {
            let _captured = &bomb;
            a + b
        });
        let calling = apart.start(mpj::coll::allreduce(vec![1u32], vec![0u32], op))?;
        // If the operation has completed, the bomb is dropped here.
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(calling)));
        // After these barriers, both ranks' operations have completed. The bomb's panic must not fail a barrier.
        for _ in 0..3 {
            world.barrier()?;
            apart.barrier()?;
        }
        assert_eq!(CAPTURED.load(Ordering::Relaxed), 2 * round, "one drop on each rank");
        world.barrier()?;
    }
    Ok(())
}

static THROWN: AtomicU32 = AtomicU32::new(0);

#[mpj::test(ranks = 2, timeout = "30s")]
fn panic_payload_may_panic_when_dropped(world: mpj::World) -> mpj::Result<()> {
    let apart = world.dup()?;
    let op = Op::user(true, |_: &u32, _: &u32| -> u32 { std::panic::panic_any(Bomb(&THROWN)) });
    let failed = apart
        .start(mpj::coll::allreduce(vec![1u32], vec![0u32], op))?
        .wait()
        .expect_err("its operation panics");
    assert_eq!(failed.error().class(), ErrorClass::Other, "{failed}");
    world.barrier()?;
    assert!(THROWN.load(Ordering::Relaxed) > 0);
    Ok(())
}

/// An error that panics when it is formatted if `when_formatted`, otherwise when it is dropped.
struct Odd {
    when_formatted: bool,
}

impl std::fmt::Display for Odd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        assert!(!self.when_formatted, "formatting this error panics on purpose");
        f.write_str("odd")
    }
}

impl Drop for Odd {
    fn drop(&mut self) {
        if !self.when_formatted {
            panic!("dropping this error panics on purpose");
        }
    }
}

static PAYLOAD_DROPS: AtomicU32 = AtomicU32::new(0);

#[test]
fn rank_whose_error_or_payload_panics_is_reported_as_panicked() {
    for way in 0..3 {
        let outcome = crate::common::alive(|| {
            mpj::threads(3, |world| {
                match (world.rank(), way) {
                    (1, 0) => std::panic::panic_any(Bomb(&PAYLOAD_DROPS)),
                    (1, _) => return Err(Odd { when_formatted: way == 1 }),
                    _ => (),
                }
                let error = world.recv(&mut [0u8], 1, 0).expect_err("rank 1 sends nothing");
                assert_eq!(
                    (error.class(), error.failed_rank()),
                    (ErrorClass::ProcAborted, Some(1)),
                    "{error}"
                );
                Ok(())
            })
        });
        let error = outcome.expect_err("rank 1 has failed");
        assert!(error.rank() == 1 && error.is_panic(), "{way}: {error}");
    }
    assert_eq!(PAYLOAD_DROPS.load(Ordering::Relaxed), 1);
}

static BUFFER_DROPS: AtomicU32 = AtomicU32::new(0);

struct CountsDrops(Vec<u8>);

#[expect(unsafe_code, reason = "the trait is unsafe to implement")]
// SAFETY: the bytes stay at their address as long as the value lives.
unsafe impl SendBuf for CountsDrops {
    fn send_buf(&self) -> Buf {
        Buf::slice(&self.0[..])
    }
}

#[expect(unsafe_code, reason = "the trait is unsafe to implement")]
// SAFETY: as above.
unsafe impl RecvBuf for CountsDrops {
    fn recv_buf(&mut self) -> Buf {
        Buf::slice_mut(&mut self.0[..])
    }
}

impl Drop for CountsDrops {
    fn drop(&mut self) {
        BUFFER_DROPS.fetch_add(1, Ordering::Relaxed);
    }
}

#[mpj::test(ranks = 2, timeout = "30s")]
fn buffer_of_a_dropped_receive_lives_until_the_message_has_arrived(world: mpj::World) -> mpj::Result<()> {
    const LONG: usize = 200_000;
    const KINDS: u32 = 3;
    for kind in 0..KINDS {
        if world.rank() == 0 {
            world.isend(vec![7u8; LONG], 1, 1)?.wait()?;
            world.send(&[0u8], 1, 2)?;
            continue;
        }
        // The receive matches the message when it starts, but the body is still at the sender.
        world.probe(0, 1)?;
        let buf = CountsDrops(vec![0; LONG]);
        match kind {
            0 => drop(world.irecv(buf, 0, 1)?),
            1 => {
                // The poll makes progress, and so might complete the receive.
                let mut receiving = pin!(world.irecv(buf, 0, 1)?.into_future());
                drop(receiving.as_mut().poll(&mut Context::from_waker(Waker::noop())));
            }
            _ => {
                let _ = world.recv_init(buf, 0, 1)?.start()?;
            }
        }
        if kind != 1 {
            assert_eq!(BUFFER_DROPS.load(Ordering::Relaxed), kind, "the receive is pending");
        }
        world.recv(&mut [0u8], 0, 2)?;
        assert_eq!(BUFFER_DROPS.load(Ordering::Relaxed), kind + 1);
    }
    world.barrier()
}
