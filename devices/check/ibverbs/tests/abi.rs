//! Checks that the bindings that `ibvdev` declares by hand equal those that bindgen generates from
//! `infiniband/verbs.h`.
//!
//! A declaration that is not compared does not compile: a field is missing in an exhaustive pattern, the type of an
//! argument has no `Generated`, and an unused constant or type is dead code.
#![deny(dead_code)]

mod abi {
    include!(concat!(env!("OUT_DIR"), "/abi.rs"));

    // Here, because a child module sees private fields.
    mod compare;
}
