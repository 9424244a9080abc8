//! Which algorithm a collective takes: the one that a parameter forces, else by the number of bytes.
//!
//! All ranks have to decide alike. What they decide is in the label of their messages, so that ranks with different
//! parameters are told of each other.

use mpj_devices::config::{Choice, Config, Number, Parameter};

/// The parameters of collectives.
pub(crate) const PARAMETERS: &[&dyn Parameter] =
    &[&ALLREDUCE, &ALLREDUCE_RING, &ALLGATHER, &ALLGATHER_DIRECT, &ALLTOALL, &ALLTOALL_DIRECT];

/// How an allreduce goes: whether around a ring.
const ALLREDUCE: Choice<Option<bool>> = Choice {
    name: "ALLREDUCE",
    values: &[("auto", None), ("doubling", Some(false)), ("ring", Some(true))],
    help: "how allreduce goes; around a ring only with a commutative operation and at least one item a rank; the same \
           for all ranks",
};

/// From where on an allreduce goes around a ring.
const ALLREDUCE_RING: Number = Number {
    name: "ALLREDUCE_RING",
    default: 32 << 10,
    range: (0, MOST),
    help: "bytes from which allreduce goes around a ring, with MPJ_ALLREDUCE=auto; the same for all ranks",
};

/// How an allgather goes: whether directly.
const ALLGATHER: Choice<Option<bool>> = Choice {
    name: "ALLGATHER",
    values: &[("auto", None), ("direct", Some(true)), ("ring", Some(false))],
    help: "how allgather goes: from every rank to every other at once, or around a ring; the same for all ranks",
};

/// Up to where an allgather goes directly.
const ALLGATHER_DIRECT: Number = Number {
    name: "ALLGATHER_DIRECT",
    default: DIRECT,
    range: (0, MOST),
    help: "bytes, of all ranks together, up to which allgather is direct, with MPJ_ALLGATHER=auto; the same for all ranks",
};

/// How an alltoall goes: whether directly.
const ALLTOALL: Choice<Option<bool>> = Choice {
    name: "ALLTOALL",
    values: &[("auto", None), ("direct", Some(true)), ("pairs", Some(false))],
    help: "how alltoall goes: to every rank at once, or one partner at a time; the same for all ranks",
};

/// Up to where an alltoall goes directly.
const ALLTOALL_DIRECT: Number = Number {
    name: "ALLTOALL_DIRECT",
    default: DIRECT,
    range: (0, MOST),
    help: "bytes a rank sends up to which alltoall is direct, with MPJ_ALLTOALL=auto; the same for all ranks",
};

/// Bytes up to which every rank sends to every other at once unless something else is said.
const DIRECT: u64 = 64 << 10;

/// No message is longer.
const MOST: u64 = 1 << 48;

/// What the parameters say, read once for a rank.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tuning {
    allreduce: Option<bool>,
    allreduce_ring: usize,
    allgather: Option<bool>,
    allgather_direct: usize,
    alltoall: Option<bool>,
    alltoall_direct: usize,
}

impl Tuning {
    pub(crate) fn new(config: &Config) -> Self {
        Tuning {
            allreduce: config.choice(&ALLREDUCE),
            allreduce_ring: config.size(&ALLREDUCE_RING),
            allgather: config.choice(&ALLGATHER),
            allgather_direct: config.size(&ALLGATHER_DIRECT),
            alltoall: config.choice(&ALLTOALL),
            alltoall_direct: config.size(&ALLTOALL_DIRECT),
        }
    }

    /// Whether an allreduce of so many bytes goes around a ring, where it can.
    pub(crate) fn allreduce_by_ring(&self, bytes: usize) -> bool {
        self.allreduce.unwrap_or(bytes >= self.allreduce_ring)
    }

    /// Whether an allgather of so many bytes, of all ranks together, is direct.
    pub(crate) fn allgather_directly(&self, bytes: usize) -> bool {
        self.allgather.unwrap_or(bytes <= self.allgather_direct)
    }

    /// Whether an alltoall in which each rank sends so many bytes is direct.
    pub(crate) fn alltoall_directly(&self, bytes: usize) -> bool {
        self.alltoall.unwrap_or(bytes <= self.alltoall_direct)
    }
}

/// Whether ranks exchange so many bytes directly for a call of the library's own, whatever the parameters say: its messages
/// do not tell ranks of each other's.
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
    fn sizes_decide_unless_an_algorithm_is_forced() {
        let usual = tuned(&[]);
        assert!(!usual.allreduce_by_ring((32 << 10) - 1) && usual.allreduce_by_ring(32 << 10));
        assert!(usual.allgather_directly(64 << 10) && !usual.allgather_directly((64 << 10) + 1));
        assert!(usual.alltoall_directly(64 << 10) && !usual.alltoall_directly((64 << 10) + 1));
        let tuned_down = tuned(&[(&ALLREDUCE_RING, "8"), (&ALLGATHER_DIRECT, "8"), (&ALLTOALL_DIRECT, "0")]);
        assert!(!tuned_down.allreduce_by_ring(7) && tuned_down.allreduce_by_ring(8));
        assert!(tuned_down.allgather_directly(8) && !tuned_down.allgather_directly(9));
        assert!(tuned_down.alltoall_directly(0) && !tuned_down.alltoall_directly(1));
        for (ring, direct, long) in [("ring", "direct", "direct"), ("doubling", "ring", "pairs")] {
            let forced = tuned(&[(&ALLREDUCE, ring), (&ALLGATHER, direct), (&ALLTOALL, long)]);
            for bytes in [0, 1 << 10, 1 << 40] {
                assert_eq!(forced.allreduce_by_ring(bytes), ring == "ring");
                assert_eq!(forced.allgather_directly(bytes), direct == "direct");
                assert_eq!(forced.alltoall_directly(bytes), long == "direct");
            }
        }
    }
}
