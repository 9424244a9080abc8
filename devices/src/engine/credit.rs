//! Eager credit: how many bytes of eager messages a peer may have outstanding at this rank.
//!
//! The budget [`EAGER_CREDIT_TOTAL`] bounds the eager messages that wait at a rank, except that each peer gets at least
//! [`MIN_CREDIT`]. One half is divided among all ranks of the world from the start, so every sender knows its share
//! without a request. The other half goes to the peers that use their credit: whenever such a peer is granted used
//! credit again, its limit doubles, up to [`EAGER_CREDIT`], as long as budget is available. The increase returns to
//! this half when the peer has exited, or when the rank recalls it for another peer. If only [`EAGER_CREDIT`] is set,
//! no budget applies. A sender without credit uses the rendezvous protocol.
//!
//! ```text
//!   peer with a larger limit                   this rank
//!                       ◄── Credit, Recall ──  recalls the credit above the initial one; waits for the reply
//!   returns its unused  ──  Credit, Return ─►  checks it against the recall and the messages received, and may
//!   credit, or 0                               grant it again
//! ```
//! Credit under recall still belongs to the peer. It goes back to the budget when the reply has come, or when the peer
//! has exited. A peer that has used all of its credit for messages that are not received yet returns 0.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::lock;
use crate::config::{Config, Number};
use crate::device::PeerId;

/// The most eager credit that a receiver grants each sender.
pub const EAGER_CREDIT: Number = Number {
    name: "EAGER_CREDIT",
    default: 8 << 20,
    range: (MIN_CREDIT, 1 << 40),
    help: "bytes of eager messages that one sender may have outstanding at a receiver; the same for all ranks",
};

/// The most eager credit that a receiver grants all senders together, except that each gets at least 128 KiB. It has no
/// effect if only [`EAGER_CREDIT`] is set: then every sender gets that credit from the start.
pub const EAGER_CREDIT_TOTAL: Number = Number {
    name: "EAGER_CREDIT_TOTAL",
    default: 256 << 20,
    range: (1 << 20, 1 << 50),
    help: "bytes of eager messages that all senders may have outstanding at a receiver; the same for all ranks",
};

/// The least credit of a peer. A longer message is never eager while its sender has only this credit.
const MIN_CREDIT: u64 = 128 << 10;

/// The eager credit of this rank's peers.
#[derive(Debug)]
pub(crate) struct CreditPool {
    /// Initial credit of each peer, the same at all ranks.
    pub(crate) initial: u64,
    pub(crate) max: u64,
    available: AtomicU64,
    /// Peers whose credit has grown and is not being recalled, each with its granted total when it was last examined.
    reclaimable: Mutex<VecDeque<(PeerId, Option<u64>)>>,
}

/// Maximum number of peers that one search for an idle peer examines.
const RECALL_CANDIDATES: usize = 4;

/// The meaning of a credit frame; the frame also has a number of bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(super) enum CreditKind {
    /// The receiver of the frame may send this many more bytes.
    Grant = 0,
    /// The receiver of the frame must return its unused credit, up to this many bytes.
    Recall = 1,
    /// The sender of the frame returns this many bytes of its credit.
    Return = 2,
}

impl CreditKind {
    pub(super) fn from_word(word: u64) -> Option<Self> {
        [CreditKind::Grant, CreditKind::Recall, CreditKind::Return]
            .into_iter()
            .find(|kind| *kind as u64 == word)
    }
}

impl CreditPool {
    pub(super) fn new(config: &Config, ranks: u32) -> Self {
        let most = config.number(&EAGER_CREDIT);
        if config.is_set(&EAGER_CREDIT) && !config.is_set(&EAGER_CREDIT_TOTAL) {
            return CreditPool {
                initial: most,
                max: most,
                available: AtomicU64::new(0),
                reclaimable: Mutex::default(),
            };
        }
        let half = config.number(&EAGER_CREDIT_TOTAL) / 2;
        let initial = (half / u64::from(ranks.max(1))).clamp(MIN_CREDIT, most);
        CreditPool { initial, max: most, available: AtomicU64::new(half), reclaimable: Mutex::default() }
    }

    /// Takes from the budget, and returns, the bytes by which the credit of an active peer grows: it doubles, as far as
    /// the maximum and the budget allow.
    pub(super) fn grow(&self, credit_given: u64) -> u64 {
        let wanted = credit_given.min(self.max.saturating_sub(credit_given));
        let take = |left: u64| (wanted != 0).then(|| left - wanted.min(left));
        let before = self.available.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        before.map_or(0, |left| wanted.min(left))
    }

    /// Returns to the budget the part of a credit that exceeds the initial credit.
    pub(super) fn reclaim(&self, credit_given: u64) {
        self.available.fetch_add(credit_given.saturating_sub(self.initial), Ordering::Relaxed);
    }

    pub(super) fn add_reclaimable(&self, peer: PeerId) {
        lock(&self.reclaimable).push_back((peer, None));
    }

    /// Removes and returns a candidate that is not `needy` and was granted nothing since it was last examined.
    pub(super) fn take_idle(&self, needy: PeerId, granted: impl Fn(PeerId) -> u64) -> Option<PeerId> {
        let mut candidates = lock(&self.reclaimable);
        for _ in 0..RECALL_CANDIDATES.min(candidates.len()) {
            let (peer, before) = candidates.pop_front()?;
            let now = granted(peer);
            if peer != needy && before == Some(now) {
                return Some(peer);
            }
            candidates.push_back((peer, Some(now)));
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
    fn initial_credit_depends_on_the_number_of_ranks() {
        for (ranks, first) in
            [(1, 8 << 20), (2, 8 << 20), (16, 8 << 20), (128, 1 << 20), (1 << 20, MIN_CREDIT)]
        {
            assert_eq!(credit(&[], ranks).initial, first, "{ranks} ranks");
        }
        assert_eq!(
            credit(&[(&EAGER_CREDIT, 1 << 30)], 512).initial,
            1 << 30,
            "an explicit credit is granted in full"
        );
        assert_eq!(
            credit(&[(&EAGER_CREDIT, 1 << 30), (&EAGER_CREDIT_TOTAL, 1 << 20)], 512).initial,
            MIN_CREDIT
        );
    }

    #[test]
    fn credits_grow_within_budget_and_maximum() {
        let credit = credit(&[(&EAGER_CREDIT_TOTAL, 64 << 20)], 64);
        assert_eq!(credit.initial, 512 << 10);
        let mut credits = [credit.initial; 64];
        for round in 0..10 {
            for credit_given in &mut credits {
                *credit_given += credit.grow(*credit_given);
                assert!(*credit_given <= credit.max, "round {round}");
            }
        }
        assert_eq!(credits.iter().sum::<u64>(), 64 << 20, "all of the budget, and no more");
        assert_eq!(credit.grow(credits[63]), 0);
        credits.iter().for_each(|credit_given| credit.reclaim(*credit_given));
        assert_eq!(
            (0..8).map(|_| credit.grow(4 << 20)).sum::<u64>(),
            32 << 20,
            "returned credit is available"
        );
    }
}
