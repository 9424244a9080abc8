//! Checks that the bindings that `ibvdev` declares by hand equal those that bindgen generates from
//! `infiniband/verbs.h`.
//!
//! The test does not compile if a declaration is not compared: its field is missing in an exhaustive pattern, the type
//! of its argument has no `Generated`, or it is dead code.
#![deny(dead_code)]

mod abi {
    include!(concat!(env!("OUT_DIR"), "/abi.rs"));

    // Here, because a child module sees private fields.
    mod compare;
}
