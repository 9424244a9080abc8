//! `Datatype` and its properties.

use crate::extent::{self, Extent};
use crate::overlap::DisjointUpTo;
use crate::plan::{Body, Plan};
use crate::{Equivalent, Primitive, Signature, TypeEnvelope, TypeError};
use core::fmt;
use std::sync::{Arc, LazyLock};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PrimitiveSet {
    None,
    One(Primitive),
    Mixed,
}

impl PrimitiveSet {
    pub(crate) fn union(self, other: PrimitiveSet) -> PrimitiveSet {
        match (self, other) {
            (PrimitiveSet::None, set) | (set, PrimitiveSet::None) => set,
            (PrimitiveSet::One(a), PrimitiveSet::One(b)) if a == b => self,
            _ => PrimitiveSet::Mixed,
        }
    }
}

/// The properties of a type, computed when it is built.
///
/// # Invariants
/// 1. `size <= isize::MAX`, and `element_count <= size`.
/// 2. `plan` has exactly the bytes of the type map, in its order, all inside `extent.byte_range()`.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) envelope: TypeEnvelope,
    pub(crate) size: usize,
    pub(crate) element_count: u64,
    pub(crate) signature: Signature,
    pub(crate) primitives: PrimitiveSet,
    pub(crate) needs_validation: bool,
    pub(crate) extent: Extent,
    pub(crate) plan: Plan,
    pub(crate) depth: usize,
    /// For `darray`, whose envelope does not list the positions of the items: the same layout in simpler constructors.
    pub(crate) lowered: Option<Datatype>,
    pub(crate) disjoint_up_to: DisjointUpTo,
    /// The value of [`Datatype::is_contiguous`], set by [`Datatype::from_node`].
    pub(crate) contiguous: bool,
}

impl Node {
    fn is_contiguous(&self) -> bool {
        let dense = self.extent.lb() == 0 && i64::try_from(self.size) == Ok(self.extent.extent());
        dense && (self.size == 0 || self.plan.run() == Some((0, self.size)))
    }
}

/// A layout of memory: which primitives lie where, and in which order they are sent (MPI 4.1 §5.1).
///
/// A datatype is an immutable value, cheap to clone, `Send` and `Sync`. It needs no `MPI_Type_commit`, and is
/// freed with its last clone.
///
/// A column of a 3 × 4 matrix in row-major order:
/// ```
/// use mpj_datatypes::{Datatype, Run};
/// # fn main() -> Result<(), mpj_datatypes::TypeError> {
/// let column = Datatype::of::<f64>().vector(3, 1, 4)?;
/// assert_eq!(column.size(), 24);
/// assert_eq!(column.extent(), 72);
/// let runs: Vec<Run> = column.runs(1).collect();
/// assert_eq!(runs[1], Run { offset: 32, len: 8 });
/// // Resized to one element, columns are contiguous:
/// let columns = column.resized(0, 8)?;
/// assert_eq!(columns.byte_bounds(4)?, (0, 96));
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Datatype(Handle);

/// Cloning a primitive accesses no shared counter. The reference makes both variants a tag and a pointer: a single byte
/// would be stored in parts, and reading them as whole words would stall.
#[derive(Clone)]
enum Handle {
    Primitive(&'static Primitive),
    Shared(Arc<Node>),
}

/// The nodes of the primitives, for code that handles all types alike.
static PRIMITIVES: LazyLock<[Node; Primitive::ALL.len()]> = LazyLock::new(|| {
    Primitive::ALL.map(|p| Node {
        envelope: TypeEnvelope::Primitive(p),
        size: p.size(),
        element_count: 1,
        signature: Signature::of(p),
        primitives: PrimitiveSet::One(p),
        needs_validation: p.needs_validation(),
        extent: Extent::of(p),
        plan: Plan::block(0, p.size()),
        depth: 0,
        lowered: None,
        disjoint_up_to: DisjointUpTo::default(),
        contiguous: true,
    })
});

/// Not inlined, so that the initialisation of the table stays out of the callers.
#[inline(never)]
fn of_primitive(primitive: Primitive) -> &'static Node {
    &PRIMITIVES[primitive as usize - 1]
}

impl Datatype {
    /// Returns the datatype of one primitive.
    #[inline]
    pub const fn primitive(primitive: Primitive) -> Datatype {
        Datatype(Handle::Primitive(&Primitive::ALL[primitive as usize - 1]))
    }

    /// Returns the datatype of a Rust type.
    ///
    /// ```
    /// use mpj_datatypes::Datatype;
    /// assert_eq!(Datatype::of::<[f32; 3]>().size(), 12);
    /// ```
    #[inline]
    pub fn of<T: Equivalent>() -> Datatype {
        T::datatype()
    }

    pub(crate) fn from_node(mut node: Node) -> Datatype {
        node.contiguous = node.is_contiguous();
        Datatype(Handle::Shared(Arc::new(node)))
    }

    /// Returns whether the type is a primitive.
    #[inline]
    pub fn is_primitive(&self) -> bool {
        self.as_primitive().is_some()
    }

    /// Returns the primitive if this is the datatype of a primitive itself.
    #[inline]
    pub fn as_primitive(&self) -> Option<Primitive> {
        match self.0 {
            Handle::Primitive(primitive) => Some(*primitive),
            Handle::Shared(_) => None,
        }
    }

    #[inline]
    pub(crate) fn node(&self) -> &Node {
        match &self.0 {
            Handle::Primitive(primitive) => of_primitive(**primitive),
            Handle::Shared(node) => node,
        }
    }

    /// Returns the constructor, its arguments and the inner types (MPI 4.1 §5.1.13).
    pub fn envelope(&self) -> TypeEnvelope {
        self.node().envelope.clone()
    }

    /// Returns the packed size of one item in bytes, without gaps (`MPI_Type_size`, MPI 4.1 §5.1.5).
    #[inline]
    pub fn size(&self) -> usize {
        match &self.0 {
            Handle::Primitive(primitive) => primitive.size(),
            Handle::Shared(node) => node.size,
        }
    }

    /// Returns the lower bound in bytes, relative to the origin (MPI 4.1 §5.1.7).
    pub fn lb(&self) -> i64 {
        self.node().extent.lb()
    }

    /// Returns the extent in bytes: the distance between contiguous items. It may be negative, or smaller than the
    /// range of bytes of an item (MPI 4.1 §5.1.7).
    #[inline]
    pub fn extent(&self) -> i64 {
        match &self.0 {
            Handle::Primitive(primitive) => primitive.size() as i64,
            Handle::Shared(node) => node.extent.extent(),
        }
    }

    /// Returns the lowest byte of an item, relative to the origin; 0 without bytes (MPI 4.1 §5.1.8).
    pub fn true_lb(&self) -> i64 {
        self.node().extent.byte_range().0
    }

    /// Returns the distance from the lowest byte to one past the highest (MPI 4.1 §5.1.8).
    pub fn true_extent(&self) -> i64 {
        let (low, high) = self.node().extent.byte_range();
        high - low
    }

    /// Returns the type signature of one item (MPI 4.1 §5.1).
    #[inline]
    pub fn signature(&self) -> Signature {
        match &self.0 {
            Handle::Primitive(primitive) => Signature::of(**primitive),
            Handle::Shared(node) => node.signature,
        }
    }

    /// Returns the primitive that all elements of the type are. Returns `None` if they differ, and for empty types.
    #[inline]
    pub fn single_primitive(&self) -> Option<Primitive> {
        match &self.0 {
            Handle::Primitive(primitive) => Some(**primitive),
            Handle::Shared(node) => match node.primitives {
                PrimitiveSet::One(primitive) => Some(primitive),
                PrimitiveSet::None | PrimitiveSet::Mixed => None,
            },
        }
    }

    /// Returns the number of primitives in one item.
    pub fn element_count(&self) -> u64 {
        self.node().element_count
    }

    /// Returns whether any number of items is one run of `count * size()` bytes at offset 0, in pack order: then memory
    /// is equal to the packed form.
    #[inline]
    pub fn is_contiguous(&self) -> bool {
        match &self.0 {
            Handle::Primitive(_) => true,
            Handle::Shared(node) => node.contiguous,
        }
    }

    /// Returns the length in bytes of the blocks of an item if the type is one block, a nest of up to four loops over
    /// blocks, or a list of equal blocks. Returns `None` for other types, such as lists of structures.
    ///
    /// ```
    /// use mpj_datatypes::Datatype;
    /// # fn main() -> Result<(), mpj_datatypes::TypeError> {
    /// let column = Datatype::of::<f64>().vector(100, 5, 64)?;
    /// assert_eq!(column.block_len(), Some(40));
    /// assert_eq!(Datatype::of::<f64>().indexed(&[(1, 0), (2, 7)])?.block_len(), None);
    /// # Ok(()) }
    /// ```
    #[inline]
    pub fn block_len(&self) -> Option<usize> {
        match &self.0 {
            Handle::Primitive(primitive) => Some(primitive.size()),
            Handle::Shared(node) => node.plan.block_len(),
        }
    }

    /// Returns whether the type has a `bool` or `char`, so that received bytes must be [validated](Datatype::validate).
    #[inline]
    pub fn needs_validation(&self) -> bool {
        match &self.0 {
            Handle::Primitive(primitive) => primitive.needs_validation(),
            Handle::Shared(node) => node.needs_validation,
        }
    }

    /// Returns the lowest and one past the highest byte of `count` items, relative to the first origin; (0, 0) without
    /// bytes.
    ///
    /// # Errors
    /// [`TypeError`] if `count`, a bound or the difference of the bounds does not fit an `i64`.
    ///
    /// # Examples
    /// ```
    /// use mpj_datatypes::Datatype;
    /// # fn main() -> Result<(), mpj_datatypes::TypeError> {
    /// let backwards = Datatype::of::<u32>().vector(3, 1, -2)?;
    /// assert_eq!(backwards.byte_bounds(1)?, (-16, 4));
    /// assert_eq!(backwards.byte_bounds(0)?, (0, 0));
    /// # Ok(()) }
    /// ```
    #[inline]
    pub fn byte_bounds(&self, count: usize) -> Result<(i64, i64), TypeError> {
        extent::bounds(&self.node().extent, count)
    }

    /// Returns the packed size of `count` items in bytes.
    ///
    /// # Errors
    /// [`TypeError::Size`] if it exceeds `isize::MAX`.
    #[inline]
    pub fn packed_size(&self, count: usize) -> Result<usize, TypeError> {
        let size = self.size();
        match size.checked_mul(count) {
            Some(total) if total <= isize::MAX as usize => Ok(total),
            _ => Err(TypeError::Size { count, size }),
        }
    }

    /// Returns [`packed_size`](Self::packed_size), or a saturated product if that fails.
    #[inline]
    pub(crate) fn packed_size_or_max(&self, count: usize) -> usize {
        self.size().saturating_mul(count)
    }

    #[inline]
    pub(crate) fn plan(&self) -> &Plan {
        &self.node().plan
    }
}

impl From<Primitive> for Datatype {
    #[inline]
    fn from(primitive: Primitive) -> Self {
        Datatype::primitive(primitive)
    }
}

impl From<&Datatype> for Datatype {
    #[inline]
    fn from(datatype: &Datatype) -> Self {
        datatype.clone()
    }
}

impl fmt::Debug for Datatype {
    /// Without the inner types: shared parts would be printed again and again.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let node = self.node();
        if let TypeEnvelope::Primitive(primitive) = node.envelope {
            return f.write_str(primitive.name());
        }
        let form = match node.plan.body {
            Body::Empty => "empty",
            Body::Strided(ref strided) if strided.depth == 0 => "block",
            Body::Strided(_) => "strided",
            Body::Blocks(_) => "blocks",
            Body::Runs(_) => "runs",
            Body::Items(_) => "items",
            Body::Sequence(_) => "sequence",
            Body::Repeat(_) => "repeat",
        };
        f.debug_struct("Datatype")
            .field("constructor", &node.envelope.name())
            .field("size", &node.size)
            .field("lb", &node.extent.lb())
            .field("extent", &node.extent.extent())
            .field("elements", &node.element_count)
            .field("plan", &form)
            .finish()
    }
}
