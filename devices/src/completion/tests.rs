//! The two handles of an operation, without listeners and with them.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::task::Wake;
use std::thread;

use super::*;

fn dead(cause: &Arc<str>) -> Outcome {
    Err(Fault::Dead { rank: 1, cause: Arc::clone(cause) })
}

#[test]
fn stored_outcome_is_seen() {
    let cause: Arc<str> = "a test".into();
    for _ in 0..3 * NODE_CACHE_MAX {
        let (completer, completion) = pair();
        assert!(completer.is_for(&completion) && completion.outcome().is_none());
        completer.complete(dead(&cause));
        assert_eq!(completion.outcome(), Some(&dead(&cause)));
    }
    assert_eq!(Arc::strong_count(&cause), 1, "every outcome was dropped");
}

#[test]
fn either_handle_can_be_dropped_first() {
    let cause: Arc<str> = "a test".into();
    let (completer, completion) = pair();
    drop(completion);
    completer.complete(dead(&cause));
    reclaim();
    assert_eq!(Arc::strong_count(&cause), 1);
    let (completer, completion) = pair();
    drop(completer);
    assert_eq!(completion.outcome(), Some(&Err(Fault::Cancelled)));
}

#[test]
fn handles_work_on_two_threads() {
    let cause: Arc<str> = "a test".into();
    thread::scope(|scope| {
        let (completers, received) = std::sync::mpsc::sync_channel::<Completer>(64);
        let other = Arc::clone(&cause);
        scope.spawn(move || received.into_iter().for_each(|completer| completer.complete(dead(&other))));
        for round in 0..if cfg!(miri) { 100 } else { 20_000 } {
            let (completer, completion) = pair();
            completers.send(completer).expect("the other thread receives until the channel closes");
            if round % 3 != 0 {
                while completion.outcome().is_none() {
                    thread::yield_now();
                }
                assert_eq!(completion.outcome(), Some(&dead(&cause)));
            }
        }
        drop(completers);
    });
    reclaim();
    assert_eq!(Arc::strong_count(&cause), 1);
}

#[test]
fn detached_operations_are_reclaimed() {
    let cause: Arc<str> = "a test".into();
    let mut open = Vec::new();
    for round in 0..20 * RECLAIM_MIN {
        let (completer, completion) = pair();
        drop(completion);
        if round % 2 == 0 {
            completer.complete(dead(&cause))
        } else {
            open.push(completer)
        }
        // The list may also contain nodes of other tests.
        assert!(Arc::strong_count(&cause) <= 2 + 2 * RECLAIM_MIN.max(2 * open.len()), "round {round}");
    }
    open.into_iter().for_each(|completer| completer.complete(dead(&cause)));
    reclaim();
    assert_eq!(Arc::strong_count(&cause), 1);
}

#[derive(Default)]
struct Counter(AtomicUsize);

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn listener_is_notified_once() {
    let counter = Arc::new(Counter::default());
    let list = Arc::new(ReadyList::default());
    for listener in [Listener::Task(Arc::clone(&counter).into()), Listener::List(Arc::clone(&list), 7)] {
        let (completer, completion) = pair();
        assert!(!completion.is_listening());
        completion.listen(listener);
        assert!(completion.is_listening());
        completer.complete(Err(Fault::Freed));
        assert!(!completion.is_listening());
    }
    assert_eq!((counter.0.load(Ordering::Relaxed), list.pop(), list.pop()), (1, Some(7), None));
    assert_eq!(Arc::strong_count(&counter), 1, "the waker was dropped");
}

#[test]
fn replaced_list_is_notified_but_not_a_replaced_waker() {
    let counter = Arc::new(Counter::default());
    let [first, second] = [(); 2].map(|()| Arc::new(ReadyList::default()));
    let (completer, completion) = pair();
    completion.listen(Listener::Task(Arc::clone(&counter).into()));
    completion.listen(Listener::List(Arc::clone(&first), 1));
    completion.listen(Listener::List(Arc::clone(&first), 1));
    assert_eq!(first.pop(), None, "the same entry was registered again");
    completion.listen(Listener::List(Arc::clone(&second), 2));
    assert_eq!(first.pop(), Some(1));
    completer.complete(Err(Fault::Freed));
    assert_eq!((first.pop(), second.pop(), counter.0.load(Ordering::Relaxed)), (None, Some(2), 0));
}

/// The completing thread notifies the list while the other thread registers its next operation.
#[test]
fn no_notification_is_lost_between_two_threads() {
    let (completers, received) = std::sync::mpsc::sync_channel::<Completer>(1);
    thread::scope(|scope| {
        scope.spawn(move || received.into_iter().for_each(|completer| completer.complete(Err(Fault::Freed))));
        let list = Arc::new(ReadyList::default());
        for round in 0..if cfg!(miri) { 50 } else { 20_000 } {
            let (completer, completion) = pair();
            completers.send(completer).expect("the other thread receives until the channel closes");
            completion.listen(Listener::List(Arc::clone(&list), round));
            if fence_listeners() && completion.outcome().is_none() {
                while list.pop() != Some(round) {
                    thread::yield_now();
                }
                assert_eq!(completion.outcome(), Some(&Err(Fault::Freed)));
            }
        }
        drop(completers);
    });
}

#[test]
fn memory_is_dropped_when_its_operation_is_complete() {
    let memory = Arc::new(());
    let owner = || Arc::clone(&memory) as crate::KeepAlive;
    let (completer, completion) = pair();
    completion.drop_with_memory(owner());
    assert_eq!(Arc::strong_count(&memory), 2, "the operation is pending");
    completer.complete(Err(Fault::Freed));
    assert_eq!(Arc::strong_count(&memory), 1);
    let (completer, completion) = pair();
    completer.complete(Err(Fault::Freed));
    completion.drop_with_memory(owner());
    assert_eq!(Arc::strong_count(&memory), 1);
}

struct PanicsOnDrop;

impl Wake for PanicsOnDrop {
    fn wake(self: Arc<Self>) {}
}

impl Drop for PanicsOnDrop {
    fn drop(&mut self) {
        panic!("the drop of a waker that panics, as it should here");
    }
}

#[test]
fn panic_of_a_replaced_waker_does_not_drop_the_memory() {
    let memory = Arc::new(());
    let owner: crate::KeepAlive = Arc::<()>::clone(&memory);
    let (completer, completion) = pair();
    completion.listen(Listener::Task(Arc::new(PanicsOnDrop).into()));
    let dropping = std::panic::AssertUnwindSafe(|| completion.drop_with_memory(owner));
    assert!(std::panic::catch_unwind(dropping).is_err());
    assert_eq!(Arc::strong_count(&memory), 2, "the operation is pending");
    completer.complete(Err(Fault::Freed));
    assert_eq!(Arc::strong_count(&memory), 1);
}
