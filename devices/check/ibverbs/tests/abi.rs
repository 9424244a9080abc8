//! The bindings that `ibvdev` declares by hand are those that bindgen generates from the header `infiniband/verbs.h`.
//!
//! What is declared and not compared does not compile: a field is missing in an exhaustive pattern, the type of an
//! argument has no `Generated`, and a constant or type that nothing uses is dead code.
#![deny(dead_code)]

mod abi {
    include!(concat!(env!("OUT_DIR"), "/abi.rs"));

    // Here, because a child module sees private fields.
    mod compare;
}
