//! Elements that are not contiguous: lists of indices, and strided regions of any rank. A call with a position out of
//! range changes nothing: `gather` discards what it has copied, the others check all positions before they copy.

mod index;
mod strided;

pub use self::index::IndexInt;
