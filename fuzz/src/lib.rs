//! Fuzz targets: each is a plain function on bytes that returns whatever they are.
//!
//! `cargo test -p mpj-fuzz` runs them on random bytes and on small damage to valid messages; a coverage-guided fuzzer can
//! call the same functions.

mod buffer;
mod datatype;

pub use buffer::{read_objects, valid_message, walk_sections};
pub use datatype::pack_unpack;
