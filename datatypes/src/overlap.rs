//! Detection of overlaps: a layout to receive into must not contain a byte twice (MPI 4.1 §3.2.4, §5.1.11).

use crate::plan::{Body, Loop, MAX_LOOPS, Plan, Strided};
use crate::{Datatype, OverlapError, normalise};
use core::sync::atomic::{AtomicUsize, Ordering};

/// Maximum number of steps of a search through nested loops.
const MAX_SEARCH_STEPS: usize = 1 << 16;
/// Pieces are sorted only if no cheaper test decides: at most this number, or [`BUDGET_FACTOR`] times the number of
/// list entries of the type if that is larger. So the cost is proportional to the type's description.
const MIN_PIECES: usize = 1 << 16;
const BUDGET_FACTOR: usize = 8;

/// The largest number of items for which a complete search has found no overlap.
#[derive(Debug, Default)]
pub(crate) struct DisjointUpTo(AtomicUsize);

impl Datatype {
    /// Checks that `count` items contain no byte twice, because its value after a receive would be undefined.
    ///
    /// The check is exact unless it needs more than a bounded number of steps, or the size or bounds of the items
    /// overflow. Then it reports no overlap: one receive into such a type is safe, and the last write wins. Several
    /// receives at once need [`check_disjoint`](Self::check_disjoint). The success of an exact check is cached.
    ///
    /// # Errors
    /// [`OverlapError`] with a byte that is contained twice.
    ///
    /// # Examples
    /// ```
    /// use mpj_datatypes::Datatype;
    /// let column = Datatype::of::<u32>().vector(3, 1, 4)?;
    /// // Columns side by side; columns that each start in the next row.
    /// assert!(column.resized(0, 4)?.check_overlap(4).is_ok());
    /// assert_eq!(column.resized(0, 16)?.check_overlap(2).unwrap_err().offset, 16);
    /// # Ok::<(), mpj_datatypes::TypeError>(())
    /// ```
    #[inline]
    pub fn check_overlap(&self, count: usize) -> Result<(), OverlapError> {
        // Relaxed: the number orders no other access, and a thread that reads an old one repeats the check.
        if self.is_contiguous() || count <= self.node().disjoint_up_to.0.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.search_overlap(count)
    }

    /// As [`check_overlap`](Self::check_overlap), but always exact, unless the size or bounds of the items overflow. If
    /// the bounded search does not decide, this takes memory and time for each piece of the items, once.
    ///
    /// # Errors
    /// [`OverlapError`] with a byte that is contained twice.
    #[inline]
    pub fn check_disjoint(&self, count: usize) -> Result<(), OverlapError> {
        self.check_overlap(count)?;
        let is_proved = self.is_contiguous() || count <= self.node().disjoint_up_to.0.load(Ordering::Relaxed);
        if is_proved { Ok(()) } else { self.compare_all_pieces(count) }
    }

    #[cold]
    fn search_overlap(&self, count: usize) -> Result<(), OverlapError> {
        let Some(plan) = self.plan_of(count) else { return Ok(()) };
        let pieces = listed_pieces(&plan).saturating_mul(BUDGET_FACTOR).max(MIN_PIECES);
        let mut budget = SearchBudget { steps: MAX_SEARCH_STEPS, pieces, is_exceeded: false };
        search(&plan, 0, &mut budget)?;
        if !budget.is_exceeded {
            self.node().disjoint_up_to.0.fetch_max(count, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Returns the plan of several items, unless their size or bounds overflow.
    fn plan_of(&self, count: usize) -> Option<Plan> {
        self.packed_size(count).ok()?;
        self.byte_bounds(count).ok()?;
        Some(normalise::repeat(self.plan(), count, self.extent()))
    }

    #[cold]
    fn compare_all_pieces(&self, count: usize) -> Result<(), OverlapError> {
        let Some(plan) = self.plan_of(count) else { return Ok(()) };
        let (low, high) = hull(&plan, 0);
        // If the first pieces have more bytes than there are places, two of them overlap, and the others do not matter.
        let (mut bytes, places) = (0, high - low);
        let pieces: Vec<_> = crate::iov::pieces(&plan, 0)
            .map(|piece| (piece.offset, piece.len))
            .take_while(|(_, len)| {
                bytes <= places && {
                    bytes += *len as i128;
                    true
                }
            })
            .collect();
        search_list(pieces.into_iter())?;
        self.node().disjoint_up_to.0.fetch_max(count, Ordering::Relaxed);
        Ok(())
    }
}

struct SearchBudget {
    steps: usize,
    pieces: usize,
    /// Whether a part of the search has ended early.
    is_exceeded: bool,
}

fn listed_pieces(plan: &Plan) -> usize {
    let one = |plan: &Plan| match &plan.body {
        Body::Blocks(list) => list.offsets.len(),
        Body::Runs(list) => list.ends.len(),
        Body::Items(items) => items.offsets.len().saturating_mul(items.pieces.len().max(1)),
        _ => 1,
    };
    match &plan.body {
        Body::Repeat(repeat) => listed_pieces(&repeat.body),
        Body::Sequence(sequence) => sequence.parts.iter().map(one).fold(0, usize::saturating_add),
        _ => one(plan),
    }
}

fn search(plan: &Plan, base: i64, budget: &mut SearchBudget) -> Result<(), OverlapError> {
    let base = base.wrapping_add(plan.offset);
    match &plan.body {
        Body::Empty => Ok(()),
        Body::Strided(strided) => search_loops(strided, base, budget),
        Body::Blocks(list) => {
            search_list((0..list.offsets.len()).map(|i| (base.wrapping_add(list.offsets.get(i)), list.block)))
        }
        Body::Runs(list) => {
            let len = |i: usize| list.ends[i] - list.start(i);
            search_list((0..list.ends.len()).map(|i| (base.wrapping_add(list.offsets[i]), len(i))))
        }
        Body::Items(items) => {
            let mut places: Vec<_> = (0..items.offsets.len()).map(|i| items.offsets.get(i)).collect();
            search(&items.body, base.wrapping_add(places[0]), budget)?;
            let (low, high) = hull(&items.body, 0);
            places.sort_unstable();
            let disjoint = places.windows(2).all(|p| i128::from(p[1]) - i128::from(p[0]) >= high - low);
            if disjoint { Ok(()) } else { search_pieces(plan, base, budget) }
        }
        Body::Sequence(sequence) => {
            let mut hulls = Vec::with_capacity(sequence.parts.len());
            for part in &sequence.parts {
                search(part, base, budget)?;
                hulls.push(hull(part, base));
            }
            hulls.sort_unstable();
            let disjoint = hulls.windows(2).all(|pair| pair[0].1 <= pair[1].0);
            if disjoint {
                return Ok(());
            }
            search_strided_pieces(plan, base, budget).unwrap_or_else(|| search_pieces(plan, base, budget))
        }
        Body::Repeat(repeat) => {
            search(&repeat.body, base, budget)?;
            let (low, high) = hull(&repeat.body, base);
            let Loop { count, stride } = repeat.level;
            let distance = i128::from(stride).abs();
            if distance >= high - low {
                return Ok(());
            }
            if let Some(decided) = search_strided_pieces(plan, base, budget) {
                return decided;
            }
            // More distant rounds cannot overlap.
            let rounds = (high - low).checked_div(distance).map_or(2, |n| n + 1);
            let count = usize::try_from(rounds).map_or(count, |rounds| count.min(rounds));
            let nearest = normalise::repeat(&repeat.body, count, stride);
            search_pieces(&nearest, base.wrapping_add(nearest.offset), budget)
        }
    }
}

/// Compares all pieces. Returns `Ok` if they exceed the budget.
fn search_pieces(plan: &Plan, base: i64, budget: &mut SearchBudget) -> Result<(), OverlapError> {
    let mut pieces: Vec<(i64, usize)> = Vec::new();
    // Pieces, not runs: a run joins any number of adjacent pieces, so its cost is not bounded.
    for piece in crate::iov::pieces(plan, base.wrapping_sub(plan.offset)) {
        let Some(rest) = budget.pieces.checked_sub(1) else {
            budget.is_exceeded = true;
            return Ok(());
        };
        budget.pieces = rest;
        pieces.push((piece.offset, piece.len));
    }
    search_list(pieces.into_iter())
}

/// A piece that is repeated with the common stride, from `start` on.
#[derive(Clone, Copy)]
struct StridedPiece {
    /// Position modulo the stride, which is at most 2^63 and at least the length of the piece.
    residue: u64,
    start: i64,
    len: usize,
    count: usize,
}

/// Checks interleaved loops of one stride, such as real and imaginary parts, or columns. If their pieces have disjoint
/// residues, no number of steps leads from one into another. Returns `None` if the residues do not decide.
fn search_strided_pieces(plan: &Plan, base: i64, budget: &SearchBudget) -> Option<Result<(), OverlapError>> {
    let mut distance = None;
    let mut pieces = Vec::new();
    let parts = match &plan.body {
        Body::Sequence(sequence) => &sequence.parts[..],
        _ => core::slice::from_ref(plan),
    };
    for part in parts {
        let at = if matches!(plan.body, Body::Sequence(_)) { base.wrapping_add(part.offset) } else { base };
        let (Loop { count, stride }, round) = match &part.body {
            Body::Strided(Strided { depth: 1, block, levels, .. }) => (levels[0], Plan::block(0, *block)),
            Body::Repeat(repeat) => (repeat.level, repeat.body.clone()),
            _ => return None,
        };
        let length = stride.unsigned_abs();
        if length == 0 || *distance.get_or_insert(length) != length {
            return None;
        }
        // The lowest round of a loop that goes backwards is its last.
        let lowest = at.wrapping_add(stride.min(0).wrapping_mul(count as i64 - 1));
        for piece in crate::iov::pieces(&round, lowest) {
            if pieces.len() == budget.pieces || piece.len as u64 > length {
                return None;
            }
            let residue = i128::from(piece.offset).rem_euclid(length.into()) as u64;
            pieces.push(StridedPiece { residue, start: piece.offset, len: piece.len, count });
        }
    }
    pieces.sort_unstable_by_key(|piece| (piece.residue, piece.start));
    let (distance, first, last) = (distance?, *pieces.first()?, *pieces.last()?);
    if pieces.len() == 1 {
        return Some(Ok(()));
    }
    let wrapped = (last, StridedPiece { residue: first.residue + distance, ..first });
    let next = pieces.windows(2).map(|pair| (pair[0], pair[1]));
    let mut suspects =
        next.chain([wrapped]).filter(|(one, other)| one.residue + one.len as u64 > other.residue).peekable();
    if suspects.peek().is_none() {
        return Some(Ok(()));
    }
    suspects
        .find_map(|(one, other)| first_overlap(one, other, distance.into()))
        .map(|offset| Err(OverlapError { offset }))
}

fn first_overlap(one: StridedPiece, other: StridedPiece, distance: i128) -> Option<i64> {
    let gap = i128::from(other.start) - i128::from(one.start);
    let steps = gap.div_euclid(distance);
    [steps, steps + 1].into_iter().find_map(|steps| {
        // Steps of `one` if positive, of `other` if negative.
        let ahead = steps * distance - gap;
        let touch = ahead < other.len as i128 && -ahead < one.len as i128;
        let taken = steps > -(other.count as i128) && steps < one.count as i128;
        if !touch || !taken {
            return None;
        }
        let start = |piece: StridedPiece, steps: i128| i128::from(piece.start) + steps.max(0) * distance;
        i64::try_from(start(one, steps).max(start(other, -steps))).ok()
    })
}

fn search_list(pieces: impl Iterator<Item = (i64, usize)> + Clone) -> Result<(), OverlapError> {
    let end = |(at, len): (i64, usize)| i128::from(at) + len as i128;
    let mut reached = i128::MIN;
    let in_order = pieces.clone().all(|piece| {
        let disjoint = i128::from(piece.0) >= reached;
        reached = end(piece);
        disjoint
    });
    if in_order {
        return Ok(());
    }
    let mut sorted: Vec<_> = pieces.collect();
    sorted.sort_unstable();
    match sorted.windows(2).find(|pair| end(pair[0]) > i128::from(pair[1].0)) {
        Some(pair) => Err(OverlapError { offset: pair[1].0 }),
        None => Ok(()),
    }
}

fn hull(plan: &Plan, base: i64) -> (i128, i128) {
    let base = base.wrapping_add(plan.offset);
    let stretch = |(low, high): (i128, i128), count: usize, stride: i64| {
        let by = (count as i128 - 1) * i128::from(stride);
        (low + by.min(0), high + by.max(0))
    };
    let of = |low: i64, high: i128| (i128::from(low), high);
    let join = |a: (i128, i128), b: (i128, i128)| (a.0.min(b.0), a.1.max(b.1));
    match &plan.body {
        Body::Empty => of(base, base.into()),
        Body::Strided(strided) => {
            let block = of(base, i128::from(base) + strided.block as i128);
            strided.nest().iter().fold(block, |hull, level| stretch(hull, level.count, level.stride))
        }
        Body::Blocks(_) | Body::Runs(_) => crate::iov::of_plan(plan, base.wrapping_sub(plan.offset))
            .map(|run| of(run.offset, i128::from(run.offset) + run.len as i128))
            .fold((i128::MAX, i128::MIN), join),
        Body::Items(items) => {
            let (low, high) = hull(&items.body, base);
            let places = (0..items.offsets.len()).map(|i| i128::from(items.offsets.get(i)));
            places.map(|at| (low + at, high + at)).fold((i128::MAX, i128::MIN), join)
        }
        Body::Sequence(sequence) => {
            sequence.parts.iter().map(|part| hull(part, base)).fold((i128::MAX, i128::MIN), join)
        }
        Body::Repeat(repeat) => stretch(hull(&repeat.body, base), repeat.level.count, repeat.level.stride),
    }
}

/// Searches a nest: two blocks overlap if and only if some steps, not all 0, lead less than a block away.
fn search_loops(strided: &Strided, base: i64, budget: &mut SearchBudget) -> Result<(), OverlapError> {
    let mut loops = [(0i128, 0i128); MAX_LOOPS];
    for (place, level) in loops.iter_mut().zip(strided.nest()) {
        *place = (i128::from(level.stride).abs(), level.count as i128);
    }
    let mut order: [usize; MAX_LOOPS] = core::array::from_fn(|i| i);
    order[..strided.depth].sort_unstable_by_key(|i| loops[*i].0);
    let order = &order[..strided.depth];
    let mut length = strided.block as i128;
    let nested = order.iter().all(|i| {
        let (stride, count) = loops[*i];
        let disjoint = stride >= length;
        length += stride * (count - 1);
        disjoint
    });
    if nested {
        return Ok(());
    }
    let reach = strided.block as i128 - 1;
    let mut search = StrideSearch { loops, order, reach, budget, taken: [0; MAX_LOOPS] };
    if !search.find(order.len(), 0, false) {
        return Ok(());
    }
    // From `base`, the forward steps lead to one block, and the reversed backward steps to the other.
    let (mut one, mut other) = (base, base);
    for (level, taken) in strided.nest().iter().zip(search.taken) {
        let far = level.stride.wrapping_mul(taken.unsigned_abs() as i64);
        // Steps were counted in the direction of the absolute stride.
        if (taken > 0) == (level.stride > 0) {
            one = one.wrapping_add(far)
        } else {
            other = other.wrapping_add(far)
        }
    }
    Err(OverlapError { offset: one.max(other) })
}

/// Searches for steps that lead less than a block away, from the longest stride to the shortest.
struct StrideSearch<'a> {
    loops: [(i128, i128); MAX_LOOPS],
    /// The shortest stride first.
    order: &'a [usize],
    reach: i128,
    budget: &'a mut SearchBudget,
    taken: [i64; MAX_LOOPS],
}

impl StrideSearch<'_> {
    /// Returns whether steps of the first `depth` loops lead from `at` to within reach of 0; `moved` means that some
    /// step was taken. Returns false if the budget is used up.
    fn find(&mut self, depth: usize, at: i128, moved: bool) -> bool {
        let Some(last) = depth.checked_sub(1) else { return moved };
        let i = self.order[last];
        let (stride, count) = self.loops[i];
        let within: i128 =
            self.order[..last].iter().map(|j| self.loops[*j].0 * (self.loops[*j].1 - 1)).sum::<i128>()
                + self.reach;
        if stride == 0 {
            self.taken[i] = 1;
            return true;
        }
        let low = (-within - at).div_euclid(stride) + i128::from((-within - at).rem_euclid(stride) != 0);
        let high = (within - at).div_euclid(stride);
        for steps in low.max(1 - count)..=high.min(count - 1) {
            let Some(rest) = self.budget.steps.checked_sub(1) else {
                self.budget.is_exceeded = true;
                return false;
            };
            self.budget.steps = rest;
            self.taken[i] = steps as i64;
            if self.find(last, at + steps * stride, moved || steps != 0) {
                return true;
            }
        }
        self.taken[i] = 0;
        false
    }
}
