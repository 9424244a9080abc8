//! Models of threads that poll one task, in all orders.

use std::sync::Arc;

use loom::sync::atomic::AtomicUsize;
use loom::thread;

use super::*;
use crate::sync::cell::UnsafeCell;

/// A task that is complete when `moved` reaches `waits_for`.
struct Task {
    state: PollState,
    moved: AtomicUsize,
    waits_for: usize,
    /// Number of polls. Loom reports concurrent polls, and a poll that does not see the write of the previous one.
    polls: UnsafeCell<usize>,
}

impl Task {
    fn poll(&self, has_progress: bool) -> bool {
        self.state.poll(has_progress, || {
            // SAFETY: one thread at a time polls, which is the property that the model checks.
            #[expect(unsafe_code, reason = "see above")]
            self.polls.with_mut(|polls| unsafe { *polls += 1 });
            self.moved.load(Ordering::Relaxed) == self.waits_for
        })
    }

    fn note_progress(&self) -> bool {
        self.moved.fetch_add(1, Ordering::Relaxed);
        self.poll(true)
    }
}

/// Checks that exactly one thread completes the task, while `others` run and this thread records progress.
fn completes_once(others: &'static [fn(&Task) -> bool], waits_for: usize) {
    loom::model(move || {
        let (state, moved, polls) = (PollState::new(), AtomicUsize::new(0), UnsafeCell::new(0));
        let task = Arc::new(Task { state, moved, waits_for, polls });
        let start = |other: &'static fn(&Task) -> bool| {
            let task = Arc::clone(&task);
            thread::spawn(move || other(&task))
        };
        let others: Vec<_> = others.iter().map(start).collect();
        let completed = usize::from(task.note_progress());
        let completed =
            completed + others.into_iter().map(|other| usize::from(other.join().unwrap())).sum::<usize>();
        assert_eq!(completed, 1);
        assert!(!task.poll(true) && !task.poll(false), "it is not polled again");
    });
}

#[test]
fn progress_of_two_threads_is_seen() {
    completes_once(&[Task::note_progress], 2);
}

#[test]
fn progress_of_three_threads_is_seen() {
    completes_once(&[Task::note_progress, Task::note_progress], 3);
}

#[test]
fn progress_is_seen_despite_a_concurrent_poll() {
    completes_once(&[|task| task.poll(false), Task::note_progress], 2);
}
