//! The constructor and arguments of a datatype.

use crate::{ArrayOrder, Datatype, DistributedDim, Primitive, Subrange, TypeError};
use std::sync::Arc;

/// The constructor of a datatype with its arguments (`MPI_Type_get_envelope` and `MPI_Type_get_contents`, MPI 4.1
/// §5.1.13), for code that prints, stores or sends types. Clones share the lists and inner types.
///
/// ```
/// use mpj_datatypes::{Datatype, TypeEnvelope, Primitive};
/// let pair = Datatype::of::<i16>().contiguous(2)?;
/// match pair.envelope() {
///     TypeEnvelope::Contiguous { count, inner } => {
///         assert_eq!(count, 2);
///         assert!(matches!(inner.envelope(), TypeEnvelope::Primitive(Primitive::I16)));
///     }
///     _ => unreachable!(),
/// }
/// # Ok::<(), mpj_datatypes::TypeError>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
#[expect(missing_docs, reason = "most fields are named as the arguments of the constructor")]
pub enum TypeEnvelope {
    /// A basic type.
    Primitive(Primitive),
    /// [`Datatype::contiguous`].
    Contiguous { count: usize, inner: Datatype },
    /// [`Datatype::vector`].
    Vector {
        count: usize,
        block: usize,
        /// Distance between the starts of blocks, in extents of `inner`.
        stride: isize,
        inner: Datatype,
    },
    /// [`Datatype::hvector`].
    HVector {
        count: usize,
        block: usize,
        /// Distance between the starts of blocks, in bytes.
        stride_bytes: i64,
        inner: Datatype,
    },
    /// [`Datatype::indexed`].
    Indexed {
        /// For each block its number of items and its displacement in extents of `inner`.
        blocks: Arc<[(usize, isize)]>,
        inner: Datatype,
    },
    /// [`Datatype::hindexed`].
    HIndexed {
        /// For each block its number of items and its displacement in bytes.
        blocks: Arc<[(usize, i64)]>,
        inner: Datatype,
    },
    /// [`Datatype::indexed_block`].
    IndexedBlock {
        block: usize,
        /// For each block its displacement in extents of `inner`.
        displacements: Arc<[isize]>,
        inner: Datatype,
    },
    /// [`Datatype::hindexed_block`].
    HIndexedBlock {
        block: usize,
        /// For each block its displacement in bytes.
        displacements: Arc<[i64]>,
        inner: Datatype,
    },
    /// [`Datatype::subarray`].
    Subarray { ranges: Arc<[Subrange]>, order: ArrayOrder, inner: Datatype },
    /// [`Datatype::darray`].
    Darray { rank: usize, dimensions: Arc<[DistributedDim]>, order: ArrayOrder, inner: Datatype },
    /// [`Datatype::pair`].
    Pair { value: Primitive, index: Primitive },
    /// [`Datatype::dup`].
    Dup { inner: Datatype },
    /// [`Datatype::structure`].
    Structure {
        /// For each field its number of items, its displacement in bytes and its type.
        fields: Arc<[(usize, i64, Datatype)]>,
    },
    /// [`Datatype::resized`].
    Resized { lb: i64, extent: i64, inner: Datatype },
}

impl TypeEnvelope {
    /// Builds the type from its constructor and arguments.
    ///
    /// # Errors
    /// [`TypeError`] if the arguments are invalid; those of an existing type are valid.
    ///
    /// # Examples
    /// ```
    /// use mpj_datatypes::{Datatype, ArrayOrder};
    /// let face = Datatype::of::<f32>().subarray(&[8, 8, 8], &[8, 8, 1], &[0, 0, 7], ArrayOrder::C)?;
    /// let again = face.envelope().build()?;
    /// assert!(again.runs(1).eq(face.runs(1)));
    /// # Ok::<(), mpj_datatypes::TypeError>(())
    /// ```
    pub fn build(&self) -> Result<Datatype, TypeError> {
        match self {
            TypeEnvelope::Primitive(primitive) => Ok(Datatype::primitive(*primitive)),
            TypeEnvelope::Pair { value, index } => Ok(Datatype::pair(*value, *index)),
            TypeEnvelope::Contiguous { count, inner } => inner.contiguous(*count),
            TypeEnvelope::Vector { count, block, stride, inner } => inner.vector(*count, *block, *stride),
            TypeEnvelope::HVector { count, block, stride_bytes, inner } => {
                inner.hvector(*count, *block, *stride_bytes)
            }
            TypeEnvelope::Indexed { blocks, inner } => inner.indexed(blocks),
            TypeEnvelope::HIndexed { blocks, inner } => inner.hindexed(blocks),
            TypeEnvelope::IndexedBlock { block, displacements, inner } => {
                inner.indexed_block(*block, displacements)
            }
            TypeEnvelope::HIndexedBlock { block, displacements, inner } => {
                inner.hindexed_block(*block, displacements)
            }
            TypeEnvelope::Subarray { ranges, order, inner } => {
                let list = |of: fn(&Subrange) -> usize| ranges.iter().map(of).collect::<Vec<_>>();
                inner.subarray(&list(|r| r.size), &list(|r| r.sub_size), &list(|r| r.start), *order)
            }
            TypeEnvelope::Darray { rank, dimensions, order, inner } => {
                inner.darray(*rank, dimensions, *order)
            }
            TypeEnvelope::Structure { fields } => Datatype::structure(fields),
            TypeEnvelope::Resized { lb, extent, inner } => inner.resized(*lb, *extent),
            TypeEnvelope::Dup { inner } => inner.dup(),
        }
    }

    /// Returns the name of the constructor's method.
    pub fn name(&self) -> &'static str {
        match self {
            TypeEnvelope::Primitive(_) => "primitive",
            TypeEnvelope::Contiguous { .. } => "contiguous",
            TypeEnvelope::Vector { .. } => "vector",
            TypeEnvelope::HVector { .. } => "hvector",
            TypeEnvelope::Indexed { .. } => "indexed",
            TypeEnvelope::HIndexed { .. } => "hindexed",
            TypeEnvelope::IndexedBlock { .. } => "indexed_block",
            TypeEnvelope::HIndexedBlock { .. } => "hindexed_block",
            TypeEnvelope::Subarray { .. } => "subarray",
            TypeEnvelope::Darray { .. } => "darray",
            TypeEnvelope::Pair { .. } => "pair",
            TypeEnvelope::Dup { .. } => "dup",
            TypeEnvelope::Structure { .. } => "structure",
            TypeEnvelope::Resized { .. } => "resized",
        }
    }
}
