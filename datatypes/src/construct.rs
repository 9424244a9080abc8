//! The constructors, one function each; all numbers are checked here and trusted afterwards.

use crate::extent::Hull;
use crate::node::{Leaves, Node};
use crate::normalise::{self, Assembly};
use crate::plan::Plan;
use crate::{Datatype, Envelope, Signature, TypeError};

/// How deep types may be nested: walks over a type recurse, and a thread's stack is small.
const DEPTH: usize = 256;

impl Datatype {
    /// Returns the type of `count` items one after the other, an extent apart (MPI 4.1 §5.1.2).
    ///
    /// # Errors
    /// [`TypeError`] if its size or bounds do not fit.
    ///
    /// # Examples
    /// ```
    /// use mpj_datatypes::Datatype;
    /// let row = Datatype::of::<f32>().contiguous(10)?;
    /// assert!(row.is_contiguous());
    /// assert_eq!(row.signature(), Datatype::of::<f32>().signature().repeat(10));
    /// # Ok::<(), mpj_datatypes::TypeError>(())
    /// ```
    pub fn contiguous(&self, count: usize) -> Result<Datatype, TypeError> {
        let envelope = Envelope::Contiguous { count, inner: self.clone() };
        self.strided(envelope, 1, count, 0)
    }

    /// Returns the type of `count` blocks of `block` items; the blocks start `stride` extents apart (MPI 4.1 §5.1.2).
    ///
    /// # Errors
    /// [`TypeError`] if its size or bounds do not fit.
    ///
    /// # Examples
    /// ```
    /// use mpj_datatypes::{Datatype, Run};
    /// let pairs = Datatype::of::<u16>().vector(2, 2, 5)?;
    /// let runs: Vec<Run> = pairs.runs(1).collect();
    /// assert_eq!(runs, [Run { offset: 0, len: 4 }, Run { offset: 10, len: 4 }]);
    /// # Ok::<(), mpj_datatypes::TypeError>(())
    /// ```
    pub fn vector(&self, count: usize, block: usize, stride: isize) -> Result<Datatype, TypeError> {
        let envelope = Envelope::Vector { count, block, stride, inner: self.clone() };
        // With fewer than two blocks the stride is never taken, so that it need not fit.
        let stride_bytes = if count < 2 { 0 } else { self.scaled(count, stride)? };
        self.strided(envelope, count, block, stride_bytes)
    }

    /// Returns the type of `count` blocks of `block` items; the blocks start `stride_bytes` bytes apart (MPI 4.1
    /// §5.1.2).
    ///
    /// # Errors
    /// [`TypeError`] if its size or bounds do not fit.
    pub fn hvector(&self, count: usize, block: usize, stride_bytes: i64) -> Result<Datatype, TypeError> {
        let envelope = Envelope::HVector { count, block, stride_bytes, inner: self.clone() };
        self.strided(envelope, count, block, stride_bytes)
    }

    /// Returns the type of blocks given as (number of items, displacement in extents) (MPI 4.1 §5.1.2).
    ///
    /// # Errors
    /// [`TypeError`] if its size or bounds do not fit.
    ///
    /// # Examples
    /// The upper triangle of a 3 × 3 matrix:
    /// ```
    /// use mpj_datatypes::Datatype;
    /// let triangle = Datatype::of::<f64>().indexed(&[(3, 0), (2, 4), (1, 8)])?;
    /// assert_eq!(triangle.elements(), 6);
    /// assert_eq!(triangle.extent(), 72);
    /// # Ok::<(), mpj_datatypes::TypeError>(())
    /// ```
    pub fn indexed(&self, blocks: &[(usize, isize)]) -> Result<Datatype, TypeError> {
        let envelope = Envelope::Indexed { blocks: blocks.into(), inner: self.clone() };
        let mut build = Build::new();
        for &(len, displacement) in blocks {
            let at = if len == 0 { 0 } else { self.scaled(1, displacement)? };
            build.add(self, len, at, 1, 0)?;
        }
        build.finish(envelope)
    }

    /// Returns the type of blocks given as (number of items, displacement in bytes) (MPI 4.1 §5.1.2).
    ///
    /// # Errors
    /// [`TypeError`] if its size or bounds do not fit.
    pub fn hindexed(&self, blocks: &[(usize, i64)]) -> Result<Datatype, TypeError> {
        let envelope = Envelope::HIndexed { blocks: blocks.into(), inner: self.clone() };
        let mut build = Build::new();
        for &(len, displacement) in blocks {
            build.add(self, len, displacement, 1, 0)?;
        }
        build.finish(envelope)
    }

    /// Returns the type of fields given as (number of items, displacement in bytes, type) (MPI 4.1 §5.1.2).
    ///
    /// # Errors
    /// [`TypeError`] if its size or bounds do not fit.
    ///
    /// # Examples
    /// ```
    /// use mpj_datatypes::Datatype;
    /// // #[repr(C)] struct Particle { kind: u8, at: [f64; 3] }
    /// let particle =
    ///     Datatype::structure(&[(1, 0, Datatype::of::<u8>()), (3, 8, Datatype::of::<f64>())])?;
    /// assert_eq!(particle.size(), 25);
    /// assert_eq!(particle.extent(), 32);
    /// assert_eq!(particle.homogeneous(), None);
    /// # Ok::<(), mpj_datatypes::TypeError>(())
    /// ```
    pub fn structure(fields: &[(usize, i64, Datatype)]) -> Result<Datatype, TypeError> {
        let envelope = Envelope::Structure { fields: fields.into() };
        let mut build = Build::new();
        for (len, displacement, inner) in fields {
            build.add(inner, *len, *displacement, 1, 0)?;
        }
        build.finish(envelope)
    }

    /// Returns the type with other bounds: it begins at `lb`, and items are `extent` bytes apart (MPI 4.1 §5.1.7).
    ///
    /// The bounds stick, as the standard's markers do: a type built from this one takes its bounds from the resized
    /// pieces alone.
    ///
    /// # Errors
    /// [`TypeError`] if the upper bound does not fit.
    ///
    /// # Examples
    /// ```
    /// use mpj_datatypes::Datatype;
    /// let spaced = Datatype::of::<u8>().resized(0, 4)?;
    /// assert_eq!(spaced.contiguous(3)?.extent(), 12);
    /// # Ok::<(), mpj_datatypes::TypeError>(())
    /// ```
    pub fn resized(&self, lb: i64, extent: i64) -> Result<Datatype, TypeError> {
        let inner = self.node();
        Ok(Datatype::from_node(Node {
            envelope: Envelope::Resized { lb, extent, inner: self.clone() },
            extent: inner.extent.resized(lb, extent)?,
            plan: inner.plan.clone(),
            depth: deeper(inner.depth)?,
            ..*inner
        }))
    }

    /// `steps` extents in bytes.
    fn scaled(&self, count: usize, steps: isize) -> Result<i64, TypeError> {
        let step = steps as i64;
        step.checked_mul(self.extent()).ok_or(TypeError::Extent { count, step })
    }

    fn strided(
        &self,
        envelope: Envelope,
        count: usize,
        block: usize,
        stride: i64,
    ) -> Result<Datatype, TypeError> {
        let mut build = Build::new();
        build.add(self, block, 0, count, stride)?;
        build.finish(envelope)
    }
}

fn deeper(depth: usize) -> Result<usize, TypeError> {
    if depth < DEPTH { Ok(depth + 1) } else { Err(TypeError::Depth { limit: DEPTH }) }
}

/// A type in the making.
struct Build {
    size: usize,
    elements: u64,
    signature: Signature,
    leaves: Leaves,
    needs_check: bool,
    hull: Hull,
    assembly: Assembly,
    depth: usize,
}

impl Build {
    fn new() -> Build {
        Build {
            size: 0,
            elements: 0,
            signature: Signature::EMPTY,
            leaves: Leaves::None,
            needs_check: false,
            hull: Hull::new(),
            assembly: Assembly::new(),
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
        let node = inner.node();
        self.depth = self.depth.max(deeper(node.depth)?);
        self.hull.add(&node.extent, displacement, block, count, stride)?;
        if node.size == 0 || block == 0 || count == 0 {
            return Ok(());
        }
        let too_large = TypeError::Size { count: block.saturating_mul(count), size: node.size };
        let items = block.checked_mul(count).ok_or(too_large)?;
        let bytes = items.checked_mul(node.size).ok_or(too_large)?;
        let size = self.size.checked_add(bytes).ok_or(too_large)?;
        if size > isize::MAX as usize {
            return Err(too_large);
        }
        self.size = size;
        // At most `bytes`, so that neither of the two can overflow.
        self.elements += node.elements * items as u64;
        self.signature = self.signature.concat(node.signature.repeat(items as u64));
        self.leaves = self.leaves.and(node.leaves);
        self.needs_check |= node.needs_check;
        match node.plan.run() {
            // The usual case, without the detour over plans: lists of blocks are long.
            Some((offset, len)) if count == 1 && node.extent.extent() == len as i64 => {
                self.assembly.push_run(displacement.wrapping_add(offset), len * block);
            }
            _ => self
                .assembly
                .push(blocks(&node.plan, node.extent.extent(), block, count, stride).shifted(displacement)),
        }
        Ok(())
    }

    fn finish(self, envelope: Envelope) -> Result<Datatype, TypeError> {
        Ok(Datatype::from_node(Node {
            envelope,
            size: self.size,
            elements: self.elements,
            signature: self.signature,
            leaves: self.leaves,
            needs_check: self.needs_check,
            extent: self.hull.finish()?,
            plan: self.assembly.finish(),
            depth: self.depth,
        }))
    }
}

fn blocks(plan: &Plan, extent: i64, block: usize, count: usize, stride: i64) -> Plan {
    normalise::repeat(&normalise::repeat(plan, block, extent), count, stride)
}
