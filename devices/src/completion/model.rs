//! Models of the two handles of an operation on different threads.

use std::sync::Arc;

use loom::thread;

use super::*;

/// Returns the number of nodes that this thread caches.
fn cached_nodes() -> usize {
    NODE_CACHE.with(|cache| cache.borrow().len())
}

/// Completes `times` operations in turn, each on a new thread, while this thread calls `read`. Checks that every
/// outcome is dropped, and that exactly one thread caches the node.
fn completes_concurrently(times: usize, read: fn(Completion, &Outcome)) {
    loom::model(move || {
        let cause: Arc<str> = "a model".into();
        for _ in 0..times {
            let expected = Err(Fault::Dead { rank: 1, cause: Arc::clone(&cause) });
            let outcome = expected.clone();
            let before = cached_nodes();
            let (completer, completion) = pair();
            let other = thread::spawn(move || {
                completer.complete(outcome);
                cached_nodes()
            });
            read(completion, &expected);
            let there = other.join().unwrap();
            reclaim();
            let here = cached_nodes();
            // If a node was cached before, this operation has reused it.
            assert_eq!(here + there, before.max(1), "one thread caches a node");
            drop(expected);
            assert_eq!(Arc::strong_count(&cause), 1, "every outcome was dropped");
        }
    });
}

#[test]
fn waiting_thread_sees_the_outcome() {
    completes_concurrently(1, |completion, expected| {
        while completion.outcome().is_none() {
            thread::yield_now();
        }
        assert_eq!(completion.outcome(), Some(expected));
    });
}

#[test]
fn concurrent_read_sees_all_of_the_outcome_or_nothing() {
    completes_concurrently(1, |completion, expected| {
        assert!(completion.outcome().is_none_or(|seen| seen == expected))
    });
}

#[test]
fn outcome_of_a_detached_operation_is_dropped() {
    completes_concurrently(1, |completion, _| drop(completion));
}

#[test]
fn cached_node_is_reused() {
    completes_concurrently(2, |completion, expected| {
        assert!(completion.outcome().is_none_or(|seen| seen == expected))
    });
}

#[test]
fn dropped_completer_cancels_the_operation() {
    loom::model(|| {
        let (completer, completion) = pair();
        let other = thread::spawn(move || {
            drop(completer);
            cached_nodes()
        });
        assert!(completion.outcome().is_none_or(|seen| *seen == Err(Fault::Cancelled)));
        drop(completion);
        let there = other.join().unwrap();
        reclaim();
        assert_eq!((cached_nodes(), there), (1, 0));
    });
}

/// Two threads observe one completion, as threads that share a request do.
#[test]
fn two_threads_see_the_outcome() {
    loom::model(|| {
        let (completer, completion) = pair();
        let completion = loom::sync::Arc::new(completion);
        let reader = {
            let completion = loom::sync::Arc::clone(&completion);
            thread::spawn(move || completion.outcome().is_none_or(|seen| *seen == Err(Fault::Freed)))
        };
        let other = thread::spawn(move || completer.complete(Err(Fault::Freed)));
        assert!(completion.outcome().is_none_or(|seen| *seen == Err(Fault::Freed)));
        assert!(reader.join().unwrap());
        other.join().unwrap();
        assert_eq!(completion.outcome(), Some(&Err(Fault::Freed)));
    });
}
