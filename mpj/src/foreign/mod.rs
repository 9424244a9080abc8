//! Types of other crates as buffers, each behind the feature of its crate's name.

#[cfg(feature = "ndarray")]
mod arrays;
#[cfg(feature = "bytes")]
mod bytes;
