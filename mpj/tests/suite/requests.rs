//! Pending operations that own their buffers: how they complete, are moved and are dropped.

use std::thread;
use std::time::Duration;

use crate::common::{SIZES, alive, blanks, forget, job, samples};
use mpj::{ANY_SOURCE, ANY_TAG, ErrorClass, Request, World, wait_all, wait_any};

#[mpj::test(ranks = 2)]
fn owned_requests_return_the_buffer(world: World) -> mpj::Result<()> {
    let (me, other) = (world.rank(), 1 - world.rank());
    for len in SIZES {
        let receiving = world.irecv(blanks::<f64>(len), other, 1)?;
        let sending = world.isend(samples::<f64>(me, len, len), other, 1)?;
        let synchronous = world.issend(samples::<f64>(me, 0, len).into_boxed_slice(), other, 2)?;
        let (got, status) = receiving.wait()?;
        assert_eq!((status.source_rank(), status.tag(), status.bytes()), (other, 1, 8 * len));
        assert_eq!(got, samples::<f64>(other, len, len));
        let mut again = blanks::<f64>(len);
        world.recv(&mut again, other, 2)?;
        assert_eq!(again, samples::<f64>(other, 0, len));
        assert_eq!(sending.wait()?.0, samples::<f64>(me, len, len));
        assert_eq!(*synchronous.wait()?.0, samples::<f64>(me, 0, len));
    }
    Ok(())
}

#[mpj::test(ranks = 2)]
fn test_returns_the_outcome_once(world: World) -> mpj::Result<()> {
    if world.rank() == 1 {
        world.recv(&mut [0u8; 0], 0, 1)?; // rank 0 has tested the pending receive
        world.send(&samples::<u32>(1, 0, 9), 0, 0)?;
        return Ok(());
    }
    let mut receiving = world.irecv(vec![0u32; 9], 1, 0)?;
    for _ in 0..100 {
        assert!(receiving.test().is_none(), "nothing was sent yet");
    }
    world.send(&[0u8; 0], 1, 1)?;
    let (got, status) = loop {
        if let Some(outcome) = receiving.test() {
            break outcome?;
        }
    };
    assert_eq!((got, status.bytes()), (samples::<u32>(1, 0, 9), 36));
    let again = receiving.test().expect("the request has completed").unwrap_err();
    assert_eq!(again.error().class(), ErrorClass::Request, "{again}");
    assert!(again.to_string().contains("was returned by an earlier call"), "{again}");
    assert_eq!(receiving.wait().unwrap_err().error().class(), ErrorClass::Request);
    Ok(())
}

#[mpj::test(ranks = 3)]
fn receives_can_be_waited_for_in_reverse_order(world: World) -> mpj::Result<()> {
    let (me, n) = (world.rank(), world.size());
    for len in SIZES {
        let mut receives = Vec::new();
        for from in 0..n {
            for tag in 0..2 {
                receives.push((from, tag, world.irecv(blanks::<u64>(len), from, tag)?));
            }
        }
        let mut sends = Vec::new();
        for to in 0..n {
            for tag in [1, 0] {
                sends.push(world.isend(samples::<u64>(me, to + 5 * tag as usize, len), to, tag)?);
            }
        }
        for (from, tag, receive) in receives.into_iter().rev() {
            assert_eq!(
                receive.wait()?.0,
                samples::<u64>(from, me + 5 * tag as usize, len),
                "from {from}, tag {tag}"
            );
        }
        assert!(wait_all(sends).iter().all(Result::is_ok));
    }
    Ok(())
}

#[mpj::test(ranks = 4)]
fn wait_any_serves_every_sender(world: World) -> mpj::Result<()> {
    const EACH: usize = 200;
    let me = world.rank();
    if me > 0 {
        for at in 0..EACH {
            world.send(&[me, at], 0, 0)?;
        }
        return Ok(());
    }
    let mut open = Vec::new();
    for from in 1..4 {
        open.push(world.irecv([0usize; 2], from, 0)?);
    }
    let mut count = [0usize; 4];
    while let Some((_, outcome)) = wait_any(&mut open) {
        let ([from, at], status) = outcome?;
        assert_eq!((status.source_rank(), count[from]), (from, at));
        count[from] += 1;
        if count[from] < EACH {
            open.push(world.irecv([0usize; 2], from, 0)?);
        }
    }
    assert_eq!(count, [0, EACH, EACH, EACH]);
    assert!(wait_any::<Request<[usize; 2]>>(&mut Vec::new()).is_none());
    Ok(())
}

#[mpj::test(ranks = 2)]
fn cancelled_and_dropped_receives_take_no_message(world: World) -> mpj::Result<()> {
    let other = 1 - world.rank();
    let cancelled = world.irecv(vec![7u8; 100], other, 0)?;
    assert!(cancelled.cancel());
    assert!(!cancelled.cancel(), "a receive can be cancelled only once");
    let failed = cancelled.wait().expect_err("cancelled");
    assert_eq!(failed.error().class(), ErrorClass::Request);
    assert_eq!(failed.into_parts().1, Some(vec![7u8; 100]), "the buffer comes back untouched");
    drop(world.irecv([0u8; 100], ANY_SOURCE, ANY_TAG)?);
    world.barrier()?;
    world.send(&[world.rank() as u8 + 5], other, 0)?;
    let mut got = [0u8];
    world.recv(&mut got, other, 0)?;
    assert_eq!(got, [other as u8 + 5], "the only remaining receive gets the message");
    let done = world.irecv([0u8; 1], other, 1)?;
    world.send(&[9u8], other, 1)?;
    world.barrier()?;
    assert!(!done.cancel(), "a matched receive cannot be cancelled");
    assert_eq!(done.wait()?.0, [9]);
    Ok(())
}

#[mpj::test(ranks = 2)]
fn dropped_send_completes(world: World) -> mpj::Result<()> {
    for len in SIZES {
        if world.rank() == 0 {
            drop(world.isend(samples::<i64>(0, 3, len), 1, 0)?);
            drop(world.issend(samples::<i64>(0, 4, len), 1, 0)?);
            assert!(!world.isend([1u8], 1, 1)?.cancel(), "sends cannot be cancelled");
        } else {
            let mut got = blanks::<i64>(len);
            for from in [3, 4] {
                world.recv(&mut got, 0, 0)?;
                assert_eq!(got, samples::<i64>(0, from, len));
            }
            world.recv(&mut [0u8], 0, 1)?;
        }
    }
    world.barrier()
}

/// A receive whose request was forgotten still writes to its buffer, which is never freed. Other memory is not changed.
#[mpj::test(ranks = 2)]
fn forgotten_requests_only_leak(world: World) -> mpj::Result<()> {
    let other = 1 - world.rank();
    for len in SIZES {
        for _ in 0..4 {
            forget(world.irecv(vec![0u8; len], other, 0)?);
        }
        let untouched: Vec<Vec<u8>> = (0..16).map(|_| vec![0xAA; len]).collect();
        world.barrier()?;
        for _ in 0..4 {
            forget(world.isend(vec![0x55u8; len], other, 0)?);
        }
        let freed: Vec<Vec<u8>> = (0..16).map(|_| vec![0xBB; len]).collect();
        drop(freed);
        world.sendrecv(&[0u8], other, 1, &mut [0u8], other, 1)?;
        world.barrier()?;
        assert!(untouched.iter().flatten().all(|byte| *byte == 0xAA));
    }
    Ok(())
}

#[mpj::test(ranks = 2)]
fn requests_can_be_waited_for_on_other_threads(world: World) -> mpj::Result<()> {
    type Pair = (Request<Vec<u32>>, Request<Vec<u32>>);
    let (me, other) = (world.rank(), 1 - world.rank());
    let start = |tag: i32| -> mpj::Result<Pair> {
        let receiving = world.irecv(blanks::<u32>(60_000), other, tag)?;
        Ok((receiving, world.isend(samples::<u32>(me, tag as usize, 60_000), other, tag)?))
    };
    let pairs = (0..4).map(start).collect::<mpj::Result<Vec<_>>>()?;
    let waiters: Vec<_> = pairs
        .into_iter()
        .map(|(receiving, sending)| {
            thread::spawn(move || (receiving.wait().map(|r| r.0), sending.wait().map(|s| s.0)))
        })
        .collect();
    for (tag, waiter) in waiters.into_iter().enumerate() {
        let (got, sent) = waiter.join().expect("does not panic");
        assert_eq!(got?, samples::<u32>(other, tag, 60_000));
        assert_eq!(sent?, samples::<u32>(me, tag, 60_000));
    }
    let mut lent = blanks::<u32>(60_000);
    let mine = samples::<u32>(me, 1, 60_000);
    world.scope(|s| {
        let (receiving, sending) = (s.irecv(&mut lent, other, 0)?, s.isend(&mine, other, 0)?);
        thread::scope(|t| {
            let one = t.spawn(move || receiving.wait().map(|(got, _)| got[0]));
            t.spawn(move || sending.wait()).join().expect("does not panic")?;
            assert_eq!(one.join().expect("does not panic")?, samples::<u32>(other, 1, 1)[0]);
            Ok::<(), mpj::Error>(())
        })
    })
}

#[test]
fn requests_outlive_their_world() {
    let outcomes = job(2, |world| {
        let other = 1 - world.rank();
        let never = world.irecv([0u8; 8], other, 0)?;
        let sent = world.isend([world.rank() as u8; 4], other, 7)?;
        world.recv(&mut [0u8; 4], other, 7)?;
        Ok::<_, mpj::Error>((never, sent))
    });
    for (never, sent) in outcomes.expect("no rank fails") {
        thread::sleep(Duration::from_millis(5));
        assert!(alive(|| never.wait()).is_err(), "a pending receive fails when its rank leaves");
        assert!(alive(|| sent.wait()).is_ok());
    }
}
