//! Elements that are not contiguous: lists of indices, and strided regions of any rank. All positions are checked
//! before the first element is copied, so that a failed call changes nothing.

mod index;
mod strided;

pub use self::index::IndexInt;
