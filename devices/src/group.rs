//! Which processes a communicator is made of, in order.

use std::sync::Arc;

use crate::device::PeerId;

/// An ordered set of processes; position is rank.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Group {
    /// `len` processes from `first` on: no memory per process.
    Range {
        /// The process of rank 0.
        first: u32,
        /// How many.
        len: u32,
    },
    /// These processes.
    List(Arc<[u32]>),
}

impl Group {
    /// Returns how many processes there are.
    pub fn size(&self) -> u32 {
        match self {
            Group::Range { len, .. } => *len,
            Group::List(list) => u32::try_from(list.len()).unwrap_or(u32::MAX),
        }
    }

    /// Returns the process of a rank.
    #[inline]
    pub fn peer(&self, rank: u32) -> Option<PeerId> {
        match self {
            Group::Range { first, len } => (rank < *len).then(|| PeerId(first + rank)),
            Group::List(list) => list.get(rank as usize).copied().map(PeerId),
        }
    }

    /// Returns the rank of a process, if it is in the group.
    pub fn rank(&self, peer: PeerId) -> Option<u32> {
        match self {
            Group::Range { first, len } => peer.0.checked_sub(*first).filter(|rank| rank < len),
            Group::List(list) => list.iter().position(|p| *p == peer.0).map(|rank| rank as u32),
        }
    }
}

impl FromIterator<u32> for Group {
    fn from_iter<I: IntoIterator<Item = u32>>(peers: I) -> Self {
        Group::List(peers.into_iter().collect())
    }
}
