//! Sets of requests: order, keys, time limits, failures, and references to operations of several types.

use std::time::Duration;

use mpj::{ErrorClass, Op, Request, RequestRef, RequestSet, Waitable, World, coll};

use crate::common::{job, ranks, samples};

#[mpj::test(ranks = 2)]
fn operations_are_returned_as_they_complete(world: World) -> mpj::Result<()> {
    const COUNT: i32 = 1000;
    let other = 1 - world.rank();
    if world.rank() == 1 {
        // Each message is sent after the previous one was returned.
        for at in 0..COUNT {
            let tag = (at * 37) % COUNT;
            world.send(&[tag, at], 0, tag)?;
            world.recv(&mut [0u8; 0], 0, COUNT)?;
        }
        return Ok(());
    }
    let mut set = RequestSet::new();
    for tag in 0..COUNT {
        set.insert(tag, world.irecv([0i32; 2], other, tag)?);
    }
    for at in 0..COUNT {
        let (key, outcome) = set.wait_next().expect("operations are pending");
        assert_eq!((outcome?.0, key), ([(at * 37) % COUNT, at], (at * 37) % COUNT));
        assert_eq!(set.len(), (COUNT - 1 - at) as usize);
        world.send(&[0u8; 0], 1, COUNT)?;
    }
    assert!(set.is_empty() && set.wait_next().is_none() && set.test_next().is_none());
    Ok(())
}

#[mpj::test(ranks = 3)]
fn operations_are_added_while_others_are_pending(world: World) -> mpj::Result<()> {
    const EACH: usize = 300;
    let me = world.rank();
    if me > 0 {
        for at in 0..EACH {
            world.send(&samples::<u32>(me, at, if at % 50 == 0 { 20_000 } else { 4 }), 0, 0)?;
        }
        return Ok(());
    }
    let mut set = RequestSet::new();
    let next = |set: &mut RequestSet<usize, Request<Vec<u32>>>, from| {
        set.insert(from, world.irecv(vec![0; 20_000], from, 0)?);
        Ok::<(), mpj::Error>(())
    };
    next(&mut set, 1)?;
    next(&mut set, 2)?;
    let mut count = [0; 3];
    while !set.is_empty() {
        let Some((from, outcome)) = set.test_next() else { continue };
        let (got, status) = outcome?;
        let len = status.bytes() / 4;
        assert_eq!(got[..len], samples::<u32>(from, count[from], len));
        count[from] += 1;
        if count[from] < EACH {
            next(&mut set, from)?;
        }
    }
    assert_eq!(count, [0, EACH, EACH]);
    Ok(())
}

#[mpj::test(ranks = 2)]
fn references_to_several_types_share_a_set(world: World) -> mpj::Result<()> {
    let (me, other) = (world.rank(), 1 - world.rank());
    let text = world.irecv(vec!['?'; 3], other, 0)?;
    let sum = world.start(coll::allreduce([me as u32 + 1], [0u32], Op::Sum))?;
    let sent = world.isend(['a', 'b', 'c'], other, 0)?;
    let mut total = world.prepare(coll::allreduce([me as u64], [0u64], Op::Max))?;
    let active = total.start()?;
    let mut into = [0u8; 2];
    world.scope(|s| {
        let (receiving, sending) = (s.irecv(&mut into, other, 1)?, s.isend(&[1u8, 2], other, 1)?);
        let mut set: RequestSet<&str, RequestRef<'_>> = RequestSet::default();
        set.insert("text", text.request_ref());
        set.insert("sum", sum.request_ref());
        set.insert("sent", sent.request_ref());
        set.insert("active", active.request_ref());
        set.insert("receiving", receiving.request_ref());
        set.insert("sending", sending.request_ref());
        let mut keys = Vec::new();
        for (key, outcome) in set.drain() {
            outcome?;
            keys.push(key);
        }
        keys.sort_unstable();
        assert_eq!(keys, ["active", "receiving", "sending", "sent", "sum", "text"]);
        drop(set);
        receiving.wait().map(drop)
    })?;
    assert_eq!((text.wait()?.0, sum.wait()?.0.1, into), (vec!['a', 'b', 'c'], [3], [1, 2]));
    assert_eq!(active.wait()?.1, [1]);
    sent.wait()?;
    Ok(())
}

/// A completed operation notifies one set; the other one must not wait for ever.
#[mpj::test(ranks = 2)]
fn two_sets_may_refer_to_one_operation(world: World) -> mpj::Result<()> {
    let other = 1 - world.rank();
    let receiving = world.irecv([0u8], other, 0)?;
    let (mut one, mut two) = (RequestSet::new(), RequestSet::new());
    one.insert(1, receiving.request_ref());
    assert!(one.test_next().is_none());
    two.insert(2, receiving.request_ref());
    assert!(two.test_next().is_none());
    world.barrier()?;
    world.send(&[1u8], other, 0)?;
    assert_eq!(one.wait_next().expect("one is pending").0, 1);
    assert_eq!(two.wait_next().expect("one is pending").0, 2);
    drop((one, two));
    assert_eq!(receiving.wait()?.0, [1]);
    Ok(())
}

#[mpj::test(ranks = 2)]
fn timed_wait_returns_none_and_keeps_the_operations(world: World) -> mpj::Result<()> {
    let other = 1 - world.rank();
    let mut set = RequestSet::new();
    assert!(set.wait_next_timeout(Duration::from_secs(100)).is_none(), "an empty set returns at once");
    set.insert((), world.irecv([0u8], other, 0)?);
    for limit in [0, 1, 20] {
        assert!(set.wait_next_timeout(Duration::from_millis(limit)).is_none());
        assert_eq!(set.len(), 1);
    }
    world.barrier()?;
    world.send(&[9u8], other, 0)?;
    let (_, outcome) = set.wait_next_timeout(Duration::from_secs(100)).expect("a message was sent");
    assert_eq!(outcome?.0, [9]);
    Ok(())
}

#[mpj::test(ranks = 2)]
fn dropped_set_cancels_its_receives(world: World) -> mpj::Result<()> {
    let other = 1 - world.rank();
    let mut set = RequestSet::new();
    for at in 0..100 {
        set.insert(at, world.irecv([0u8], other, 0)?);
    }
    assert!(set.test_next().is_none());
    drop(set);
    world.barrier()?;
    world.send(&[4u8], other, 0)?;
    let mut got = [0u8];
    world.recv(&mut got, other, 0)?;
    assert_eq!(got, [4]);
    Ok(())
}

#[test]
fn failed_operations_are_returned_with_their_keys() {
    let failed = job(3, |world| {
        if world.rank() == 2 {
            // Wait until the other ranks have posted their receives and cancelled one of them.
            for other in [0, 1] {
                world.recv(&mut [0u8; 0], other, 2).expect("alive");
            }
            return Err("no input".to_owned());
        }
        let mut set = RequestSet::new();
        let cancelled = world.irecv([0u8], 1, 1).expect("alive");
        assert!(cancelled.cancel());
        set.insert("cancelled", cancelled);
        set.insert("dead", world.irecv([0u8], 2, 0).expect("alive"));
        world.send(&[0u8; 0], 2, 2).expect("alive");
        let mut ended: Vec<_> = set.drain().map(|(key, outcome)| (key, outcome.unwrap_err())).collect();
        ended.sort_by_key(|(key, _)| *key);
        assert_eq!((ended[0].0, ended[0].1.error().class()), ("cancelled", ErrorClass::Request));
        assert_eq!((ended[1].0, ended[1].1.error().failed_rank()), ("dead", Some(2)));
        Ok(())
    });
    assert_eq!(failed.unwrap_err().rank(), 2);
}

#[test]
fn two_sets_wait_for_the_same_operations() {
    const COUNT: usize = 200;
    ranks(2, |world| {
        let other = 1 - world.rank();
        for round in 0..20 {
            let mut receives = Vec::new();
            for tag in 0..COUNT {
                receives.push(world.irecv([0usize], other, tag as i32)?);
            }
            std::thread::scope(|threads| {
                for _ in 0..2 {
                    threads.spawn(|| {
                        let mut set = RequestSet::new();
                        for (tag, receive) in receives.iter().enumerate() {
                            set.insert(tag, receive.request_ref());
                        }
                        assert_eq!(set.drain().count(), COUNT);
                    });
                }
                for tag in 0..COUNT {
                    std::thread::yield_now();
                    world.send(&[tag + round], other, tag as i32)?;
                }
                Ok::<(), mpj::Error>(())
            })?;
            for (tag, receive) in receives.into_iter().enumerate() {
                assert_eq!(receive.wait()?.0, [tag + round]);
            }
        }
        Ok(())
    });
}

/// Both sets register for the same operation. They must not wake each other endlessly, or prolong each other's wait.
#[mpj::test(ranks = 2)]
fn waits_of_two_sets_for_one_operation_end_in_time(world: World) -> mpj::Result<()> {
    let receiving = world.irecv([0u8], 1 - world.rank(), 0)?;
    for _ in 0..20 {
        std::thread::scope(|threads| {
            for _ in 0..2 {
                threads.spawn(|| {
                    let mut set = RequestSet::new();
                    set.insert((), receiving.request_ref());
                    assert!(set.wait_next_timeout(Duration::from_millis(10)).is_none());
                });
            }
        });
    }
    assert!(receiving.cancel());
    world.barrier()
}
