//! The allocation patterns that are measured, and a run of a pattern: `calls` calls with blocks of `bytes` bytes.

use clap::ValueEnum;

use super::stream::STEPS;

#[derive(Clone, Copy, Debug)]
pub(super) struct PatternRun {
    pub(super) pattern: AllocPattern,
    pub(super) bytes: usize,
    pub(super) calls: usize,
}

/// A pattern of allocation: a test of `mpj-perf pools`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum AllocPattern {
    /// Allocate a block, write 8 bytes, free it: figure 8 of the paper
    One,
    /// Free one of 256 live blocks at random, allocate another of 64 B to 8 MiB
    Mix,
    /// Two concurrent threads, each with 16 live blocks of one size
    Pair,
    /// One thread allocates and writes, another reads and frees, with a ring of 64 places between them
    Handoff,
    /// Allocate, write every byte, free
    Touch,
    /// Like touch, but eight blocks are allocated and written before the first is freed
    TouchMany,
    /// Like one, for the default pool and pools of objects of one size
    Fixed,
    /// Create a region of memory
    Start,
}

impl AllocPattern {
    pub(super) fn name(self) -> &'static str {
        match self {
            AllocPattern::One => "one",
            AllocPattern::Mix => "mix",
            AllocPattern::Pair => "pair",
            AllocPattern::Handoff => "handoff",
            AllocPattern::Touch => "touch",
            AllocPattern::TouchMany => "touch-many",
            AllocPattern::Fixed => "fixed",
            AllocPattern::Start => "start",
        }
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            AllocPattern::One => "One block: allocate, write 8 bytes, free",
            AllocPattern::Mix => "256 live blocks of 64 B to 8 MiB: free one, allocate one, write 8 bytes",
            AllocPattern::Pair => {
                "Two threads, each with 16 live blocks: free one, allocate one (ns per block, of the first thread)"
            }
            AllocPattern::Handoff => {
                "Allocated on one thread, freed on the other (ns per block, including the ring)"
            }
            AllocPattern::Touch => "First touch: allocate, write every byte, free",
            AllocPattern::TouchMany => "First touch, eight blocks before the first is freed (ns of one)",
            AllocPattern::Fixed => "Pools of one size: allocate, write 8 bytes, free",
            AllocPattern::Start => "Create a region of memory (heap: pages not present)",
        }
    }

    /// Returns the sizes of the blocks or regions in bytes; 0 means the sizes of the mix.
    pub(super) fn sizes(self) -> Vec<usize> {
        match self {
            AllocPattern::One => (6..=23).map(|power| 1 << power).collect(),
            AllocPattern::Mix => vec![0],
            AllocPattern::Pair => vec![64, 8 << 10, 256 << 10],
            AllocPattern::Handoff => vec![64, 8 << 10, 256 << 10, 1 << 20],
            AllocPattern::Touch => vec![64 << 10, 1 << 20, 8 << 20],
            AllocPattern::TouchMany => vec![1 << 20, 8 << 20],
            AllocPattern::Fixed => vec![64, 8 << 10, 1 << 20],
            AllocPattern::Start => vec![1 << 20, 16 << 20, 64 << 20],
        }
    }

    pub(super) fn needs_two_threads(self) -> bool {
        matches!(self, AllocPattern::Pair | AllocPattern::Handoff)
    }

    /// Every number of calls is a multiple of this.
    pub(super) fn calls_unit(self) -> usize {
        match self {
            AllocPattern::Mix => STEPS,
            AllocPattern::Handoff => 128,
            AllocPattern::Pair => 32,
            _ => 1,
        }
    }

    /// Returns how many runs precede the first round, so that pools have grown to their final size.
    pub(super) fn warmup_runs(self) -> usize {
        match self {
            AllocPattern::Mix => 3,
            _ => 1,
        }
    }
}
