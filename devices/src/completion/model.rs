//! Models of the two handles of an operation on different threads.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::task::{Wake, Waker};

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

/// A waker that counts its calls.
fn counter() -> (Arc<AtomicUsize>, Waker) {
    #[derive(Default)]
    struct Counter(Arc<AtomicUsize>);
    impl Wake for Counter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let count = Arc::new(AtomicUsize::new(0));
    (Arc::clone(&count), Arc::new(Counter(Arc::clone(&count))).into())
}

/// Registers `listener`, and returns whether the operation is pending, so that the listener will be notified.
fn listen(completion: &Completion, listener: Listener) -> bool {
    completion.listen(listener);
    assert!(fence_listeners());
    completion.outcome().is_none()
}

#[test]
fn listener_of_a_pending_operation_is_notified() {
    loom::model(|| {
        let (count, waker) = counter();
        let (completer, completion) = pair();
        let other = thread::spawn(move || completer.complete(Err(Fault::Freed)));
        let is_pending = listen(&completion, Listener::Task(waker));
        other.join().unwrap();
        let calls = count.load(Ordering::Relaxed);
        assert!(calls <= 1 && calls >= usize::from(is_pending), "{calls} calls, pending: {is_pending}");
        assert_eq!(completion.outcome(), Some(&Err(Fault::Freed)));
        drop(completion);
        reclaim();
        assert_eq!(Arc::strong_count(&count), 1, "the waker was dropped");
    });
}

/// The completion is dropped while the other thread might notify the listener.
#[test]
fn dropped_completion_drops_its_listener() {
    loom::model(|| {
        let cause: Arc<str> = "a model".into();
        let outcome = Err(Fault::Dead { rank: 1, cause: Arc::clone(&cause) });
        let (count, waker) = counter();
        let (completer, completion) = pair();
        let other = thread::spawn(move || {
            completer.complete(outcome);
            cached_nodes()
        });
        completion.listen(Listener::Task(waker));
        drop(completion);
        let there = other.join().unwrap();
        reclaim();
        assert_eq!(cached_nodes() + there, 1, "one thread caches the node");
        assert_eq!((Arc::strong_count(&count), Arc::strong_count(&cause)), (1, 1), "all values were dropped");
    });
}

/// A task moves to another waker, as when an executor moves it to another thread: the last waker is notified.
#[test]
fn last_registered_waker_is_notified() {
    loom::model(|| {
        let ((first, one), (second, two)) = (counter(), counter());
        let (completer, completion) = pair();
        let other = thread::spawn(move || completer.complete(Err(Fault::Freed)));
        let _ = listen(&completion, Listener::Task(one));
        let is_pending = listen(&completion, Listener::Task(two));
        other.join().unwrap();
        let calls = (first.load(Ordering::Relaxed), second.load(Ordering::Relaxed));
        assert!(!is_pending || calls.1 == 1, "{calls:?} calls, pending: {is_pending}");
    });
}

/// The handle is dropped, with the memory, while the other thread completes the operation.
#[test]
fn memory_is_dropped_after_the_completion() {
    loom::model(|| {
        let memory: Arc<str> = "a model".into();
        let owner = Arc::new(Arc::clone(&memory));
        let (completer, completion) = pair();
        let other = thread::spawn({
            let memory = Arc::clone(&memory);
            move || {
                assert!(Arc::strong_count(&memory) == 3, "the operation is pending");
                completer.complete(Err(Fault::Freed));
            }
        });
        completion.drop_with_memory(owner);
        other.join().unwrap();
        assert_eq!(Arc::strong_count(&memory), 1);
        reclaim();
    });
}
