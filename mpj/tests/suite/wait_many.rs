//! Waits for several operations at once, even of different types and of two ranks.

use std::sync::mpsc;

use crate::common::{SIZES, alive, blanks, job, samples};
use mpj::{Waitable, World, test_all, test_any, test_some, wait_all, wait_any, wait_some};

#[mpj::test(ranks = 2)]
fn request_refs_wait_for_different_buffers(world: World) -> mpj::Result<()> {
    let (me, other) = (world.rank(), 1 - world.rank());
    for len in SIZES {
        let mut borrowed = blanks::<u8>(len);
        let mine = samples::<u8>(me, 7, len);
        world.scope(|s| {
            let floats = world.irecv(blanks::<f64>(len), other, 1)?;
            let words = world.irecv(Box::new([0u16; 5]), other, 2)?;
            let bytes = s.irecv(&mut borrowed, other, 3)?;
            let sends = [
                world.isend(samples::<f64>(me, 0, len), other, 1)?.request_ref().wait().map(|_| ()),
                world.send(&[me as u16; 5], other, 2),
            ];
            let sent = s.issend(&mine, other, 3)?;
            let mut open =
                vec![floats.request_ref(), words.request_ref(), bytes.request_ref(), sent.request_ref()];
            let mut seen = 0;
            while let Some((place, outcome)) = wait_any(&mut open) {
                assert!(place <= open.len());
                outcome?;
                seen += 1;
            }
            assert_eq!(seen, 4);
            assert!(format!("{:?}", floats.request_ref()).contains("complete"));
            assert_eq!(floats.wait()?.0, samples::<f64>(other, 0, len));
            assert_eq!(*words.wait()?.0, [other as u16; 5]);
            assert_eq!(bytes.wait()?.0.as_slice(), samples::<u8>(other, 7, len));
            sends.into_iter().collect::<mpj::Result<()>>()
        })?;
        world.barrier()?;
    }
    Ok(())
}

#[mpj::test(ranks = 3)]
fn wait_some_returns_former_indices(world: World) -> mpj::Result<()> {
    const EACH: usize = 50;
    let me = world.rank();
    if me > 0 {
        for at in 0..EACH {
            world.send(&[me, at], 0, at as i32)?;
        }
        return Ok(());
    }
    let mut buffers = vec![[0usize; 2]; 2 * EACH];
    world.scope(|s| {
        let (mut open, mut names) = (Vec::new(), Vec::new());
        for (at, buffer) in buffers.iter_mut().enumerate() {
            open.push(s.irecv(buffer, 1 + at % 2, (at / 2) as i32)?);
            names.push(at);
        }
        let mut completed = test_some(&mut open);
        while !open.is_empty() || !completed.is_empty() {
            for (place, outcome) in completed.iter_mut().rev().map(|(place, outcome)| (*place, outcome)) {
                let at = names.remove(place);
                let (buffer, status) = outcome.as_mut().expect("arrives");
                assert_eq!((**buffer, status.source_rank()), ([1 + at % 2, at / 2], 1 + at % 2));
            }
            assert_eq!(names.len(), open.len());
            completed = wait_some(&mut open);
        }
        Ok(())
    })
}

#[mpj::test(ranks = 2)]
fn test_all_completes_all_requests_or_none(world: World) -> mpj::Result<()> {
    let other = 1 - world.rank();
    let mut open = vec![world.irecv([0u8; 1], other, 1)?, world.irecv([0u8; 1], other, 2)?];
    assert!(test_any(&mut open).is_none() && test_some(&mut open).is_empty());
    assert!(test_all(&mut open).is_none(), "nothing was sent");
    assert_eq!(open.len(), 2);
    world.barrier()?;
    world.send(&[20u8], other, 2)?;
    let (place, outcome) = loop {
        if let Some(ended) = test_any(&mut open) {
            break ended;
        }
    };
    assert_eq!((place, outcome?.0), (1, [20]));
    world.barrier()?; // both ranks have completed the receive with tag 2
    world.send(&[10u8], other, 1)?;
    let all = loop {
        if let Some(all) = test_all(&mut open) {
            break all;
        }
    };
    assert!(open.is_empty());
    assert_eq!(all.into_iter().map(|outcome| outcome.map(|o| o.0)).collect::<Result<Vec<_>, _>>()?, [[10]]);
    assert!(test_any::<mpj::Request<u8>>(&mut Vec::new()).is_none());
    assert!(wait_some::<mpj::RequestRef<'_>>(&mut Vec::new()).is_empty());
    assert!(test_all(&mut Vec::<mpj::ScopedSend<'_>>::new()).is_some_and(|all| all.is_empty()));
    Ok(())
}

#[mpj::test(ranks = 2)]
fn failures_are_returned_at_their_indices(world: World) -> mpj::Result<()> {
    let other = 1 - world.rank();
    let receives = [world.irecv(vec![0u8; 4], other, 1)?, world.irecv(vec![0u8; 2], other, 2)?];
    let cancelled = world.irecv([9u8; 4], other, 3)?;
    assert!(cancelled.cancel());
    world.send(&[5u8; 4], other, 1)?;
    world.send(&[6u8; 4], other, 2)?;
    let classes = |watch: mpj::RequestRef<'_>| watch.wait().map_err(|e| e.class());
    assert_eq!(classes(cancelled.request_ref()), Err(mpj::ErrorClass::Request));
    let outcomes: Vec<_> = wait_all(receives.iter().map(Waitable::request_ref).collect());
    assert_eq!(outcomes[0].as_ref().map(|s| s.bytes()).ok(), Some(4));
    assert_eq!(outcomes[1].as_ref().unwrap_err().class(), mpj::ErrorClass::Truncate);
    Ok(())
}

/// The thread of rank 1 makes no progress, so the thread of rank 0, which waits for rank 1's requests, must do so.
#[test]
fn wait_all_accepts_requests_of_two_ranks() {
    type Requests = Vec<mpj::Request<Vec<u32>>>;
    let (give, take) = mpsc::channel::<Requests>();
    let (end, ended) = mpsc::channel::<()>();
    let (take, ended) = (std::sync::Mutex::new(take), std::sync::Mutex::new(ended));
    const LONG: usize = 300_000;
    let outcome = alive(|| {
        mpj::threads(2, |world| {
            if world.rank() == 1 {
                let receives = [0, 1, 2].map(|tag| world.irecv(blanks::<u32>(LONG), 0, tag));
                give.send(receives.into_iter().collect::<mpj::Result<_>>()?).expect("rank 0 listens");
                ended.lock().expect("only here").recv().expect("rank 0 says so");
                return Ok(());
            }
            let never = world.irecv(blanks::<u32>(LONG), 1, 9)?;
            let theirs = take.lock().expect("only here").recv().expect("rank 1 gives them");
            let mut sends = Vec::new();
            for tag in 0..3 {
                sends.push(world.isend(samples::<u32>(0, tag as usize, LONG), 1, tag)?);
            }
            let mut open = vec![never.request_ref()];
            open.extend(theirs.iter().map(Waitable::request_ref));
            assert_eq!(wait_any(&mut open).map(|(place, outcome)| (place, outcome.is_ok())), Some((1, true)));
            let mut all: Requests = sends;
            all.extend(theirs);
            let outcomes = wait_all(all);
            for (tag, outcome) in outcomes.into_iter().skip(3).enumerate() {
                assert_eq!(outcome?.0, samples::<u32>(0, tag, LONG));
            }
            assert!(never.cancel());
            end.send(()).expect("rank 1 listens");
            Ok::<(), mpj::Error>(())
        })
    });
    outcome.expect("no rank fails");
}

#[test]
fn exit_of_a_rank_ends_every_wait() {
    let error = job(2, |world| {
        let mut open: Vec<mpj::Request<[u8; 1]>> = Vec::new();
        if world.rank() == 1 {
            return Err("leaves early".to_string());
        }
        for tag in 0..3 {
            open.push(world.irecv([0u8; 1], 1, tag).map_err(|e| e.to_string())?);
        }
        let outcomes = wait_some(&mut open);
        assert!(!outcomes.is_empty() && outcomes.iter().all(|(_, outcome)| outcome.is_err()));
        assert!(wait_all(open).iter().all(Result::is_err));
        Ok(())
    });
    assert_eq!(error.expect_err("rank 1 failed").rank(), 1);
}

/// The messages are long, so they complete only if both ranks make progress.
#[mpj::test(ranks = 2)]
fn loop_on_test_ends_when_the_operation_completes(world: World) -> mpj::Result<()> {
    const LEN: usize = 1 << 20;
    let other = 1 - world.rank();
    let received = world.irecv(vec![0u8; LEN], other, 0)?;
    let sent = world.issend(vec![7u8; LEN], other, 0)?;
    let limit = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !(received.request_ref().poll_complete() && sent.request_ref().poll_complete()) {
        assert!(std::time::Instant::now() < limit, "the loop makes no progress");
    }
    let (bytes, _) = received.wait()?;
    assert!(bytes == vec![7u8; LEN]);
    sent.wait()?;
    Ok(())
}
