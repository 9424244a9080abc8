//! The tests of the pools.

use clap::ValueEnum;

use super::stream::STEPS;

#[derive(Clone, Copy, Debug)]
pub(super) struct Task {
    pub(super) test: Test,
    pub(super) bytes: usize,
    pub(super) calls: usize,
}

/// A pattern of allocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Test {
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
    /// As touch, with eight blocks before the first is freed
    TouchMany,
    /// As one, with pools of one size
    Fixed,
    /// Create a region of memory
    Start,
}

impl Test {
    pub(super) fn name(self) -> &'static str {
        match self {
            Test::One => "one",
            Test::Mix => "mix",
            Test::Pair => "pair",
            Test::Handoff => "handoff",
            Test::Touch => "touch",
            Test::TouchMany => "touch-many",
            Test::Fixed => "fixed",
            Test::Start => "start",
        }
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            Test::One => "One block: allocate, write 8 bytes, free",
            Test::Mix => "256 live blocks of 64 B to 8 MiB: free one, allocate one, write 8 bytes",
            Test::Pair => "Two threads, each with 16 live blocks: free one, allocate one (ns of each thread)",
            Test::Handoff => "Allocated on one thread, freed on the other (ns per block, including the ring)",
            Test::Touch => "First touch: allocate, write every byte, free",
            Test::TouchMany => "First touch, eight blocks before the first is freed (ns of one)",
            Test::Fixed => "Pools of one size: allocate, write 8 bytes, free",
            Test::Start => "Create a region of memory (heap: pages not present)",
        }
    }

    /// Returns the sizes; 0 is the mix, which has its own sizes.
    pub(super) fn sizes(self) -> Vec<usize> {
        match self {
            Test::One => (6..=23).map(|power| 1 << power).collect(),
            Test::Mix => vec![0],
            Test::Pair => vec![64, 8 << 10, 256 << 10],
            Test::Handoff => vec![64, 8 << 10, 256 << 10, 1 << 20],
            Test::Touch => vec![64 << 10, 1 << 20, 8 << 20],
            Test::TouchMany => vec![1 << 20, 8 << 20],
            Test::Fixed => vec![64, 8 << 10, 1 << 20],
            Test::Start => vec![1 << 20, 16 << 20, 64 << 20],
        }
    }

    pub(super) fn needs_two_threads(self) -> bool {
        matches!(self, Test::Pair | Test::Handoff)
    }

    /// Every number of calls is a multiple of this.
    pub(super) fn min_calls(self) -> usize {
        match self {
            Test::Mix => STEPS,
            Test::Handoff => 128,
            Test::Pair => 32,
            _ => 1,
        }
    }

    /// Returns how many runs precede the first round, so that pools have grown to their final size.
    pub(super) fn warmup_runs(self) -> usize {
        match self {
            Test::Mix => 3,
            _ => 1,
        }
    }
}
