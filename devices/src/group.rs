//! The ordered list of processes of a communicator.

use std::sync::Arc;

use crate::device::PeerId;

/// An ordered set of processes. The index of a process is its rank in the group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Group {
    /// The `len` consecutive processes from `first` on. This needs no memory per process.
    Range {
        /// The process of rank 0.
        first: u32,
        /// The number of processes.
        len: u32,
    },
    /// Any processes in any order.
    List(Processes),
}

/// A list of processes, and an index for lookups by process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Processes {
    peers: Arc<[u32]>,
    /// The ranks, sorted by their processes.
    sorted: Arc<[u32]>,
}

impl Processes {
    fn new(peers: Arc<[u32]>) -> Self {
        let mut sorted: Vec<u32> = (0..).take(peers.len()).collect();
        sorted.sort_by_key(|rank| peers[*rank as usize]);
        Processes { peers, sorted: sorted.into() }
    }

    fn rank(&self, peer: u32) -> Option<u32> {
        let process = |rank: &u32| self.peers[*rank as usize];
        let at = self.sorted.partition_point(|rank| process(rank) < peer);
        self.sorted.get(at).copied().filter(|rank| process(rank) == peer)
    }
}

impl Group {
    /// Returns the number of processes.
    pub fn size(&self) -> u32 {
        match self {
            Group::Range { len, .. } => *len,
            Group::List(list) => u32::try_from(list.peers.len()).unwrap_or(u32::MAX),
        }
    }

    /// Returns the process of a rank.
    #[inline]
    pub fn peer(&self, rank: u32) -> Option<PeerId> {
        match self {
            Group::Range { first, len } => (rank < *len).then(|| PeerId(first + rank)),
            Group::List(list) => list.peers.get(rank as usize).copied().map(PeerId),
        }
    }

    /// Returns the rank of a process, if it is in the group.
    pub fn rank(&self, peer: PeerId) -> Option<u32> {
        match self {
            Group::Range { first, len } => peer.0.checked_sub(*first).filter(|rank| rank < len),
            Group::List(list) => list.rank(peer.0),
        }
    }
}

impl FromIterator<u32> for Group {
    fn from_iter<I: IntoIterator<Item = u32>>(peers: I) -> Self {
        Group::List(Processes::new(peers.into_iter().collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_and_processes_map_to_each_other() {
        for len in [0, 1, 2, 1000] {
            // Each process once, in a shuffled order: 7919 is coprime to each positive length.
            let peers: Vec<u32> = (0..len).map(|i| 3 + 2 * (i * 7919 % len.max(1))).collect();
            let group: Group = peers.iter().copied().collect();
            assert_eq!(group.size(), len);
            for (rank, peer) in (0..).zip(&peers) {
                assert_eq!((group.peer(rank), group.rank(PeerId(*peer))), (Some(PeerId(*peer)), Some(rank)));
            }
            let absent = (0..2 * len + 9).filter(|peer| !peers.contains(peer));
            assert!(absent.into_iter().all(|peer| group.rank(PeerId(peer)).is_none()));
            assert_eq!(group.peer(len), None);
        }
    }
}
