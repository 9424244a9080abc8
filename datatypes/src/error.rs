//! The errors: one small type for each operation.

use crate::Primitive;
use core::fmt;

/// The error of a constructor or a query of a datatype: the given numbers do not fit.
///
/// # Examples
/// ```
/// use mpj_datatypes::{Datatype, Primitive, TypeError};
/// let byte = Datatype::primitive(Primitive::Byte);
/// assert!(matches!(byte.contiguous(usize::MAX), Err(TypeError::Count { count: usize::MAX })));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum TypeError {
    /// A count is above `i64::MAX`.
    Count {
        /// The requested count.
        count: usize,
    },
    /// The packed bytes of `count` items of `size` bytes, added to what is there already, pass `isize::MAX`.
    Size {
        /// The requested number of items.
        count: usize,
        /// The packed size of one in bytes.
        size: usize,
    },
    /// A displacement or a bound does not fit 64 bits.
    Extent {
        /// How often the step is taken.
        count: usize,
        /// The step or displacement, in the unit in which it was given.
        step: i64,
    },
    /// The type is built from types deeper than `limit` levels.
    Depth {
        /// The number of levels allowed.
        limit: usize,
    },
    /// The lists that describe the dimensions of an array are not equally long.
    Dimensions {
        /// The length of the first list.
        expected: usize,
        /// The length of the list that differs.
        given: usize,
    },
    /// A subarray leaves its array.
    Subarray {
        /// The dimension in which it does.
        dimension: usize,
        /// The length of the array.
        size: usize,
        /// The length of the block.
        sub: usize,
        /// Where the block begins.
        start: usize,
    },
    /// The indices of a dimension cannot be distributed in this way: blocks of 0, blocks too small for all indices, or
    /// more than one process along a dimension that is not distributed.
    Distribution {
        /// The dimension.
        dimension: usize,
        /// Its number of indices.
        size: usize,
        /// The number of processes along it.
        processes: usize,
    },
    /// The grid of processes has none with this number.
    Rank {
        /// The requested rank.
        rank: usize,
    },
}

impl fmt::Display for TypeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            TypeError::Count { count } => {
                write!(f, "count {count} is above the largest signed 64-bit number")
            }
            TypeError::Size { count, size } => write!(f, "{count} items of {size} bytes are too many bytes"),
            TypeError::Extent { count, step } => {
                write!(f, "{count} steps of {step} lead outside of the 64-bit address range")
            }
            TypeError::Depth { limit } => write!(f, "the type is nested deeper than {limit} levels"),
            TypeError::Dimensions { expected, given } => {
                write!(f, "{expected} dimensions in one list and {given} in another")
            }
            TypeError::Subarray { dimension, size, sub, start } => {
                write!(f, "dimension {dimension}: {sub} items from {start} on are not inside of {size}")
            }
            TypeError::Distribution { dimension, size, processes } => {
                write!(
                    f,
                    "dimension {dimension}: {size} indices cannot be dealt out so to {processes} processes"
                )
            }
            TypeError::Rank { rank } => write!(f, "the grid has no process {rank}"),
        }
    }
}

impl core::error::Error for TypeError {}

/// The bytes that a datatype names do not lie inside the slice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutOfRangeError {
    /// The lowest byte named, relative to the origin.
    pub lowest: i64,
    /// One past the highest byte named, relative to the origin.
    pub highest: i64,
    /// The byte of the slice at which displacement 0 lies.
    pub origin: usize,
    /// The bytes of the slice.
    pub available: usize,
}

impl fmt::Display for OutOfRangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OutOfRangeError { lowest, highest, origin, available } = self;
        write!(
            f,
            "bytes {lowest}..{highest} from origin {origin} are not inside a slice of {available} bytes"
        )
    }
}

impl core::error::Error for OutOfRangeError {}

/// A layout names a byte twice, so that it cannot be received into.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OverlapError {
    /// Such a byte, relative to the origin of the first item.
    pub offset: i64,
}

impl fmt::Display for OverlapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the type names byte {} more than once: it cannot be received into", self.offset)
    }
}

impl core::error::Error for OverlapError {}

/// More packed bytes came than the layout takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooLongError {
    /// The packed bytes given.
    pub given: usize,
    /// The packed bytes that fit.
    pub capacity: usize,
}

impl fmt::Display for TooLongError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} packed bytes for a layout with room for {}", self.given, self.capacity)
    }
}

impl core::error::Error for TooLongError {}

/// A received element is not a value of its type; it was replaced by `false` or `'\0'`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InvalidValueError {
    /// The type of the element.
    pub primitive: Primitive,
    /// Where the element starts in the packed message, in bytes.
    pub position: usize,
    /// The bits that were found.
    pub bits: u32,
}

impl fmt::Display for InvalidValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let InvalidValueError { primitive, position, bits } = self;
        write!(f, "{bits:#x} at packed byte {position} is not a {}", primitive.name())
    }
}

impl core::error::Error for InvalidValueError {}
