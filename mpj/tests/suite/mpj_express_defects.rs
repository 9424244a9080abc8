//! The known defects of MPJ Express 0.44, as tests. The comment of a test numbers the defect and says what MPJ Express
//! does; the name says what this library does. Two cases are tested elsewhere:
//!
//! * 8, dimensions whose product is not the number of ranks, and preset sizes that are ignored: `cart`.
//! * 23, a receive from any source takes seconds with two devices: `wildcard_receives_from_two_devices_do_not_wait_for_a_poll` of `mpjrun`.
//!
//! The tests of MPJ Express have these counterparts:
//!
//! | folder | counterpart |
//! |---|---|
//! | `buffertest`, `pt2pt_ObjSer`, `ccl_ObjSer` | `messages`, `objects`, `object_requests`, `object_collectives` |
//! | `pt2pt`, `nbcomms` | `p2p`, `send_modes`, `protocols`, `requests`, `wait_many`, `persistent_p2p` |
//! | `ccl` | `collectives`, `reductions`, `in_place`, `pairs` |
//! | `comm`, `group`, `topo` | `communicators`, `communicator_creation`, `intercomm`, `groups`, `cart`, `graphs` |
//! | `dtyp` | `packing`, and the tests of `mpj-datatypes` |
//! | `env`, `threads`, `signals` | `attributes`, `mpijava`, `schedules`, and the examples |

use std::time::{Duration, Instant};

use mpj::topology::Dim;
use mpj::{
    ANY_SOURCE, ANY_TAG, Comparison, Datatype, ErrorClass, Op, PROC_NULL, Reorder, View, ViewMut, World,
};

use crate::common::ranks;

fn vector_of_i32(count: usize, block: usize, stride: isize) -> Datatype {
    Datatype::of::<i32>().vector(count, block, stride).expect("valid")
}

/// Sends items of `sent` from rank 0, and returns on rank 1 what `i32`s arrive.
fn arriving(world: &World, sent: &Datatype, items: usize) -> mpj::Result<Vec<i32>> {
    if world.rank() == 0 {
        let all: Vec<i32> = (0..24).collect();
        world.send(&View::new(&all, 0, sent, items)?, 1, 0)?;
        return Ok(Vec::new());
    }
    Ok(world.recv_vec::<i32>(0, 0)?.0)
}

/// 1: sums of another rank's part, and an overwritten send buffer.
#[mpj::test(ranks = 3)]
fn reduce_scatter_with_different_counts_returns_the_sums_of_each_part(world: World) -> mpj::Result<()> {
    let me = world.rank() as i32;
    let mine: [i32; 6] = [0, 1, 2, 3, 4, 5].map(|at| me + at);
    let counts = [1, 2, 3];
    let mut got = vec![0; counts[world.rank()]];
    world.reduce_scatter(&mine, &mut got, &counts, Op::Sum)?;
    assert_eq!(got, [&[3][..], &[6, 9], &[12, 15, 18]][world.rank()]);
    Ok(())
}

/// 1: the same with equal counts.
#[mpj::test(ranks = 4)]
fn reduce_scatter_with_equal_counts_returns_the_sums_of_each_part(world: World) -> mpj::Result<()> {
    let mine: [i32; 4] = [0, 1, 2, 3].map(|at| world.rank() as i32 + 100 * at);
    let mut got = [0];
    world.reduce_scatter(&mine, &mut got, &[1; 4], Op::Sum)?;
    assert_eq!(got, [6 + 400 * world.rank() as i32]);
    Ok(())
}

/// 2: blocks in the transposed order.
#[mpj::test(ranks = 2)]
fn vector_sends_its_blocks_one_after_the_other(world: World) -> mpj::Result<()> {
    let blocks = vector_of_i32(3, 2, 4);
    let got = arriving(&world, &blocks, 1)?;
    assert!(world.rank() == 0 || got == [0, 1, 4, 5, 8, 9], "{got:?}");
    let nested = vector_of_i32(2, 1, 2).resized(0, 4)?.vector(2, 1, 6)?;
    let got = arriving(&world, &nested, 1)?;
    assert!(world.rank() == 0 || got == [0, 2, 6, 8], "{got:?}");
    Ok(())
}

/// 3: wrong elements of the second item.
#[mpj::test(ranks = 2)]
fn contiguous_vectors_are_an_extent_apart(world: World) -> mpj::Result<()> {
    let got = arriving(&world, &vector_of_i32(2, 1, 2).contiguous(2)?, 1)?;
    assert!(world.rank() == 0 || got == [0, 2, 3, 5], "{got:?}");
    Ok(())
}

/// 4: a message that ends within an item lands in the wrong elements.
#[mpj::test(ranks = 2)]
fn short_message_fills_the_first_elements_of_a_vector(world: World) -> mpj::Result<()> {
    if world.rank() == 0 {
        return world.send(&[7, 8, 9], 1, 0);
    }
    let mut got = [0; 12];
    let status = world.recv(&mut ViewMut::new(&mut got, 0, &vector_of_i32(3, 2, 4), 1)?, 0, 0)?;
    assert_eq!(got, [7, 8, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!((status.count::<i32>(), status.count_of(&vector_of_i32(3, 2, 4))), (Some(3), None));
    Ok(())
}

/// 5: elements of a gather that are not those of the type.
#[mpj::test(ranks = 2)]
fn gather_of_a_derived_type_gets_its_elements(world: World) -> mpj::Result<()> {
    let mine: [i32; 3] = [1, 99, 2].map(|item| if item == 99 { 99 } else { item + 10 * world.rank() as i32 });
    let (ends, mut got) = (vector_of_i32(2, 1, 2), [0; 4]);
    world.gather(&View::new(&mine, 0, &ends, 1)?, &mut got, 0)?;
    assert_eq!(got, if world.rank() == 0 { [1, 2, 11, 12] } else { [0; 4] });
    Ok(())
}

/// 6: wrong elements if the two buffers begin at different places, and an overwritten buffer of another rank.
#[mpj::test(ranks = 3)]
fn reduce_between_different_places_changes_only_the_result(world: World) -> mpj::Result<()> {
    let (me, root) = (world.rank() as i32, 1);
    let mine = [-1, -1, me, 10 * me, -1];
    let mut got = [5; 4];
    world.reduce(&mine[2..4], &mut got[1..3], Op::Sum, root)?;
    assert_eq!(got, if world.rank() == root { [5, 3, 30, 5] } else { [5; 4] });
    assert_eq!(mine, [-1, -1, me, 10 * me, -1]);
    Ok(())
}

/// 7: operands in another order.
#[test]
fn operation_that_does_not_commute_gets_its_operands_in_the_order_of_ranks() {
    // A product of matrices with the rows (a b) and (0 1): (a, b)·(c, d) = (a·c, a·d + b).
    type Affine = [u64; 2];
    let product = |one: &Affine, two: &Affine| {
        [one[0].wrapping_mul(two[0]), one[0].wrapping_mul(two[1]).wrapping_add(one[1])]
    };
    for size in 2..=5 {
        ranks(size, |world| {
            let of = |rank: usize| [rank as u64 + 2, 3 * rank as u64 + 1];
            let of_first = |count: usize| (1..count).map(of).fold(of(0), |all, next| product(&all, &next));
            let op = || Op::user(false, product);
            let (mine, mut got) = ([of(world.rank())], [[0; 2]]);
            world.allreduce(&mine, &mut got, op())?;
            assert_eq!(got, [of_first(size)]);
            world.scan(&mine, &mut got, op())?;
            assert_eq!(got, [of_first(world.rank() + 1)]);
            for root in 0..size {
                let mut got = [[0; 2]];
                world.reduce(&mine, &mut got, op(), root)?;
                assert_eq!(got, [if world.rank() == root { of_first(size) } else { [0; 2] }]);
            }
            Ok(())
        });
    }
}

/// 9: compares the first communicator with itself; a merge needs opposite arguments and all ranks of the world.
#[mpj::test(ranks = 5)]
fn intercommunicators_are_compared_and_merged(world: World) -> mpj::Result<()> {
    let upper = world.rank() >= 2;
    if world.rank() == 4 {
        world.split(None, 0)?; // it takes no part in the merge
        return Ok(());
    }
    let half = world.split(Some(u32::from(upper)), 0)?.expect("a color");
    let inter = half.create_intercomm(0, &*world, if upper { 0 } else { 2 }, 7)?;
    assert_eq!(inter.compare(&inter.clone()), Comparison::Identical);
    assert_eq!(inter.compare(&inter.dup()?), Comparison::Congruent);
    for high in [true, false] {
        assert_eq!(inter.merge(high)?.size(), 4);
    }
    let merged = inter.merge(!upper)?;
    assert_eq!(merged.rank(), (world.rank() + 2) % 4, "the upper half comes first");
    Ok(())
}

/// 10: whole seconds, and a tick of 0.
#[test]
fn clock_has_a_fine_resolution() {
    let (tick, start) = (mpj::wtick(), mpj::wtime());
    assert!(tick > 0.0 && tick <= 1e-6, "{tick}");
    std::thread::sleep(Duration::from_millis(5));
    let passed = mpj::wtime() - start;
    assert!((0.005..60.0).contains(&passed) && passed.fract() != 0.0, "{passed}");
}

/// 11: the largest tag is the value of another attribute.
#[mpj::test(ranks = 2)]
fn largest_tag_can_be_used_and_errors_are_returned(world: World) -> mpj::Result<()> {
    let (me, other) = (world.rank() as i32, 1 - world.rank());
    let mut got = [9];
    let status = world.sendrecv(&[me], other, mpj::TAG_UB, &mut got, other, ANY_TAG)?;
    assert_eq!((status.tag(), got), (i32::MAX, [1 - me]));
    let refused = world.send(&[me], other, -1).expect_err("a negative tag");
    assert_eq!(refused.class(), ErrorClass::Tag);
    Ok(())
}

/// 12: counts items of a type that was not sent; after a probe, counts base elements.
#[mpj::test(ranks = 2)]
fn count_requires_whole_items_of_the_sent_type(world: World) -> mpj::Result<()> {
    let pair = Datatype::of::<i32>().contiguous(2)?;
    if world.rank() == 0 {
        return world.send(&View::new(&[1, 2, 3, 4], 0, &pair, 2)?, 1, 0);
    }
    let (probed, mut got) = (world.probe(0, 0)?, [0; 4]);
    for status in [probed, world.recv(&mut got, 0, 0)?] {
        assert_eq!((status.count_of(&pair), status.count::<i32>()), (Some(2), Some(4)));
        assert_eq!((status.count::<f32>(), status.count::<[i32; 3]>()), (None, None));
        assert_eq!(status.elements::<[i32; 3]>(), Some(4));
    }
    Ok(())
}

#[repr(C)]
#[derive(Clone, Copy, PartialEq, Debug, mpj::Datatype)]
struct Inner {
    at: i16,
    value: f64,
}

#[repr(C)]
#[derive(Clone, Copy, PartialEq, Debug, mpj::Datatype)]
struct Outer {
    kind: u8,
    inner: [Inner; 2],
    last: i32,
}

fn outer(rank: usize) -> Outer {
    let inner = |at: i16| Inner { at, value: f64::from(at) / 4.0 + rank as f64 };
    Outer { kind: rank as u8, inner: [inner(1), inner(2)], last: -5 }
}

/// 13: a size that grows with every call.
#[test]
fn packed_size_of_a_structure_stays_the_same() -> mpj::Result<()> {
    for _ in 0..4 {
        assert_eq!(mpj::pack_size(&[outer(1); 3])?, 3 * (1 + 2 * (2 + 8) + 4));
        assert_eq!(mpj::pack(&[outer(1); 3])?.len(), 75);
    }
    Ok(())
}

/// 14: `PROC_NULL` is an error, and so is a neighbour outside the grid.
#[mpj::test(ranks = 3)]
fn messages_to_no_rank_complete_at_once(world: World) -> mpj::Result<()> {
    let (me, mut got) = (world.rank(), [77]);
    world.send(&[me], PROC_NULL, 0)?;
    let status = world.recv(&mut got, PROC_NULL, 0)?;
    assert_eq!((status.source(), status.bytes(), got), (None, 0, [77]));
    let line = world.cart(&[Dim::open(3)], Reorder::No)?.expect("3 cells");
    let (left, right) = line.shift(0, 1)?;
    assert_eq!((left, right), (me.checked_sub(1), (me < 2).then_some(me + 1)));
    line.sendrecv(&[me], right, 1, &mut got, left, 1)?;
    assert_eq!(got, [left.unwrap_or(77)]);
    Ok(())
}

/// 15: the sender gets the error of a receiver's short buffer, and the receiver hangs.
#[test]
fn short_buffer_fails_the_receive_and_not_the_send() {
    for len in [10, 100_000, 1_000_000] {
        for is_posted_first in [false, true] {
            ranks(2, |world| {
                if world.rank() == 0 {
                    if is_posted_first {
                        world.recv(&mut [0u8], 1, 1)?;
                    }
                    let sending = world.isend(vec![3u8; len], 1, 0)?;
                    if !is_posted_first {
                        world.send(&[0u8], 1, 1)?;
                    }
                    sending.wait()?;
                    return world.send(&[4u8], 1, 0);
                }
                if !is_posted_first {
                    world.recv(&mut [0u8], 0, 1)?;
                }
                let receiving = world.irecv(vec![0u8; len - 1], 0, 0)?;
                if is_posted_first {
                    world.send(&[0u8], 0, 1)?;
                }
                let error = receiving.wait().expect_err("a byte is missing");
                assert_eq!(error.error().class(), ErrorClass::Truncate);
                let mut next = [0u8];
                world.recv(&mut next, 0, 0)?;
                assert_eq!(next, [4]);
                Ok(())
            });
        }
    }
}

/// 16: an index out of range at the receiver.
#[mpj::test(ranks = 2)]
fn structures_of_structures_arrive_unchanged(world: World) -> mpj::Result<()> {
    let (me, other) = (world.rank(), 1 - world.rank());
    let mut got = [outer(9); 5];
    world.sendrecv(&[outer(me); 5], other, 0, &mut got, other, 0)?;
    assert_eq!(got, [outer(other); 5]);
    Ok(())
}

/// 17: an exception in the library's temporary buffer; then the job hangs.
#[mpj::test(ranks = 3)]
fn user_operation_on_bools_is_applied(world: World) -> mpj::Result<()> {
    let is_last = world.rank() == 2;
    let mut got = [false; 3];
    let differ = Op::user(true, |one: &bool, two: &bool| one != two);
    world.allreduce(&[is_last, !is_last, true], &mut got, differ)?;
    assert_eq!(got, [true, false, true]);
    Ok(())
}

/// 18: a second buffered send waits for the first one.
#[mpj::test(ranks = 2)]
fn buffered_sends_return_while_others_are_pending(world: World) -> mpj::Result<()> {
    let (me, other) = (world.rank() as u32, 1 - world.rank());
    let buffer = world.attach(3 * (400_000 + mpj::raw::BSEND_OVERHEAD))?;
    for tag in 0..3 {
        world.bsend(&vec![me + tag; 100_000], other, tag as i32)?;
    }
    for tag in [2, 0, 1] {
        let (got, _) = world.recv_vec::<u32>(other, tag)?;
        assert_eq!(got, vec![other as u32 + tag as u32; 100_000]);
    }
    buffer.detach()
}

/// 19: a deadlock. A correct program must not rely on buffering, but every device buffers short messages.
#[mpj::test(ranks = 2)]
fn short_sends_to_each_other_complete(world: World) -> mpj::Result<()> {
    let (me, other, mut got) = (world.rank(), 1 - world.rank(), [9]);
    for tag in 0..100 {
        world.send(&[me], other, tag)?;
        world.recv(&mut got, other, tag)?;
        assert_eq!(got, [other]);
    }
    Ok(())
}

/// 20: each test of pending requests sleeps for half a second.
#[mpj::test(ranks = 2)]
fn tests_of_pending_requests_return_at_once(world: World) -> mpj::Result<()> {
    let other = 1 - world.rank();
    let mut pending = vec![world.irecv([0u8], other, 0)?, world.irecv([0u8], other, 1)?];
    let began = Instant::now();
    for _ in 0..1000 {
        assert!(mpj::test_all(&mut pending).is_none());
    }
    assert!(began.elapsed() < Duration::from_secs(60), "{:?} for 1000 tests", began.elapsed());
    world.barrier()?;
    world.send(&[5u8], other, 1)?;
    world.send(&[4u8], other, 0)?;
    let got: Vec<u8> = mpj::wait_all(pending)
        .into_iter()
        .map(|done| done.map(|(got, _)| got[0]))
        .collect::<Result<_, _>>()?;
    assert_eq!(got, [4, 5]);
    Ok(())
}

/// 21: an endless loop.
#[test]
fn waits_for_no_requests_return_at_once() {
    let none = Vec::<mpj::Request<[u8; 1]>>::new;
    assert!(mpj::wait_any(&mut none()).is_none());
    assert!(mpj::wait_some(&mut none()).is_empty());
    assert!(mpj::wait_all(none()).is_empty());
    assert!(mpj::test_any(&mut none()).is_none());
}

/// 22: prints an error, although the result is right.
#[mpj::test(ranks = 2)]
fn shift_by_more_than_the_grid_wraps_or_leaves_it(world: World) -> mpj::Result<()> {
    let ring = world.cart(&[Dim::periodic(2)], Reorder::No)?.expect("2 cells");
    let other = 1 - ring.rank();
    assert_eq!(ring.shift(0, -3)?, (Some(other), Some(other)));
    let line = world.cart(&[Dim::open(2)], Reorder::No)?.expect("2 cells");
    assert_eq!((line.shift(0, 3)?, line.shift(0, -3)?), ((None, None), (None, None)));
    Ok(())
}

/// 24: not a defect. MPJ Express detects this error, too.
#[mpj::test(ranks = 2)]
fn message_of_another_type_is_an_error(world: World) -> mpj::Result<()> {
    if world.rank() == 0 {
        return world.send(&[1.5f32], 1, 0);
    }
    let mut got = [7i32];
    let error = world.recv(&mut got, ANY_SOURCE, 0).expect_err("numbers of another type");
    assert_eq!((error.class(), got), (ErrorClass::Type, [7]));
    Ok(())
}
