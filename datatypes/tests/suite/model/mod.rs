//! Random datatypes with their models.
#![allow(dead_code, unreachable_pub, unused_imports, reason = "each test file uses another part")]

mod spec;

use mpj_datatypes::{ArrayOrder, DistributedDim, Distribution, Primitive};
use proptest::prelude::*;
pub use spec::{Model, Spec};

fn leaf() -> impl Strategy<Value = Spec> {
    let primitive = || proptest::sample::select(Primitive::ALL.to_vec());
    prop_oneof![
        8 => primitive().prop_map(Spec::Primitive),
        1 => (primitive(), primitive()).prop_map(|(a, b)| Spec::Pair(a, b)),
    ]
}

fn order() -> impl Strategy<Value = ArrayOrder> {
    prop_oneof![Just(ArrayOrder::C), Just(ArrayOrder::Fortran)]
}

fn section() -> impl Strategy<Value = (usize, usize, usize)> {
    (1..6usize)
        .prop_flat_map(|size| (Just(size), 0..=size))
        .prop_flat_map(|(size, sub)| (Just(size), Just(sub), 0..=size - sub))
}

fn distributed() -> impl Strategy<Value = DistributedDim> {
    (1..7usize, 1..4usize).prop_flat_map(|(size, processes)| {
        let how = prop_oneof![
            (0..3usize).prop_map(move |more| Distribution::BlockOf(size.div_ceil(processes) + more)),
            Just(Distribution::Block),
            (1..4usize).prop_map(Distribution::Cyclic),
            Just(Distribution::Whole),
        ];
        how.prop_map(move |how| {
            let processes = if how == Distribution::Whole { 1 } else { processes };
            DistributedDim { size, processes, distribution: how }
        })
    })
}

fn darray() -> impl Strategy<Value = (usize, Vec<DistributedDim>)> {
    prop::collection::vec(distributed(), 1..4).prop_flat_map(|dims| {
        let ranks: usize = dims.iter().map(|d| d.processes).product();
        (0..ranks, Just(dims))
    })
}

/// A number below `limit`; rarely 0, because otherwise most trees would be empty.
fn count(limit: usize) -> impl Strategy<Value = usize> {
    prop_oneof![9 => 1..limit, 1 => Just(0)]
}

/// Random trees of up to three constructors above the leaves, with gaps, overlaps, empty pieces and negative numbers.
pub fn spec() -> impl Strategy<Value = Spec> {
    leaf().prop_recursive(3, 40, 3, |inner| {
        let one = inner.clone().prop_map(Box::new);
        prop_oneof![
            (count(5), one.clone()).prop_map(|(n, t)| Spec::Contiguous(n, t)),
            (count(4), count(4), -4..6isize, one.clone()).prop_map(|(n, b, s, t)| Spec::Vector(n, b, s, t)),
            (count(12), count(3), -20..40i64, one.clone()).prop_map(|(n, b, s, t)| Spec::HVector(n, b, s, t)),
            (prop::collection::vec((count(3), -6..12isize), 0..5), one.clone())
                .prop_map(|(b, t)| Spec::Indexed(b, t)),
            (prop::collection::vec((count(3), -30..60i64), 0..14), one.clone())
                .prop_map(|(b, t)| Spec::HIndexed(b, t)),
            prop::collection::vec((count(3), -30..60i64, inner), 0..4).prop_map(Spec::Structure),
            (count(4), prop::collection::vec(-6..12isize, 0..14), one.clone())
                .prop_map(|(b, at, t)| Spec::IndexedBlock(b, at, t)),
            (count(3), prop::collection::vec(-30..60i64, 0..14), one.clone())
                .prop_map(|(b, at, t)| Spec::HIndexedBlock(b, at, t)),
            (prop::collection::vec(section(), 1..4), order(), one.clone())
                .prop_map(|(d, o, t)| Spec::Subarray(d, o, t)),
            (darray(), order(), one.clone()).prop_map(|((rank, d), o, t)| Spec::Darray(rank, d, o, t)),
            one.clone().prop_map(Spec::Dup),
            (-20..20i64, -30..60i64, one).prop_map(|(lb, e, t)| Spec::Resized(lb, e, t)),
        ]
    })
}

/// A tree whose model has at most `max_bytes` packed bytes.
pub fn small_spec(max_bytes: usize) -> impl Strategy<Value = Spec> {
    spec().prop_filter("too many bytes", move |s| s.model().bytes().len() <= max_bytes)
}
