//! Sets of requests: order, keys, time limits, failures, and references to operations of several types.

use std::cell::Cell;
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

/// Counts how often the set uses the operation.
struct Counted<'c, O>(O, &'c Cell<usize>);

impl<O: Waitable> Waitable for Counted<'_, O> {
    type Outcome = O::Outcome;

    fn wait(self) -> Self::Outcome {
        self.0.wait()
    }

    fn test(&mut self) -> Option<Self::Outcome> {
        self.0.test()
    }

    fn request_ref(&self) -> RequestRef<'_> {
        self.1.set(self.1.get() + 1);
        self.0.request_ref()
    }
}

#[mpj::test(ranks = 2)]
fn completed_operation_is_found_without_polling_the_others(world: World) -> mpj::Result<()> {
    const PENDING: i32 = 1000;
    let tags = (0..100).map(|at| (at * 37) % PENDING);
    if world.rank() == 1 {
        for tag in tags {
            world.send(&[tag, -tag], 0, tag)?;
            world.recv(&mut [0u8; 0], 0, PENDING)?;
        }
        return Ok(());
    }
    // If the system refuses the fence, a set polls all its operations.
    let polls_all = !mpj_devices::fence_listeners();
    let uses = Cell::new(0);
    let mut set = RequestSet::new();
    for tag in 0..PENDING {
        set.insert(tag, Counted(world.irecv([0i32; 2], 1, tag)?, &uses));
    }
    for (at, tag) in tags.enumerate() {
        let (key, outcome) = set.wait_next().expect("operations are pending");
        assert_eq!((outcome?.0, key), ([tag, -tag], tag));
        // The first wait registers all operations. Later waits use the completed one, and a pending one for reports.
        assert!(at == 0 || polls_all || uses.get() <= 10, "{} uses", uses.get());
        uses.set(0);
        assert!(set.test_next().is_none(), "the others are pending");
        assert!(polls_all || uses.get() == 0, "{} uses", uses.get());
        uses.set(0);
        world.send(&[0u8; 0], 1, PENDING)?;
    }
    assert_eq!(set.len(), 900);
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
    let (object, sent_object) =
        (world.irecv_object::<String>(other, 2)?, world.isend_object("object", other, 2)?);
    let twin = world.idup()?;
    let (promise, promised) = world.promise::<usize>()?;
    let (mut filled, mut parts) =
        (world.psend_init([me as u16; 4], 2, other, 3)?, world.precv_init([9u16; 4], 4, other, 3)?);
    let arriving = parts.start()?;
    let mut persistent = world.recv_init([0usize; 1], other, 4)?;
    let received = persistent.start()?;
    let mut into = [0u8; 2];
    world.scope(|s| {
        let (receiving, sending) = (s.irecv(&mut into, other, 1)?, s.isend(&[1u8, 2], other, 1)?);
        let mut set: RequestSet<&str, RequestRef<'_>> = RequestSet::default();
        set.insert("text", text.request_ref());
        set.insert("sum", sum.request_ref());
        set.insert("sent", sent.request_ref());
        set.insert("active", active.request_ref());
        set.insert("object", object.request_ref());
        set.insert("sent object", sent_object.request_ref());
        set.insert("duplicate", twin.request_ref());
        set.insert("promise", promised.request_ref());
        set.insert("parts", arriving.request_ref());
        set.insert("message", received.request_ref());
        set.insert("receiving", receiving.request_ref());
        set.insert("sending", sending.request_ref());
        let mut keys = Vec::new();
        while keys.len() < 9 {
            let (key, outcome) = set.wait_next().expect("nine need nothing more");
            outcome?;
            keys.push(key);
        }
        assert!(set.test_next().is_none(), "the parts, the promise and the message are pending");
        world.barrier()?;
        promise.keep(me + 20);
        let filling = filled.start()?;
        (0..2).try_for_each(|part| filling.part(part)?.ready())?;
        filling.wait()?;
        world.send(&[me + 40], other, 4)?;
        for (key, outcome) in set.drain() {
            outcome?;
            keys.push(key);
        }
        keys[9..].sort_unstable();
        assert_eq!(keys[9..], ["message", "parts", "promise"]);
        keys[..9].sort_unstable();
        let expected =
            ["active", "duplicate", "object", "receiving", "sending", "sent", "sent object", "sum", "text"];
        assert_eq!(keys[..9], expected);
        drop(set);
        receiving.wait().map(drop)
    })?;
    assert_eq!((text.wait()?.0, sum.wait()?.0.1, into), (vec!['a', 'b', 'c'], [3], [1, 2]));
    assert_eq!((active.wait()?.1, received.wait()?), ([1], &mut [other + 40]));
    assert_eq!((object.wait()?.0.as_str(), promised.wait()?), ("object", me + 20));
    assert_eq!(arriving.wait()?, [other as u16; 4]);
    assert_eq!(twin.wait()?.allgather_value(me)?, [0, 1]);
    sent_object.wait()?;
    sent.wait()?;
    Ok(())
}

#[mpj::test(ranks = 2)]
fn set_returns_the_values_of_its_operations(world: World) -> mpj::Result<()> {
    let (me, other) = (world.rank(), 1 - world.rank());
    let (mut objects, mut twins, mut promised) = (RequestSet::new(), RequestSet::new(), RequestSet::new());
    let mut sends = Vec::new();
    for tag in 0..3 {
        objects.insert(tag, world.irecv_object::<(usize, String)>(other, tag)?);
        sends.push(world.isend_object(&(me, format!("number {tag}")), other, tag)?);
        twins.insert(tag, world.idup()?);
        let (promise, request) = world.promise::<(usize, i32)>()?;
        promised.insert(tag, request);
        std::thread::spawn(move || promise.keep((me, tag)));
    }
    for (tag, outcome) in objects.drain() {
        assert_eq!(outcome?.0, (other, format!("number {tag}")));
    }
    let mut comms: Vec<_> = twins.drain().collect();
    comms.sort_by_key(|(tag, _)| *tag);
    for (tag, comm) in comms {
        assert_eq!(comm?.allgather_value((10 * me) as i32 + tag)?, [tag, 10 + tag]);
    }
    for (tag, outcome) in promised.drain() {
        assert_eq!(outcome?, (me, tag));
    }
    for sent in mpj::wait_all(sends) {
        sent?;
    }
    let new = |tag: i32| world.precv_init([9usize; 2], 2, other, tag);
    let (mut recvs, mut parts) = ([new(10)?, new(11)?], RequestSet::new());
    for (tag, recv) in (10..).zip(&mut recvs) {
        parts.insert(tag, recv.start()?);
        let mut send = world.psend_init([me, tag], 2, other, tag as i32)?;
        let filling = send.start()?;
        (0..2).try_for_each(|part| filling.part(part)?.ready())?;
        filling.wait()?;
    }
    for (tag, outcome) in parts.drain() {
        assert_eq!(outcome?, [other, tag]);
    }
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
