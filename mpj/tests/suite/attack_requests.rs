//! Requests whose buffers and wakers run foreign code that panics, waits or sends, and requests that outlive their rank.

use std::future::IntoFuture;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

use mpj::raw::Buf;
use mpj::{ErrorClass, Intracomm, RecvBuf, RequestSet, SendBuf, Waitable, World};

use crate::common::{forget, job, ranks};

const LONG: usize = 200_000;

fn wait_for(flag: &AtomicBool) {
    while !flag.load(Ordering::SeqCst) {
        thread::sleep(Duration::from_micros(200));
    }
}

/// A waker that panics when it is dropped.
struct PanicsOnDrop;

impl Wake for PanicsOnDrop {
    fn wake(self: Arc<Self>) {}
}

impl Drop for PanicsOnDrop {
    fn drop(&mut self) {
        if !thread::panicking() {
            panic!("the drop of a waker that panics, as it should here");
        }
    }
}

#[test]
fn waker_that_panics_when_dropped_frees_no_memory_in_use() {
    let is_dropped = AtomicBool::new(false);
    ranks(2, |world| {
        world.barrier()?; // now the ranks are connected
        if world.rank() == 0 {
            let sending = world.isend(vec![7u8; LONG], 1, 1)?;
            world.engine().flush_coalesced();
            wait_for(&is_dropped); // without progress
            sending.wait()?;
            return world.send(&[0u8], 1, 2);
        }
        // The receive matches the message when it starts, but the body is still at the sender.
        world.probe(0, 1)?;
        let mut request = world.recv_init(vec![0u8; LONG], 0, 1)?;
        let waker = Waker::from(Arc::new(PanicsOnDrop));
        let mut receiving = request.start()?.into_future();
        let is_pending = pin!(&mut receiving).poll(&mut Context::from_waker(&waker)).is_pending();
        drop((receiving, waker)); // the operation has the last clone
        let panicked = catch_unwind(AssertUnwindSafe(|| drop(request))).is_err();
        is_dropped.store(true, Ordering::SeqCst);
        assert!(is_pending && panicked, "{is_pending} {panicked}");
        world.recv(&mut [0u8], 0, 2)?;
        Ok(())
    });
}

/// Waits for a message from rank 1 when it is dropped.
struct Waits(Vec<u8>, Intracomm, Arc<AtomicBool>);

#[expect(unsafe_code, reason = "the trait is unsafe to implement")]
// SAFETY: the bytes stay at their address as long as the value lives.
unsafe impl SendBuf for Waits {
    fn send_buf(&self) -> Buf {
        Buf::slice(&self.0[..])
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.2.store(true, Ordering::SeqCst);
        self.1.recv(&mut [0u8], 1, 5).unwrap();
    }
}

struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: IntoFuture>(future: F) -> F::Output {
    let waker = Arc::new(Unpark(thread::current())).into();
    let mut future = pin!(future.into_future());
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            std::task::Poll::Ready(value) => return value,
            std::task::Poll::Pending => thread::park(),
        }
    }
}

#[test]
fn task_is_woken_while_a_dropped_buffer_waits() {
    let (is_in_drop, is_waiting) = (Arc::new(AtomicBool::new(false)), AtomicBool::new(false));
    ranks(2, |world| {
        if world.rank() == 1 {
            wait_for(&is_waiting);
            world.recv(&mut vec![0u8; LONG], 0, 1)?;
            wait_for(&is_in_drop);
            thread::sleep(Duration::from_millis(20));
            world.send(&[1u8], 0, 8)?; // completes the future
            world.recv(&mut [0u8], 0, 7)?; // from its task
            world.send(&[1u8], 0, 5)?; // ends the drop
            return world.send(&[1u8], 0, 6);
        }
        let buf = Waits(vec![1; LONG], world.comm().clone(), Arc::clone(&is_in_drop));
        drop(world.isend(buf, 1, 1)?);
        thread::scope(|scope| {
            let task = scope.spawn(|| {
                let receiving = world.irecv([0u8], 1, 8)?;
                is_waiting.store(true, Ordering::SeqCst);
                block_on(receiving)?;
                world.send(&[1u8], 1, 7)
            });
            // The send completes in this call, which then drops its buffer.
            world.recv(&mut [0u8], 1, 6)?;
            task.join().expect("it does not panic")
        })
    });
}

/// Bytes whose drop is counted, and panics.
struct Panics(Vec<u8>, &'static AtomicU32);

#[expect(unsafe_code, reason = "the trait is unsafe to implement")]
// SAFETY: the bytes stay at their address as long as the value lives.
unsafe impl SendBuf for Panics {
    fn send_buf(&self) -> Buf {
        Buf::slice(&self.0[..])
    }
}

impl Drop for Panics {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::Relaxed);
        panic!("a drop that panics, as it should here");
    }
}

#[test]
fn receive_of_a_self_send_ignores_the_panic_of_its_buffer() {
    static DROPS: AtomicU32 = AtomicU32::new(0);
    ranks(1, |world| {
        for len in [1, 60, LONG] {
            drop(world.issend(Panics(vec![9; len], &DROPS), 0, 1)?);
            let mut got = vec![0u8; len];
            world.recv(&mut got, 0, 1)?;
            assert_eq!(got, vec![9; len]);
        }
        assert_eq!(DROPS.load(Ordering::Relaxed), 3);
        Ok(())
    });
}

#[test]
fn rank_leaves_in_order_although_the_buffer_of_a_self_send_panics() {
    static DROPS: AtomicU32 = AtomicU32::new(0);
    ranks(2, |world| {
        if world.rank() == 1 {
            drop(world.issend(Panics(vec![9; 10], &DROPS), 1, 1)?);
            return Ok(());
        }
        let error = world.recv(&mut [0u8], 1, 0).expect_err("rank 1 sends nothing");
        assert_eq!(error.class(), ErrorClass::ProcAborted, "{error}");
        Ok(())
    });
    assert_eq!(DROPS.load(Ordering::Relaxed), 1);
}

/// A buffer that counts its drops.
#[derive(Debug)]
struct Counted(Vec<u8>, Arc<AtomicUsize>);

#[expect(unsafe_code, reason = "the trait is unsafe to implement")]
// SAFETY: the bytes stay at their address as long as the value lives.
unsafe impl SendBuf for Counted {
    fn send_buf(&self) -> Buf {
        Buf::slice(&self.0[..])
    }
}

#[expect(unsafe_code, reason = "the trait is unsafe to implement")]
// SAFETY: as above.
unsafe impl RecvBuf for Counted {
    fn recv_buf(&mut self) -> Buf {
        Buf::slice_mut(&mut self.0[..])
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        // This access lets Miri and sanitizers detect a second drop.
        self.0.fill(0xee);
        self.1.fetch_add(1, Ordering::SeqCst);
    }
}

/// Starts requests of each kind. Drops some, and returns the others, which outlive the rank.
fn leave_requests(world: &World, drops: &Arc<AtomicUsize>) -> mpj::Result<Left> {
    let new = || Counted(vec![1; LONG], Arc::clone(drops));
    let other = 1 - world.rank();
    let pending = vec![world.irecv(new(), other, 1)?, world.issend(new(), other, 2)?];
    let own = vec![world.issend(new(), world.rank(), 3)?, world.irecv(new(), world.rank(), 4)?];
    let mut persistent = vec![world.recv_init(new(), other, 5)?, world.ssend_init(new(), other, 6)?];
    for request in &mut persistent {
        let _ = request.start()?;
    }
    persistent.push(world.recv_init(new(), other, 7)?);
    drop(world.irecv(new(), other, 8)?);
    drop(world.issend(new(), other, 9)?);
    drop(world.issend(new(), world.rank(), 9)?);
    world.barrier()?;
    Ok((pending.into_iter().chain(own).collect(), persistent))
}

type Left = (Vec<mpj::Request<Counted>>, Vec<mpj::PersistentRequest<Counted>>);

#[test]
fn requests_that_outlive_their_job_return_or_drop_their_buffers() {
    for way in 0..3 {
        let drops = Arc::new(AtomicUsize::new(0));
        let left = job(2, |world| leave_requests(&world, &drops)).expect("no rank fails");
        for (owned, persistent) in left {
            match way {
                0 => drop((owned, persistent)),
                1 => {
                    let mut set = RequestSet::new();
                    owned.into_iter().enumerate().for_each(|(key, request)| set.insert(key, request));
                    while let Some((_, outcome)) = set.wait_next() {
                        assert_eq!(
                            outcome.expect_err("the rank has left").into_parts().1.map(|b| b.0.len()),
                            Some(LONG)
                        );
                    }
                    persistent
                        .into_iter()
                        .for_each(|request| assert_eq!(request.into_buffers().0.len(), LONG));
                }
                _ => thread::scope(|scope| {
                    scope.spawn(|| {
                        for mut request in persistent {
                            let _ = request.start().map(|active| active.wait().map(drop));
                            request.buffers_mut().0[LONG - 1] = 9;
                        }
                        for request in owned {
                            assert!(request.request_ref().wait().is_err());
                            drop(request);
                        }
                    });
                }),
            }
        }
        assert_eq!(drops.load(Ordering::SeqCst), 20, "{way}");
    }
}

#[test]
fn receive_buffers_are_dropped_once_if_the_sender_dies_in_the_middle() {
    let drops = Arc::new(AtomicUsize::new(0));
    let (is_matched, rounds) = (AtomicBool::new(false), if cfg!(miri) { 1 } else { 20 });
    for _ in 0..rounds {
        is_matched.store(false, Ordering::SeqCst);
        let outcome = job(3, |world| {
            world.barrier()?;
            let new = || Counted(vec![1; LONG], Arc::clone(&drops));
            match world.rank() {
                0 => {
                    forget(world.isend(vec![7u8; LONG], 1, 1)?);
                    forget(world.isend(vec![7u8; LONG], 1, 2)?);
                    world.engine().flush_coalesced();
                    wait_for(&is_matched);
                    panic!("rank 0 dies, as it should here");
                }
                1 => {
                    world.probe(0, 1)?;
                    world.probe(0, 2)?;
                    drop(world.irecv(new(), 0, 1)?);
                    let mut request = world.recv_init(new(), 0, 2)?;
                    drop(request.start()?);
                    is_matched.store(true, Ordering::SeqCst);
                    let error = request.start().map(drop).expect_err("rank 0 has died");
                    assert_eq!(error.failed_rank(), Some(0), "{error}");
                    request.buffers_mut().0[0] = 1;
                }
                _ => {
                    let receiving = world.irecv(new(), 0, 1)?;
                    let error = receiving.wait().expect_err("rank 0 has died");
                    assert_eq!(error.into_parts().1.map(|buf| buf.0[0]), Some(1));
                }
            }
            Ok::<(), mpj::Error>(())
        });
        assert!(outcome.expect_err("rank 0 has died").is_panic());
    }
    assert_eq!(drops.load(Ordering::SeqCst), 3 * rounds);
}

/// One of a pair of buffers. The drop of each sends a message to this rank, and then receives the message of the other.
struct Linked(Vec<u8>, Intracomm, i32);

#[expect(unsafe_code, reason = "the trait is unsafe to implement")]
// SAFETY: the bytes stay at their address as long as the value lives.
unsafe impl SendBuf for Linked {
    fn send_buf(&self) -> Buf {
        Buf::slice(&self.0[..])
    }
}

impl Drop for Linked {
    fn drop(&mut self) {
        let (me, at) = (self.1.rank(), self.2);
        self.1.send(&[1u8], me, 100 + at).unwrap();
        let next = if at % 2 == 0 { at + 1 } else { at - 1 };
        self.1.recv(&mut [0u8], me, 100 + next).unwrap();
    }
}

#[test]
fn dropped_buffers_of_one_thread_may_wait_for_each_other() {
    const PAIRS: i32 = if cfg!(miri) { 2 } else { 10 };
    ranks(2, |world| {
        if world.rank() == 0 {
            for at in 0..2 * PAIRS {
                drop(world.isend(Linked(vec![1; LONG], world.comm().clone(), at), 1, at)?);
            }
            world.recv(&mut [0u8], 1, 99)?;
        } else {
            let receiving = (0..2 * PAIRS).map(|at| world.irecv(vec![0u8; LONG], 0, at));
            let receiving = receiving.collect::<Result<Vec<_>, _>>()?;
            for received in mpj::wait_all(receiving) {
                received?;
            }
            world.send(&[1u8], 0, 99)?;
        }
        world.barrier()
    });
}

/// A buffer with a handle of its communicator.
struct Owner(Counted, #[expect(dead_code, reason = "it is only dropped")] Intracomm);

#[expect(unsafe_code, reason = "the trait is unsafe to implement")]
// SAFETY: the bytes stay at their address as long as the value lives.
unsafe impl SendBuf for Owner {
    fn send_buf(&self) -> Buf {
        self.0.send_buf()
    }
}

#[expect(unsafe_code, reason = "the trait is unsafe to implement")]
// SAFETY: as above.
unsafe impl RecvBuf for Owner {
    fn recv_buf(&mut self) -> Buf {
        self.0.recv_buf()
    }
}

/// Starts and drops a receive whose buffer has a handle of its communicator, and drops the other handle.
fn drop_last_handles(apart: Intracomm, drops: &Arc<AtomicUsize>, way: usize) -> mpj::Result<()> {
    let new = || Owner(Counted(vec![1; LONG], Arc::clone(drops)), apart.clone());
    let tag = if way < 2 { 1 } else { 7 };
    if tag == 1 {
        apart.probe(0, 1)?; // the receive matches when it starts
    }
    if way.is_multiple_of(2) {
        let receiving = apart.irecv(new(), 0, tag)?;
        drop((apart, receiving));
    } else {
        let mut request = apart.recv_init(new(), 0, tag)?;
        let _ = request.start()?;
        drop((apart, request));
    }
    Ok(())
}

#[test]
fn buffer_may_own_the_last_handle_of_its_communicator() {
    let drops = Arc::new(AtomicUsize::new(0));
    ranks(2, |world| {
        for way in 0..4 {
            let apart = world.dup()?;
            if world.rank() == 1 {
                drop_last_handles(apart, &drops, way)?;
                world.recv(&mut [0u8], 0, 2)?;
                assert_eq!(drops.load(Ordering::SeqCst), way + 1);
                world.barrier()?;
                continue;
            }
            let sending = apart.isend(vec![1u8; LONG], 1, 1)?;
            drop(apart);
            if way < 2 {
                sending.wait()?;
            }
            world.send(&[1u8], 1, 2)?;
            world.barrier()?;
        }
        Ok(())
    });
}
