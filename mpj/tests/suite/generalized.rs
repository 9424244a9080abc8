//! Generalized requests and promises, and the cancellation of receives.
#![expect(unsafe_code, reason = "a raw receive, whose buffer outlives it")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::ranks;
use mpj::raw::{self, Buf, CancelHook, GeneralizedHooks, QueryHook};
use mpj::{Error, ErrorClass, Status, Waitable};

#[test]
fn promise_wakes_the_waiting_thread() {
    ranks(2, |world| {
        for delay in [0, 1, 20] {
            let (promise, request) = world.promise::<String>()?;
            thread::scope(|scope| {
                scope.spawn(move || {
                    thread::sleep(Duration::from_millis(delay));
                    promise.keep(format!("after {delay} ms"));
                });
                assert_eq!(request.wait()?, format!("after {delay} ms"));
                Ok::<(), Error>(())
            })?;
        }
        Ok(())
    });
}

/// No thread keeps the promise.
#[test]
fn promise_fails_when_the_job_is_aborted() {
    let failed = mpj::threads(2, |world| {
        let (promise, request) = world.promise::<u64>()?;
        if world.rank() == 0 {
            world.recv(&mut [0u8], 1, 0)?;
            world.abort(42, "enough");
            assert!(request.wait().is_err());
            return Ok(());
        }
        let receiving = world.irecv([0u8], 0, 1)?;
        world.send(&[1u8], 0, 0)?;
        let refs = vec![request.request_ref(), receiving.request_ref()];
        let outcomes = mpj::wait_all(refs);
        assert!(outcomes.iter().all(Result::is_err), "{outcomes:?}");
        drop(promise);
        Ok::<(), Error>(())
    });
    assert!(failed.unwrap_err().to_string().contains("enough"));
}

#[test]
fn promises_and_messages_are_waited_for_together() {
    ranks(2, |world| {
        let other = 1 - world.rank();
        let mut promises = Vec::new();
        let mut requests = Vec::new();
        for _ in 0..4 {
            let (promise, request) = world.promise::<usize>()?;
            promises.push(promise);
            requests.push(request);
        }
        let receiving = world.irecv([0usize], other, 0)?;
        assert!(!receiving.request_ref().poll_complete() && !requests[0].request_ref().poll_complete());
        // The other rank sends after this.
        world.barrier()?;
        thread::scope(|scope| {
            let world = &world;
            scope.spawn(move || {
                for (at, promise) in promises.into_iter().enumerate().rev() {
                    promise.keep(10 * at);
                    if at == 2 {
                        world.send(&[world.rank() + 3], other, 0).expect("alive");
                    }
                }
            });
            let mut refs: Vec<_> = requests.iter().map(Waitable::request_ref).collect();
            refs.push(receiving.request_ref());
            while let Some((_, outcome)) = mpj::wait_any(&mut refs) {
                outcome?;
            }
            Ok::<(), Error>(())
        })?;
        assert_eq!(receiving.wait()?.0, [other + 3]);
        let values: Vec<_> = mpj::wait_all(requests).into_iter().collect::<Result<_, _>>()?;
        assert_eq!(values, [0, 10, 20, 30]);
        Ok(())
    });
}

#[test]
fn dropped_promise_fails_the_request() {
    ranks(1, |world| {
        let (promise, request) = world.promise::<u8>()?;
        let thrown = thread::spawn(move || {
            let _promise = promise;
            std::panic::resume_unwind(Box::new("on purpose"));
        });
        assert_eq!(request.wait().expect_err("its thread panics").class(), ErrorClass::Request);
        thrown.join().expect_err("on purpose");
        let (promise, request) = world.promise::<u8>()?;
        drop(request);
        promise.keep(1);
        let comm = world.dup()?;
        comm.free()?;
        assert_eq!(comm.promise::<u8>().expect_err("freed").class(), ErrorClass::Comm);
        Ok(())
    });
}

#[test]
fn generalized_request_calls_its_cancel_hook() {
    ranks(1, |world| {
        let cancelled = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&cancelled);
        let cancel: CancelHook =
            Box::new(move |is_complete| !is_complete && count.fetch_add(1, Ordering::Relaxed) == 0);
        let hooks = GeneralizedHooks { cancel: Some(cancel), query: None };
        let (completer, request) = raw::generalized(world.as_raw(), hooks)?;
        assert!(request.test()?.is_none());
        assert!(request.cancel() && !request.cancel());
        completer.complete(Ok(Status::new(Some(3), 7, 40)));
        assert!(!request.cancel(), "it is complete");
        assert_eq!(cancelled.load(Ordering::Relaxed), 2);
        for _ in 0..2 {
            let status = request.test()?.expect("complete, and not consumed");
            assert_eq!((status.source(), status.tag(), status.count::<f64>()), (Some(3), 7, Some(5)));
        }
        let mut requests = [None, Some(request)];
        assert_eq!(raw::wait_any(&mut requests).map(|(at, _)| at), Some(1));
        assert!(requests[1].is_none());
        Ok(())
    });
}

struct CountDrop(Arc<AtomicUsize>);

impl Drop for CountDrop {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn query_hook_returns_the_status_and_is_dropped_once() {
    ranks(1, |world| {
        let (queries, drops) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (count, captured) = (Arc::clone(&queries), CountDrop(Arc::clone(&drops)));
        let query: QueryHook = Box::new(move |mut status| {
            let _ = &captured;
            let number = count.fetch_add(1, Ordering::Relaxed);
            status.set_cancelled(number == 2);
            if number < 3 { Ok(status) } else { Err(type_error()) }
        });
        let hooks = GeneralizedHooks { query: Some(query), cancel: None };
        let (completer, request) = raw::generalized(world.as_raw(), hooks)?;
        assert!(request.test()?.is_none() && queries.load(Ordering::Relaxed) == 0, "it is pending");
        thread::spawn(move || completer.complete(Ok(Status::new(None, 5, 8)))).join().expect("completes");
        for number in 0..3 {
            let status = request.test()?.expect("complete");
            assert_eq!((status.tag(), status.is_cancelled()), (5, number == 2));
        }
        assert_eq!((queries.load(Ordering::Relaxed), drops.load(Ordering::Relaxed)), (3, 0));
        let mut requests = [Some(request)];
        assert_eq!(raw::wait_all(&mut requests)[0].as_ref().expect_err("refused").class(), ErrorClass::Type);
        assert_eq!((queries.load(Ordering::Relaxed), drops.load(Ordering::Relaxed)), (4, 1));

        // A freed request: its completer is the last owner of the hooks.
        let captured = CountDrop(Arc::clone(&drops));
        let query: QueryHook = Box::new(move |status| {
            let _ = &captured;
            Ok(status)
        });
        let hooks = GeneralizedHooks { query: Some(query), cancel: None };
        let (completer, request) = raw::generalized(world.as_raw(), hooks)?;
        drop(request);
        assert_eq!(drops.load(Ordering::Relaxed), 1);
        completer.complete(Ok(Status::new(None, 0, 0)));
        assert_eq!(drops.load(Ordering::Relaxed), 2);
        Ok(())
    });
}

#[test]
fn panicking_hooks_fail_only_their_request() {
    ranks(1, |world| {
        let comm = world.as_raw();
        let hooks = GeneralizedHooks {
            query: Some(Box::new(|_| panic!("query"))),
            cancel: Some(Box::new(|_| panic!("cancel"))),
        };
        let (completer, panicking) = raw::generalized(comm, hooks)?;
        assert!(!panicking.cancel());
        let (first, second) = (
            raw::generalized(comm, GeneralizedHooks::default())?,
            raw::generalized(comm, GeneralizedHooks::default())?,
        );
        for (tag, completer) in (1..).zip([first.0, completer, second.0]) {
            completer.complete(Ok(Status::new(None, tag, 0)));
        }
        let mut requests = [Some(first.1), Some(panicking), Some(second.1)];
        let outcomes = raw::wait_all(&mut requests);
        let [Ok(first), Err(error), Ok(second)] = &outcomes[..] else { panic!("{outcomes:?}") };
        assert_eq!((first.tag(), second.tag()), (1, 3));
        assert!(error.to_string().contains("query hook panicked"), "{error}");
        Ok(())
    });
}

fn type_error() -> Error {
    mpj::Datatype::of::<u64>().contiguous(usize::MAX).expect_err("too large").into()
}

/// MPJ Express prints a line for a cancel, and does not cancel.
#[test]
fn cancelled_receive_fails_as_cancelled() {
    ranks(2, |world| {
        let other = 1 - world.rank();
        let receiving = world.irecv(vec![1u8; 3], other, 0)?;
        assert!(receiving.cancel() && !receiving.cancel());
        let failed = receiving.wait().expect_err("cancelled");
        assert!(failed.error().is_cancelled() && failed.error().class() == ErrorClass::Request);
        assert_eq!(failed.into_parts().1, Some(vec![1; 3]), "nothing was received");

        let mut buf = [0u8; 3];
        // SAFETY: the buffer outlives the request, which is complete below.
        let raw = unsafe { raw::irecv(world.as_raw(), Buf::slice_mut(&mut buf), other as i32, 0, None)? };
        assert!(raw.test()?.is_none() && raw.cancel());
        for _ in 0..2 {
            assert!(raw.test().expect_err("cancelled").is_cancelled(), "a test does not consume the request");
        }
        assert!(raw.wait().expect_err("cancelled").is_cancelled());

        world.barrier()?;
        let matched = world.irecv([0u8; 3], other, 0)?;
        world.send(&[7u8; 3], other, 0)?;
        world.barrier()?;
        while !matched.request_ref().poll_complete() {}
        assert!(!matched.cancel(), "it has matched");
        assert_eq!(matched.wait()?.0, [7; 3]);
        Ok(())
    });
}
