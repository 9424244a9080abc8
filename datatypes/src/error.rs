//! Error types.

use crate::Primitive;
use core::fmt;

/// The arguments of a constructor or a query of a datatype are out of range.
///
/// ```
/// use mpj_datatypes::{Datatype, Primitive, TypeError};
/// let byte = Datatype::primitive(Primitive::Byte);
/// assert!(matches!(byte.contiguous(usize::MAX), Err(TypeError::Count { count: usize::MAX })));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum TypeError {
    /// A count is above `i64::MAX`, or an index of a `darray` above `isize::MAX`.
    Count {
        /// The requested count.
        count: usize,
    },
    /// `count` further items of `size` bytes would make the packed size exceed `isize::MAX`.
    Size {
        /// Number of items.
        count: usize,
        /// Packed size of one item in bytes.
        size: usize,
    },
    /// A displacement, a bound or the difference of two bounds does not fit an `i64`.
    Extent {
        /// Number of steps.
        count: usize,
        /// The step, displacement or bound, in bytes or in extents.
        step: i64,
    },
    /// The type is nested deeper than `limit` levels.
    Depth {
        /// Maximum depth.
        limit: usize,
    },
    /// The lists of an array's dimensions have different lengths.
    Dimensions {
        /// Length of the first list.
        expected: usize,
        /// Length of the list that differs.
        given: usize,
    },
    /// A subarray exceeds its array.
    Subarray {
        /// The dimension.
        dimension: usize,
        /// Length of the array.
        size: usize,
        /// Length of the block.
        sub: usize,
        /// Start of the block.
        start: usize,
    },
    /// The indices of a dimension cannot be distributed in this way: cyclic blocks of 0 indices, blocks too small for
    /// all indices, or more than one process along a dimension that is not distributed.
    Distribution {
        /// The dimension.
        dimension: usize,
        /// Number of indices.
        size: usize,
        /// Number of processes along the dimension.
        processes: usize,
    },
    /// The grid of processes has no process of this rank.
    Rank {
        /// The requested rank.
        rank: usize,
    },
}

impl fmt::Display for TypeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            TypeError::Count { count } => {
                write!(f, "count {count} exceeds the largest signed number")
            }
            TypeError::Size { count, size } => {
                write!(f, "{count} items of {size} bytes exceed the maximum size")
            }
            TypeError::Extent { count, step } => {
                write!(f, "{count} steps of {step} exceed the 64-bit address range")
            }
            TypeError::Depth { limit } => write!(f, "the type is nested deeper than {limit} levels"),
            TypeError::Dimensions { expected, given } => {
                write!(f, "lists of {expected} and {given} dimensions: expected equal lengths")
            }
            TypeError::Subarray { dimension, size, sub, start } => {
                write!(f, "dimension {dimension}: {sub} items from {start} on exceed the array of {size}")
            }
            TypeError::Distribution { dimension, size, processes } => {
                write!(
                    f,
                    "dimension {dimension}: {size} indices cannot be distributed to {processes} processes this way"
                )
            }
            TypeError::Rank { rank } => write!(f, "the grid has no process {rank}"),
        }
    }
}

impl core::error::Error for TypeError {}

/// The bytes of the items are not inside the slice, their packed size exceeds `isize::MAX`, or the type needs
/// validation (for [`Unpacker::of_slice`](crate::Unpacker::of_slice) and views).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutOfRangeError {
    /// The lowest byte, relative to the origin; `i64::MIN` if it is unknown.
    pub lowest: i64,
    /// One past the highest byte, relative to the origin.
    pub highest: i64,
    /// The byte of the slice that has displacement 0.
    pub origin: usize,
    /// Length of the slice in bytes.
    pub available: usize,
    /// Whether the cause is not the length, but that the type [needs validation](crate::Datatype::needs_validation).
    pub needs_validation: bool,
}

impl fmt::Display for OutOfRangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OutOfRangeError { lowest, highest, origin, available, needs_validation } = self;
        if *needs_validation {
            return f.write_str("items that contain `bool` or `char` must be unpacked into `MaybeUninit`");
        }
        write!(
            f,
            "bytes {lowest}..{highest} from origin {origin} are not inside a slice of {available} bytes"
        )
    }
}

impl core::error::Error for OutOfRangeError {}

/// A layout contains a byte more than once, so receiving into it is erroneous.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OverlapError {
    /// One of these bytes, relative to the origin of the first item.
    pub offset: i64,
}

impl fmt::Display for OverlapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the datatype contains byte {} more than once and cannot be received into", self.offset)
    }
}

impl core::error::Error for OverlapError {}

/// There are more packed bytes than remain in the layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooLongError {
    /// Packed bytes given.
    pub given: usize,
    /// Packed bytes that remain in the layout.
    pub capacity: usize,
}

impl fmt::Display for TooLongError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} packed bytes exceed the layout ({})", self.given, self.capacity)
    }
}

impl core::error::Error for TooLongError {}

/// A received element is invalid for its type; it was replaced by `false` or `'\0'`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InvalidValueError {
    /// The type of the element.
    pub primitive: Primitive,
    /// Packed position of the element in bytes.
    pub position: usize,
    /// The bits found.
    pub bits: u32,
}

impl fmt::Display for InvalidValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let InvalidValueError { primitive, position, bits } = self;
        write!(f, "{bits:#x} at packed byte {position} is not a {}", primitive.name())
    }
}

impl core::error::Error for InvalidValueError {}
