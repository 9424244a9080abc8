//! Requests of every kind as futures, and with time limits.

use std::future::IntoFuture;
use std::task::Poll;
use std::thread;
use std::time::Duration;

use mpj::{ErrorClass, Waitable, World, threads};

use crate::common::{alive, samples};
use crate::futures::{block_on, counter, poll};

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(2);

#[mpj::test(ranks = 2)]
fn every_kind_of_request_is_awaited(world: World) -> mpj::Result<()> {
    let (me, other) = (world.rank(), 1 - world.rank());
    let mine = samples::<u64>(me, 0, 40_000);
    let mut send = world.send_init(mine.clone(), other, 0)?;
    let mut recv = world.recv_init(vec![0u64; mine.len()], other, 0)?;
    let mut parts = world.psend_init(mine.clone(), 4, other, 1)?;
    let mut arrivals = world.precv_init(vec![0u64; mine.len()], 8, other, 1)?;
    block_on(async {
        for _ in 0..3 {
            let (sending, receiving) = (send.start()?, recv.start()?);
            receiving.await?;
            sending.await?;
            let (filling, arriving) = (parts.start()?, arrivals.start()?);
            (0..4).try_for_each(|part| filling.part(part)?.ready())?;
            assert_eq!(arriving.await?, samples::<u64>(other, 0, mine.len()));
            filling.await?;
        }
        let sending = world.isend_object(&("from", me), other, 2)?;
        let ((_, from), _) = world.irecv_object::<(String, usize)>(other, 2)?.await?;
        sending.await?;
        let (promise, promised) = world.promise::<usize>()?;
        let keeping = thread::spawn(move || promise.keep(from + 10));
        assert_eq!(promised.await?, other + 10);
        keeping.join().expect("a promise is kept");
        let dup = world.idup()?.await?;
        assert_eq!(dup.allreduce_value(me, mpj::Op::Sum)?, 1);
        Ok(())
    })
}

#[mpj::test(ranks = 2)]
fn late_promises_parts_objects_and_duplicates_stay_usable(world: World) -> mpj::Result<()> {
    let (me, other) = (world.rank(), 1 - world.rank());
    let mut parts = world.psend_init(samples::<u64>(me, 0, 400), 2, other, 1)?;
    let mut arrivals = world.precv_init(vec![0u64; 400], 4, other, 1)?;
    let (promise, mut promised) = world.promise::<usize>()?;
    let mut object = world.irecv_object::<usize>(other, 2)?;
    let (mut filling, mut arriving) = (parts.start()?, arrivals.start()?);
    assert!(promised.wait_timeout(SHORT).is_none() && promised.test().is_none());
    assert!(arriving.wait_timeout(SHORT).is_none() && arriving.test().is_none());
    assert!(object.wait_timeout(SHORT).is_none());
    world.barrier()?;
    promise.keep(me);
    (0..2).try_for_each(|part| filling.part(part)?.ready())?;
    world.send_object(&me, other, 2)?;
    assert_eq!(promised.wait_timeout(LONG).expect("it was kept")?, me);
    assert_eq!(arriving.wait_timeout(LONG).expect("all parts were sent")?, samples::<u64>(other, 0, 400));
    assert_eq!(object.wait_timeout(LONG).expect("it was sent")?.0, other);
    filling.wait_timeout(LONG).expect("all parts are received")?;
    for consumed in [filling.test().expect("consumed"), arriving.test().expect("consumed").map(drop)] {
        assert_eq!(consumed.unwrap_err().class(), ErrorClass::Request);
    }
    let mut duplication = world.idup()?;
    let dup = duplication.wait_timeout(LONG).expect("both ranks have called")?;
    dup.barrier()
}

/// A task must not sleep until such a round completes, because it never would.
#[mpj::test(ranks = 2)]
fn round_with_an_unready_part_has_an_outcome(world: World) -> mpj::Result<()> {
    if world.rank() == 1 {
        let mut arrivals = world.precv_init(vec![0u32; 6], 1, 0, 0)?;
        assert_eq!(arrivals.start()?.wait()?, [7; 6]);
        return Ok(());
    }
    let mut send = world.psend_init(vec![7u32; 6], 3, 1, 0)?;
    let mut filling = send.start()?;
    filling.part(1)?.ready()?;
    let unready = "parts [0, 2] of the round are not ready";
    let error = filling.test().expect("an outcome").unwrap_err();
    assert!(error.class() == ErrorClass::Request && error.to_string().contains(unready), "{error}");
    let awaited = block_on(filling.into_future()).unwrap_err();
    assert!(awaited.to_string().contains(unready), "{awaited}");
    let mut pending = vec![send.resume().expect("the round is active")];
    assert!(mpj::wait_any(&mut pending).expect("an outcome").1.is_err());
    let filling = send.resume().expect("the round is active");
    [0, 2].into_iter().try_for_each(|part| filling.part(part)?.ready())?;
    filling.wait()
}

/// The waker is called only when a part arrives.
#[mpj::test(ranks = 2)]
fn task_sleeps_until_the_next_part_has_arrived(world: World) -> mpj::Result<()> {
    const PARTS: usize = 3;
    let other = 1 - world.rank();
    if world.rank() == 0 {
        let mut send = world.psend_init(samples::<u8>(0, 0, 300), PARTS, other, 0)?;
        let filling = send.start()?;
        for part in 0..PARTS {
            world.recv(&mut [0u8], other, 1)?;
            filling.part(part)?.ready()?;
        }
        return filling.wait();
    }
    let mut recv = world.precv_init(vec![0u8; 300], PARTS, other, 0)?;
    let mut receiving = recv.start()?.into_future();
    for part in 0..PARTS {
        // The handshake, or the previous part, can still arrive.
        let calls = alive(|| {
            loop {
                let (calls, waker) = counter();
                assert!(poll(&mut receiving, &waker).is_pending(), "part {part} was not sent");
                thread::sleep(Duration::from_millis(10));
                if calls.calls() == 0 {
                    break calls;
                }
            }
        });
        world.send(&[part as u8], other, 1)?;
        calls.wait();
    }
    alive(|| {
        loop {
            if let Poll::Ready(items) = poll(&mut receiving, &counter().1) {
                break assert_eq!(items?, samples::<u8>(0, 0, 300));
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    })
}

/// No thread keeps the promise, and only the abort can wake the task.
#[test]
fn aborted_job_wakes_the_future_of_a_promise() {
    let failed = alive(|| {
        threads(2, |world| {
            let (promise, request) = world.promise::<u64>()?;
            if world.rank() == 0 {
                world.recv(&mut [0u8], 1, 0)?;
                world.abort(42, "enough");
                return Ok(());
            }
            let mut future = request.into_future();
            let (calls, waker) = counter();
            assert!(poll(&mut future, &waker).is_pending());
            world.send(&[1u8], 0, 0)?;
            calls.wait();
            assert!(block_on(future).is_err());
            drop(promise);
            Ok::<(), mpj::Error>(())
        })
    });
    assert!(failed.unwrap_err().to_string().contains("enough"));
}
