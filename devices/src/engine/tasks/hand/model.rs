//! Models of threads that poll one task, in all orders.

use std::sync::Arc;

use loom::sync::atomic::AtomicUsize;
use loom::thread;

use super::*;
use crate::sync::cell::UnsafeCell;

/// A task that is complete when `moved` reaches `waits_for`.
struct Operation {
    hand: PollState,
    moved: AtomicUsize,
    waits_for: usize,
    /// Number of polls: loom reports two polls at once, and a poll that does not see the writes of the last one.
    polls: UnsafeCell<usize>,
}

impl Operation {
    fn poll(&self, is_news: bool) -> bool {
        self.hand.poll(is_news, || {
            // SAFETY: one thread at a time polls, which is the property that the model checks.
            #[expect(unsafe_code, reason = "see above")]
            self.polls.with_mut(|polls| unsafe { *polls += 1 });
            self.moved.load(Ordering::Relaxed) == self.waits_for
        })
    }

    /// Records that something has moved, and polls.
    fn hear(&self) -> bool {
        self.moved.fetch_add(1, Ordering::Relaxed);
        self.poll(true)
    }
}

/// The `others` run while this thread records a movement: exactly one thread completes the task.
fn ends_once(others: &'static [fn(&Operation) -> bool], waits_for: usize) {
    loom::model(move || {
        let (hand, moved, polls) = (PollState::new(), AtomicUsize::new(0), UnsafeCell::new(0));
        let operation = Arc::new(Operation { hand, moved, waits_for, polls });
        let start = |other: &'static fn(&Operation) -> bool| {
            let operation = Arc::clone(&operation);
            thread::spawn(move || other(&operation))
        };
        let others: Vec<_> = others.iter().map(start).collect();
        let ended = usize::from(operation.hear());
        let ended = ended + others.into_iter().map(|other| usize::from(other.join().unwrap())).sum::<usize>();
        assert_eq!(ended, 1);
        assert!(!operation.poll(true) && !operation.poll(false), "it is not polled again");
    });
}

#[test]
fn what_two_threads_hear_of_at_once_is_seen() {
    ends_once(&[Operation::hear], 2);
}

#[test]
fn what_three_threads_hear_of_at_once_is_seen() {
    ends_once(&[Operation::hear, Operation::hear], 3);
}

#[test]
fn news_is_seen_beside_one_who_looks_without() {
    ends_once(&[|operation| operation.poll(false), Operation::hear], 2);
}
