//! Compares collectives that move data with their definition, and tests the errors of invalid arguments.

use crate::common::{COUNTS, LONG, RANKS, Sample, blanks, job, ranks, samples, text_of};
use mpj::{Datatype, ErrorClass, Intracomm, View, ViewMut, World};

type Collective = fn(&Intracomm, usize, usize) -> mpj::Result<()>;

fn for_all_sizes_and_roots(counts: &[usize], collective: Collective) {
    for size in RANKS {
        ranks(size, |world| {
            let mut roots = vec![0, size / 2, size - 1];
            roots.dedup();
            for root in roots {
                for &count in counts {
                    collective(&world, count, root)?;
                }
            }
            Ok(())
        });
    }
}

/// Defines tests of a collective: with few elements for 18 element types, and with many for two of them.
macro_rules! every_type {
    ($($test:ident: $collective:ident;)*) => {$(
        #[test]
        fn $test() {
            let short: [Collective; 18] = [
                $collective::<u8>, $collective::<i8>, $collective::<u16>, $collective::<i16>, $collective::<u32>,
                $collective::<i32>, $collective::<u64>, $collective::<i64>, $collective::<u128>, $collective::<i128>,
                $collective::<usize>, $collective::<isize>, $collective::<f32>, $collective::<f64>,
                $collective::<bool>, $collective::<char>, $collective::<[u16; 3]>, $collective::<[bool; 3]>,
            ];
            for collective in [short[3], short[13]] {
                for_all_sizes_and_roots(&[LONG], collective);
            }
            for_all_sizes_and_roots(&COUNTS, short[5]);
            for collective in short {
                ranks(3, |world| COUNTS.into_iter().try_for_each(|count| collective(&world, count, 1)));
            }
        }
    )*};
}

every_type! {
    bcast_copies_the_data_of_the_root: bcast;
    gather_collects_at_the_root: gather;
    scatter_distributes_blocks: scatter;
    allgather_collects_on_every_rank: allgather;
    alltoall_transposes: alltoall;
    gatherv_and_scatterv_use_the_layout: gatherv_and_scatterv;
    allgatherv_uses_the_layout: allgatherv;
    alltoallv_uses_the_layouts: alltoallv;
    in_place_results_are_the_same: in_place;
}

fn bcast<T: Sample>(comm: &Intracomm, count: usize, root: usize) -> mpj::Result<()> {
    let mut buf = if comm.rank() == root { samples::<T>(root, 2, count) } else { blanks(count) };
    comm.bcast(&mut buf, root)?;
    assert_eq!(buf, samples::<T>(root, 2, count));
    Ok(())
}

fn of_all<T: Sample>(size: usize, from: usize, count: usize) -> Vec<T> {
    (0..size).flat_map(|rank| samples::<T>(rank, from, count)).collect()
}

fn gather<T: Sample>(comm: &Intracomm, count: usize, root: usize) -> mpj::Result<()> {
    let at_root = comm.rank() == root;
    let mut all = blanks::<T>(if at_root { count * comm.size() } else { 1 });
    comm.gather(&samples::<T>(comm.rank(), 3, count), &mut all, root)?;
    assert_eq!(all, if at_root { of_all(comm.size(), 3, count) } else { blanks(1) });
    Ok(())
}

fn scatter<T: Sample>(comm: &Intracomm, count: usize, root: usize) -> mpj::Result<()> {
    let all = if comm.rank() == root { samples::<T>(root, 0, count * comm.size()) } else { Vec::new() };
    let mut mine = blanks::<T>(count);
    comm.scatter(&all, &mut mine, root)?;
    assert_eq!(mine, samples::<T>(root, comm.rank() * count, count));
    Ok(())
}

fn allgather<T: Sample>(comm: &Intracomm, count: usize, _: usize) -> mpj::Result<()> {
    let mut all = blanks::<T>(count * comm.size());
    comm.allgather(&samples::<T>(comm.rank(), 3, count), &mut all)?;
    assert_eq!(all, of_all::<T>(comm.size(), 3, count));
    Ok(())
}

fn alltoall<T: Sample>(comm: &Intracomm, count: usize, _: usize) -> mpj::Result<()> {
    let (me, size) = (comm.rank(), comm.size());
    let mut got = blanks::<T>(count * size);
    comm.alltoall(&samples::<T>(me, 0, count * size), &mut got)?;
    assert_eq!(got, of_all::<T>(size, me * count, count));
    Ok(())
}

/// Returns counts, displacements in order or reversed, with or without gaps, and the length of the buffer.
fn irregular(size: usize, count: usize, turn: usize) -> (Vec<usize>, Vec<usize>, usize) {
    let counts: Vec<usize> =
        (0..size).map(|r| if (r + turn) % 3 == 1 { 0 } else { count / (r + 1) }).collect();
    let gap = turn % 2 * 2;
    let mut order: Vec<usize> = (0..size).collect();
    if turn % 4 > 1 {
        order.reverse();
    }
    let (mut displacements, mut end) = (vec![0; size], gap);
    for rank in order {
        displacements[rank] = end;
        end += counts[rank] + gap;
    }
    (counts, displacements, end)
}

fn placed<T: Sample>(len: usize, displacements: &[usize], part: impl Fn(usize) -> Vec<T>) -> Vec<T> {
    let mut all = blanks::<T>(len);
    for (rank, at) in displacements.iter().enumerate() {
        let part = part(rank);
        all[*at..at + part.len()].clone_from_slice(&part);
    }
    all
}

fn gatherv_and_scatterv<T: Sample>(comm: &Intracomm, count: usize, root: usize) -> mpj::Result<()> {
    let (me, size) = (comm.rank(), comm.size());
    for turn in 0..4 {
        let (counts, displacements, len) = irregular(size, count, turn);
        let (c, d): (&[usize], &[usize]) = if me == root { (&counts, &displacements) } else { (&[9], &[]) };
        let mut all = blanks::<T>(if me == root { len } else { 0 });
        comm.gatherv(&samples::<T>(me, turn, counts[me]), &mut all, c, d, root)?;
        if me == root {
            assert_eq!(all, placed(len, &displacements, |r| samples::<T>(r, turn, counts[r])));
        }
        let mut mine = blanks::<T>(counts[me]);
        comm.scatterv(&all, c, d, &mut mine, root)?;
        assert_eq!(mine, samples::<T>(me, turn, counts[me]), "scatterv returns each block");
    }
    Ok(())
}

fn allgatherv<T: Sample>(comm: &Intracomm, count: usize, root: usize) -> mpj::Result<()> {
    let (me, size) = (comm.rank(), comm.size());
    for turn in 0..4 {
        let (counts, displacements, len) = irregular(size, count, turn + root);
        let mut all = blanks::<T>(len);
        comm.allgatherv(&samples::<T>(me, turn, counts[me]), &mut all, &counts, &displacements)?;
        assert_eq!(all, placed(len, &displacements, |r| samples::<T>(r, turn, counts[r])));
    }
    Ok(())
}

fn alltoallv<T: Sample>(comm: &Intracomm, count: usize, root: usize) -> mpj::Result<()> {
    let (me, size) = (comm.rank(), comm.size());
    // Rank s sends `amount(s, r)` elements to rank r: the totals differ widely from rank to rank.
    let amount =
        |s: usize, r: usize| if (s + r + root).is_multiple_of(3) { 0 } else { count / (1 + s * (r + 1)) };
    let lay = |counts: Vec<usize>, backwards: bool| {
        let (mut displacements, mut end) = (vec![0; size], 1);
        for at in 0..size {
            let rank = if backwards { size - 1 - at } else { at };
            displacements[rank] = end;
            end += counts[rank] + 1;
        }
        (counts, displacements, end)
    };
    let (out, out_at, out_len) = lay((0..size).map(|r| amount(me, r)).collect(), true);
    let (back, back_at, back_len) = lay((0..size).map(|s| amount(s, me)).collect(), root.is_multiple_of(2));
    let send = placed(out_len, &out_at, |r| samples::<T>(me, 10 * r, out[r]));
    let mut got = blanks::<T>(back_len);
    comm.alltoallv(&send, (&out, &out_at), &mut got, (&back, &back_at))?;
    assert_eq!(got, placed(back_len, &back_at, |s| samples::<T>(s, 10 * me, back[s])));
    Ok(())
}

fn in_place<T: Sample>(comm: &Intracomm, count: usize, root: usize) -> mpj::Result<()> {
    let (me, size) = (comm.rank(), comm.size());
    let (mine, at_root) = (samples::<T>(me, 3, count), me == root);
    let own_block_only = || placed(size * count, &[me * count], |_| mine.clone());
    let mut buf = if at_root { own_block_only() } else { mine.clone() };
    comm.gather_in_place(&mut buf, root)?;
    assert_eq!(buf, if at_root { of_all(size, 3, count) } else { mine.clone() });
    let all = samples::<T>(root, 0, size * count);
    let mut buf = if at_root { all.clone() } else { blanks(count) };
    comm.scatter_in_place(&mut buf, root)?;
    assert_eq!(buf, if at_root { all } else { samples(root, me * count, count) });
    let mut buf = own_block_only();
    comm.allgather_in_place(&mut buf)?;
    assert_eq!(buf, of_all::<T>(size, 3, count));
    let mut buf = samples::<T>(me, 0, size * count);
    comm.alltoall_in_place(&mut buf)?;
    assert_eq!(buf, of_all::<T>(size, me * count, count));
    Ok(())
}

#[test]
fn no_rank_leaves_a_barrier_early() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    for size in RANKS {
        let arrived = AtomicUsize::new(0);
        ranks(size, |world| {
            for round in 1..=200 {
                arrived.fetch_add(1, Ordering::SeqCst);
                world.barrier()?;
                assert!(arrived.load(Ordering::SeqCst) >= round * size);
                world.barrier()?;
            }
            Ok(())
        });
    }
}

/// Columns of a row-major matrix: items that interleave.
#[test]
fn derived_types_move_columns() {
    for size in RANKS {
        let transposed = |world: World| {
            let (me, of) = (world.rank(), Datatype::of::<u32>());
            // The matrix has `size` columns and 5 rows; adjacent columns are one element apart.
            let column = of.vector(5, 1, size as isize)?.resized(0, 4)?;
            let mut matrix = blanks::<u32>(5 * size);
            let mine = samples::<u32>(me, 0, 5);
            world.allgather(&mine, &mut ViewMut::new(&mut matrix, 0, &column, size)?)?;
            for (at, value) in matrix.iter().enumerate() {
                assert_eq!(*value, u32::sample(at % size, at / size));
            }
            let mut back = blanks::<u32>(5 * size);
            world.alltoall(&View::new(&matrix, 0, &column, size)?, &mut back)?;
            assert_eq!(back, samples::<u32>(me, 0, 5).repeat(size), "every rank has the same matrix");
            let mut one = blanks::<u32>(5);
            world.scatter(&View::new(&matrix, 0, &column, size)?, &mut one, size - 1)?;
            assert_eq!(one, mine);
            let mut other = blanks::<u32>(5 * size);
            world.gather(&mine, &mut ViewMut::new(&mut other, 0, &column, size)?, 0)?;
            assert_eq!(other, if me == 0 { matrix.clone() } else { blanks(5 * size) });
            world.bcast(&mut ViewMut::new(&mut other, 0, &column, size)?, 0)?;
            assert_eq!(other, matrix);
            Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
        };
        job(size, transposed).expect("no rank fails");
    }
}

/// Arguments that a rank can check locally are rejected before anything is sent. A refused call disables the
/// collectives of its communicator, so each call has its own.
#[mpj::test(ranks = 3)]
fn invalid_arguments_are_rejected_at_once(world: World) -> mpj::Result<()> {
    let (me, mut two, mut all) = (world.rank(), [0u8; 2], [0u8; 6]);
    let dup = || world.dup().expect("a communicator");
    let class = |result: mpj::Result<()>| result.expect_err("refused").class();
    for root in [3, usize::MAX] {
        assert_eq!(class(dup().bcast(&mut two, root)), ErrorClass::Root);
        assert_eq!(class(dup().gather(&[0u8; 2], &mut all, root)), ErrorClass::Root);
        assert_eq!(class(dup().scatter(&all.clone(), &mut two, root)), ErrorClass::Root);
        assert_eq!(class(dup().reduce(&[0u8; 2], &mut two, mpj::Op::Sum, root)), ErrorClass::Root);
    }
    // Lengths that are not divisible by the number of ranks, different counts, different types.
    assert_eq!(class(dup().gather(&[0u8; 2], &mut [0u8; 7], me)), ErrorClass::Count);
    let wider = dup().gather(&[0u8; 2], &mut [0u16; 6], me).expect_err("refused");
    assert!(
        wider.to_string().contains(
            "send buffer has 2 × u8 (2 bytes), receive buffer 6 × u16: 2 × u16 (4 bytes) for each of 3 ranks"
        ),
        "{wider}"
    );
    assert_eq!(class(dup().gather(&[0u8; 3], &mut all, me)), ErrorClass::Count);
    assert_eq!(class(dup().scatter(&[0u8; 5], &mut two, me)), ErrorClass::Count);
    assert_eq!(class(dup().allgather(&[0u8; 2], &mut [0u8; 9])), ErrorClass::Count);
    assert_eq!(class(dup().alltoall(&[0u8; 6], &mut [0u8; 3])), ErrorClass::Count);
    assert_eq!(class(dup().allreduce(&[0u8; 6], &mut [0u8; 3], mpj::Op::Sum)), ErrorClass::Count);
    assert_eq!(class(dup().scan(&[0u8; 2], &mut [0u8; 3], mpj::Op::Sum)), ErrorClass::Count);
    assert_eq!(class(dup().allgather(&[2u8; 2], &mut [true; 6])), ErrorClass::Type);
    assert_eq!(class(dup().gather(&[2u8; 2], &mut [true; 6], me)), ErrorClass::Type);
    assert_eq!(class(dup().scatter(&[2u8; 6], &mut [true; 2], me)), ErrorClass::Type);
    assert_eq!(class(dup().alltoall(&[2u8; 6], &mut [true; 6])), ErrorClass::Type);
    assert_eq!(class(dup().allreduce(&[2u8; 6], &mut [true; 6], mpj::Op::Bor)), ErrorClass::Type);
    assert_eq!(class(dup().scan(&[2.5f64; 6], &mut [0i64; 6], mpj::Op::Sum)), ErrorClass::Type);
    assert_eq!(class(dup().reduce(&[2u8; 6], &mut [true; 6], mpj::Op::Bor, me)), ErrorClass::Type);
    // Blocks outside the buffer, or a wrong number of blocks.
    assert_eq!(class(dup().gatherv(&[0u8; 2], &mut all, &[2; 2], &[0, 2, 4], me)), ErrorClass::Arg);
    assert_eq!(class(dup().gatherv(&[0u8; 2], &mut all, &[2; 3], &[0, 2, 5], me)), ErrorClass::Count);
    assert_eq!(
        class(dup().gatherv(&[0u8; 2], &mut all, &[2; 3], &[0, 2, usize::MAX], me)),
        ErrorClass::Count
    );
    assert_eq!(class(dup().scatterv(&all.clone(), &[3; 3], &[0, 2, 4], &mut two, me)), ErrorClass::Count);
    assert_eq!(class(dup().allgatherv(&[0u8; 2], &mut all, &[2; 3], &[0, 2])), ErrorClass::Arg);
    let even: (&[usize], &[usize]) = (&[2; 3], &[0, 2, 4]);
    assert_eq!(
        class(dup().alltoallv(&all.clone(), even, &mut all, (&[3; 3], &[0, 3, 6]))),
        ErrorClass::Count
    );
    let error_text = |result: mpj::Result<()>| text_of(&result.expect_err("refused"));
    let text = error_text(dup().gatherv(&[0u8; 2], &mut all, &[2; 3], &[0, 2, usize::MAX], me));
    assert_eq!(
        text,
        "gatherv: 2 items of rank 2 at displacement 18446744073709551615 exceed the buffer of 6"
    );
    let text = error_text(dup().scan(&[2.5f64; 6], &mut [0i64; 6], mpj::Op::Sum));
    assert_eq!(text, "scan: send buffer has 6 × f64, receive buffer 6 × i64");
    // Receive blocks must not overlap; send blocks can.
    assert_eq!(class(dup().gatherv(&[0u8; 2], &mut all, &[2; 3], &[0, 3, 1], me)), ErrorClass::Arg);
    assert_eq!(class(dup().allgatherv(&[0u8; 4], &mut all, &[4; 3], &[0, 0, 0])), ErrorClass::Arg);
    let error = dup().alltoallv(&[7u8; 2], (&[2; 3], &[0; 3]), &mut all, (&[2; 3], &[0, 4, 3]));
    let why = "alltoallv: blocks of ranks 2 and 1 overlap in the receive buffer";
    assert_eq!(text_of(&error.expect_err("refused")), why);
    dup().alltoallv(&[7u8; 2], (&[2; 3], &[0; 3]), &mut all, (&[2; 3], &[4, 0, 2]))?;
    dup().scatterv(&[7u8; 2], &[2; 3], &[0; 3], &mut two, 1)?;
    assert_eq!((all, two), ([7; 6], [7; 2]));
    assert_eq!(class(dup().allgather_in_place(&mut [0u8; 7])), ErrorClass::Count);
    dup().bcast(&mut two, 2)?;
    world.barrier()
}

#[mpj::test(ranks = 3)]
fn length_errors_name_the_buffer_and_its_length(world: World) -> mpj::Result<()> {
    let (me, sum) = (world.rank(), mpj::Op::Sum);
    let dup = || world.dup().expect("a communicator");
    let cases = [
        (
            dup().gather(&[0u8; 1], &mut [0u8; 9], me),
            "gather: send buffer has 1 × u8 (1 byte), receive buffer 9 × u8: 3 × u8 (3 bytes) for each of 3 ranks",
        ),
        (
            dup().scatter(&[1u8; 3], &mut [0u16; 3], me),
            "scatter: send buffer has 3 × u8: 1 × u8 (1 byte) for each of 3 ranks, receive buffer 3 × u16 (6 bytes)",
        ),
        (
            dup().allgather(&[2u8; 2], &mut [true; 6]),
            "allgather: send buffer has 2 × u8, receive buffer 6 × bool: 2 × bool for each of 3 ranks",
        ),
        (
            dup().gatherv(&[0u8; 1], &mut [0u8; 9], &[2; 3], &[0, 2, 4], me),
            "gatherv: send buffer has 1 × u8 (1 byte), receive buffer 2 × u8 (2 bytes) for rank RANK",
        ),
        (
            dup().gather(&[0u8; 1], &mut [0u8; 2], me),
            "gather: receive buffer has 2 items, expected 3: 1 for each of 3 ranks",
        ),
        (
            dup().scatter(&[0u8; 1], &mut [0u8; 2], me),
            "scatter: send buffer has 1 item, expected 6: 2 for each of 3 ranks",
        ),
        (
            dup().alltoall(&[0u8; 5], &mut [0u8; 6]),
            "alltoall: send buffer has 5 items, expected a multiple of 3, the number of ranks",
        ),
        (dup().reduce_scatter(&[0i32; 6], &mut [0; 3], &[3, 3], sum), "reduce_scatter: 2 counts for 3 ranks"),
    ];
    for (result, text) in cases {
        assert_eq!(text_of(&result.expect_err("refused")), text.replace("RANK", &me.to_string()));
    }
    world.barrier()
}
