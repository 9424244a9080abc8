//! The sequence numbers of a communicator's collectives: the next one, and those of completed calls.

use std::sync::Arc;

use mpj_devices::biased::{Bias, Mutex};

use super::label::is_before;

/// The sequence numbers of calls. The calls may run on several threads and complete in any order.
#[derive(Debug)]
pub(super) struct CallSequence(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    next: u32,
    /// All calls before this one have completed.
    ended: u32,
    /// The calls that have completed before an older one.
    ahead: Vec<u32>,
}

impl CallSequence {
    pub(super) fn new(bias: &Arc<Bias>) -> Self {
        CallSequence(Mutex::new(bias, State::default()))
    }

    /// Allocates the number of a new call.
    #[inline]
    pub(super) fn next(&self) -> u32 {
        let mut state = self.0.lock();
        let number = state.next;
        state.next = number.wrapping_add(1);
        number
    }

    /// Returns the number of the next call, without allocating it.
    pub(super) fn upcoming(&self) -> u32 {
        self.0.lock().next
    }

    /// Records that a call has completed; calls may complete in any order.
    #[inline]
    pub(super) fn end(&self, number: u32) {
        let mut state = self.0.lock();
        if number == state.ended && state.ahead.is_empty() {
            state.ended = number.wrapping_add(1);
        } else {
            state.catch_up(number);
        }
    }

    /// Returns whether this is the oldest call that has not completed.
    #[inline]
    pub(super) fn is_oldest(&self, number: u32) -> bool {
        self.0.lock().ended == number
    }

    /// Returns whether a call has not completed.
    pub(super) fn is_open(&self, number: u32) -> bool {
        let state = self.0.lock();
        !is_before(number, state.ended) && !state.ahead.contains(&number)
    }

    /// Makes this the number of the next call.
    #[cfg(test)]
    pub(super) fn skip_to(&self, number: u32) {
        *self.0.lock() = State { next: number, ended: number, ahead: Vec::new() };
    }
}

impl State {
    #[cold]
    fn catch_up(&mut self, ended: u32) {
        self.ahead.push(ended);
        while let Some(at) = self.ahead.iter().position(|number| *number == self.ended) {
            self.ahead.swap_remove(at);
            self.ended = self.ended.wrapping_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_call_is_known_in_whatever_order_they_end() {
        for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2], [2, 0, 3, 1]] {
            let counts = CallSequence::new(&Bias::new());
            let first = u32::MAX - 1;
            counts.skip_to(first);
            let mut open: Vec<u32> = (0..4).map(|_| counts.next().wrapping_sub(first)).collect();
            for ended in order {
                counts.end(first.wrapping_add(ended));
                open.retain(|number| *number != ended);
                let oldest = open.first().copied().unwrap_or(4);
                for number in 0..=4 {
                    let call = first.wrapping_add(number);
                    assert_eq!(counts.is_oldest(call), number == oldest, "{number} of {order:?}");
                    assert_eq!(counts.is_open(call), number == 4 || open.contains(&number));
                }
            }
        }
    }

    #[test]
    fn threads_take_different_numbers() {
        let counts = CallSequence::new(&Bias::new());
        let take =
            || (0..1000).map(|_| counts.next()).inspect(|number| counts.end(*number)).collect::<Vec<_>>();
        let mut all = std::thread::scope(|scope| {
            let others = [(); 3].map(|()| scope.spawn(take));
            let own = take();
            others.into_iter().flat_map(|other| other.join().unwrap()).chain(own).collect::<Vec<_>>()
        });
        all.sort_unstable();
        assert!(all.into_iter().eq(0..4000) && counts.is_oldest(4000));
    }
}
