//! From constructors to the canonical plan: merges adjacent pieces, joins loops that continue each other, and drops
//! loops of one step, so that equal layouts usually have equal plans. The order of packed bytes never changes.

use crate::kernels;
use crate::plan::{
    BlockList, Body, ItemList, Loop, MAX_LOOPS, MAX_PIECES, Offsets, Plan, Repeat, RunList, Sequence, Strided,
};
use std::sync::Arc;

/// Maximum number of runs of a piece, or parts of a sequence, to unroll into the surrounding plan. Larger pieces
/// are shared, so that a plan is at most a constant factor larger than the description of its type.
const UNROLLED: usize = 8;

/// Returns `count` repetitions of `plan`, `stride` bytes apart. The caller has checked the packed size.
pub(crate) fn repeat(plan: &Plan, count: usize, stride: i64) -> Plan {
    repeat_nested(plan, &[Loop { count, stride }])
}

/// Returns `plan` in loops, the innermost first. The caller has checked the packed size.
pub(crate) fn repeat_nested(plan: &Plan, mut levels: &[Loop]) -> Plan {
    if plan.size == 0 || levels.iter().any(|level| level.count == 0) {
        return Plan::empty();
    }
    let mut plan = absorb_loops(plan, &mut levels);
    while let [level, outer @ ..] = levels {
        levels = outer;
        plan = absorb_loops(&wrap_in_loop(&plan, *level), &mut levels);
    }
    plan
}

/// Moves loops from `levels` to a strided plan, as far as it can hold them. Returns other plans unchanged.
fn absorb_loops(plan: &Plan, levels: &mut &[Loop]) -> Plan {
    let Body::Strided(strided) = &plan.body else { return plan.clone() };
    let Strided { mut block, mut depth, levels: mut nest, .. } = *strided;
    let mut size = plan.size;
    while let [level, outer @ ..] = *levels {
        if level.count == 1 {
        } else if depth == 0 && i64::try_from(block) == Ok(level.stride) {
            // The repetitions are contiguous: a longer block. In the next branch, they continue the outermost loop.
            block *= level.count;
        } else if depth > 0 && extends_loop(nest[0], level.stride) {
            nest[0].count *= level.count;
        } else if depth < MAX_LOOPS {
            nest.copy_within(0..depth, 1);
            nest[0] = *level;
            depth += 1;
        } else {
            break;
        }
        size *= level.count;
        *levels = outer;
    }
    Plan::new(plan.offset, size, Body::Strided(Strided::new(block, &nest[..depth])))
}

fn wrap_in_loop(plan: &Plan, level: Loop) -> Plan {
    let Loop { count, stride } = level;
    if count == 1 {
        return plan.clone();
    }
    match &plan.body {
        Body::Runs(_) | Body::Blocks(_) => {
            let runs = plan.blocks().unwrap_or(usize::MAX);
            if count.saturating_mul(runs) > UNROLLED {
                return make_repeat(plan, level);
            }
            let mut assembly = PlanBuilder::new();
            for i in 0..count as i64 {
                assembly.push(plan.clone().shifted(i.wrapping_mul(stride)));
            }
            assembly.finish()
        }
        Body::Repeat(inner) if extends_loop(inner.level, stride) => {
            let level = Loop { count: inner.level.count * count, stride: inner.level.stride };
            let body = Body::Repeat(Arc::new(Repeat { level, body: inner.body.clone() }));
            Plan::new(plan.offset, plan.size * count, body)
        }
        _ => make_repeat(plan, level),
    }
}

/// Returns whether a repetition of the loop at `stride` continues its steps.
fn extends_loop(level: Loop, stride: i64) -> bool {
    i64::try_from(level.count).ok().and_then(|n| n.checked_mul(level.stride)) == Some(stride)
}

fn make_repeat(plan: &Plan, level: Loop) -> Plan {
    let body = plan.clone().shifted(plan.offset.wrapping_neg());
    Plan::new(plan.offset, plan.size * level.count, Body::Repeat(Arc::new(Repeat { level, body })))
}

#[derive(Debug)]
pub(crate) struct PlanBuilder {
    /// The only piece so far, if it was pushed as a plan.
    single: Option<Plan>,
    parts: Vec<Plan>,
    /// Runs since the last completed part. No run is empty, and no run continues the previous one.
    runs: Vec<(i64, usize)>,
}

impl PlanBuilder {
    pub(crate) fn new() -> PlanBuilder {
        PlanBuilder { single: None, parts: Vec::new(), runs: Vec::new() }
    }

    pub(crate) fn push_run(&mut self, offset: i64, len: usize) {
        if len == 0 {
            return;
        }
        if let Some(first) = self.single.take() {
            self.append(first);
        }
        match self.runs.last_mut() {
            // Saturating, because the constructor rejects a sum that is too large only later.
            Some((start, before)) if start.wrapping_add(*before as i64) == offset => {
                *before = before.saturating_add(len);
            }
            _ => self.runs.push((offset, len)),
        }
    }

    /// Appends non-empty blocks, each as (number of items, displacement); items are `extent` bytes apart.
    pub(crate) fn push_list(&mut self, item: &Plan, extent: i64, blocks: &[(usize, i64)]) {
        let Some(&(first, _)) = blocks.first() else { return };
        let block = |count| repeat(item, count, extent);
        if blocks.iter().all(|&(count, _)| count == first) {
            self.push_at(&block(first), &blocks.iter().map(|&(_, at)| at).collect::<Vec<_>>());
        } else if blocks.iter().all(|&(count, _)| count <= UNROLLED) {
            let mut places = Vec::with_capacity(2 * blocks.len());
            for &(count, at) in blocks {
                places.extend((0..count as i64).map(|i| at.wrapping_add(i.wrapping_mul(extent))));
            }
            self.push_at(item, &places);
        } else {
            blocks.iter().for_each(|&(count, at)| self.push(block(count).shifted(at)));
        }
    }

    /// Appends the piece at each of `places`, at least one.
    fn push_at(&mut self, piece: &Plan, places: &[i64]) {
        let runs: Vec<_> =
            crate::iov::pieces(piece, 0).take(UNROLLED + 1).map(|r| (r.offset, r.len)).collect();
        let few = runs.len().saturating_mul(places.len()) <= UNROLLED;
        let alike = runs.len() <= UNROLLED && runs.iter().all(|run| run.1 == runs[0].1);
        if few || alike {
            // A list of runs that is short enough to unroll, or whose runs have equal lengths.
            self.reserve(runs.len() * places.len());
            for &at in places {
                runs.iter().for_each(|&(offset, len)| self.push_run(at.wrapping_add(offset), len));
            }
        } else if let Some(stride) = places_stride(places) {
            self.push(repeat(piece, places.len(), stride).shifted(places[0]));
        } else {
            self.push(item_list_plan(piece, places));
        }
    }

    pub(crate) fn reserve(&mut self, runs: usize) {
        self.runs.reserve(runs);
    }

    pub(crate) fn push(&mut self, plan: Plan) {
        if plan.size == 0 {
            return;
        }
        match self.single.take() {
            None if self.parts.is_empty() && self.runs.is_empty() => self.single = Some(plan),
            None => self.append(plan),
            Some(first) => {
                self.append(first);
                self.append(plan);
            }
        }
    }

    fn append(&mut self, plan: Plan) {
        match plan.blocks() {
            Some(blocks) if blocks <= UNROLLED => self.unroll(&plan),
            _ => match &plan.body {
                Body::Sequence(sequence) if sequence.parts.len() <= UNROLLED => {
                    for part in &sequence.parts {
                        self.append(part.clone().shifted(plan.offset));
                    }
                }
                _ => {
                    self.flush();
                    self.parts.push(plan);
                }
            },
        }
    }

    fn unroll(&mut self, plan: &Plan) {
        match &plan.body {
            Body::Empty | Body::Items(_) | Body::Sequence(_) | Body::Repeat(_) => {}
            Body::Strided(strided) if strided.depth < 2 => {
                let Loop { count, stride } = strided.levels[0];
                for i in 0..count as i64 {
                    self.push_run(plan.offset.wrapping_add(i.wrapping_mul(stride)), strided.block);
                }
            }
            Body::Strided(strided) => {
                let mut starts = vec![plan.offset];
                for level in strided.nest() {
                    starts = starts
                        .iter()
                        .flat_map(|&at| (0..level.count as i64).map(move |i| (at, i)))
                        .map(|(at, i)| at.wrapping_add(i.wrapping_mul(level.stride)))
                        .collect();
                }
                for start in starts {
                    self.push_run(start, strided.block);
                }
            }
            Body::Blocks(list) => {
                for i in 0..list.offsets.len() {
                    self.push_run(plan.offset.wrapping_add(list.offsets.get(i)), list.block);
                }
            }
            Body::Runs(runs) => {
                for (i, &offset) in runs.offsets.iter().enumerate() {
                    self.push_run(plan.offset.wrapping_add(offset), runs.ends[i] - runs.start(i));
                }
            }
        }
    }

    fn flush(&mut self) {
        let runs = core::mem::take(&mut self.runs);
        let Some(&(first, len)) = runs.first() else { return };
        let plan = match runs_stride(&runs) {
            Some(stride) => repeat(&Plan::block(first, len), runs.len(), stride),
            None => run_list_plan(&runs),
        };
        match self.parts.last_mut() {
            Some(last) if continues_loop(last, &plan) => *last = extend_loop(last, &plan),
            _ => self.parts.push(plan),
        }
    }

    pub(crate) fn finish(mut self) -> Plan {
        if let Some(single) = self.single {
            return single;
        }
        self.flush();
        let mut parts = self.parts;
        if parts.len() <= 1 {
            return parts.pop().unwrap_or_else(Plan::empty);
        }
        if let Some(stride) = parts_stride(&parts) {
            return repeat(&parts[0], parts.len(), stride);
        }
        let mut end = 0;
        let ends = parts.iter().map(|part| (end += part.size, end).1).collect();
        Plan::new(0, end, Body::Sequence(Arc::new(Sequence { parts: parts.into(), ends })))
    }
}

fn continues_loop(last: &Plan, next: &Plan) -> bool {
    let (Body::Strided(a), Body::Strided(b)) = (&last.body, &next.body) else { return false };
    let Loop { count, stride } = a.levels[0];
    let end = (count as i64).checked_mul(stride).and_then(|span| last.offset.checked_add(span));
    (a.depth, a.block) == (1, b.block)
        && (b.depth == 0 || (b.depth == 1 && b.levels[0].stride == stride))
        && end == Some(next.offset)
}

fn extend_loop(last: &Plan, next: &Plan) -> Plan {
    let (Body::Strided(a), Body::Strided(b)) = (&last.body, &next.body) else { return last.clone() };
    let level = Loop { count: a.levels[0].count + b.levels[0].count, ..a.levels[0] };
    Plan::new(last.offset, last.size + next.size, Body::Strided(Strided::new(a.block, &[level])))
}

fn run_list_plan(runs: &[(i64, usize)]) -> Plan {
    let (mut low, mut high) = (i64::MAX, i64::MIN);
    for &(offset, n) in runs {
        low = low.min(offset);
        high = high.max(offset.wrapping_add(n as i64));
    }
    let span = high.checked_sub(low).unwrap_or(-1);
    let Some((len, count)) = split_into_blocks(runs) else {
        let offsets = runs.iter().map(|&(offset, _)| offset.wrapping_sub(low)).collect();
        let mut end = 0;
        let ends: Box<[usize]> = runs.iter().map(|&(_, len)| (end += len, end).1).collect();
        return Plan::new(low, end, Body::Runs(Arc::new(RunList { offsets, ends, span })));
    };
    let mut starts = Vec::with_capacity(count);
    for &(offset, n) in runs {
        starts.extend((0..n).step_by(len).map(|at| offset.wrapping_add(at as i64)));
    }
    let offsets = Offsets::from_low(starts.into_iter(), low, span);
    let kernels = kernels::lists(len, span);
    let list = BlockList { block: len, offsets, span, kernels };
    Plan::new(low, len * count, Body::Blocks(Arc::new(list)))
}

fn item_list_plan(piece: &Plan, places: &[i64]) -> Plan {
    let (low, high) =
        places.iter().fold((i64::MAX, i64::MIN), |(low, high), &at| (low.min(at), high.max(at)));
    let span = high.checked_sub(low).unwrap_or(-1);
    let offsets = Offsets::from_low(places.iter().copied(), low, span);
    let mut pieces: Box<[_]> =
        crate::iov::pieces(piece, 0).take(MAX_PIECES + 1).map(|run| (run.offset, run.len)).collect();
    if pieces.len() > MAX_PIECES {
        pieces = Box::default();
    }
    let list = ItemList { offsets, body: piece.clone(), pieces };
    Plan::new(low, piece.size * places.len(), Body::Items(Arc::new(list)))
}

/// Returns the distance of the places if it is constant; 0 for one place.
fn places_stride(places: &[i64]) -> Option<i64> {
    let Some(second) = places.get(1) else { return Some(0) };
    let stride = second.checked_sub(places[0])?;
    places.windows(2).all(|pair| pair[1].checked_sub(pair[0]) == Some(stride)).then_some(stride)
}

/// Returns the length and number of equal blocks into which runs can be split, if that makes at most a quarter more
/// blocks than runs. A list of random elements has few runs of several elements, and equal blocks are copied faster.
fn split_into_blocks(runs: &[(i64, usize)]) -> Option<(usize, usize)> {
    let len = runs.iter().map(|&(_, len)| len).min()?;
    let mut more = 0usize;
    for &(_, longer) in runs.iter().filter(|&&(_, other)| other != len) {
        if longer % len != 0 {
            return None;
        }
        more = more.saturating_add(longer / len - 1);
    }
    (more <= runs.len() / 4).then_some((len, runs.len() + more))
}

fn runs_stride(runs: &[(i64, usize)]) -> Option<i64> {
    let (first, len) = runs[0];
    let Some(second) = runs.get(1) else { return Some(0) };
    let stride = second.0.checked_sub(first)?;
    let even = |pair: &[(i64, usize)]| pair[1].1 == len && pair[1].0.checked_sub(pair[0].0) == Some(stride);
    runs.windows(2).all(even).then_some(stride)
}

fn parts_stride(parts: &[Plan]) -> Option<i64> {
    let stride = parts[1].offset.checked_sub(parts[0].offset)?;
    let even = |pair: &[Plan]| {
        pair[0].body.same(&pair[1].body) && pair[1].offset.checked_sub(pair[0].offset) == Some(stride)
    };
    parts.windows(2).all(even).then_some(stride)
}
