//! How a datatype was built, for those who print, store or send types.

use crate::{Datatype, Primitive};
use std::sync::Arc;

/// The constructor of a datatype with its arguments (`MPI_Type_get_envelope` and `MPI_Type_get_contents`, MPI 4.1
/// §5.1.13). Cloning is cheap: lists and inner types are shared.
///
/// # Examples
/// ```
/// use mpj_datatypes::{Datatype, Envelope, Primitive};
/// let pair = Datatype::of::<i16>().contiguous(2)?;
/// match pair.envelope() {
///     Envelope::Contiguous { count, inner } => {
///         assert_eq!(count, 2);
///         assert!(matches!(inner.envelope(), Envelope::Primitive(Primitive::I16)));
///     }
///     _ => unreachable!(),
/// }
/// # Ok::<(), mpj_datatypes::TypeError>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Envelope {
    /// A basic type.
    Primitive(Primitive),
    /// [`Datatype::contiguous`].
    Contiguous {
        /// Number of items.
        count: usize,
        /// The type of an item.
        inner: Datatype,
    },
    /// [`Datatype::vector`].
    Vector {
        /// Number of blocks.
        count: usize,
        /// Items in a block.
        block: usize,
        /// Distance between the starts of blocks, in extents of `inner`.
        stride: isize,
        /// The type of an item.
        inner: Datatype,
    },
    /// [`Datatype::hvector`].
    HVector {
        /// Number of blocks.
        count: usize,
        /// Items in a block.
        block: usize,
        /// Distance between the starts of blocks, in bytes.
        stride_bytes: i64,
        /// The type of an item.
        inner: Datatype,
    },
    /// [`Datatype::indexed`].
    Indexed {
        /// For each block its number of items and its displacement in extents of `inner`.
        blocks: Arc<[(usize, isize)]>,
        /// The type of an item.
        inner: Datatype,
    },
    /// [`Datatype::hindexed`].
    HIndexed {
        /// For each block its number of items and its displacement in bytes.
        blocks: Arc<[(usize, i64)]>,
        /// The type of an item.
        inner: Datatype,
    },
    /// [`Datatype::structure`].
    Structure {
        /// For each field its number of items, its displacement in bytes and its type.
        fields: Arc<[(usize, i64, Datatype)]>,
    },
    /// [`Datatype::resized`].
    Resized {
        /// The new lower bound in bytes.
        lb: i64,
        /// The new extent in bytes.
        extent: i64,
        /// The type whose bounds were changed.
        inner: Datatype,
    },
}

impl Envelope {
    /// Returns the name of the constructor, as the method is called.
    pub fn name(&self) -> &'static str {
        match self {
            Envelope::Primitive(_) => "primitive",
            Envelope::Contiguous { .. } => "contiguous",
            Envelope::Vector { .. } => "vector",
            Envelope::HVector { .. } => "hvector",
            Envelope::Indexed { .. } => "indexed",
            Envelope::HIndexed { .. } => "hindexed",
            Envelope::Structure { .. } => "structure",
            Envelope::Resized { .. } => "resized",
        }
    }
}
