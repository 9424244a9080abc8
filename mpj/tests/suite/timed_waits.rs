//! Waits with a time limit: their results, their duration, and the operations that stay usable.

use std::time::{Duration, Instant};

use mpj::{ErrorClass, Op, Request, Waitable, World, coll, wait_all_timeout, wait_any_timeout};

use crate::common::{blanks, job, samples};

const SHORT: Duration = Duration::from_millis(20);
/// A limit that no test reaches.
const LONG: Duration = Duration::from_secs(100);

/// Calls `wait`, which must last at least [`SHORT`] and less than 20 s.
fn late<T>(wait: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    let value = wait();
    let waited = began.elapsed();
    assert!(waited >= SHORT, "returned after {waited:?}");
    assert!(waited < Duration::from_secs(20), "returned after {waited:?}");
    value
}

#[mpj::test(ranks = 2)]
fn late_request_stays_usable(world: World) -> mpj::Result<()> {
    let (me, other) = (world.rank(), 1 - world.rank());
    let mut receiving = world.irecv(blanks::<u32>(50_000), other, 1)?;
    for _ in 0..3 {
        assert!(late(|| receiving.wait_timeout(SHORT)).is_none());
    }
    assert!(receiving.wait_timeout(Duration::ZERO).is_none());
    world.barrier()?;
    let mut sending = world.issend(samples::<u32>(me, 3, 50_000), other, 1)?;
    let (got, status) = receiving.wait_timeout(LONG).expect("a message was sent")?;
    assert_eq!((got, status.bytes()), (samples::<u32>(other, 3, 50_000), 200_000));
    assert_eq!(
        sending.wait_timeout(Duration::MAX).expect("it was received")?.0,
        samples::<u32>(me, 3, 50_000)
    );
    let again = receiving.wait_timeout(LONG).expect("complete").unwrap_err();
    assert_eq!(again.error().class(), ErrorClass::Request);
    Ok(())
}

#[mpj::test(ranks = 2)]
fn late_scoped_and_persistent_requests_stay_usable(world: World) -> mpj::Result<()> {
    let (me, other) = (world.rank(), 1 - world.rank());
    let mut into = [0u64; 9];
    world.scope(|s| {
        let mut receiving = s.irecv(&mut into, other, 0)?;
        assert!(late(|| receiving.wait_timeout(SHORT)).is_none());
        world.barrier()?;
        let mut sending = s.issend(&[7u64; 9], other, 0)?;
        assert_eq!(receiving.wait_timeout(LONG).expect("sent")?.0, &[7; 9]);
        sending.wait_timeout(LONG).expect("received").map(drop)
    })?;
    let mut sum = world.prepare(coll::allreduce([me as u32 + 1], [0u32], Op::Sum))?;
    if me == 1 {
        world.recv(&mut [0u8], 0, 5)?;
    }
    let mut active = sum.start()?;
    if me == 0 {
        assert!(late(|| active.wait_timeout(SHORT)).is_none(), "rank 1 waits for a message");
        world.send(&[0u8], 1, 5)?;
    }
    assert_eq!(active.wait_timeout(LONG).expect("both have started")?.1, [3]);
    assert_eq!(active.wait().unwrap_err().class(), ErrorClass::Request);
    Ok(())
}

#[mpj::test(ranks = 3)]
fn timed_wait_for_any_returns_one_or_none(world: World) -> mpj::Result<()> {
    let me = world.rank();
    if me > 0 {
        world.recv(&mut [0u8; 0], 0, 1)?;
        return world.send(&[me as u8], 0, 0);
    }
    let mut open = vec![world.irecv([0u8], 1, 0)?, world.irecv([0u8], 2, 0)?];
    assert!(late(|| wait_any_timeout(&mut open, SHORT)).is_none());
    assert_eq!(open.len(), 2);
    world.send(&[0u8; 0], 2, 1)?;
    let (index, outcome) = wait_any_timeout(&mut open, LONG).expect("rank 2 has sent");
    assert_eq!((index, outcome?.0, open.len()), (1, [2], 1));
    assert!(late(|| wait_any_timeout(&mut open, SHORT)).is_none());
    world.send(&[0u8; 0], 1, 1)?;
    assert_eq!(wait_any_timeout(&mut open, LONG).expect("rank 1 has sent").1?.0, [1]);
    assert!(wait_any_timeout(&mut open, LONG).is_none(), "an empty list returns at once");
    Ok(())
}

#[mpj::test(ranks = 3)]
fn timed_wait_for_all_returns_the_completed_ones(world: World) -> mpj::Result<()> {
    let me = world.rank();
    if me > 0 {
        if me == 2 {
            world.recv(&mut [0u8; 0], 0, 1)?;
        }
        return world.send(&[me as u8], 0, 0);
    }
    let mut open: Vec<Request<[u8; 1]>> = Vec::new();
    for from in [2, 1, 2] {
        open.push(world.irecv([0u8], from, if open.len() == 2 { 1 } else { 0 })?);
    }
    let mut done = Vec::new();
    while done.is_empty() {
        done = late(|| wait_all_timeout(&mut open, SHORT));
    }
    let (index, outcome) = done.pop().expect("rank 1 has sent");
    assert_eq!((index, outcome?.0, open.len(), done.len()), (1, [1], 2, 0));
    world.send(&[0u8; 0], 2, 1)?;
    drop(open.pop());
    let done = wait_all_timeout(&mut open, LONG);
    assert_eq!((done.len(), open.len()), (1, 0));
    assert!(wait_all_timeout(&mut open, LONG).is_empty());
    Ok(())
}

#[test]
fn timed_wait_reports_a_dead_peer() {
    let failed = job(2, |world| {
        if world.rank() == 1 {
            return Err("no input".to_owned());
        }
        let mut receiving = world.irecv([0u8; 4], 1, 0).map_err(|e| e.to_string())?;
        let failed = receiving.wait_timeout(LONG).expect("the peer has died").unwrap_err();
        assert_eq!(failed.error().failed_rank(), Some(1), "{failed}");
        assert_eq!(failed.into_parts().1, Some([0; 4]));
        Ok(())
    });
    assert_eq!(failed.unwrap_err().rank(), 1);
}

#[mpj::test(ranks = 2)]
fn references_wait_with_a_limit(world: World) -> mpj::Result<()> {
    let other = 1 - world.rank();
    let receiving = world.irecv([0u8; 3], other, 0)?;
    let mut one = receiving.request_ref();
    assert!(late(|| Waitable::wait_timeout(&mut one, SHORT)).is_none());
    world.barrier()?;
    world.send(&[1u8, 2, 3], other, 0)?;
    assert_eq!(Waitable::wait_timeout(&mut one, LONG).expect("sent")?.bytes(), 3);
    assert_eq!(receiving.wait()?.0, [1, 2, 3]);
    Ok(())
}
