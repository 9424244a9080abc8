//! Elements that are not contiguous: lists of indices, and strided regions of many dimensions. A call with a position
//! out of range changes nothing: `gather` discards its copies, the others check all positions before they copy.

mod index;
mod strided;

pub use self::index::IndexInt;
