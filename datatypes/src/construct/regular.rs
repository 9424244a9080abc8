//! Constructors of equidistant blocks, resized types and duplicates.

use super::{TypeBuilder, next_depth};
use crate::node::Node;
use crate::overlap::DisjointUpTo;
use crate::{Datatype, TypeEnvelope, TypeError};

impl Datatype {
    /// Returns the type of `count` contiguous items (MPI 4.1 §5.1.2).
    ///
    /// # Errors
    /// [`TypeError`] if a count is too large, the size or the bounds overflow, or the type is nested too deeply.
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
        let envelope = TypeEnvelope::Contiguous { count, inner: self.clone() };
        self.strided(envelope, 1, count, 0)
    }

    /// Returns the type of `count` blocks of `block` items, which start `stride` extents apart (MPI 4.1 §5.1.2).
    ///
    /// # Errors
    /// [`TypeError`] if a count is too large, the size or the bounds overflow, or the type is nested too deeply.
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
        let envelope = TypeEnvelope::Vector { count, block, stride, inner: self.clone() };
        // With fewer than two blocks, or empty ones, the stride is not used, so it need not fit.
        let stride_bytes = if count < 2 || block == 0 { 0 } else { self.scaled(count, stride)? };
        self.strided(envelope, count, block, stride_bytes)
    }

    /// Returns the type of `count` blocks of `block` items, which start `stride_bytes` bytes apart (MPI 4.1 §5.1.2).
    ///
    /// # Errors
    /// [`TypeError`] if a count is too large, the size or the bounds overflow, or the type is nested too deeply.
    pub fn hvector(&self, count: usize, block: usize, stride_bytes: i64) -> Result<Datatype, TypeError> {
        let envelope = TypeEnvelope::HVector { count, block, stride_bytes, inner: self.clone() };
        self.strided(envelope, count, block, stride_bytes)
    }

    /// Returns the type with the lower bound `lb` and the extent `extent` (MPI 4.1 §5.1.7). As in MPI the bounds are
    /// sticky: a type built from this one takes its bounds from its resized pieces alone.
    ///
    /// # Errors
    /// [`TypeError`] if the upper bound overflows, or the type is nested too deeply.
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
            envelope: TypeEnvelope::Resized { lb, extent, inner: self.clone() },
            extent: inner.extent.resized(lb, extent)?,
            plan: inner.plan.clone(),
            depth: next_depth(inner.depth)?,
            lowered: None,
            disjoint_up_to: DisjointUpTo::default(),
            ..*inner
        }))
    }

    /// Returns a type with the same layout and the constructor [`TypeEnvelope::Dup`] (`MPI_Type_dup`, MPI 4.1 §5.1.10).
    ///
    /// # Errors
    /// [`TypeError::Depth`] if the type is nested too deeply.
    pub fn dup(&self) -> Result<Datatype, TypeError> {
        let inner = self.node();
        Ok(Datatype::from_node(Node {
            envelope: TypeEnvelope::Dup { inner: self.clone() },
            plan: inner.plan.clone(),
            depth: next_depth(inner.depth)?,
            lowered: None,
            disjoint_up_to: DisjointUpTo::default(),
            ..*inner
        }))
    }

    fn strided(
        &self,
        envelope: TypeEnvelope,
        count: usize,
        block: usize,
        stride: i64,
    ) -> Result<Datatype, TypeError> {
        let mut build = TypeBuilder::new();
        build.add(self, block, 0, count, stride)?;
        build.finish(envelope)
    }
}
