//! The constructors. They check all numbers; other code relies on these checks.

mod darray;
mod indexed;
mod pair;
mod regular;
mod structure;
mod subarray;

pub use darray::{DistributedDim, Distribution};
pub(crate) use subarray::rows;
pub use subarray::{ArrayOrder, Subrange};

use crate::extent::{self, BoundsBuilder};
use crate::node::{Node, PrimitiveSet};
use crate::normalise::{self, PlanBuilder};
use crate::overlap::DisjointUpTo;
use crate::plan::Loop;
use crate::{Datatype, Signature, TypeEnvelope, TypeError};

/// Maximum depth of a type, because walks over a type recurse, and a thread's stack is small.
const MAX_DEPTH: usize = 256;

impl Datatype {
    fn scaled(&self, count: usize, steps: isize) -> Result<i64, TypeError> {
        let step = steps as i64;
        step.checked_mul(self.extent()).ok_or(TypeError::Extent { count, step })
    }

    /// Returns the layout of `lowered` with the constructor `envelope`. Validation visits the pieces of `lowered`.
    fn from_lowered(lowered: Datatype, envelope: TypeEnvelope) -> Result<Datatype, TypeError> {
        let node = lowered.node();
        Ok(Datatype::from_node(Node {
            envelope,
            plan: node.plan.clone(),
            depth: next_depth(node.depth)?,
            lowered: Some(lowered.clone()),
            disjoint_up_to: DisjointUpTo::default(),
            ..*node
        }))
    }
}

fn next_depth(depth: usize) -> Result<usize, TypeError> {
    if depth < MAX_DEPTH { Ok(depth + 1) } else { Err(TypeError::Depth { limit: MAX_DEPTH }) }
}

struct TypeBuilder {
    size: usize,
    elements: u64,
    signature: Signature,
    primitives: PrimitiveSet,
    needs_validation: bool,
    bounds: BoundsBuilder,
    plan: PlanBuilder,
    depth: usize,
}

impl TypeBuilder {
    fn new() -> TypeBuilder {
        TypeBuilder {
            size: 0,
            elements: 0,
            signature: Signature::EMPTY,
            primitives: PrimitiveSet::None,
            needs_validation: false,
            bounds: BoundsBuilder::new(),
            plan: PlanBuilder::new(),
            depth: 0,
        }
    }

    /// Appends `count` blocks of `block` items of a type, the first at `displacement`, `stride` bytes apart.
    fn add(
        &mut self,
        inner: &Datatype,
        block: usize,
        displacement: i64,
        count: usize,
        stride: i64,
    ) -> Result<(), TypeError> {
        let item = Loop { count: block, stride: inner.extent() };
        self.nest(inner, displacement, &[item, Loop { count, stride }])
    }

    fn field(&mut self, inner: &Datatype, len: usize, displacement: i64) -> Result<(), TypeError> {
        let node = inner.node();
        let extent = node.extent.extent();
        let dense = node.plan.run().filter(|&(_, run)| extent == run as i64 && len > 0);
        let Some((offset, run)) = dense else { return self.add(inner, len, displacement, 1, 0) };
        // Pushed as a run, without a plan of its own: most fields are primitives, and structures can have many.
        self.depth = self.depth.max(next_depth(node.depth)?);
        let first = i128::from(displacement);
        self.bounds.add_at(&node.extent, first, first + i128::from(extent::span(len, extent)?));
        self.add_items(node, len)?;
        self.plan.push_run(displacement.wrapping_add(offset), run * len);
        Ok(())
    }

    fn nest(&mut self, inner: &Datatype, displacement: i64, levels: &[Loop]) -> Result<(), TypeError> {
        let node = inner.node();
        self.depth = self.depth.max(next_depth(node.depth)?);
        self.bounds.add(&node.extent, displacement, levels)?;
        if node.size == 0 || levels.iter().any(|level| level.count == 0) {
            return Ok(());
        }
        let items = levels.iter().try_fold(1usize, |items, level| items.checked_mul(level.count));
        self.add_items(node, items.unwrap_or(usize::MAX))?;
        self.plan.push(normalise::repeat_nested(&node.plan, levels).shifted(displacement));
        Ok(())
    }

    fn list(
        &mut self,
        inner: &Datatype,
        blocks: impl Iterator<Item = Result<(usize, i64), TypeError>>,
    ) -> Result<(), TypeError> {
        let node = inner.node();
        let extent = node.extent.extent();
        let dense = node.plan.run().filter(|&(_, len)| extent == len as i64);
        let expected = blocks.size_hint().0;
        let mut others = Vec::with_capacity(if dense.is_none() { expected } else { 0 });
        self.plan.reserve(if dense.is_some() { expected } else { 0 });
        let (mut lowest, mut highest, mut items) = (i128::MAX, i128::MIN, 0usize);
        for block in blocks {
            let (count, displacement) = block?;
            if count == 0 {
                continue;
            }
            let (at, span) = (i128::from(displacement), i128::from(extent::span(count, extent)?));
            lowest = lowest.min(at + span.min(0));
            highest = highest.max(at + span.max(0));
            let too_large = TypeError::Size { count, size: node.size };
            items = items.checked_add(count).ok_or(too_large)?;
            match dense {
                Some((offset, len)) => self
                    .plan
                    .push_run(displacement.wrapping_add(offset), len.checked_mul(count).ok_or(too_large)?),
                None => others.push((count, displacement)),
            }
        }
        self.depth = self.depth.max(next_depth(node.depth)?);
        if items > 0 {
            self.bounds.add_at(&node.extent, lowest, highest);
            self.add_items(node, items)?;
            self.plan.push_list(&node.plan, extent, &others);
        }
        Ok(())
    }

    fn add_items(&mut self, node: &Node, items: usize) -> Result<(), TypeError> {
        let too_large = TypeError::Size { count: items, size: node.size };
        let bytes = items.checked_mul(node.size).ok_or(too_large)?;
        let size = self.size.checked_add(bytes).ok_or(too_large)?;
        if size > isize::MAX as usize {
            return Err(too_large);
        }
        self.size = size;
        // Every primitive has at least one byte, so the product is at most `bytes`, and the sum at most `size`.
        self.elements += node.element_count * items as u64;
        self.signature = self.signature.concat(node.signature.repeat(items as u64));
        self.primitives = self.primitives.union(node.primitives);
        self.needs_validation |= node.needs_validation;
        Ok(())
    }

    fn finish(self, envelope: TypeEnvelope) -> Result<Datatype, TypeError> {
        Ok(Datatype::from_node(Node {
            envelope,
            size: self.size,
            element_count: self.elements,
            signature: self.signature,
            primitives: self.primitives,
            needs_validation: self.needs_validation,
            extent: self.bounds.finish()?,
            plan: self.plan.finish(),
            depth: self.depth,
            lowered: None,
            disjoint_up_to: DisjointUpTo::default(),
            contiguous: false,
        }))
    }
}
