//! The ordered list of processes of a communicator.

use std::sync::Arc;

use crate::device::PeerId;

/// An ordered set of processes. The index of a process is its rank in the group. Groups are equal if they have the same
/// processes in the same order.
#[derive(Clone, Debug)]
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
#[derive(Clone, Debug)]
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

    /// Returns the processes, in order of rank.
    pub fn iter(&self) -> impl Iterator<Item = PeerId> + Clone {
        let (first, len, list) = match self {
            Group::Range { first, len } => (*first, *len, &[][..]),
            Group::List(list) => (0, 0, &*list.peers),
        };
        run(first, len).chain(list.iter().copied()).map(PeerId)
    }

    /// Returns the rank of a process, if it is in the group.
    pub fn rank(&self, peer: PeerId) -> Option<u32> {
        match self {
            Group::Range { first, len } => peer.0.checked_sub(*first).filter(|rank| rank < len),
            Group::List(list) => list.rank(peer.0),
        }
    }
}

/// Returns `len` consecutive numbers, the last of which can be `u32::MAX`.
fn run(first: u32, len: u32) -> impl Iterator<Item = u32> + Clone {
    (first..=u32::MAX).take(len as usize)
}

impl PartialEq for Group {
    fn eq(&self, other: &Self) -> bool {
        self.size() == other.size() && self.iter().eq(other.iter())
    }
}

impl Eq for Group {}

impl FromIterator<u32> for Group {
    /// Consecutive processes become a [`Range`](Group::Range).
    fn from_iter<I: IntoIterator<Item = u32>>(peers: I) -> Self {
        let mut peers = peers.into_iter().peekable();
        let first = peers.peek().copied().unwrap_or(0);
        let mut len = 0;
        while peers.next_if(|peer| first.checked_add(len) == Some(*peer)).is_some() {
            len += 1;
        }
        if peers.peek().is_none() {
            return Group::Range { first, len };
        }
        Group::List(Processes::new(run(first, len).chain(peers).collect()))
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
            assert!(group.iter().eq(peers.iter().copied().map(PeerId)));
        }
    }

    #[test]
    fn consecutive_processes_need_no_list() {
        let group = |peers: &[u32]| peers.iter().copied().collect::<Group>();
        for peers in [&[][..], &[7], &[0, 1, 2], &[u32::MAX - 1, u32::MAX]] {
            assert!(matches!(group(peers), Group::Range { .. }), "{peers:?}");
            assert!(group(peers).iter().eq(peers.iter().copied().map(PeerId)));
        }
        for peers in [&[2, 1][..], &[0, 1, 3], &[0, 0], &[u32::MAX, 0]] {
            assert!(matches!(group(peers), Group::List(_)), "{peers:?}");
            assert!(group(peers).iter().eq(peers.iter().copied().map(PeerId)));
        }
    }

    #[test]
    fn groups_with_equal_processes_are_equal() {
        let list = Group::List(Processes::new([4, 5, 6].into()));
        assert_eq!(list, Group::Range { first: 4, len: 3 });
        assert_eq!(Group::Range { first: 9, len: 0 }, Group::Range { first: 0, len: 0 });
        assert_ne!(list, [4, 6, 5].into_iter().collect());
        assert_ne!(list, Group::Range { first: 4, len: 4 });
    }
}
