//! Models of threads that poll one operation, whoever goes first.

use std::sync::Arc;

use loom::sync::atomic::AtomicUsize;
use loom::thread;

use super::*;
use crate::sync::cell::UnsafeCell;

/// An operation that has ended when as many things have moved as it waits for.
struct Operation {
    hand: PollState,
    moved: AtomicUsize,
    waits_for: usize,
    /// How often it was polled: loom sees two polls at once, and one that does not see what the last one wrote.
    polls: UnsafeCell<usize>,
}

impl Operation {
    fn poll(&self, is_news: bool) -> bool {
        self.hand.poll(is_news, || {
            // SAFETY: one thread at a time polls, which is what the model tries.
            #[expect(unsafe_code, reason = "see above")]
            self.polls.with_mut(|polls| unsafe { *polls += 1 });
            self.moved.load(Ordering::Relaxed) == self.waits_for
        })
    }

    /// Notes that something has moved, and polls.
    fn hear(&self) -> bool {
        self.moved.fetch_add(1, Ordering::Relaxed);
        self.poll(true)
    }
}

/// `others` threads do what they do while this one hears of something: the operation ends once, on one of them.
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
