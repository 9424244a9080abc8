//! The deaths of a job in one order for all processes, and the messages that carry them.
//!
//! The first death is sent at once. One failure entails others, so the deaths that follow within [`INTERVAL`] are sent
//! together, as runs of ranks with one cause. Within such a batch, the first death stays the first; the others are
//! grouped by cause and sorted by rank, which makes the runs long.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::boot::wire::{DeathGroup, MAX_MESSAGE, ToProcess};

/// The minimum time between two batches of deaths.
pub const INTERVAL: Duration = Duration::from_millis(10);

/// The number of different causes that are passed on. Each has up to 4 KiB, and goes to every process.
const MAX_CAUSES: usize = 256;

/// The cause that processes get for a rank whose own cause is not passed on.
const OTHER_CAUSE: &str = "failed; its cause was not passed on, because ranks had died for 256 other causes";

/// The limit for the length of a message before encoding; a run of ranks counts as [`RUN_LEN`] bytes. A message with a
/// single group can exceed it by the length of the cause.
const MAX_BATCH: usize = MAX_MESSAGE / 2;
const RUN_LEN: usize = 10;

#[derive(Debug, Default)]
pub(super) struct Deaths {
    /// The deaths that were sent, in order.
    sent: Vec<DeathGroup>,
    /// The deaths that were not sent, in the order of detection.
    unsent: Vec<(u32, Arc<str>)>,
    /// The causes of all deaths.
    causes: HashSet<Arc<str>>,
    /// The causes that processes get.
    passed_on: HashSet<Arc<str>>,
    last_sent: Option<Instant>,
    /// When the unsent deaths are sent.
    due: Option<Instant>,
}

impl Deaths {
    /// Returns the shared text of a cause.
    pub(super) fn intern(&mut self, cause: Arc<str>) -> Arc<str> {
        if let Some(known) = self.causes.get(&cause) {
            return Arc::clone(known);
        }
        self.causes.insert(Arc::clone(&cause));
        cause
    }

    /// Adds the death of a rank, which must be new.
    pub(super) fn add(&mut self, rank: u32, cause: Arc<str>, now: Instant) {
        self.due.get_or_insert(self.last_sent.map_or(now, |last| now.max(last + INTERVAL)));
        let is_passed_on = self.passed_on.contains(&cause) || self.passed_on.len() < MAX_CAUSES;
        let cause = if is_passed_on { cause } else { OTHER_CAUSE.into() };
        if is_passed_on {
            self.passed_on.insert(Arc::clone(&cause));
        }
        self.unsent.push((rank, cause));
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Returns the messages with the unsent deaths, if they are due.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<ToProcess> {
        if self.due.is_none_or(|due| now < due) {
            return Vec::new();
        }
        (self.due, self.last_sent) = (None, Some(now));
        let groups = groups(std::mem::take(&mut self.unsent));
        self.sent.extend(groups.iter().cloned());
        messages(groups)
    }

    /// Returns the messages with all deaths that were sent, for a process that joins.
    pub(super) fn all_sent(&self) -> Vec<ToProcess> {
        messages(self.sent.clone())
    }
}

/// Returns the deaths of a batch as groups: the first death, and then the others by cause.
fn groups(deaths: Vec<(u32, Arc<str>)>) -> Vec<DeathGroup> {
    let mut by_cause: Vec<(Arc<str>, Vec<u32>)> = Vec::new();
    let mut index_of: HashMap<Arc<str>, usize> = HashMap::new();
    let mut deaths = deaths.into_iter();
    by_cause.extend(deaths.next().map(|(rank, cause)| (cause, vec![rank])));
    for (rank, cause) in deaths {
        let index = *index_of.entry(Arc::clone(&cause)).or_insert(by_cause.len());
        match by_cause.get_mut(index) {
            Some((_, ranks)) => ranks.push(rank),
            None => by_cause.push((cause, vec![rank])),
        }
    }
    let group = |(cause, mut ranks): (Arc<str>, Vec<u32>)| {
        ranks.sort_unstable();
        DeathGroup::new(&cause, ranks)
    };
    by_cause.into_iter().map(group).collect()
}

/// Divides groups into messages below the limit of a frame.
fn messages(groups: Vec<DeathGroup>) -> Vec<ToProcess> {
    let (mut messages, mut next, mut len) = (Vec::new(), Vec::new(), 0);
    for DeathGroup { cause, runs } in groups {
        for runs in runs.chunks(MAX_BATCH / RUN_LEN) {
            let own = cause.len() + runs.len() * RUN_LEN;
            if len + own > MAX_BATCH && !next.is_empty() {
                messages.push(ToProcess::Died(std::mem::take(&mut next)));
                len = 0;
            }
            len += own;
            next.push(DeathGroup { cause: cause.clone(), runs: runs.to_vec() });
        }
    }
    if !next.is_empty() {
        messages.push(ToProcess::Died(next));
    }
    messages
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boot::wire::encode_frame;

    fn group(cause: &str, runs: &[(u32, u32)]) -> DeathGroup {
        DeathGroup { cause: cause.into(), runs: runs.to_vec() }
    }

    #[test]
    fn first_death_is_sent_at_once_and_the_next_ones_together() {
        let (mut deaths, now) = (Deaths::default(), Instant::now());
        deaths.add(9, "panicked".into(), now);
        assert_eq!(deaths.due(), Some(now));
        assert_eq!(deaths.take_due(now), [ToProcess::Died(vec![group("panicked", &[(9, 1)])])]);
        for rank in [7, 3, 5, 4, 12, 8] {
            let cause = if rank == 12 { "was killed" } else { "lost rank 9" };
            deaths.add(rank, cause.into(), now + INTERVAL / 2);
        }
        assert_eq!(deaths.take_due(now + INTERVAL / 2), []);
        assert_eq!(deaths.due(), Some(now + INTERVAL));
        let batch = vec![
            group("lost rank 9", &[(7, 1)]),
            group("lost rank 9", &[(3, 3), (8, 1)]),
            group("was killed", &[(12, 1)]),
        ];
        assert_eq!(deaths.take_due(now + INTERVAL), [ToProcess::Died(batch.clone())]);
        assert_eq!(deaths.due(), None);
        let all = [vec![group("panicked", &[(9, 1)])], batch].concat();
        assert_eq!(deaths.all_sent(), [ToProcess::Died(all)]);
    }

    /// Every rank dies for its own cause, which has the maximum length, and no two ranks are neighbours.
    #[test]
    fn different_causes_are_limited_and_messages_are_below_the_limit() {
        const RANKS: u32 = 10_000;
        let (mut deaths, now) = (Deaths::default(), Instant::now());
        for rank in 0..RANKS {
            let cause = deaths.intern(format!("{rank:4096}").into());
            deaths.add(2 * rank, cause, now);
        }
        let messages = deaths.take_due(now);
        let total: usize = messages.iter().map(|message| encode_frame(message).unwrap().len()).sum();
        assert!(total < 2 * MAX_MESSAGE, "{total} bytes");
        let groups = messages.into_iter().flat_map(|message| match message {
            ToProcess::Died(groups) => groups,
            message => panic!("{message:?}"),
        });
        let groups: Vec<DeathGroup> = groups.collect();
        assert_eq!(groups.iter().map(|group| group.ranks(u32::MAX).count()).sum::<usize>(), RANKS as usize);
        assert_eq!(groups.iter().filter(|group| group.cause != OTHER_CAUSE).count(), MAX_CAUSES);
    }
}
