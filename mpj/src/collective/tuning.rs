//! The selection of a collective's algorithm: by a parameter, otherwise by the arguments and the number of ranks.
//!
//! All ranks must select the same algorithm. It is a part of the digest of their messages, so ranks detect a mismatch.
//! Exception: an alltoallv sends the same messages by both algorithms.

use mpj_devices::config::{Choice, Config, Number, Parameter};

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

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Allreduce {
    Linear,
    RecursiveDoubling,
    Ring,
}

const ALLREDUCE_ALGORITHM: Choice<Option<Allreduce>> = Choice {
    name: "ALLREDUCE_ALGORITHM",
    values: &[
        ("auto", None),
        ("linear", Some(Allreduce::Linear)),
        ("recursive_doubling", Some(Allreduce::RecursiveDoubling)),
        ("ring", Some(Allreduce::Ring)),
    ],
    help: "allreduce algorithm; ring needs a commutative operation and one item per rank; same on all ranks",
};

const ALLREDUCE_RING_MIN: Number = Number {
    name: "ALLREDUCE_RING_MIN",
    default: 32 << 10,
    range: (0, MAX_BYTES),
    help: "bytes from which allreduce uses the ring (algorithm auto); same on all ranks",
};

/// Whether allgather is linear.
const ALLGATHER_ALGORITHM: Choice<Option<bool>> = Choice {
    name: "ALLGATHER_ALGORITHM",
    values: &[("auto", None), ("linear", Some(true)), ("ring", Some(false))],
    help: "allgather algorithm; same on all ranks",
};

const ALLGATHER_LINEAR_MAX: Number = Number {
    name: "ALLGATHER_LINEAR_MAX",
    default: LINEAR_LIMIT,
    range: (0, MAX_BYTES),
    help: "bytes of all ranks together up to which allgather is linear (algorithm auto); same on all ranks",
};

/// Whether alltoall is linear.
const ALLTOALL_ALGORITHM: Choice<Option<bool>> = Choice {
    name: "ALLTOALL_ALGORITHM",
    values: &[("auto", None), ("linear", Some(true)), ("pairwise", Some(false))],
    help: "alltoall algorithm; same on all ranks",
};

const ALLTOALL_LINEAR_MAX: Number = Number {
    name: "ALLTOALL_LINEAR_MAX",
    default: LINEAR_LIMIT,
    range: (0, MAX_BYTES),
    help: "bytes each rank sends up to which alltoall is linear (algorithm auto); same on all ranks",
};

const LINEAR_MAX_RANKS: Number = Number {
    name: "LINEAR_MAX_RANKS",
    default: 8,
    range: (0, 1 << 10),
    help: "ranks up to which barrier, and bcast, reduce, allreduce and scan of short vectors, are linear instead of \
           trees; 0: never; same on all ranks",
};

const LINEAR_MAX_BYTES: Number = Number {
    name: "LINEAR_MAX_BYTES",
    default: 32 << 10,
    range: (0, 1 << 30),
    help: "bytes up to which vectors are short for MPJ_LINEAR_MAX_RANKS (scan: an eighth); same on all ranks",
};

/// The default number of bytes up to which allgather and alltoall are linear.
const LINEAR_LIMIT: u64 = 64 << 10;

/// The upper limit of the parameters in bytes, except `LINEAR_MAX_BYTES`.
const MAX_BYTES: u64 = 1 << 48;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Tuning {
    allreduce: Option<Allreduce>,
    allreduce_ring_min: usize,
    allgather: Option<bool>,
    allgather_linear_max: usize,
    alltoall: Option<bool>,
    alltoall_linear_max: usize,
    linear_max_ranks: u32,
    linear_max_bytes: usize,
}

impl Tuning {
    pub(crate) fn new(config: &Config) -> Self {
        Tuning {
            allreduce: config.choice(&ALLREDUCE_ALGORITHM),
            allreduce_ring_min: config.size(&ALLREDUCE_RING_MIN),
            allgather: config.choice(&ALLGATHER_ALGORITHM),
            allgather_linear_max: config.size(&ALLGATHER_LINEAR_MAX),
            alltoall: config.choice(&ALLTOALL_ALGORITHM),
            alltoall_linear_max: config.size(&ALLTOALL_LINEAR_MAX),
            linear_max_ranks: config.size(&LINEAR_MAX_RANKS) as u32,
            linear_max_bytes: config.size(&LINEAR_MAX_BYTES),
        }
    }

    pub(crate) fn allreduce(&self, size: u32, bytes: usize, can_ring: bool) -> Allreduce {
        match self.allreduce {
            Some(Allreduce::Ring) if !can_ring => Allreduce::RecursiveDoubling,
            Some(algorithm) => algorithm,
            None if can_ring && bytes >= self.allreduce_ring_min => Allreduce::Ring,
            None if self.use_linear(size, bytes) => Allreduce::Linear,
            None => Allreduce::RecursiveDoubling,
        }
    }

    /// Returns whether an allgather is linear; `bytes` is the sum over all ranks.
    pub(crate) fn use_linear_allgather(&self, bytes: usize) -> bool {
        self.allgather.unwrap_or(bytes <= self.allgather_linear_max)
    }

    /// Returns whether a collective of `size` ranks and `bytes` bytes is linear; for two ranks this has no advantage.
    pub(crate) fn use_linear(&self, size: u32, bytes: usize) -> bool {
        size > 2 && size <= self.linear_max_ranks && bytes <= self.linear_max_bytes
    }

    /// As [`use_linear`](Self::use_linear), with a lower limit: a linear scan sends one message for each pair of ranks.
    pub(crate) fn use_linear_scan(&self, size: u32, bytes: usize) -> bool {
        self.use_linear(size, bytes.saturating_mul(8))
    }

    /// Returns whether an alltoall is linear; each rank sends `bytes` bytes.
    pub(crate) fn use_linear_alltoall(&self, bytes: usize) -> bool {
        self.alltoall.unwrap_or(bytes <= self.alltoall_linear_max)
    }
}

/// Returns whether an allgather inside another call is linear. Parameters must not affect it, because the digest of
/// that call does not contain the algorithm.
pub(crate) fn use_linear_internal(bytes: usize) -> bool {
    bytes <= LINEAR_LIMIT as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuning(settings: &[(&dyn Parameter, &str)]) -> Tuning {
        let mut config = Config::default();
        settings.iter().for_each(|(parameter, text)| config.set_text(*parameter, text).unwrap());
        Tuning::new(&config)
    }

    #[test]
    fn short_vectors_of_few_ranks_are_linear() {
        let defaults = tuning(&[]);
        assert!(defaults.use_linear(3, 0) && defaults.use_linear(8, 32 << 10));
        assert!(
            !defaults.use_linear(2, 0)
                && !defaults.use_linear(9, 0)
                && !defaults.use_linear(8, (32 << 10) + 1)
        );
        assert!(defaults.use_linear_scan(8, 4 << 10) && !defaults.use_linear_scan(8, (4 << 10) + 1));
        assert!(!defaults.use_linear_scan(8, usize::MAX));
        assert!(
            !tuning(&[(&LINEAR_MAX_RANKS, "0")]).use_linear(3, 0)
                && tuning(&[(&LINEAR_MAX_RANKS, "9")]).use_linear(9, 0)
        );
        assert!(
            !tuning(&[(&LINEAR_MAX_BYTES, "0")]).use_linear(3, 1)
                && tuning(&[(&LINEAR_MAX_BYTES, "9")]).use_linear(3, 9)
        );
    }

    #[test]
    fn sizes_select_the_algorithm_unless_it_is_forced() {
        let defaults = tuning(&[]);
        let allreduce = |bytes| defaults.allreduce(4, bytes, true);
        assert_eq!([0, (32 << 10) - 1].map(allreduce), [Allreduce::Linear; 2]);
        assert_eq!(defaults.allreduce(9, (32 << 10) - 1, true), Allreduce::RecursiveDoubling);
        assert_eq!(allreduce(32 << 10), Allreduce::Ring);
        assert_eq!(defaults.allreduce(4, (32 << 10) + 1, false), Allreduce::RecursiveDoubling);
        assert_eq!([2, 9].map(|size| defaults.allreduce(size, 8, true)), [Allreduce::RecursiveDoubling; 2]);
        assert!(defaults.use_linear_allgather(64 << 10) && !defaults.use_linear_allgather((64 << 10) + 1));
        assert!(defaults.use_linear_alltoall(64 << 10) && !defaults.use_linear_alltoall((64 << 10) + 1));
        let lowered =
            tuning(&[(&ALLREDUCE_RING_MIN, "8"), (&ALLGATHER_LINEAR_MAX, "8"), (&ALLTOALL_LINEAR_MAX, "0")]);
        assert_eq!(
            [7, 8].map(|n| lowered.allreduce(2, n, true)),
            [Allreduce::RecursiveDoubling, Allreduce::Ring]
        );
        assert!(lowered.use_linear_allgather(8) && !lowered.use_linear_allgather(9));
        assert!(lowered.use_linear_alltoall(0) && !lowered.use_linear_alltoall(1));
        for (name, algorithm, allgather, alltoall) in [
            ("ring", Allreduce::Ring, "linear", "linear"),
            ("recursive_doubling", Allreduce::RecursiveDoubling, "ring", "pairwise"),
            ("linear", Allreduce::Linear, "ring", "pairwise"),
        ] {
            let forced = tuning(&[
                (&ALLREDUCE_ALGORITHM, name),
                (&ALLGATHER_ALGORITHM, allgather),
                (&ALLTOALL_ALGORITHM, alltoall),
            ]);
            for bytes in [0, 1 << 10, 1 << 40] {
                assert_eq!(forced.allreduce(3, bytes, true), algorithm);
                assert_eq!(forced.use_linear_allgather(bytes), allgather == "linear");
                assert_eq!(forced.use_linear_alltoall(bytes), alltoall == "linear");
            }
            let without_ring = if name == "ring" { Allreduce::RecursiveDoubling } else { algorithm };
            assert_eq!(forced.allreduce(3, 8, false), without_ring);
        }
    }
}
