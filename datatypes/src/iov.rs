//! The runs of memory of a layout, for scatter/gather I/O.

use crate::plan::{BlockList, Body, ItemList, MAX_LOOPS, Plan, RunList, Sequence, Strided};
use crate::{Datatype, normalise};
use core::fmt;
use std::sync::Arc;

/// Contiguous bytes of memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Run {
    /// Offset in bytes from the origin of the first item.
    pub offset: i64,
    /// Length in bytes; never 0.
    pub len: usize,
}

impl Datatype {
    /// Returns the maximal runs of `count` items in pack order. Concatenated, they are the packed form, and no run
    /// begins where the previous one ends. `next` takes constant time for each piece that it joins to the run.
    ///
    /// Empty if [`byte_bounds`](Datatype::byte_bounds) or [`packed_size`](Datatype::packed_size) of the items fails.
    ///
    /// ```
    /// use mpj_datatypes::{Datatype, Run};
    /// let runs: Vec<Run> = Datatype::of::<f64>().runs(1 << 40).collect();
    /// assert_eq!(runs, [Run { offset: 0, len: 1 << 43 }]);
    /// ```
    pub fn runs(&self, count: usize) -> Runs {
        let fits = self.byte_bounds(count).is_ok() && self.packed_size(count).is_ok();
        let plan = match fits {
            true => normalise::repeat(self.plan(), count, self.extent()),
            false => Plan::empty(),
        };
        of_plan(&plan, 0)
    }
}

pub(crate) fn of_plan(plan: &Plan, base: i64) -> Runs {
    Runs { walk: Walk::over(plan, base), ahead: None }
}

/// Returns the pieces of a plan at `base` in constant time each; pieces that touch are not joined.
pub(crate) fn pieces(plan: &Plan, base: i64) -> impl Iterator<Item = Run> {
    let mut walk = Walk::over(plan, base);
    core::iter::from_fn(move || walk.next())
}

/// The iterator of [`Datatype::runs`].
pub struct Runs {
    walk: Walk,
    ahead: Option<Run>,
}

impl Iterator for Runs {
    type Item = Run;

    fn next(&mut self) -> Option<Run> {
        loop {
            match (self.ahead, self.walk.next()) {
                (Some(run), Some(piece)) if run.offset.wrapping_add(run.len as i64) == piece.offset => {
                    self.ahead = Some(Run { len: run.len + piece.len, ..run });
                }
                (Some(run), piece) => {
                    self.ahead = piece;
                    return Some(run);
                }
                (None, Some(piece)) => self.ahead = Some(piece),
                (None, None) => return None,
            }
        }
    }
}

impl core::iter::FusedIterator for Runs {}

impl fmt::Debug for Runs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runs").field("ahead", &self.ahead).finish_non_exhaustive()
    }
}

struct Walk {
    /// One frame per nested plan.
    stack: Vec<Frame>,
}

enum Frame {
    Strided { base: i64, strided: Strided, at: [usize; MAX_LOOPS] },
    Blocks { base: i64, list: Arc<BlockList>, i: usize },
    Runs { base: i64, runs: Arc<RunList>, i: usize },
    Items { base: i64, items: Arc<ItemList>, i: usize },
    Sequence { base: i64, sequence: Arc<Sequence>, i: usize },
    Repeat { base: i64, body: Plan, stride: i64, left: usize },
}

impl Walk {
    fn over(plan: &Plan, base: i64) -> Walk {
        let mut walk = Walk { stack: Vec::new() };
        walk.enter(base, plan);
        walk
    }

    fn enter(&mut self, base: i64, plan: &Plan) {
        let base = base.wrapping_add(plan.offset);
        self.stack.push(match &plan.body {
            Body::Empty => return,
            Body::Strided(strided) => Frame::Strided { base, strided: strided.clone(), at: [0; MAX_LOOPS] },
            Body::Blocks(list) => Frame::Blocks { base, list: list.clone(), i: 0 },
            Body::Runs(runs) => Frame::Runs { base, runs: runs.clone(), i: 0 },
            Body::Items(items) => Frame::Items { base, items: items.clone(), i: 0 },
            Body::Sequence(sequence) => Frame::Sequence { base, sequence: sequence.clone(), i: 0 },
            Body::Repeat(repeat) => {
                let (body, level) = (repeat.body.clone(), repeat.level);
                Frame::Repeat { base, body, stride: level.stride, left: level.count }
            }
        });
    }

    fn next(&mut self) -> Option<Run> {
        loop {
            let inner = match self.stack.last_mut()? {
                Frame::Strided { base, strided, at } => {
                    let run = Run { offset: *base, len: strided.block };
                    if !advance_odometer(strided, base, at) {
                        self.stack.pop();
                    }
                    return Some(run);
                }
                Frame::Blocks { base, list, i } => {
                    let run = Run { offset: base.wrapping_add(list.offsets.get(*i)), len: list.block };
                    *i += 1;
                    if *i == list.offsets.len() {
                        self.stack.pop();
                    }
                    return Some(run);
                }
                Frame::Runs { base, runs, i } => {
                    let run = Run {
                        offset: base.wrapping_add(runs.offsets[*i]),
                        len: runs.ends[*i] - runs.start(*i),
                    };
                    *i += 1;
                    if *i == runs.ends.len() {
                        self.stack.pop();
                    }
                    return Some(run);
                }
                Frame::Items { base, items, i } => {
                    let at = (*i < items.offsets.len()).then(|| base.wrapping_add(items.offsets.get(*i)));
                    *i += 1;
                    at.map(|at| (at, items.body.clone()))
                }
                Frame::Sequence { base, sequence, i } => {
                    let part = sequence.parts.get(*i).map(|part| (*base, part.clone()));
                    *i += 1;
                    part
                }
                Frame::Repeat { base, body, stride, left } => {
                    let round = (*left > 0).then(|| (*base, body.clone()));
                    *left = left.saturating_sub(1);
                    *base = base.wrapping_add(*stride);
                    round
                }
            };
            match inner {
                Some((base, plan)) => self.enter(base, &plan),
                None => drop(self.stack.pop()),
            }
        }
    }
}

/// Advances `base` and the loop indices `at` to the next block; returns false at the end.
fn advance_odometer(strided: &Strided, base: &mut i64, at: &mut [usize; MAX_LOOPS]) -> bool {
    for (level, i) in strided.nest().iter().zip(at).rev() {
        *i += 1;
        *base = base.wrapping_add(level.stride);
        if *i < level.count {
            return true;
        }
        *base = base.wrapping_sub(level.stride.wrapping_mul(level.count as i64));
        *i = 0;
    }
    false
}
