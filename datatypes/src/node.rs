//! The type itself: how it was built, and all that is known about it once it is.

use crate::extent::{self, Extent};
use crate::overlap::Apart;
use crate::plan::{Body, Plan};
use crate::{Envelope, Equivalent, Primitive, Signature, TypeError};
use core::fmt;
use std::sync::{Arc, LazyLock};

/// Which primitives a type names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Leaves {
    None,
    One(Primitive),
    Mixed,
}

impl Leaves {
    pub(crate) fn and(self, other: Leaves) -> Leaves {
        match (self, other) {
            (Leaves::None, leaves) | (leaves, Leaves::None) => leaves,
            (Leaves::One(a), Leaves::One(b)) if a == b => self,
            _ => Leaves::Mixed,
        }
    }
}

/// Everything about a type, worked out when it is built.
///
/// # Invariants
/// 1. `size <= isize::MAX`, and `elements <= size`.
/// 2. `plan` names exactly the bytes of the type map, in its order, all inside of `extent.touched()`.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) envelope: Envelope,
    pub(crate) size: usize,
    pub(crate) elements: u64,
    pub(crate) signature: Signature,
    pub(crate) leaves: Leaves,
    pub(crate) needs_check: bool,
    pub(crate) extent: Extent,
    pub(crate) plan: Plan,
    pub(crate) depth: usize,
    /// The same layout in simpler constructors, where the places of its items are not plain from the envelope.
    pub(crate) lowered: Option<Datatype>,
    pub(crate) apart: Apart,
}

/// A layout of memory: which primitives lie where, in which order they travel (MPI 4.1 §5.1).
///
/// A datatype is a value: immutable, cheap to clone, sent between threads freely. It is ready for use
/// as soon as it is built (`MPI_Type_commit` has no counterpart), and freed when the last clone is gone.
///
/// # Examples
/// A column of a 3 × 4 matrix, rows first:
/// ```
/// use mpj_datatypes::{Datatype, Run};
/// # fn main() -> Result<(), mpj_datatypes::TypeError> {
/// let column = Datatype::of::<f64>().vector(3, 1, 4)?;
/// assert_eq!(column.size(), 24);
/// assert_eq!(column.extent(), 72);
/// let runs: Vec<Run> = column.runs(1).collect();
/// assert_eq!(runs[1], Run { offset: 32, len: 8 });
/// // Resized to one element, columns follow one another:
/// let columns = column.resized(0, 8)?;
/// assert_eq!(columns.bounds(4)?, (0, 96));
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Datatype(Handle);

/// Primitives are used in every call, so that they are static: cloning one touches no shared counter.
#[derive(Clone)]
enum Handle {
    Static(&'static Node),
    Shared(Arc<Node>),
}

static PRIMITIVES: LazyLock<[Node; Primitive::ALL.len()]> = LazyLock::new(|| {
    Primitive::ALL.map(|p| Node {
        envelope: Envelope::Primitive(p),
        size: p.size(),
        elements: 1,
        signature: Signature::of(p),
        leaves: Leaves::One(p),
        needs_check: p.needs_check(),
        extent: Extent::of(p),
        plan: Plan::block(0, p.size()),
        depth: 0,
        lowered: None,
        apart: Apart::default(),
    })
});

impl Datatype {
    /// Returns the datatype of one primitive.
    pub fn primitive(primitive: Primitive) -> Datatype {
        Datatype(Handle::Static(&PRIMITIVES[primitive as usize - 1]))
    }

    /// Returns the datatype of a Rust type.
    ///
    /// # Examples
    /// ```
    /// use mpj_datatypes::Datatype;
    /// assert_eq!(Datatype::of::<[f32; 3]>().size(), 12);
    /// ```
    pub fn of<T: Equivalent>() -> Datatype {
        T::datatype()
    }

    pub(crate) fn from_node(node: Node) -> Datatype {
        Datatype(Handle::Shared(Arc::new(node)))
    }

    #[inline]
    pub(crate) fn node(&self) -> &Node {
        match &self.0 {
            Handle::Static(node) => node,
            Handle::Shared(node) => node,
        }
    }

    /// Returns how the type was built: the constructor, its arguments and the inner types (MPI 4.1 §5.1.13).
    pub fn envelope(&self) -> Envelope {
        self.node().envelope.clone()
    }

    /// Returns the packed bytes of one item, gaps not counted (`MPI_Type_size`, MPI 4.1 §5.1.5).
    pub fn size(&self) -> usize {
        self.node().size
    }

    /// Returns the lower bound in bytes: where an item begins, relative to its origin (MPI 4.1 §5.1.7).
    pub fn lb(&self) -> i64 {
        self.node().extent.lb()
    }

    /// Returns the extent in bytes: the distance between items that follow one another. It may be negative or
    /// smaller than the bytes touched (MPI 4.1 §5.1.7).
    pub fn extent(&self) -> i64 {
        self.node().extent.extent()
    }

    /// Returns the lowest byte touched, relative to the origin; 0 if none is (MPI 4.1 §5.1.8).
    pub fn true_lb(&self) -> i64 {
        self.node().extent.touched().0
    }

    /// Returns the bytes from the lowest touched to past the highest (MPI 4.1 §5.1.8).
    pub fn true_extent(&self) -> i64 {
        let (low, high) = self.node().extent.touched();
        high - low
    }

    /// Returns the type signature of one item (MPI 4.1 §5.1).
    pub fn signature(&self) -> Signature {
        self.node().signature
    }

    /// Returns the primitive of which the type consists, or `None` if it names several or none.
    pub fn homogeneous(&self) -> Option<Primitive> {
        match self.node().leaves {
            Leaves::One(primitive) => Some(primitive),
            Leaves::None | Leaves::Mixed => None,
        }
    }

    /// Returns the number of primitives in one item.
    pub fn elements(&self) -> u64 {
        self.node().elements
    }

    /// Returns whether any number of items is one run of `count * size()` bytes at offset 0, in pack order: then
    /// memory already looks like the packed form.
    pub fn is_contiguous(&self) -> bool {
        let node = self.node();
        let dense = node.extent.lb() == 0 && i64::try_from(node.size) == Ok(node.extent.extent());
        dense && (node.size == 0 || node.plan.run() == Some((0, node.size)))
    }

    /// Returns whether the type names a `bool` or `char`, so that received bytes must be
    /// [validated](Datatype::validate).
    pub fn needs_check(&self) -> bool {
        self.node().needs_check
    }

    /// Returns the lowest and one past the highest byte that `count` items touch, relative to the origin of the
    /// first; (0, 0) if they touch none.
    ///
    /// # Errors
    /// [`TypeError`] if a bound does not fit an `i64`.
    ///
    /// # Examples
    /// ```
    /// use mpj_datatypes::Datatype;
    /// # fn main() -> Result<(), mpj_datatypes::TypeError> {
    /// let backwards = Datatype::of::<u32>().vector(3, 1, -2)?;
    /// assert_eq!(backwards.bounds(1)?, (-16, 4));
    /// assert_eq!(backwards.bounds(0)?, (0, 0));
    /// # Ok(()) }
    /// ```
    #[inline]
    pub fn bounds(&self, count: usize) -> Result<(i64, i64), TypeError> {
        extent::bounds(&self.node().extent, count)
    }

    /// Returns the packed bytes of `count` items.
    ///
    /// # Errors
    /// [`TypeError::Size`] if they are more than `isize::MAX`, which no buffer can hold.
    #[inline]
    pub fn packed_size(&self, count: usize) -> Result<usize, TypeError> {
        let size = self.size();
        match size.checked_mul(count) {
            Some(total) if total <= isize::MAX as usize => Ok(total),
            _ => Err(TypeError::Size { count, size }),
        }
    }

    /// The same for callers that only cut at the end: saturates instead of failing.
    #[inline]
    pub(crate) fn packed_size_or_max(&self, count: usize) -> usize {
        self.size().saturating_mul(count)
    }

    #[inline]
    pub(crate) fn plan(&self) -> &Plan {
        &self.node().plan
    }
}

impl fmt::Debug for Datatype {
    /// One line, not the whole tree: types share parts, so that the tree may be larger than memory.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let node = self.node();
        if let Envelope::Primitive(primitive) = node.envelope {
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
            .field("elements", &node.elements)
            .field("plan", &form)
            .finish()
    }
}
