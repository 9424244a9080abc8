//! Checks that the bindings that `ibvdev` declares by hand match those of crate `ibverbs-sys`.
//!
//! If a declaration is not compared, the test does not compile: an exhaustive pattern lacks the field, the type of an
//! argument does not implement `Generated`, or the declaration is dead code.
#![deny(dead_code)]

mod abi {
    include!(concat!(env!("OUT_DIR"), "/abi.rs"));

    // A child module can access private fields.
    mod compare;
}
