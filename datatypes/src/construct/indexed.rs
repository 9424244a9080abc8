//! Constructors of lists of blocks.

use super::TypeBuilder;
use crate::{Datatype, TypeEnvelope, TypeError};

impl Datatype {
    /// Returns the type of blocks given as (number of items, displacement in extents) (MPI 4.1 §5.1.2).
    ///
    /// # Errors
    /// [`TypeError`] if a count is too large, the size or the bounds overflow, or the type is nested too deeply.
    ///
    /// # Examples
    /// The upper triangle of a 3 × 3 matrix:
    /// ```
    /// use mpj_datatypes::Datatype;
    /// let triangle = Datatype::of::<f64>().indexed(&[(3, 0), (2, 4), (1, 8)])?;
    /// assert_eq!(triangle.element_count(), 6);
    /// assert_eq!(triangle.extent(), 72);
    /// # Ok::<(), mpj_datatypes::TypeError>(())
    /// ```
    pub fn indexed(&self, blocks: &[(usize, isize)]) -> Result<Datatype, TypeError> {
        let envelope = TypeEnvelope::Indexed { blocks: blocks.into(), inner: self.clone() };
        let mut build = TypeBuilder::new();
        let extent = self.extent();
        let scaled = blocks.iter().map(|&(len, displacement)| {
            let at = if len == 0 { Some(0) } else { (displacement as i64).checked_mul(extent) };
            at.map(|at| (len, at)).ok_or(TypeError::Extent { count: 1, step: displacement as i64 })
        });
        build.list(self, scaled)?;
        build.finish(envelope)
    }

    /// Returns the type of blocks given as (number of items, displacement in bytes) (MPI 4.1 §5.1.2).
    ///
    /// # Errors
    /// [`TypeError`] if a count is too large, the size or the bounds overflow, or the type is nested too deeply.
    pub fn hindexed(&self, blocks: &[(usize, i64)]) -> Result<Datatype, TypeError> {
        let envelope = TypeEnvelope::HIndexed { blocks: blocks.into(), inner: self.clone() };
        let mut build = TypeBuilder::new();
        build.list(self, blocks.iter().copied().map(Ok))?;
        build.finish(envelope)
    }

    /// Returns the type of blocks of `block` items each, at displacements in extents (MPI 4.1 §5.1.2).
    ///
    /// # Errors
    /// [`TypeError`] if a count is too large, the size or the bounds overflow, or the type is nested too deeply.
    ///
    /// # Examples
    /// Three particles out of many, three coordinates each:
    /// ```
    /// use mpj_datatypes::{Datatype, Run};
    /// let chosen = Datatype::of::<f64>().indexed_block(3, &[30, 3, 12])?;
    /// assert_eq!(chosen.element_count(), 9);
    /// assert_eq!(chosen.runs(1).next(), Some(Run { offset: 240, len: 24 }));
    /// # Ok::<(), mpj_datatypes::TypeError>(())
    /// ```
    pub fn indexed_block(&self, block: usize, displacements: &[isize]) -> Result<Datatype, TypeError> {
        let envelope =
            TypeEnvelope::IndexedBlock { block, displacements: displacements.into(), inner: self.clone() };
        let mut build = TypeBuilder::new();
        if block > 0 {
            let extent = self.extent();
            let scaled = displacements.iter().map(|&displacement| {
                let step = displacement as i64;
                step.checked_mul(extent).map(|at| (block, at)).ok_or(TypeError::Extent { count: 1, step })
            });
            build.list(self, scaled)?;
        }
        build.finish(envelope)
    }

    /// Returns the type of blocks of `block` items each, at displacements in bytes (MPI 4.1 §5.1.2).
    ///
    /// # Errors
    /// [`TypeError`] if a count is too large, the size or the bounds overflow, or the type is nested too deeply.
    pub fn hindexed_block(&self, block: usize, displacements: &[i64]) -> Result<Datatype, TypeError> {
        let envelope =
            TypeEnvelope::HIndexedBlock { block, displacements: displacements.into(), inner: self.clone() };
        let mut build = TypeBuilder::new();
        build.list(self, displacements.iter().map(|&displacement| Ok((block, displacement))))?;
        build.finish(envelope)
    }
}
