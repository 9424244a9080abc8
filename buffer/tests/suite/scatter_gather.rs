//! Gather, scatter and strided regions, compared with simple loops.

use core::fmt::Debug;

use crate::common::Heap;
use mpj_buffer::{
    Buffer, ByteOrder, Element, ElementKind, IndexError, IndexInt, Overflow, ReadError, WriteError,
};
use proptest::collection::vec;
use proptest::prelude::*;

/// Returns the indices of a region in order, or `None` if one is out of range.
fn expected_places(len: usize, start: usize, dims: &[(usize, isize)]) -> Option<Vec<usize>> {
    let mut places = vec![start as i128];
    for (extent, stride) in dims {
        let steps = (0..*extent as i128).map(|i| i * *stride as i128);
        places = places.iter().flat_map(|at| steps.clone().map(move |step| at + step)).collect();
    }
    places.into_iter().map(|at| usize::try_from(at).ok().filter(|at| *at < len)).collect()
}

fn other_order(wire: &[u8], element: usize) -> Vec<u8> {
    let mut bytes = wire.to_vec();
    bytes[5] = if bytes[5] == b'<' { b'>' } else { b'<' };
    bytes[8..16].reverse();
    bytes[20..24].reverse();
    bytes[24..32].reverse();
    bytes[32..].chunks_exact_mut(element).for_each(<[u8]>::reverse);
    bytes
}

fn check_all<T: Element + PartialEq + Debug>(values: &[T], zero: T, start: usize, dims: &[(usize, isize)]) {
    let Some(places) = expected_places(values.len(), start, dims) else { panic!("out of range") };
    let expected: Vec<T> = places.iter().map(|at| values[*at]).collect();
    for skew in [0, 1] {
        let mut strided = Buffer::new(Heap::skewed(4096, skew)).unwrap();
        strided.write_strided(values, start, dims).unwrap();
        let mut gathered = Buffer::new(Heap::skewed(4096, skew)).unwrap();
        gathered.gather(values, &places).unwrap();
        let mut filled = Buffer::new(Heap::skewed(4096, skew)).unwrap();
        filled.fill_with(expected.len(), |i| expected[i]).unwrap();
        let wire = strided.commit().to_vec();
        assert_eq!(wire, gathered.commit().to_vec());
        assert_eq!(wire, filled.commit().to_vec());

        let mut target = vec![zero; values.len()];
        for (at, value) in places.iter().zip(&expected) {
            target[*at] = *value;
        }
        for bytes in [wire.clone(), other_order(&wire, T::KIND.size())] {
            let mut buffer = Buffer::from_bytes(Heap::skewed(4096, skew), &bytes).unwrap();
            let mut all = vec![zero; expected.len()];
            buffer.read(&mut all).unwrap();
            assert_eq!(all, expected);
            buffer.rewind();
            let mut back = vec![zero; values.len()];
            assert_eq!(buffer.read_strided(&mut back, start, dims), Ok(expected.len()));
            assert_eq!(back, target);
            assert_eq!(buffer.remaining(), 0);
            buffer.rewind();
            let mut back = vec![zero; values.len()];
            assert_eq!(buffer.scatter(&mut back, &places), Ok(expected.len()));
            assert_eq!(back, target);
            assert_eq!(buffer.remaining(), 0);
        }
    }
}

#[test]
fn all_primitives_are_gathered_and_scattered() {
    let dims: &[(usize, isize)] = &[(2, 8), (3, 2)];
    let n = 1..=16u8;
    check_all(&n.clone().map(|i| i as i8).collect::<Vec<_>>(), 0, 1, dims);
    check_all(&n.clone().collect::<Vec<_>>(), 0, 1, dims);
    check_all(&n.clone().map(i16::from).collect::<Vec<_>>(), 0, 1, dims);
    check_all(&n.clone().map(u16::from).collect::<Vec<_>>(), 0, 1, dims);
    check_all(&n.clone().map(i32::from).collect::<Vec<_>>(), 0, 1, dims);
    check_all(&n.clone().map(u32::from).collect::<Vec<_>>(), 0, 1, dims);
    check_all(&n.clone().map(i64::from).collect::<Vec<_>>(), 0, 1, dims);
    check_all(&n.clone().map(u64::from).collect::<Vec<_>>(), 0, 1, dims);
    check_all(&n.clone().map(i128::from).collect::<Vec<_>>(), 0, 1, dims);
    check_all(&n.clone().map(u128::from).collect::<Vec<_>>(), 0, 1, dims);
    check_all(&n.clone().map(f32::from).collect::<Vec<_>>(), 0.0, 1, dims);
    check_all(&n.clone().map(f64::from).collect::<Vec<_>>(), 0.0, 1, dims);
    check_all(&n.clone().map(|i| i % 3 == 0).collect::<Vec<_>>(), false, 1, dims);
    check_all(&n.map(char::from).collect::<Vec<_>>(), 'x', 1, dims);
}

#[test]
fn indices_of_every_type_are_accepted() {
    fn gather_and_scatter<I: IndexInt>(indices: [I; 4]) {
        let mut buffer = Buffer::new(Heap::new(256)).unwrap();
        buffer.gather(&[10i16, 11, 12], &indices).unwrap();
        let mut buffer = buffer.commit();
        assert_eq!(buffer.view::<i16>(), Ok(&[12, 10, 12, 11][..]));
        buffer.rewind();
        let mut back = [0i16; 3];
        assert_eq!(buffer.scatter(&mut back, &indices), Ok(4));
        assert_eq!(back, [10, 11, 12]);
    }
    gather_and_scatter::<usize>([2, 0, 2, 1]);
    gather_and_scatter::<u64>([2, 0, 2, 1]);
    gather_and_scatter::<u32>([2, 0, 2, 1]);
    gather_and_scatter::<i64>([2, 0, 2, 1]);
    gather_and_scatter::<i32>([2, 0, 2, 1]);
}

#[test]
fn bad_index_leaves_the_buffer_and_the_slice_unchanged() {
    let mut buffer = Buffer::new(Heap::new(256)).unwrap();
    let bad = |position, index| IndexError::Index { position, index, len: 3 };
    let src = [1u32, 2, 3];
    assert_eq!(buffer.gather(&src, &[0, 1, 3]), Err(WriteError::Index(bad(2, 3))));
    assert_eq!(buffer.gather(&src, &[0i32, -1, 7]), Err(WriteError::Index(bad(1, -1))));
    assert_eq!(buffer.gather(&src, &[i64::MIN]), Err(WriteError::Index(bad(0, i64::MIN))));
    assert_eq!(buffer.gather(&src, &[u64::MAX]), Err(WriteError::Index(bad(0, i64::MAX))));
    let most = i64::try_from(usize::MAX).unwrap_or(i64::MAX);
    assert_eq!(buffer.gather(&src, &[usize::MAX]), Err(WriteError::Index(bad(0, most))));
    assert_eq!(
        buffer.gather::<u8, u32>(&[], &[0]),
        Err(WriteError::Index(IndexError::Index { position: 0, index: 0, len: 0 }))
    );
    assert!(buffer.is_empty() && buffer.len() == 16, "no section was opened");
    let many = vec![0u32; 100];
    assert_eq!(
        buffer.gather(&src, &many),
        Err(WriteError::Overflow(Overflow { needed: 416, available: 240 }))
    );
    assert!(buffer.is_empty());

    buffer.write(&src).unwrap();
    let mut buffer = buffer.commit();
    let mut dst = [7u32; 3];
    assert_eq!(buffer.scatter(&mut dst, &[0, 1, 3]), Err(ReadError::Index(bad(2, 3))));
    assert_eq!(buffer.scatter(&mut dst, &[0; 4]), Err(ReadError::PastSection { needed: 4, available: 3 }));
    assert_eq!(
        buffer.scatter(&mut [0f32], &[0]),
        Err(ReadError::WrongType { expected: ElementKind::F32, found: ElementKind::U32 })
    );
    assert_eq!((dst, buffer.remaining()), ([7; 3], 0));
    assert_eq!(buffer.scatter(&mut dst, &[1u32, 1]), Ok(2));
    assert_eq!((dst, buffer.remaining()), ([7, 2, 7], 1));
}

#[test]
fn bad_index_is_found_at_any_position() {
    const FOREIGN: ByteOrder =
        if cfg!(target_endian = "little") { ByteOrder::Big } else { ByteOrder::Little };
    let src: Vec<u64> = (0..50).map(|i| i * 0x0102_0304).collect();
    for order in [ByteOrder::NATIVE, FOREIGN] {
        for count in 0..35 {
            let good: Vec<i32> = (0..count).map(|i| i * 7 % 50).collect();
            let expected: Vec<u64> = good.iter().map(|i| src[*i as usize]).collect();
            let mut buffer = Buffer::new(Heap::new(1024)).unwrap();
            buffer.section_with_order::<u64>(order).unwrap();
            buffer.write(&src[..3]).unwrap();
            let before = buffer.len();
            for position in 0..good.len() {
                for wrong in [50, -1, i32::MIN, i32::MAX] {
                    let mut indices = good.clone();
                    indices[position] = wrong;
                    let error = IndexError::Index { position, index: wrong.into(), len: 50 };
                    assert_eq!(buffer.gather(&src, &indices), Err(WriteError::Index(error)));
                    assert_eq!(buffer.len(), before);
                }
            }
            buffer.gather(&src, &good).unwrap();
            let mut buffer = buffer.commit();
            assert_eq!(buffer.section::<u64>(), Ok(3 + good.len() as u64));
            let mut back = vec![0; 3 + good.len()];
            assert_eq!(buffer.read(&mut back), Ok(back.len()));
            assert_eq!((&back[..3], &back[3..]), (&src[..3], &expected[..]));
        }
    }
}

#[test]
#[cfg(target_pointer_width = "64")]
fn region_out_of_range_is_an_error_without_a_copy() {
    const MAX: usize = usize::MAX;
    let src = [1u16, 2, 3, 4];
    type Case<'a> = (usize, &'a [(usize, isize)], i64, i64);
    let cases: &[Case<'_>] = &[
        (4, &[], 4, 4),
        (0, &[(5, 1)], 0, 4),
        (0, &[(2, -1)], -1, 0),
        (3, &[(2, 2), (2, -4)], -1, 5),
        (MAX, &[], i64::MAX, i64::MAX),
        (MAX, &[(2, isize::MIN)], i64::MAX, i64::MAX),
        (0, &[(MAX, isize::MAX)], 0, i64::MAX),
        (0, &[(MAX, isize::MIN)], i64::MIN, 0),
        (0, &[(MAX, isize::MAX), (MAX, isize::MAX), (MAX, isize::MAX)], 0, i64::MAX),
        (0, &[(MAX, isize::MAX), (MAX, isize::MIN)], i64::MIN, i64::MAX),
    ];
    let mut writing = Buffer::new(Heap::new(256)).unwrap();
    let mut dst = [9u16; 4];
    for (start, dims, lowest, highest) in cases {
        let error = IndexError::Region { lowest: *lowest, highest: *highest, len: 4 };
        assert_eq!(writing.write_strided(&src, *start, dims), Err(WriteError::Index(error)), "{dims:?}");
        let mut buffer = Buffer::new(Heap::new(256)).unwrap();
        buffer.write(&src).unwrap();
        let mut buffer = buffer.commit();
        assert_eq!(buffer.read_strided(&mut dst, *start, dims), Err(ReadError::Index(error)));
        assert_eq!((dst, buffer.remaining()), ([9; 4], 0));
        assert!(!error.to_string().is_empty());
    }
    assert!(writing.is_empty());
}

#[test]
fn huge_volumes_are_overflows() {
    const MAX: usize = usize::MAX;
    let huge: &[&[(usize, isize)]] = &[
        &[(MAX, 0)],
        &[(MAX, 0), (MAX, 0)],
        &[(1 << (usize::BITS - 1), 0)],
        &[(1 << (usize::BITS / 2), 0), (1 << (usize::BITS / 2), 0)],
        &[(2, 0); 64],
        &[(2, 0); 1000],
    ];
    let mut buffer = Buffer::new(Heap::new(256)).unwrap();
    for dims in huge {
        let result = buffer.write_strided(&[1u64], 0, dims);
        assert!(
            matches!(result, Err(WriteError::Overflow(Overflow { needed, available: 240 })) if needed > 1 << (usize::BITS - 1))
        );
    }
    assert_eq!(buffer.fill_with(MAX, |_| 1u64), Err(Overflow { needed: MAX, available: 240 }));
    buffer.write(&[1u64]).unwrap();
    for dims in huge {
        assert!(matches!(buffer.write_strided(&[1u64], 0, dims), Err(WriteError::Overflow(_))));
    }
    let mut buffer = buffer.commit();
    for dims in huge {
        let result = buffer.read_strided(&mut [0u64], 0, dims);
        assert!(matches!(result, Err(ReadError::PastSection { available: 1, .. })));
    }
    assert_eq!(buffer.read_strided(&mut [0u64], 9, &[(MAX, 1), (0, 1), (MAX, -1)]), Ok(0));
    let mut one = [0u64];
    assert_eq!(buffer.read_strided(&mut one, 0, &[(1, isize::MIN); 100_000]), Ok(1));
    assert_eq!(one, [1]);
}

#[test]
fn repeated_positions_keep_the_last_element() {
    let mut buffer = Buffer::new(Heap::new(256)).unwrap();
    buffer.write_strided(&[5i64], 0, &[(2, 0), (3, 0)]).unwrap();
    buffer.fill_with(3, |i| i as i64).unwrap();
    let mut buffer = buffer.commit();
    assert_eq!(buffer.view_n::<i64>(4), Ok(&[5; 4][..]));
    assert_eq!(buffer.view_n::<i64>(6), Err(ReadError::PastSection { needed: 6, available: 5 }));
    assert_eq!(buffer.view_n::<i64>(2), Ok(&[5; 2][..]));
    let mut last = [9i64; 2];
    assert_eq!(buffer.read_strided(&mut last, 1, &[(3, 0)]), Ok(3));
    assert_eq!(last, [9, 2]);
}

#[test]
fn a_panic_while_filling_writes_nothing() {
    let mut buffer = Buffer::new(Heap::new(256)).unwrap();
    buffer.write(&[1u8]).unwrap();
    let result = std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| {
        buffer.fill_with(5, |i| if i < 3 { 1.0f64 } else { panic!("a closure that panics") })
    }));
    assert!(result.is_err());
    assert_eq!(buffer.len(), 33);
    buffer.write(&[2u8]).unwrap();
    assert_eq!(buffer.commit().view::<u8>(), Ok(&[1, 2][..]));
}

fn config() -> ProptestConfig {
    let cases = if cfg!(miri) { 4 } else { 1000 };
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn regions_match_the_definition(
        len in 1usize..60,
        start in 0usize..60,
        dims in vec((0usize..5, -12isize..13), 0..5),
    ) {
        let values: Vec<u32> = (0..len as u32).map(|i| i * 0x0101).collect();
        let volume: usize = dims.iter().map(|(extent, _)| extent).product();
        let mut buffer = Buffer::new(Heap::new(4096)).unwrap();
        match expected_places(len, start, &dims) {
            Some(_) => check_all(&values, 0, start, &dims),
            None => {
                let refused = buffer.write_strided(&values, start, &dims);
                prop_assert!(matches!(refused, Err(WriteError::Index(_))), "{:?} {}", refused, volume);
            }
        }
    }
}
