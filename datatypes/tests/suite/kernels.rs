//! Compares the kernels with lists of byte offsets, for random block lengths, distances and orders.

use mpj_datatypes::{Datatype, Packer, Unpacker};
use proptest::prelude::*;

/// Copies one item in three portions, split at `cuts`.
fn check(datatype: &Datatype, offsets: &[usize], cuts: [usize; 2]) -> Result<(), TestCaseError> {
    let len = offsets.iter().max().map_or(0, |max| max + 1);
    let data: Vec<u8> = (0..len).map(|i| (i * 31 + (i >> 8) * 7 + 5) as u8).collect();
    let want: Vec<u8> = offsets.iter().map(|&at| data[at]).collect();
    let [a, b] = cuts.map(|cut| cut % (want.len() + 1));
    let (a, b) = (a.min(b), a.max(b));

    let mut got = vec![0; want.len()];
    let mut packer = Packer::new(datatype, &data, 0, 1).unwrap();
    for piece in [0..a, a..b, b..want.len()] {
        let n = piece.len();
        prop_assert_eq!(packer.pack_into_bytes(&mut got[piece]), n);
    }
    prop_assert_eq!(&got, &want);

    let (mut memory, mut wanted) = (vec![0xaa; len], vec![0xaa; len]);
    offsets.iter().zip(&want).for_each(|(&at, &byte)| wanted[at] = byte.wrapping_add(1));
    let moved: Vec<u8> = want.iter().map(|byte| byte.wrapping_add(1)).collect();
    let mut unpacker = Unpacker::new(datatype, &mut memory, 0, 1).unwrap();
    for piece in [0..a, a..b, b..want.len()] {
        unpacker.unpack_from(&moved[piece]).unwrap();
    }
    prop_assert_eq!(memory, wanted);
    Ok(())
}

fn length() -> impl Strategy<Value = usize> {
    prop_oneof![4 => 1..140usize, 2 => prop::sample::select(vec![4usize, 8, 16, 64, 256, 512, 768, 1024]), 1 => 140..6000usize]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, ..ProptestConfig::default() })]

    #[test]
    fn nests_match_a_loop(
        block in length(),
        counts in prop::collection::vec(1..20usize, 1..4),
        gaps in prop::collection::vec(prop_oneof![Just(0usize), 0..70usize], 3),
        twice: bool,
        cuts: [usize; 2],
    ) {
        let mut datatype = Datatype::of::<u8>().contiguous(block).unwrap();
        let mut offsets: Vec<usize> = (0..block).collect();
        let mut span = block;
        for (i, &count) in counts.iter().enumerate() {
            let stride = if twice && i == 0 { 2 * block } else { span + gaps[i] };
            datatype = datatype.hvector(count, 1, stride as i64).unwrap();
            let inner = offsets.clone();
            offsets = (0..count).flat_map(|k| inner.iter().map(move |at| at + k * stride)).collect();
            span += stride * (count - 1);
            if offsets.len() > 200_000 {
                return Ok(());
            }
        }
        check(&datatype, &offsets, cuts)?;
    }

    #[test]
    fn transposed_matrices_match_a_loop(block in 1..34usize, rows in 1..40usize, columns in 1..40usize, more in 0..3usize, cuts: [usize; 2]) {
        let width = columns + more;
        let element = Datatype::of::<u8>().contiguous(block).unwrap();
        let column = element.vector(rows, 1, width as isize).unwrap().resized(0, block as i64).unwrap();
        let datatype = column.contiguous(columns).unwrap();
        let offsets: Vec<usize> = (0..columns)
            .flat_map(|c| (0..rows).flat_map(move |r| (0..block).map(move |b| (r * width + c) * block + b)))
            .collect();
        check(&datatype, &offsets, cuts)?;
    }

    #[test]
    fn lists_match_a_loop(block in length(), order in prop::collection::vec(0..400usize, 1..60), cuts: [usize; 2]) {
        let starts: Vec<i64> = order.iter().map(|&i| (i * (block + 3)) as i64).collect();
        let datatype = Datatype::of::<u8>().hindexed_block(block, &starts).unwrap();
        let offsets: Vec<usize> =
            starts.iter().flat_map(|&at| (0..block).map(move |b| at as usize + b)).collect();
        let mut sorted = order.clone();
        sorted.sort_unstable();
        sorted.dedup();
        if sorted.len() == order.len() {
            check(&datatype, &offsets, cuts)?;
        }
    }

    #[test]
    fn lists_of_structures_match_a_loop(
        runs in prop::collection::vec((prop_oneof![Just(8usize), 1..40usize], 1..9usize), 1..20),
        order in prop::collection::vec((0..40usize, 1..12usize), 1..20),
        same in proptest::option::of(1..4usize),
        backwards: bool,
        cuts: [usize; 2],
    ) {
        let (mut at, mut fields, mut item) = (0, Vec::new(), Vec::new());
        for (len, gap) in runs {
            fields.push((len, at as i64, Datatype::of::<u8>()));
            item.extend(at..at + len);
            at += len + gap;
        }
        let structure = Datatype::structure(&fields).unwrap();
        let extent = structure.extent() as usize;
        let mut places: Vec<usize> = Vec::new();
        let (mut blocks, mut offsets) = (Vec::new(), Vec::new());
        for (place, count) in order.iter().copied().filter(|_| !item.is_empty()) {
            if places.contains(&place) {
                continue;
            }
            places.push(place);
            let (count, start) = (same.unwrap_or(count), place * (11 * extent + 3));
            let first = if backwards { start + (count - 1) * extent } else { start };
            blocks.push((count, first as i64));
            for i in 0..count {
                let at = if backwards { first - i * extent } else { first + i * extent };
                offsets.extend(item.iter().map(|byte| at + byte));
            }
        }
        let stride = if backwards { -(extent as i64) } else { extent as i64 };
        let listed = structure.resized(0, stride).unwrap().hindexed(&blocks).unwrap();
        check(&listed, &offsets, cuts)?;
        check(&listed, &offsets, [0, 0])?;
        prop_assert!(listed.check_overlap(1).is_ok());
        prop_assert_eq!(listed.signature(), structure.signature().repeat((offsets.len() / item.len()) as u64));
        prop_assert_eq!(listed.true_lb(), *offsets.iter().min().unwrap() as i64);
        prop_assert_eq!(listed.true_lb() + listed.true_extent(), *offsets.iter().max().unwrap() as i64 + 1);
    }

    #[test]
    fn runs_of_mixed_lengths_match_a_loop(runs in prop::collection::vec((length(), 0..50usize), 1..30), cuts: [usize; 2]) {
        let (mut at, mut blocks, mut offsets) = (0, Vec::new(), Vec::new());
        for (len, gap) in runs {
            blocks.push((len, (at + gap) as i64));
            offsets.extend(at + gap..at + gap + len);
            at += gap + len;
        }
        check(&Datatype::of::<u8>().hindexed(&blocks).unwrap(), &offsets, cuts)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn sparse_blocks_match_a_loop(
        block in prop::sample::select(vec![3usize, 4, 8, 12, 16, 20]),
        columns in prop_oneof![700..1000usize, 12_200..12_400usize],
        rows in 1..4usize,
        stride in 120..200usize,
        backwards: bool,
        cuts: [usize; 2],
    ) {
        let row = columns * stride + 5;
        let element = Datatype::of::<u8>().contiguous(block).unwrap();
        let (first, step) = if backwards { ((columns - 1) * stride, -(stride as i64)) } else { (0, stride as i64) };
        let line = element.hvector(columns, 1, step).unwrap();
        let datatype = Datatype::structure(&[(1, first as i64, line.hvector(rows, 1, row as i64).unwrap())]).unwrap();
        let starts = (0..rows).flat_map(|r| {
            (0..columns).map(move |c| r * row + if backwards { columns - 1 - c } else { c } * stride)
        });
        let offsets: Vec<usize> = starts.flat_map(|at| at..at + block).collect();
        check(&datatype, &offsets, cuts)?;
        check(&datatype, &offsets, [0, 0])?;
    }
}

#[test]
fn layouts_larger_than_the_caches_match_a_loop() {
    let n = (17 << 20) / 24;
    let datatype = Datatype::of::<u8>().contiguous(24).unwrap().vector(n, 1, 2).unwrap();
    let offsets: Vec<usize> = (0..n).flat_map(|i| i * 48..i * 48 + 24).collect();
    check(&datatype, &offsets, [1, 24 * n - 5]).unwrap();
    check(&datatype, &offsets, [0, 0]).unwrap();
}

#[test]
fn offsets_beyond_32_bits_are_kept() {
    let far = [0i64, 5 << 32, 7, 1 << 33];
    let datatype = Datatype::of::<u32>().hindexed_block(3, &far).unwrap();
    let starts: Vec<i64> = datatype.runs(1).map(|run| run.offset).collect();
    assert_eq!(starts, far);
    let one: Vec<i64> = [0i64, 5, 12, 40].to_vec();
    let near = Datatype::of::<u8>().hindexed_block(3, &one).unwrap();
    assert_eq!(near.runs(1).map(|run| run.offset).collect::<Vec<_>>(), one);
}

#[test]
fn adjacent_blocks_of_a_list_are_copied_as_blocks() {
    let src: Vec<u8> = (0..64u64).flat_map(|value| (value * 0x0101_0101).to_ne_bytes()).collect();
    let element = |at: usize| &src[at * 8..][..8];
    for places in [
        &[40, 3, 4, 9, 60, 17, 22, 31, 11][..],
        &[40, 3, 4, 5, 6, 7, 8, 60, 17],
        &[1, 2, 9, 10, 30, 31, 20, 21],
        &[63, 62, 61, 0, 1],
    ] {
        let chosen = Datatype::of::<f64>().indexed_block(1, places).unwrap();
        let wanted: Vec<u8> = places.iter().flat_map(|&at| element(at as usize)).copied().collect();
        for cut in [0, 1, 8, 13, 31] {
            let mut packer = Packer::new(&chosen, &src, 0, 1).unwrap();
            let mut packed = vec![0u8; wanted.len()];
            let (first, rest) = packed.split_at_mut(cut);
            assert_eq!(
                (packer.pack_into_bytes(first), packer.pack_into_bytes(rest)),
                (cut, wanted.len() - cut)
            );
            assert_eq!(packed, wanted);
            let mut back = vec![0xee; src.len()];
            let mut unpacker = Unpacker::new(&chosen, &mut back, 0, 1).unwrap();
            unpacker.unpack_from(&packed[..cut]).unwrap();
            unpacker.unpack_from(&packed[cut..]).unwrap();
            for (at, bytes) in back.chunks(8).enumerate() {
                assert_eq!(bytes, if places.contains(&(at as isize)) { element(at) } else { &[0xee; 8] });
            }
        }
        let runs = 1 + places.windows(2).filter(|pair| pair[1] != pair[0] + 1).count();
        assert_eq!(chosen.runs(1).count(), runs, "runs are maximal");
    }
}
