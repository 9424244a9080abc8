//! Elements that are not adjacent: lists of indices, and strided regions of any rank.
//!
//! All places are checked before the first element is copied, so that a failed call has touched nothing.

mod index;
mod strided;

pub use self::index::IndexInt;
