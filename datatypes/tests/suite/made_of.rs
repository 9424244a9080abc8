//! Compares `Datatype::is_made_of` with the bytes of the types.
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
/// The offset of `heat`, at which 14 bytes without a gap begin.
const HEAT: i64 = std::mem::offset_of!(Cell, heat) as i64;

fn cell_bytes() -> Vec<i64> {
    std::iter::once(0).chain(HEAT..HEAT + 14).collect()
}

/// Returns whether all bytes of three contiguous items are those of whole cells.
fn consists_of_cells(datatype: &Datatype) -> bool {
    let bytes: Vec<i64> = datatype.runs(3).flat_map(|run| run.offset..run.offset + run.len as i64).collect();
    bytes.chunks(cell_bytes().len()).all(|cell| {
        let start = cell[0];
        start % SIZE == 0 && cell.iter().map(|byte| byte - start).eq(cell_bytes())
    })
}

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
    fn accepted_types_consist_of_whole_cells(one in types(Datatype::of::<Cell>(), 8)) {
        prop_assert!(!one.is_made_of(&Datatype::of::<Cell>()) || consists_of_cells(&one), "{:?}", one);
    }

    #[test]
    fn types_built_of_whole_cells_are_accepted(one in types(Datatype::of::<Cell>(), SIZE)) {
        prop_assert!(one.is_made_of(&Datatype::of::<Cell>()) && consists_of_cells(&one), "{:?}", one);
    }

    #[test]
    fn parts_of_cells_are_rejected(one in types(Datatype::of::<f64>(), SIZE)) {
        prop_assert!(one.size() == 0 || !one.is_made_of(&Datatype::of::<Cell>()), "{:?}", one);
    }
}

#[test]
fn only_types_that_were_built_alike_are_accepted() {
    let cell = Datatype::of::<Cell>();
    let fields = |last: Datatype| {
        let (heat, at) = (Datatype::of::<f64>(), HEAT + 8);
        let fields = [(1, 0, Datatype::of::<bool>()), (1, HEAT, heat), (1, at, last)];
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

#[test]
fn shared_parts_are_checked_once() {
    let mut all = Datatype::of::<Cell>();
    for _ in 0..50.min(usize::BITS - 8) {
        all = Datatype::structure(&[(1, 0, all.clone()), (1, 0, all)]).expect("the size fits");
    }
    assert!(all.is_made_of(&Datatype::of::<Cell>()));
}
