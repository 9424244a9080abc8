//! The choice of a collective's algorithm: the one that a parameter forces, otherwise one by the number of bytes.
//!
//! All ranks must choose the same algorithm. The choice is in the digest of their messages, so ranks with different
//! parameters detect each other.

use mpj_devices::config::{Choice, Config, Number, Parameter};

/// The parameters of collectives.
pub(crate) const PARAMETERS: &[&dyn Parameter] = &[
    &ALLREDUCE_ALGORITHM,
    &ALLREDUCE_RING_MIN,
    &ALLGATHER_ALGORITHM,
    &ALLGATHER_LINEAR_MAX,
    &ALLTOALL_ALGORITHM,
    &ALLTOALL_LINEAR_MAX,
    &LINEAR_MAX_RANKS,
    &LINEAR_MAX_BYTES,
];

/// An algorithm of allreduce.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Allreduce {
    /// All ranks send their items to rank 0, which sends the result back.
    Flat,
    Doubling,
    Ring,
}

/// The forced algorithm of allreduce, if any.
const ALLREDUCE_ALGORITHM: Choice<Option<Allreduce>> = Choice {
    name: "ALLREDUCE_ALGORITHM",
    values: &[
        ("auto", None),
        ("flat", Some(Allreduce::Flat)),
        ("doubling", Some(Allreduce::Doubling)),
        ("ring", Some(Allreduce::Ring)),
    ],
    help: "algorithm of allreduce; a ring needs a commutative operation; the same for all ranks",
};

/// The number of bytes from which allreduce uses the ring.
const ALLREDUCE_RING_MIN: Number = Number {
    name: "ALLREDUCE_RING_MIN",
    default: 32 << 10,
    range: (0, MOST),
    help: "bytes from which allreduce takes the ring; the same for all ranks",
};

/// The forced algorithm of allgather: whether it is direct.
const ALLGATHER_ALGORITHM: Choice<Option<bool>> = Choice {
    name: "ALLGATHER_ALGORITHM",
    values: &[("auto", None), ("direct", Some(true)), ("ring", Some(false))],
    help: "algorithm of allgather: all pairs at once, or a ring; the same for all ranks",
};

/// The number of bytes up to which allgather is direct.
const ALLGATHER_LINEAR_MAX: Number = Number {
    name: "ALLGATHER_LINEAR_MAX",
    default: DIRECT,
    range: (0, MOST),
    help: "bytes of all ranks together up to which allgather is direct; the same for all ranks",
};

/// The forced algorithm of alltoall: whether it is direct.
const ALLTOALL_ALGORITHM: Choice<Option<bool>> = Choice {
    name: "ALLTOALL_ALGORITHM",
    values: &[("auto", None), ("direct", Some(true)), ("pairs", Some(false))],
    help: "algorithm of alltoall: all pairs at once, or one partner at a time; the same for all ranks",
};

/// The number of bytes up to which alltoall is direct.
const ALLTOALL_LINEAR_MAX: Number = Number {
    name: "ALLTOALL_LINEAR_MAX",
    default: DIRECT,
    range: (0, MOST),
    help: "bytes of a rank up to which alltoall is direct; the same for all ranks",
};

/// The number of ranks up to which short vectors use linear algorithms.
const LINEAR_MAX_RANKS: Number = Number {
    name: "LINEAR_MAX_RANKS",
    default: 8,
    range: (0, 1 << 10),
    help: "ranks up to which short collectives need no tree; 0 for never; the same for all ranks",
};

/// The number of bytes up to which vectors are short.
const LINEAR_MAX_BYTES: Number = Number {
    name: "LINEAR_MAX_BYTES",
    default: 32 << 10,
    range: (0, 1 << 30),
    help: "bytes up to which collectives are short (MPJ_LINEAR_MAX_RANKS); an eighth for scan; the same for all ranks",
};

/// The default number of bytes up to which every rank sends directly to every other.
const DIRECT: u64 = 64 << 10;

/// An upper limit for byte parameters; no message is longer.
const MOST: u64 = 1 << 48;

/// The values of the parameters, read once for a rank.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tuning {
    allreduce: Option<Allreduce>,
    allreduce_ring: usize,
    allgather: Option<bool>,
    allgather_direct: usize,
    alltoall: Option<bool>,
    alltoall_direct: usize,
    flat_ranks: u32,
    flat_bytes: usize,
}

impl Tuning {
    pub(crate) fn new(config: &Config) -> Self {
        Tuning {
            allreduce: config.choice(&ALLREDUCE_ALGORITHM),
            allreduce_ring: config.size(&ALLREDUCE_RING_MIN),
            allgather: config.choice(&ALLGATHER_ALGORITHM),
            allgather_direct: config.size(&ALLGATHER_LINEAR_MAX),
            alltoall: config.choice(&ALLTOALL_ALGORITHM),
            alltoall_direct: config.size(&ALLTOALL_LINEAR_MAX),
            flat_ranks: config.size(&LINEAR_MAX_RANKS) as u32,
            flat_bytes: config.size(&LINEAR_MAX_BYTES),
        }
    }

    /// Returns the algorithm of an allreduce of `bytes` bytes on `size` ranks; the ring only if `can_ring`.
    pub(crate) fn allreduce(&self, size: u32, bytes: usize, can_ring: bool) -> Allreduce {
        match self.allreduce {
            Some(Allreduce::Ring) if !can_ring => Allreduce::Doubling,
            Some(way) => way,
            None if can_ring && bytes >= self.allreduce_ring => Allreduce::Ring,
            None if self.is_flat(size, bytes) => Allreduce::Flat,
            None => Allreduce::Doubling,
        }
    }

    /// Returns whether an allgather of `bytes` bytes, summed over all ranks, is direct.
    pub(crate) fn allgather_directly(&self, bytes: usize) -> bool {
        self.allgather.unwrap_or(bytes <= self.allgather_direct)
    }

    /// Returns whether `size` ranks use a linear algorithm for `bytes` bytes. For two ranks a tree is the same.
    pub(crate) fn is_flat(&self, size: u32, bytes: usize) -> bool {
        size > 2 && size <= self.flat_ranks && bytes <= self.flat_bytes
    }

    /// Returns whether a scan uses the linear algorithm, which sends one message for each pair of ranks.
    pub(crate) fn scan_is_flat(&self, size: u32, bytes: usize) -> bool {
        self.is_flat(size, bytes.saturating_mul(8))
    }

    /// Returns whether an alltoall in which each rank sends `bytes` bytes is direct.
    pub(crate) fn alltoall_directly(&self, bytes: usize) -> bool {
        self.alltoall.unwrap_or(bytes <= self.alltoall_direct)
    }
}

/// Returns whether ranks exchange `bytes` bytes directly in a call of the library itself. Parameters do not affect it,
/// because the digest of such a call does not contain the algorithm.
pub(crate) fn own_words_directly(bytes: usize) -> bool {
    bytes <= DIRECT as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuned(said: &[(&dyn Parameter, &str)]) -> Tuning {
        let mut config = Config::default();
        said.iter().for_each(|(parameter, text)| config.read(*parameter, text).unwrap());
        Tuning::new(&config)
    }

    #[test]
    fn few_ranks_go_directly_with_short_vectors() {
        let usual = tuned(&[]);
        assert!(usual.is_flat(3, 0) && usual.is_flat(8, 32 << 10));
        assert!(!usual.is_flat(2, 0) && !usual.is_flat(9, 0) && !usual.is_flat(8, (32 << 10) + 1));
        assert!(usual.scan_is_flat(8, 4 << 10) && !usual.scan_is_flat(8, (4 << 10) + 1));
        assert!(!usual.scan_is_flat(8, usize::MAX));
        assert!(
            !tuned(&[(&LINEAR_MAX_RANKS, "0")]).is_flat(3, 0)
                && tuned(&[(&LINEAR_MAX_RANKS, "9")]).is_flat(9, 0)
        );
        assert!(
            !tuned(&[(&LINEAR_MAX_BYTES, "0")]).is_flat(3, 1)
                && tuned(&[(&LINEAR_MAX_BYTES, "9")]).is_flat(3, 9)
        );
    }

    #[test]
    fn sizes_decide_unless_an_algorithm_is_forced() {
        let usual = tuned(&[]);
        let allreduce = |bytes| usual.allreduce(4, bytes, true);
        assert_eq!([0, (32 << 10) - 1].map(allreduce), [Allreduce::Flat; 2]);
        assert_eq!(usual.allreduce(9, (32 << 10) - 1, true), Allreduce::Doubling);
        assert_eq!(allreduce(32 << 10), Allreduce::Ring);
        assert_eq!(usual.allreduce(4, (32 << 10) + 1, false), Allreduce::Doubling);
        assert_eq!([2, 9].map(|size| usual.allreduce(size, 8, true)), [Allreduce::Doubling; 2]);
        assert!(usual.allgather_directly(64 << 10) && !usual.allgather_directly((64 << 10) + 1));
        assert!(usual.alltoall_directly(64 << 10) && !usual.alltoall_directly((64 << 10) + 1));
        let tuned_down =
            tuned(&[(&ALLREDUCE_RING_MIN, "8"), (&ALLGATHER_LINEAR_MAX, "8"), (&ALLTOALL_LINEAR_MAX, "0")]);
        assert_eq!([7, 8].map(|n| tuned_down.allreduce(2, n, true)), [Allreduce::Doubling, Allreduce::Ring]);
        assert!(tuned_down.allgather_directly(8) && !tuned_down.allgather_directly(9));
        assert!(tuned_down.alltoall_directly(0) && !tuned_down.alltoall_directly(1));
        for (name, way, direct, long) in [
            ("ring", Allreduce::Ring, "direct", "direct"),
            ("doubling", Allreduce::Doubling, "ring", "pairs"),
            ("flat", Allreduce::Flat, "ring", "pairs"),
        ] {
            let forced = tuned(&[
                (&ALLREDUCE_ALGORITHM, name),
                (&ALLGATHER_ALGORITHM, direct),
                (&ALLTOALL_ALGORITHM, long),
            ]);
            for bytes in [0, 1 << 10, 1 << 40] {
                assert_eq!(forced.allreduce(3, bytes, true), way);
                assert_eq!(forced.allgather_directly(bytes), direct == "direct");
                assert_eq!(forced.alltoall_directly(bytes), long == "direct");
            }
            let otherwise = if name == "ring" { Allreduce::Doubling } else { way };
            assert_eq!(forced.allreduce(3, 8, false), otherwise);
        }
    }
}
