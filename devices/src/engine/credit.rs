//! Eager room: how many bytes of messages that nobody has asked for a peer may have waiting here.
//!
//! What a rank may have to keep is bounded by a budget, whatever the number of its peers. One half is shared out among all
//! ranks of the world from the start, so that every sender knows its part without asking. The other half goes to those
//! that use theirs: with what is given back to such a peer its room doubles, as long as there is something left, up to
//! [`CREDIT`]. It comes back when the peer has ended, or when another peer needs it: then the rank recalls it from one that
//! it has granted nothing for some time. A sender without room announces its messages.
//!
//! ```text
//!   peer that has grown                        this rank
//!                       ◄── CreditPool, Recall ──  asks for what it has granted beyond the first room, once at a time
//!   gives what it has   ──  CreditPool, Return ─►  holds it against what was asked for and what came, and may grant it again
//!   left of it, or 0
//! ```
//! What is on its way is still the peer's: it goes back to the budget when the answer has come, or the peer has ended. A peer
//! whose room is full of messages that nobody receives has nothing to give.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::lock;
use crate::config::{Config, Number};
use crate::device::PeerId;

/// The eager room a receiver grants each sender, at most.
pub const CREDIT: Number = Number {
    name: "CREDIT",
    default: 8 << 20,
    range: (MIN_CREDIT, 1 << 40),
    help: "bytes of eager messages that one sender may have under way to a receiver; the same for all ranks",
};

/// What a receiver grants all senders.
pub const BUDGET: Number = Number {
    name: "BUDGET",
    default: 256 << 20,
    range: (1 << 20, 1 << 50),
    help: "bytes of eager messages that all senders together may have under way to a receiver; the same for all ranks",
};

/// What each sender has at least.
const MIN_CREDIT: u64 = 1 << 16;

/// What this rank grants its peers, and what it may still grant.
#[derive(Debug)]
pub(crate) struct CreditPool {
    /// What a peer has from the start, here and everywhere.
    pub(crate) initial: u64,
    /// What a peer has at most.
    pub(crate) max: u64,
    available: AtomicU64,
    /// Peers whose room has grown and is not being recalled, with what each was granted in all when it was looked at last, if it was.
    reclaimable: Mutex<VecDeque<(PeerId, Option<u64>)>>,
}

/// How many peers are looked at, each time that one needs room, for one that was granted nothing since.
const RECALL_CANDIDATES: usize = 4;

/// What a frame of credit says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(super) enum CreditKind {
    /// So many bytes of room are the receiver's of the frame.
    Grant = 0,
    /// So many bytes of what it has been granted it shall return, or less.
    Recall = 1,
    /// So many it returns.
    Return = 2,
}

impl CreditKind {
    pub(super) fn from_word(word: u64) -> Option<Self> {
        [CreditKind::Grant, CreditKind::Recall, CreditKind::Return]
            .into_iter()
            .find(|say| *say as u64 == word)
    }
}

impl CreditPool {
    pub(super) fn new(config: &Config, ranks: u32) -> Self {
        let most = config.number(&CREDIT);
        if config.is_set(&CREDIT) && !config.is_set(&BUDGET) {
            return CreditPool {
                initial: most,
                max: most,
                available: AtomicU64::new(0),
                reclaimable: Mutex::default(),
            };
        }
        let half = config.number(&BUDGET) / 2;
        let first = (half / u64::from(ranks.max(1))).clamp(MIN_CREDIT, most);
        CreditPool {
            initial: first,
            max: most,
            available: AtomicU64::new(half),
            reclaimable: Mutex::default(),
        }
    }

    /// Returns by how much the room of a peer grows that has used it: as much again, if there is so much left.
    pub(super) fn grow(&self, room: u64) -> u64 {
        let wanted = room.min(self.max.saturating_sub(room));
        let take = |left: u64| (wanted != 0).then(|| left - wanted.min(left));
        let before = self.available.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        before.map_or(0, |left| wanted.min(left))
    }

    /// Takes back by how much a room has grown.
    pub(super) fn reclaim(&self, room: u64) {
        self.available.fetch_add(room.saturating_sub(self.initial), Ordering::Relaxed);
    }

    /// Takes note of a peer whose room has grown: it may be recalled.
    pub(super) fn add_reclaimable(&self, peer: PeerId) {
        lock(&self.reclaimable).push_back((peer, None));
    }

    /// Takes a peer out of those whose room has grown that is not `needy`, and was granted nothing since it was looked at last.
    pub(super) fn take_idle(&self, needy: PeerId, granted: impl Fn(PeerId) -> u64) -> Option<PeerId> {
        let mut grown = lock(&self.reclaimable);
        for _ in 0..RECALL_CANDIDATES.min(grown.len()) {
            let (peer, before) = grown.pop_front()?;
            let now = granted(peer);
            if peer != needy && before == Some(now) {
                return Some(peer);
            }
            grown.push_back((peer, Some(now)));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credit(settings: &[(&Number, u64)], ranks: u32) -> CreditPool {
        let mut config = Config::default();
        for (number, value) in settings {
            config.set(number, *value).expect("within its range");
        }
        CreditPool::new(&config, ranks)
    }

    #[test]
    fn few_peers_have_all_from_the_start_and_many_have_less() {
        for (ranks, first) in
            [(1, 8 << 20), (2, 8 << 20), (16, 8 << 20), (128, 1 << 20), (1 << 20, MIN_CREDIT)]
        {
            assert_eq!(credit(&[], ranks).initial, first, "{ranks} ranks");
        }
        assert_eq!(credit(&[(&CREDIT, 1 << 30)], 512).initial, 1 << 30, "who asks for it has it");
        assert_eq!(credit(&[(&CREDIT, 1 << 30), (&BUDGET, 1 << 20)], 512).initial, MIN_CREDIT);
    }

    #[test]
    fn rooms_grow_within_the_budget_and_no_further_than_they_may() {
        let credit = credit(&[(&BUDGET, 64 << 20)], 64);
        assert_eq!(credit.initial, 512 << 10);
        let mut rooms = [credit.initial; 64];
        for round in 0..10 {
            for room in &mut rooms {
                *room += credit.grow(*room);
                assert!(*room <= credit.max, "round {round}");
            }
        }
        assert_eq!(rooms.iter().sum::<u64>(), 64 << 20, "all of the budget, and no more");
        assert_eq!(credit.grow(rooms[63]), 0);
        rooms.iter().for_each(|room| credit.reclaim(*room));
        assert_eq!(
            (0..8).map(|_| credit.grow(4 << 20)).sum::<u64>(),
            32 << 20,
            "what has come back is there"
        );
    }
}
