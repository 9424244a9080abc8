//! Types that are made of whole structures, judged by every byte that they name.
#![cfg(feature = "derive")]

use mpj_datatypes::{ArrayOrder, Datatype};
use proptest::collection::vec;
use proptest::prelude::*;

#[repr(C)]
#[derive(Clone, Copy, Datatype)]
struct Cell {
    full: bool,
    heat: f64,
    at: [u16; 3],
}

const SIZE: i64 = size_of::<Cell>() as i64;

/// Where a cell has bytes that are not padding, in the order in which they travel.
fn named() -> Vec<i64> {
    std::iter::once(0).chain(8..22).collect()
}

/// Whether all bytes of a type, three items in a row, are those of whole cells.
fn judge(datatype: &Datatype) -> bool {
    let bytes: Vec<i64> = datatype.runs(3).flat_map(|run| run.offset..run.offset + run.len as i64).collect();
    bytes.chunks(named().len()).all(|cell| {
        let start = cell[0];
        start % SIZE == 0 && cell.iter().map(|byte| byte - start).eq(named())
    })
}

/// Types around others; `unit` is what distances in bytes are multiples of.
fn types(leaf: Datatype, unit: i64) -> impl Strategy<Value = Datatype> {
    Just(leaf).prop_recursive(4, 12, 3, move |inner| {
        let blocks = vec((0..3usize, -3..4i64), 0..4);
        let around = (0..12u8, inner.clone(), inner, 0..3usize, 0..3usize, -3..4i64, blocks);
        around.prop_filter_map("too large", move |(kind, one, other, count, block, at, list)| {
            let displacements: Vec<isize> = list.iter().map(|(_, at)| *at as isize).collect();
            let far: Vec<i64> = list.iter().map(|(_, at)| at * unit).collect();
            let blocks: Vec<(usize, isize)> = list.iter().map(|(len, at)| (*len, *at as isize)).collect();
            let far_blocks: Vec<(usize, i64)> = list.iter().map(|(len, at)| (*len, at * unit)).collect();
            let built = match kind {
                0 => one.contiguous(count),
                1 => one.vector(count, block, at as isize),
                2 => one.hvector(count, block, at * unit),
                3 => one.indexed(&blocks),
                4 => one.hindexed(&far_blocks),
                5 => one.indexed_block(block, &displacements),
                6 => one.hindexed_block(block, &far),
                7 => one.subarray(&[3, 4], &[count, block], &[0, 1], ArrayOrder::C),
                8 => one.dup(),
                9 => one.resized(0, at * unit),
                _ => Datatype::structure(&[(count, at * unit, one), (block, 2 * unit, other)]),
            };
            built.ok()
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_passes_names_whole_cells(one in types(Datatype::of::<Cell>(), 8)) {
        prop_assert!(!one.is_made_of(&Datatype::of::<Cell>()) || judge(&one), "{:?}", one);
    }

    #[test]
    fn whatever_is_built_of_whole_cells_passes(one in types(Datatype::of::<Cell>(), SIZE)) {
        prop_assert!(one.is_made_of(&Datatype::of::<Cell>()) && judge(&one), "{:?}", one);
    }

    #[test]
    fn parts_of_cells_never_pass(one in types(Datatype::of::<f64>(), SIZE)) {
        prop_assert!(one.size() == 0 || !one.is_made_of(&Datatype::of::<Cell>()), "{:?}", one);
    }
}

#[test]
fn a_type_that_was_built_alike_passes_and_one_that_only_looks_alike_does_not() {
    let cell = Datatype::of::<Cell>();
    let fields = |last: Datatype| {
        let fields = [(1, 0, Datatype::of::<bool>()), (1, 8, Datatype::of::<f64>()), (1, 16, last)];
        Datatype::structure(&fields).expect("small")
    };
    let alike = fields(Datatype::of::<[u16; 3]>());
    let alike = if alike.extent() == SIZE { alike } else { alike.resized(0, SIZE).expect("small") };
    assert!(alike.vector(2, 1, 3).expect("small").is_made_of(&cell));
    assert!(!fields(Datatype::of::<[i16; 3]>()).is_made_of(&cell), "other primitives");
    assert!(!fields(Datatype::of::<[u16; 2]>()).is_made_of(&cell), "a field is cut short");
    assert!(!Datatype::of::<[u8; 24]>().is_made_of(&cell));
    assert!(!cell.is_made_of(&Datatype::of::<[Cell; 2]>()), "half of an array");
    assert!(Datatype::of::<[Cell; 2]>().is_made_of(&cell));
    let nothing = Datatype::of::<[u8; 0]>();
    assert!(nothing.is_made_of(&cell) && !cell.is_made_of(&nothing));
}

/// A type that is part of another one twice, and so on, is checked once each.
#[test]
fn types_that_are_parts_of_others_many_times_are_judged_at_once() {
    let mut all = Datatype::of::<Cell>();
    for _ in 0..50 {
        all = Datatype::structure(&[(1, 0, all.clone()), (1, 0, all)]).expect("a size that can be said");
    }
    assert!(all.is_made_of(&Datatype::of::<Cell>()));
}
