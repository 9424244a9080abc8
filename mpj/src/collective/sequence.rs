//! The sequence numbers of a communicator's collective calls.

use std::sync::Arc;

use mpj_devices::biased::{Bias, Mutex};

use super::call_id::is_before;

/// Allocates sequence numbers, and records which calls have ended. Calls can end in any order, on any thread.
#[derive(Debug)]
pub(super) struct CallSequence(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    next: u32,
    /// All calls before this one have ended.
    ended_below: u32,
    /// The calls that have ended before an older one.
    ended_out_of_order: Vec<u32>,
}

impl CallSequence {
    pub(super) fn new(bias: &Arc<Bias>) -> Self {
        CallSequence(Mutex::new(bias, State::default()))
    }

    #[inline]
    pub(super) fn next(&self) -> u32 {
        let mut state = self.0.lock();
        let seq = state.next;
        state.next = seq.wrapping_add(1);
        seq
    }

    pub(super) fn peek_next(&self) -> u32 {
        self.0.lock().next
    }

    #[inline]
    pub(super) fn mark_ended(&self, seq: u32) {
        let mut state = self.0.lock();
        if seq == state.ended_below && state.ended_out_of_order.is_empty() {
            state.ended_below = seq.wrapping_add(1);
        } else {
            state.mark_out_of_order(seq);
        }
    }

    /// Returns whether this is the oldest call that has not ended.
    #[inline]
    pub(super) fn is_oldest(&self, seq: u32) -> bool {
        self.0.lock().ended_below == seq
    }

    /// Returns true also for a call that has not started.
    pub(super) fn has_not_ended(&self, seq: u32) -> bool {
        let state = self.0.lock();
        !is_before(seq, state.ended_below) && !state.ended_out_of_order.contains(&seq)
    }

    #[cfg(test)]
    pub(super) fn skip_to(&self, seq: u32) {
        *self.0.lock() = State { next: seq, ended_below: seq, ended_out_of_order: Vec::new() };
    }
}

impl State {
    #[cold]
    fn mark_out_of_order(&mut self, ended: u32) {
        self.ended_out_of_order.push(ended);
        while let Some(at) = self.ended_out_of_order.iter().position(|seq| *seq == self.ended_below) {
            self.ended_out_of_order.swap_remove(at);
            self.ended_below = self.ended_below.wrapping_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_active_call_is_found_for_any_order_of_ends() {
        for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2], [2, 0, 3, 1]] {
            let sequence = CallSequence::new(&Bias::new());
            let first = u32::MAX - 1;
            sequence.skip_to(first);
            let mut active: Vec<u32> = (0..4).map(|_| sequence.next().wrapping_sub(first)).collect();
            for ended in order {
                sequence.mark_ended(first.wrapping_add(ended));
                active.retain(|seq| *seq != ended);
                let oldest = active.first().copied().unwrap_or(4);
                for seq in 0..=4 {
                    let call = first.wrapping_add(seq);
                    assert_eq!(sequence.is_oldest(call), seq == oldest, "{seq} of {order:?}");
                    assert_eq!(sequence.has_not_ended(call), seq == 4 || active.contains(&seq));
                }
            }
        }
    }

    #[test]
    fn threads_get_different_sequence_numbers() {
        let sequence = CallSequence::new(&Bias::new());
        let take = || {
            (0..1000).map(|_| sequence.next()).inspect(|seq| sequence.mark_ended(*seq)).collect::<Vec<_>>()
        };
        let mut all = std::thread::scope(|scope| {
            let others = [(); 3].map(|()| scope.spawn(take));
            let own = take();
            others.into_iter().flat_map(|other| other.join().unwrap()).chain(own).collect::<Vec<_>>()
        });
        all.sort_unstable();
        assert!(all.into_iter().eq(0..4000) && sequence.is_oldest(4000));
    }
}
