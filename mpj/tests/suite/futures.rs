//! Requests as futures: with a ten-line executor, with tokio, with a driver descriptor and without one.

use std::future::{Future, IntoFuture};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use mpj::{BoxError, ErrorClass, Op, World, coll};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::common::{SIZES, alive, blanks, forget, job, samples};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

pub(crate) fn block_on<F: IntoFuture>(future: F) -> F::Output {
    let waker = Arc::new(Unpark(thread::current())).into();
    let mut future = pin!(future.into_future());
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}

#[derive(Default)]
pub(crate) struct Counter(AtomicUsize);

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Counter {
    pub(crate) fn calls(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    /// Waits until the waker has been called, without a call of the library.
    pub(crate) fn wait(&self) {
        alive(|| {
            while self.calls() == 0 {
                thread::sleep(Duration::from_micros(100));
            }
        });
    }
}

pub(crate) fn counter() -> (Arc<Counter>, Waker) {
    let counter = Arc::new(Counter::default());
    (Arc::clone(&counter), Waker::from(counter))
}

pub(crate) fn poll<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(waker))
}

async fn exchange(world: &World) -> mpj::Result<()> {
    let (me, other) = (world.rank(), 1 - world.rank());
    for (tag, len) in (0..).zip(SIZES) {
        let receiving = world.irecv(blanks::<u64>(len), other, tag)?;
        let sending = world.isend(samples::<u64>(me, 1, len), other, tag)?;
        let synchronous = world.issend(samples::<u64>(me, 2, len), other, tag)?;
        let (got, status) = receiving.await?;
        assert_eq!((got, status.bytes()), (samples::<u64>(other, 1, len), 8 * len));
        assert_eq!(world.irecv(blanks::<u64>(len), other, tag)?.await?.0, samples::<u64>(other, 2, len));
        assert_eq!(sending.await?.0, samples::<u64>(me, 1, len));
        synchronous.await?;
        let sum = world.start(coll::allreduce(vec![me as u64; len], blanks::<u64>(len), Op::Sum))?;
        assert_eq!(sum.await?.0.1, vec![1; len]);
    }
    let mut total = world.prepare(coll::allreduce([me as u32], [9u32], Op::Max))?;
    for round in 1..4 {
        total.buffers_mut().0 = [round * me as u32];
        assert_eq!(total.start()?.await?.1, [round]);
    }
    Ok(())
}

#[mpj::test(ranks = 2)]
fn ten_line_executor_completes_every_kind_of_request(world: World) -> mpj::Result<()> {
    block_on(exchange(&world))
}

#[mpj::test(ranks = 2)]
fn tokio_completes_requests_without_a_driver(world: World) -> Result<(), BoxError> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    Ok(runtime.block_on(exchange(&world))?)
}

#[expect(deprecated, reason = "its replacement is unsafe, because the descriptor must stay the same")]
async fn drive(world: World) -> Result<(), BoxError> {
    let driver = AsyncFd::with_interest(world.driver_fd()?, Interest::READABLE)?;
    loop {
        driver.readable().await?.clear_ready();
        driver.get_ref().progress();
    }
}

#[mpj::test(ranks = 2)]
fn tokio_watches_the_driver_on_one_thread(world: World) -> Result<(), BoxError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let driving = tokio::spawn(drive(world.clone()));
        tokio::task::yield_now().await;
        exchange(&world).await?;
        // A message that arrives while the event loop sleeps makes the descriptor readable.
        let other = 1 - world.rank();
        for round in 0..20 {
            let receiving = world.irecv([0u32], other, 50)?;
            tokio::time::sleep(Duration::from_millis(round % 3)).await;
            let sending = world.isend([round as u32], other, 50)?;
            assert_eq!(receiving.await?.0, [round as u32]);
            sending.await?;
        }
        driving.abort();
        assert!(driving.await.is_err_and(|error| error.is_cancelled()), "the driver has not failed");
        Ok(())
    })
}

/// Many tasks on several threads wait for messages of one rank, in an order that differs from the sender's.
fn many_tasks(world: &World, with_driver: bool) -> Result<(), BoxError> {
    const TASKS: i32 = 100;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let driving = with_driver.then(|| tokio::spawn(drive(world.clone())));
        let (me, other) = (world.rank(), 1 - world.rank());
        let task = |tag: i32| {
            let world = world.clone();
            tokio::spawn(async move {
                let len = if tag % 10 == 0 { 20_000 } else { 10 };
                let receiving = world.irecv(blanks::<u32>(len), other, tag)?;
                let sending = world.isend(samples::<u32>(me, tag as usize, len), other, tag)?;
                assert_eq!(receiving.await?.0, samples::<u32>(other, tag as usize, len));
                sending.await?;
                Ok::<(), mpj::Error>(())
            })
        };
        let order = |at: i32| if me == 0 { at } else { TASKS - 1 - at };
        let tasks: Vec<_> = (0..TASKS).map(|at| task(order(at))).collect();
        for task in tasks {
            task.await??;
        }
        if let Some(driving) = driving {
            assert!(!driving.is_finished(), "the driver has not failed");
            driving.abort();
        }
        Ok(())
    })
}

#[mpj::test(ranks = 2)]
fn tokio_tasks_on_several_threads_share_a_driver(world: World) -> Result<(), BoxError> {
    many_tasks(&world, true)
}

#[mpj::test(ranks = 2)]
fn tokio_tasks_on_several_threads_need_no_driver(world: World) -> Result<(), BoxError> {
    many_tasks(&world, false)
}

#[mpj::test(ranks = 2)]
fn threads_of_one_rank_wait_for_futures_and_block(world: World) -> mpj::Result<()> {
    let (me, other) = (world.rank(), 1 - world.rank());
    let talk = |thread: i32| {
        let world = &world;
        move || {
            for round in 0..50 {
                let tag = 100 * thread + round;
                let sending = world.isend([me as i32, tag], other, tag)?;
                let mut got = [0; 2];
                if thread % 2 == 0 {
                    got = block_on(world.irecv(got, other, tag)?)?.0;
                    block_on(sending)?;
                } else {
                    world.recv(&mut got, other, tag)?;
                    sending.wait()?;
                }
                assert_eq!(got, [other as i32, tag]);
            }
            Ok::<(), mpj::Error>(())
        }
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|thread| scope.spawn(talk(thread))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("does not panic"))
    })
}

#[mpj::test(ranks = 2)]
fn future_polled_after_completion_returns_an_error(world: World) -> mpj::Result<()> {
    let other = 1 - world.rank();
    let mut receiving = world.irecv([0u8; 2], other, 0)?.into_future();
    world.send(&[3u8, 4], other, 0)?;
    assert_eq!(block_on(&mut receiving)?.0, [3, 4]);
    for _ in 0..2 {
        let Poll::Ready(Err(again)) = poll(&mut receiving, Waker::noop()) else { panic!("it is complete") };
        assert_eq!(again.error().class(), ErrorClass::Request, "{again}");
    }
    Ok(())
}

#[mpj::test(ranks = 2)]
fn last_waker_of_a_future_is_called_once(world: World) -> mpj::Result<()> {
    if world.rank() == 1 {
        world.recv(&mut [0u8; 0], 0, 1)?;
        return world.send(&[5u8], 0, 0);
    }
    let mut receiving = world.irecv([0u8], 1, 0)?.into_future();
    let ((first, one), (second, two)) = (counter(), counter());
    for waker in [&one, &one, &two, &two] {
        assert!(poll(&mut receiving, waker).is_pending());
    }
    world.send(&[0u8; 0], 1, 1)?;
    second.wait();
    let Poll::Ready(outcome) = poll(&mut receiving, &one) else { panic!("its waker was called") };
    assert_eq!((outcome?.0, first.calls(), second.calls()), ([5], 0, 1));
    Ok(())
}

#[mpj::test(ranks = 2)]
fn pending_future_is_reported_as_a_wait(world: World) -> mpj::Result<()> {
    let other = 1 - world.rank();
    let mut never = world.irecv([0u8], other, 9)?.into_future();
    assert!(poll(&mut never, Waker::noop()).is_pending() && poll(&mut never, Waker::noop()).is_pending());
    let waits: Vec<String> = world.engine().waits().iter().map(ToString::to_string).collect();
    assert_eq!(waits, [format!("irecv from rank {other} with tag 9")]);
    drop(never);
    assert!(world.engine().waits().is_empty());
    world.barrier()
}

#[mpj::test(ranks = 2)]
fn dropped_future_drops_its_request(world: World) -> mpj::Result<()> {
    let other = 1 - world.rank();
    let (count, waker) = counter();
    let mut receiving = world.irecv([0u8], other, 0)?.into_future();
    assert!(poll(&mut receiving, &waker).is_pending());
    drop(receiving);
    assert!(count.calls() <= 1, "the receive was cancelled");
    assert_eq!(Arc::strong_count(&count), 2, "the operation has dropped its waker");
    world.barrier()?; // both ranks have dropped their receives
    let mut sending = world.issend(vec![7u8; 100_000], other, 0)?.into_future();
    assert!(poll(&mut sending, &waker).is_pending());
    drop(sending);
    world.barrier()?; // both ranks have dropped their sends
    let mut got = vec![0u8; 100_000];
    world.recv(&mut got, other, 0)?;
    assert_eq!(got, vec![7; 100_000], "the receive was cancelled, and the send continues");
    Ok(())
}

#[test]
fn forgotten_future_does_not_delay_the_end_of_its_rank() {
    let ended = job(2, |world| {
        let other = 1 - world.rank();
        let (_, waker) = counter();
        let mut never = world.irecv(vec![0u8; 100], other, 0)?.into_future();
        assert!(poll(&mut never, &waker).is_pending());
        forget(never);
        world.barrier()
    });
    ended.expect("no rank fails");
}

#[test]
fn future_outlives_its_world() {
    let futures = job(2, |world| {
        let mut never = world.irecv([0u8; 8], 1 - world.rank(), 0)?.into_future();
        assert!(poll(&mut never, Waker::noop()).is_pending());
        world.barrier()?;
        Ok::<_, mpj::Error>(never)
    });
    for never in futures.expect("no rank fails") {
        assert!(alive(|| block_on(never)).is_err(), "a pending receive fails when its rank leaves");
    }
}

#[test]
fn dead_peer_wakes_the_future() {
    for with_driver in [false, true] {
        let failed = job(2, |world| {
            if world.rank() == 1 {
                thread::sleep(Duration::from_millis(20));
                return Err("no input".to_owned());
            }
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.map_err(|e| e.to_string())?.block_on(async {
                let driving = with_driver.then(|| tokio::spawn(drive(world.clone())));
                let failed = world.irecv([0u8; 4], 1, 0).map_err(|e| e.to_string())?.await.unwrap_err();
                assert_eq!(failed.error().failed_rank(), Some(1), "{failed}");
                assert_eq!(failed.into_parts().1, Some([0; 4]));
                drop(driving);
                Ok(())
            })
        });
        assert_eq!(failed.unwrap_err().rank(), 1);
    }
}

#[test]
fn peer_that_leaves_wakes_the_future() {
    for with_driver in [false, true] {
        let ended = job(2, |world| {
            if world.rank() == 1 {
                return Ok(());
            }
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let driving = with_driver.then(|| tokio::spawn(drive(world.clone())));
                let failed = world.irecv([0u8; 4], 1, 0)?.await.unwrap_err();
                assert_eq!(failed.error().failed_rank(), Some(1), "{failed}");
                drop(driving);
                Ok::<(), BoxError>(())
            })
        });
        ended.expect("no rank fails");
    }
}

#[mpj::test(ranks = 2)]
fn rank_has_one_driver(world: World) -> mpj::Result<()> {
    let other = 1 - world.rank();
    let driver = world.driver_fd()?;
    let refused = world.driver_fd().unwrap_err();
    assert!(refused.to_string().contains("has a driver descriptor already"), "{refused}");
    let (count, waker) = counter();
    let mut receiving = world.irecv([0u8], other, 0)?.into_future();
    assert!(poll(&mut receiving, &waker).is_pending());
    world.barrier()?;
    world.send(&[1u8], other, 0)?;
    // No event loop watches the descriptor. When the driver is dropped, a progress thread takes its place.
    drop(driver);
    count.wait();
    assert_eq!(block_on(receiving)?.0, [1]);
    drop(world.driver_fd()?);
    Ok(())
}

#[mpj::test(ranks = 2)]
fn scoped_request_is_a_future(world: World) -> mpj::Result<()> {
    let (me, other) = (world.rank() as u64, 1 - world.rank());
    let (mine, mut theirs) = (vec![me; 50_000], vec![9; 50_000]);
    world.scope(|s| {
        let (receiving, sending) = (s.irecv(&mut theirs, other, 0)?, s.isend(&mine, other, 0)?);
        block_on(async {
            assert_eq!(receiving.await?.0[0], other as u64);
            sending.await.map(drop)
        })
    })?;
    assert_eq!(theirs, vec![other as u64; 50_000]);
    Ok(())
}

#[mpj::test(ranks = 2)]
fn panicking_waker_fails_no_operation(world: World) -> mpj::Result<()> {
    #[derive(Default)]
    struct Panics(AtomicU32);
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
            std::panic::resume_unwind(Box::new("a waker"));
        }
    }
    let other = 1 - world.rank();
    let mut receiving = world.irecv([0u8], other, 0)?.into_future();
    let panics = Arc::new(Panics::default());
    assert!(poll(&mut receiving, &Arc::clone(&panics).into()).is_pending());
    world.barrier()?;
    world.send(&[6u8], other, 0)?;
    while panics.0.load(Ordering::Relaxed) == 0 {
        assert!(world.iprobe(other, 9)?.is_none());
    }
    assert_eq!(block_on(receiving)?.0, [6]);
    world.barrier()
}
