//! Blocks at signed displacements, as C programs pass them.
#![expect(unsafe_code, reason = "the blocks are in buffers that outlive the calls")]

use crate::common::{ranks, samples};
use mpj::raw::{self, BlockLayout, Buf};
use mpj::{Datatype, ErrorClass, Primitive};

#[test]
fn blocks_before_and_after_the_base_are_gathered() {
    for size in [1, 2, 3, 5] {
        ranks(size, |world| {
            let me = world.rank();
            // Blocks of rank % 3 items around the middle, in the reverse order of the ranks, with gaps.
            let counts: Vec<usize> = (0..size).map(|rank| rank % 3).collect();
            let displacements: Vec<isize> =
                (0..size as isize).map(|rank| 3 * (size as isize / 2 - rank)).collect();
            let mut all = vec![u32::MAX; 6 * size + 6];
            let middle = 3 * size;
            let base = all.as_mut_ptr().wrapping_add(middle).cast();
            let (recv, starts) = raw::buf_of_blocks(base, Primitive::U32.into(), &counts, &displacements)?;
            let layout = BlockLayout::Varying { counts: &counts, displacements: &starts };
            let mine = samples::<u32>(me, 0, counts[me]);
            // SAFETY: the blocks are in `all`, which is not accessed before the call has returned.
            unsafe { raw::allgather(world.as_raw(), &Buf::slice(&mine), &recv, layout)? };
            let mut expected = vec![u32::MAX; all.len()];
            for (rank, at) in displacements.iter().enumerate() {
                let start = middle.checked_add_signed(*at).expect("in the buffer");
                expected[start..][..counts[rank]].copy_from_slice(&samples::<u32>(rank, 0, counts[rank]));
            }
            assert_eq!(all, expected);
            Ok(())
        });
    }
}

#[test]
fn positions_of_empty_blocks_have_no_meaning() {
    let mut items = [0u8; 4];
    let base = items.as_mut_ptr();
    let u8s = || Datatype::of::<u8>();
    let (buf, starts) = raw::buf_of_blocks(base, u8s(), &[0, 2, 0, 1], &[isize::MIN, 1, isize::MAX, 3])
        .expect("the blocks are in the address space");
    assert_eq!((buf.count(), buf.base(), starts), (3, base.wrapping_add(1), vec![0, 0, 0, 2]));
    let (buf, starts) = raw::buf_of_blocks(base, u8s(), &[0], &[5]).expect("no items");
    assert_eq!((buf.count(), buf.base(), starts), (0, base, vec![0]));
    let (buf, _) = raw::buf_of_blocks(base, u8s(), &[], &[]).expect("no blocks");
    assert_eq!(buf.count(), 0);
}

#[test]
fn invalid_blocks_are_refused() {
    let base = std::ptr::null_mut();
    let class = |datatype: Datatype, counts: &[usize], displacements: &[isize]| {
        raw::buf_of_blocks(base, datatype, counts, displacements).expect_err("invalid").class()
    };
    let (u8s, u64s) = (Datatype::of::<u8>(), Datatype::of::<u64>());
    assert_eq!(class(u8s.clone(), &[1, 2], &[0]), ErrorClass::Arg);
    assert_eq!(class(u8s.clone(), &[usize::MAX], &[0]), ErrorClass::Count);
    assert_eq!(class(u8s, &[1], &[isize::MAX]), ErrorClass::Count);
    assert_eq!(class(u64s, &[1], &[isize::MIN / 2]), ErrorClass::Count);
}
