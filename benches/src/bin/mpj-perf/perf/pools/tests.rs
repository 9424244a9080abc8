//! The tests of the pools.

use clap::ValueEnum;

use super::stream::STEPS;

/// One measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Task {
    pub(super) test: Test,
    pub(super) bytes: usize,
    pub(super) calls: usize,
}

/// A way to use blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Test {
    /// Allocate one block, write 8 bytes, free it: the paper's figure 8
    One,
    /// Free one of 256 live blocks at random, allocate another of 64 B to 8 MiB
    Mix,
    /// Two threads at once, each with 16 live blocks of one size
    Pair,
    /// One thread allocates and writes, another reads and frees; a ring of 64 places between them
    Handoff,
    /// Allocate, write every byte, free
    Touch,
    /// As touch, but eight blocks before the first is freed
    TouchMany,
    /// As one, pools of one size
    Fixed,
    /// Make a region of memory
    Start,
}

impl Test {
    /// Returns the name in the CSV.
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

    /// Returns the title of the table.
    pub(super) fn title(self) -> &'static str {
        match self {
            Test::One => "One block: allocate, write 8 bytes, free",
            Test::Mix => "256 live blocks of 64 B to 8 MiB: free one, allocate one, write 8 bytes",
            Test::Pair => "Two threads, each with 16 live blocks: free one, allocate one (ns of each thread)",
            Test::Handoff => {
                "Allocated on one thread, freed on the other: a message, the ring between included"
            }
            Test::Touch => "First touch: allocate, write every byte, free",
            Test::TouchMany => "First touch, eight blocks before the first is freed (ns of one)",
            Test::Fixed => "Pools of one size: get, write 8 bytes, give back",
            Test::Start => "A region of memory, made (heap: not faulted in)",
        }
    }

    /// Returns the sizes; the size 0 stands for the mix, which has its own sizes.
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

    /// Returns whether the test needs a second thread.
    pub(super) fn pairs(self) -> bool {
        matches!(self, Test::Pair | Test::Handoff)
    }

    /// Returns the smallest meaningful number of calls; every number of calls is a multiple of it.
    pub(super) fn least(self) -> usize {
        match self {
            Test::Mix => STEPS,
            Test::Handoff => 128,
            Test::Pair => 32,
            _ => 1,
        }
    }

    /// Returns how many runs of the smallest number of calls precede the first round, so that pools have grown to
    /// their final size.
    pub(super) fn settling(self) -> usize {
        match self {
            Test::Mix => 3,
            _ => 1,
        }
    }
}
