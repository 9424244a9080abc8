//! Large numbers: correct results or errors, in little memory and time.
#![cfg(target_pointer_width = "64")]

use mpj_datatypes::{
    ArrayOrder, Datatype, DistributedDim, Distribution, Equivalent, Packer, Primitive, Run, TypeError,
    Unpacker,
};

const GIB: usize = 1 << 30;

#[test]
fn layouts_beyond_2_gib_are_correct() {
    // A column of a matrix of a million by a million: an extent of 8 TB, a packed size of 8 MB.
    let n = 1_000_000;
    let column = f64::datatype().vector(n, 1, n as isize).unwrap();
    assert_eq!(column.size(), 8 * n);
    assert_eq!(column.extent(), 8 * (n as i64 * (n as i64 - 1) + 1));
    assert_eq!(column.runs(1).count(), n);

    let five = u8::datatype().contiguous(5 * GIB).unwrap();
    assert_eq!((five.size(), five.extent(), five.element_count()), (5 * GIB, 5 << 30, 5 << 30));
    let spread = five.hvector(3, 1, 6 << 30).unwrap();
    assert_eq!(spread.byte_bounds(1).unwrap(), (0, 17 << 30));
    assert_eq!(spread.packed_size(2).unwrap(), 30 * GIB);
    let runs: Vec<Run> = spread.runs(2).collect();
    assert_eq!(runs.len(), 5);
    assert_eq!(runs[2], Run { offset: 12 << 30, len: 10 * GIB });
    assert_eq!(spread.element_count_in(2, 11 * GIB), Some(11 << 30));
    let prefix = spread.signature_prefix(2, 11 << 30).unwrap();
    assert_eq!(prefix, u8::datatype().signature().repeat(11 << 30));
}

/// Almost all of the memory is only read. Linux maps such pages to one page of zeros, so they take no memory.
#[test]
#[ignore = "takes 5 GiB of addresses and some seconds; run it with --ignored"]
fn five_gib_are_packed() {
    let mut memory = vec![0u8; 5 * GIB + 100];
    let far = u32::datatype().hindexed_block(2, &[5 << 30, 8, (5 << 30) + 40]).unwrap();
    let mut unpacker = Unpacker::new(&far, &mut memory, 0, 1).unwrap();
    unpacker.unpack_from(&(0..24).collect::<Vec<u8>>()).unwrap();
    assert_eq!(memory[8..16], [8, 9, 10, 11, 12, 13, 14, 15]);
    assert_eq!(memory[5 * GIB..5 * GIB + 3], [0, 1, 2]);
    assert_eq!(memory[5 * GIB + 47], 23);
    let mut packed = [0; 24];
    Packer::new(&far, &memory, 0, 1).unwrap().pack_into_bytes(&mut packed);
    assert_eq!(packed, core::array::from_fn(|i| i as u8));

    let all = u8::datatype().hvector(5 << 18, 1, 4096).unwrap().resized(0, 1).unwrap();
    let mut packer = Packer::new(&all, &memory, 0, 4096).unwrap();
    assert_eq!(packer.remaining(), 5 * GIB);
    let (mut cell, mut sum) = (vec![0; 1 << 20], 0u64);
    loop {
        match packer.pack_into_bytes(&mut cell) {
            0 => break,
            n => sum += cell[..n].iter().map(|&b| u64::from(b)).sum::<u64>(),
        }
    }
    assert_eq!(sum, (8..16).sum());
}

#[test]
fn terabyte_of_overlapping_pieces_needs_one_byte_of_memory() {
    let many = u8::datatype().hvector(1 << 40, 1, 0).unwrap();
    assert_eq!(many.byte_bounds(1).unwrap(), (0, 1));
    let mut packer = Packer::new(&many, &[42], 0, 1).unwrap();
    let mut cell = [0; 3];
    assert_eq!(packer.pack_into_bytes(&mut cell), 3);
    assert_eq!(cell, [42; 3]);
    assert_eq!(packer.remaining(), (1 << 40) - 3);
    let mut memory = [0];
    Unpacker::new(&many, &mut memory, 0, 1).unwrap().unpack_from(&[1, 2, 3]).unwrap();
    assert_eq!(memory, [3]);
}

#[test]
fn overflowing_types_are_errors() {
    let byte = u8::datatype();
    let far = byte.resized(0, i64::MAX).unwrap();
    let huge = byte.contiguous(isize::MAX as usize).unwrap();
    assert!(matches!(byte.contiguous(usize::MAX), Err(TypeError::Count { .. })));
    assert!(matches!(f64::datatype().contiguous(1 << 60), Err(TypeError::Size { .. })));
    assert!(matches!(byte.resized(1, i64::MAX), Err(TypeError::Extent { .. })));
    assert!(matches!(far.contiguous(3), Err(TypeError::Extent { .. })));
    assert!(matches!(far.vector(2, 1, 2), Err(TypeError::Extent { .. })));
    assert!(matches!(far.indexed(&[(1, 2)]), Err(TypeError::Extent { .. })));
    assert!(matches!(byte.hindexed(&[(1, i64::MAX)]), Err(TypeError::Extent { .. })));
    assert!(matches!(byte.hindexed(&[(1, i64::MIN), (1, 1)]), Err(TypeError::Extent { .. })));
    assert!(matches!(byte.hvector(3, 1, i64::MIN), Err(TypeError::Extent { .. })));
    assert!(matches!(byte.hvector(usize::MAX, usize::MAX, 0), Err(TypeError::Count { .. })));
    assert!(matches!(huge.hvector(2, 1, 0), Err(TypeError::Size { .. })));
    assert!(matches!(far.byte_bounds(3), Err(TypeError::Extent { .. })));
    assert!(matches!(huge.byte_bounds(2), Err(TypeError::Extent { .. })));
    assert!(matches!(byte.packed_size(usize::MAX), Err(TypeError::Size { .. })));
    let pair = [(1, 0, huge.clone()), (1, 0, byte.clone())];
    assert!(matches!(Datatype::structure(&pair), Err(TypeError::Size { .. })));
    assert_eq!(far.runs(3).count(), 0);
    assert!(Packer::new(&far, &[0; 8], 0, 3).is_err());
    assert!(Packer::new(&far, &[0; 8], usize::MAX, 1).is_err());
    assert_eq!(far.vector(1, 1, isize::MAX).unwrap().size(), 1);
    assert_eq!(far.vector(0, 1, isize::MIN).unwrap().extent(), 0);
    assert_eq!(f64::datatype().vector(2, 0, isize::MAX).unwrap().extent(), 0);
    assert_eq!(f64::datatype().hvector(3, 0, i64::MIN).unwrap().size(), 0);
    assert_eq!(f64::datatype().indexed(&[(0, isize::MAX), (0, isize::MIN)]).unwrap().size(), 0);
    assert_eq!(f64::datatype().indexed_block(0, &[isize::MAX]).unwrap().size(), 0);
    assert_eq!(f64::datatype().hindexed_block(0, &[i64::MAX, i64::MIN]).unwrap().size(), 0);
    assert_eq!(
        Datatype::structure(&[(0, i64::MAX, f64::datatype()), (1, 0, byte.clone())]).unwrap().size(),
        1
    );
    assert_eq!(far.indexed(&[(0, isize::MAX), (1, 0)]).unwrap().size(), 1);
    assert_eq!(byte.hindexed(&[(0, i64::MAX)]).unwrap().extent(), 0);
}

#[test]
fn invalid_arrays_are_errors() {
    let byte = u8::datatype();
    let sub =
        |sizes: &[usize], subs: &[usize], starts: &[usize]| byte.subarray(sizes, subs, starts, ArrayOrder::C);
    assert!(matches!(sub(&[4], &[3], &[2]), Err(TypeError::Subarray { dimension: 0, .. })));
    assert!(matches!(sub(&[4], &[1], &[usize::MAX]), Err(TypeError::Subarray { .. })));
    assert!(matches!(sub(&[4], &[usize::MAX], &[1]), Err(TypeError::Subarray { .. })));
    assert!(matches!(sub(&[4, 4], &[1], &[1, 1]), Err(TypeError::Dimensions { expected: 2, given: 1 })));
    assert!(matches!(sub(&[usize::MAX], &[1], &[1]), Err(TypeError::Count { .. })));
    assert!(matches!(sub(&[1 << 40, 1 << 40], &[1, 1], &[0, 0]), Err(TypeError::Extent { .. })));
    assert_eq!(sub(&[], &[], &[]).unwrap().size(), 1);
    assert_eq!(sub(&[1; 300], &[1; 300], &[0; 300]).unwrap().size(), 1);
    assert!(matches!(sub(&[2; 300], &[2; 300], &[0; 300]), Err(TypeError::Extent { .. })));

    let one = |size, processes, how| {
        byte.darray(0, &[DistributedDim { size, processes, distribution: how }], ArrayOrder::Fortran)
    };
    use Distribution::{Block, BlockOf, Cyclic, Whole};
    assert!(matches!(one(4, 2, Whole), Err(TypeError::Distribution { .. })));
    assert!(matches!(one(4, 2, BlockOf(1)), Err(TypeError::Distribution { .. })));
    assert!(matches!(one(4, 2, Cyclic(0)), Err(TypeError::Distribution { .. })));
    assert!(matches!(one(4, 0, Block), Err(TypeError::Rank { rank: 0 })));
    assert_eq!(one(4, 9, Block).unwrap().size(), 1);
    assert_eq!(one(4, 2, BlockOf(usize::MAX)).unwrap().size(), 4);
    assert_eq!(one(4, usize::MAX, Cyclic(usize::MAX)).unwrap().size(), 4);
    assert!(matches!(one(usize::MAX, 2, Cyclic(1)), Err(TypeError::Count { .. })));
    assert!(matches!(one(usize::MAX, 2, Block), Err(TypeError::Count { .. })));
    assert_eq!(one(0, 3, Cyclic(2)).unwrap().size(), 0);
    let grid = [DistributedDim { size: 4, processes: 2, distribution: Block }; 2];
    assert!(matches!(byte.darray(4, &grid, ArrayOrder::C), Err(TypeError::Rank { rank: 4 })));
    assert!(matches!(byte.darray(usize::MAX, &[], ArrayOrder::C), Err(TypeError::Rank { .. })));
}

#[test]
fn types_beyond_the_maximum_depth_are_errors() {
    let mut datatype = u8::datatype();
    let why = loop {
        match datatype.contiguous(1) {
            Ok(deeper) => datatype = deeper,
            Err(why) => break why,
        }
    };
    assert!(matches!(why, TypeError::Depth { limit } if limit >= 100));
    assert!(datatype.is_contiguous());
}

#[test]
fn types_of_2_to_the_51_primitives_stay_small() {
    let mut datatype = Datatype::structure(&[(1, 0, u8::datatype()), (1, 4, u32::datatype())]).unwrap();
    for _ in 0..50 {
        let extent = datatype.extent();
        let fields = [(1, 8, datatype.clone()), (1, 8 + extent, datatype)];
        datatype = Datatype::structure(&fields).unwrap();
    }
    assert_eq!(datatype.element_count(), 2 << 50);
    assert_eq!(datatype.element_count_in(1, 5), Some(2));
    assert_eq!(datatype.element_count_in(1, (5 << 50) - 1), None);
    let first: Vec<Run> = datatype.runs(1).take(2).collect();
    assert_eq!(first, [Run { offset: 400, len: 1 }, Run { offset: 404, len: 5 }]);
    assert!(format!("{datatype:?}").len() < 200);
}

#[test]
fn empty_types_have_no_bytes() {
    let nothing = u64::datatype().contiguous(0).unwrap();
    assert_eq!((nothing.size(), nothing.lb(), nothing.extent()), (0, 0, 0));
    assert!(nothing.is_contiguous());
    assert_eq!(nothing.single_primitive(), None);
    assert_eq!(nothing.byte_bounds(usize::MAX), Ok((0, 0)));
    assert_eq!(nothing.packed_size(usize::MAX), Ok(0));
    assert_eq!(nothing.runs(usize::MAX).count(), 0);
    assert_eq!(nothing.element_count_in(7, 0), Some(0));
    assert_eq!(nothing.element_count_in(7, 1), None);
    assert_eq!(nothing.signature_prefix(7, 1), None);
    assert_eq!(<[u32; 0]>::datatype().size(), 0);
    let mut packer = Packer::new(&nothing, &[], 0, usize::MAX).unwrap();
    assert_eq!(packer.pack_into_bytes(&mut [0; 4]), 0);
    // Bounds without bytes still count.
    let spacer = nothing.resized(-4, 12).unwrap();
    assert_eq!(spacer.contiguous(3).unwrap().extent(), 36);
    assert_eq!(spacer.contiguous(3).unwrap().lb(), -4);
}

#[test]
fn slices_of_values_are_packed() {
    let words = [[1u16, 2], [3, 4]];
    let mut packed = [0; 8];
    assert_eq!(Packer::of_slice(&words).unwrap().pack_into_bytes(&mut packed), 8);
    let mut back = [0u16; 4];
    Unpacker::of_slice(&mut back).unwrap().unpack_from(&packed).unwrap();
    assert_eq!(back, [1, 2, 3, 4]);
    assert!(Unpacker::of_slice(&mut [false]).is_err());
    assert!(Unpacker::of_slice(&mut [['a']; 2]).is_err());
}

#[test]
fn properties_of_primitives_are_consistent() {
    for (i, p) in Primitive::ALL.into_iter().enumerate() {
        assert_eq!(Primitive::from_code(p.code()), Some(p));
        assert_eq!(usize::from(p.code()), i + 1);
        let datatype = Datatype::primitive(p);
        assert_eq!((datatype.size(), datatype.single_primitive()), (p.size(), Some(p)));
        assert_eq!(format!("{datatype:?}"), p.name());
        assert!(datatype.is_contiguous());
    }
    assert_eq!(Primitive::from_code(0), None);
    assert_eq!(Primitive::from_code(23), None);
    assert_eq!(char::PRIMITIVE, Some(Primitive::Char));
    fn shared<T: Send + Sync>() {}
    shared::<Datatype>();
    shared::<Packer<'_>>();
    shared::<Unpacker<'_>>();
}

#[test]
fn adjacent_runs_beyond_the_maximum_size_are_errors() {
    let half = isize::MAX as usize / 2;
    let blocks = [(half, i64::MIN), (half, -2), (2, i64::MAX - 3)];
    assert!(matches!(u16::datatype().hindexed(&blocks), Err(TypeError::Size { .. })));
}

#[test]
fn overlaps_of_large_layouts_are_found() {
    let far = |count, stride| u8::datatype().hvector(count, 1, stride).unwrap();
    // The blocks overlap first at step 1001 of the inner loop and step 1000 of the outer loop.
    let loops = |count| far(count, 1000).hvector(count, 1, 1001).unwrap();
    assert!(loops(1000).check_overlap(1).is_ok());
    assert_eq!(loops(1002).check_overlap(1).unwrap_err().offset, 1_001_000);
    assert!(far(1 << 40, 2).hvector(2, 1, 1).unwrap().check_overlap(1).is_ok());
    assert!(far(1 << 40, 2).hvector(3, 1, 1).unwrap().check_overlap(1).is_err());
    assert!(far(1 << 20, 0).check_overlap(1).is_err());
    let cube = far(1 << 20, 1 << 20).hvector(1 << 10, 1, 1 << 10).unwrap().hvector(1 << 10, 1, 1).unwrap();
    assert!(cube.check_overlap(1).is_ok());
    assert!(cube.hvector(2, 1, -1).unwrap().check_overlap(1).is_err());
    // A long unordered list, and the same list with one element twice.
    let mut at: Vec<isize> = (0..100_000).map(|i| i * 7919 % 100_000).collect();
    assert!(u32::datatype().indexed_block(1, &at).unwrap().check_overlap(1).is_ok());
    at.push(77);
    let listed = u32::datatype().indexed_block(1, &at).unwrap();
    assert_eq!(listed.check_overlap(1).unwrap_err().offset, 308);
    assert!(listed.check_overlap(1).unwrap_err().to_string().contains("byte 308"));
    // Interleaved loops: a million pieces each, and more than the check can visit.
    let number = f64::datatype();
    for count in [1_000_000, 1 << 40] {
        let parts = number.vector(count, 1, 2).unwrap();
        let interleaved = |by| Datatype::structure(&[(1, 0, parts.clone()), (1, by, parts.clone())]).unwrap();
        assert!(interleaved(8).check_overlap(1).is_ok());
        assert!(interleaved(8 + 16 * 7).check_overlap(1).is_ok());
        if count == 1_000_000 {
            assert_eq!(interleaved(4).check_overlap(1).unwrap_err().offset, 4);
            assert_eq!(interleaved(15_999_980).check_overlap(1).unwrap_err().offset, 15_999_984);
        }
    }
    // Interleaved long lists, of blocks and of structures.
    let even: Vec<isize> = (0..200_000).map(|i| i * 7919 % 200_000 * 2).collect();
    let pair = Datatype::structure(&[(1, 0, u16::datatype()), (1, 4, u8::datatype())]).unwrap();
    for (item, width) in [(number, 8), (pair.resized(0, 8).unwrap(), 8)] {
        let listed = item.indexed_block(1, &even).unwrap();
        assert!(listed.check_overlap(1).is_ok());
        assert!(listed.resized(0, width).unwrap().check_overlap(2).is_ok());
        assert!(listed.resized(0, width).unwrap().check_overlap(3).is_err());
        assert!(listed.resized(0, 2 * width).unwrap().check_overlap(2).is_err());
    }
    // Items in the gaps of other items; only near items can overlap.
    let spread = pair.hindexed_block(1, &[0, 100, 300]).unwrap().resized(0, 7).unwrap();
    assert!(spread.check_overlap(28).is_ok());
    assert_eq!(spread.check_overlap(29).unwrap_err().offset, 300);
    assert!(spread.check_overlap(1 << 40).is_err());
    // The check of this type exceeds its budget. It must end soon; both results are permitted.
    let deep = (0..8).fold(u8::datatype(), |t, i| t.hvector(9, 1, 5 - i).unwrap());
    let _ = deep.check_overlap(1 << 20);
}

#[test]
fn overlap_beyond_the_budget_is_found_by_the_exact_check() {
    let item = |decoy: i64, third: i64| {
        let parts = [(1000, 0), (1, decoy), (900, third)];
        u8::datatype().hindexed(&parts).unwrap().resized(0, 1024).unwrap()
    };
    // The third part of an item lies in the first part of the item 540 later. The second part hides it.
    let (decoy, third) = (22_500 * 1024 + 1, 540 * 1024 + 2);
    assert!(item(decoy, third).check_overlap(22_000).is_ok(), "the bounded search gives up");
    assert_eq!(item(decoy, third).check_disjoint(22_000).unwrap_err().offset, third);
    let disjoint = item(22_500 * 1024 + 1001, 22_500 * 2048 + 20);
    assert!(disjoint.check_disjoint(22_000).is_ok());
    // Many more pieces than bytes.
    let dense = u16::datatype().hindexed_block(1, &[0, 100, 10_000_000]).unwrap().resized(0, 1).unwrap();
    assert!(dense.check_disjoint(1 << 20).is_err());
}

#[test]
fn overlap_is_found_after_the_check_of_a_larger_count_ended_early() {
    let dense = u16::datatype().hindexed_block(1, &[0, 100, 10_000_000]).unwrap().resized(0, 1).unwrap();
    // More items than the check can visit, and more than can exist.
    for count in [1 << 20, usize::MAX] {
        assert!(dense.check_overlap(count).is_ok());
        assert!(dense.check_overlap(2).is_err());
    }
}
