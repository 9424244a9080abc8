//! Neighbourhood collectives with invalid arguments, with calls that do not match, and with ranks that have died.

use mpj::topology::{Cart, Dim, TopologyComm};
use mpj::{ErrorClass, Reorder, World, coll, raw};

use crate::common::{job, ranks, text_of};

/// A call that is refused; the slice has two items.
type RefusedCall = dyn Fn(&Cart, &mut [u8]) -> mpj::Result<()>;

#[mpj::test(ranks = 2)]
fn invalid_arguments_are_refused_with_the_reason(world: World) -> mpj::Result<()> {
    let ring = world.cart(&[Dim::periodic(2)], Reorder::No)?.expect("2 cells");
    let (one, two, mut out) = ([1u8; 1], [1u8; 2], [0u8; 2]);
    let at: &[usize] = &[0, 1];
    let cases: Vec<(ErrorClass, &str, Box<RefusedCall>)> = vec![
        (
            ErrorClass::Count,
            "neighbor_allgather: receive buffer has 1 items, expected a multiple of 2, the number of blocks",
            Box::new(move |c, out| c.neighbor_allgather(&one, &mut out[..1])),
        ),
        (
            ErrorClass::Count,
            "neighbor_alltoall: send buffer has 1 items, expected a multiple of 2, the number of blocks",
            Box::new(move |c, out| c.neighbor_alltoall(&one, out)),
        ),
        (
            ErrorClass::Arg,
            "neighbor_allgatherv: 1 counts and 2 displacements for 2 neighbours",
            Box::new(move |c, out| c.neighbor_allgatherv(&one, out, &[1], at)),
        ),
        (
            ErrorClass::Arg,
            "neighbor_allgatherv: blocks 0 and 1 overlap in the receive buffer",
            Box::new(move |c, out| c.neighbor_allgatherv(&one, out, &[1, 1], &[1, 1])),
        ),
        (
            ErrorClass::Count,
            "neighbor_alltoallv: 2 items of block 1 at displacement 1 exceed the send buffer of 2 items",
            Box::new(move |c, out| c.neighbor_alltoallv(&two, (&[1, 2], at), out, (&[1, 1], at))),
        ),
        (
            ErrorClass::Count,
            "neighbor_alltoallv: 18446744073709551615 items of block 1 at displacement 1 exceed the receive buffer of 2 items",
            Box::new(move |c, out| c.neighbor_alltoallv(&two, (&[1, 1], at), out, (&[1, usize::MAX], at))),
        ),
        (
            ErrorClass::Arg,
            "neighbor_alltoallw: 1 send buffers for 2 neighbours",
            Box::new(move |c, out| c.neighbor_alltoallw(&[two], &mut out.chunks_mut(1).collect::<Vec<_>>())),
        ),
    ];
    for (class, why, call) in cases {
        let comm = ring.dup()?;
        let error = call(&comm, &mut out).expect_err(why);
        assert_eq!((error.class(), text_of(&error).as_str()), (class, why));
    }
    world.barrier()
}

/// Runs a call on a duplicate. Every rank must fail there, in the call or in a later barrier, and not hang; afterwards
/// the communicator's original still works.
fn all_ranks_fail<T>(comm: &T, call: impl FnOnce(&T) -> mpj::Result<()>, dup: impl Fn(&T) -> mpj::Result<T>)
where
    T: std::ops::Deref<Target = TopologyComm>,
{
    let twin = dup(comm).expect("the original works");
    let mut outcome = call(&twin);
    for _ in 0..3 {
        outcome = outcome.and_then(|()| twin.barrier());
    }
    let error = outcome.expect_err("the ranks have called different collectives").to_string();
    assert!(!error.contains("please report"), "{error}");
    comm.barrier().expect("the original works");
}

#[test]
fn calls_that_do_not_match_fail_on_every_rank() {
    for size in [2, 3, 4] {
        ranks(size, |world| {
            let ring = world.cart(&[Dim::periodic(size)], Reorder::No)?.expect("a cell for each rank");
            let odd = world.rank() == size - 1;
            let (send, mut recv) = ([1u32; 8], [0u32; 8]);
            let play =
                |call: &mut dyn FnMut(&Cart) -> mpj::Result<()>| all_ranks_fail(&ring, call, Cart::dup);
            // Another operation.
            play(&mut |c| match odd {
                true => c.neighbor_alltoall(&send, &mut recv),
                false => c.neighbor_allgather(&send[..4], &mut recv),
            });
            play(&mut |c| if odd { c.barrier() } else { c.neighbor_alltoall(&send, &mut recv) });
            play(&mut |c| {
                if odd {
                    c.alltoall(&[1u32; 12][..size], &mut [0u32; 12][..size])
                } else {
                    c.neighbor_alltoall(&send, &mut recv)
                }
            });
            // Longer and shorter messages, and another type.
            play(&mut |c| {
                c.neighbor_alltoall(&send[..if odd { 8 } else { 4 }], &mut recv[..if odd { 8 } else { 4 }])
            });
            play(&mut |c| c.neighbor_allgather(&send[..if odd { 1 } else { 4 }], &mut recv));
            play(&mut |c| match odd {
                true => c.neighbor_alltoall(&[1.5f32; 8], &mut [0f32; 8]),
                false => c.neighbor_alltoall(&send, &mut recv),
            });
            // One rank's arguments are refused.
            play(&mut |c| c.neighbor_alltoall(&send[..if odd { 7 } else { 8 }], &mut recv));
            Ok(())
        });
    }
}

#[mpj::test(ranks = 2)]
fn neighbourhood_calls_need_a_topology_and_a_live_communicator(world: World) -> mpj::Result<()> {
    let plain = world.dup()?;
    let (send, mut recv) = ([1u8; 2], [0u8; 2]);
    let (out, back) = (raw::Buf::slice(&send), raw::Buf::slice_mut(&mut recv));
    let even = raw::BlockLayout::EvenSplit;
    #[expect(unsafe_code, reason = "the untyped call")]
    // SAFETY: both buffers are borrowed until the call returns.
    let error =
        unsafe { raw::neighbor_alltoall(plain.as_raw(), &out, even, &back, even) }.expect_err("no topology");
    assert_eq!(error.class(), ErrorClass::Topology);
    assert_eq!(text_of(&error), "neighbor_alltoall: the communicator does not have a topology");
    let error = world.dup()?.start(coll::neighbor_allgather([0u8], [0u8; 2])).expect_err("no topology");
    assert_eq!(text_of(&error), "ineighbor_allgather: the communicator does not have a topology");
    let freed = world.cart(&[Dim::open(2)], Reorder::No)?.expect("2 cells");
    freed.barrier()?;
    freed.free()?;
    let blocks: (&[usize], &[usize]) = (&[1, 1], &[0, 1]);
    for (call, outcome) in [
        ("neighbor_allgather", freed.neighbor_allgather(&[1u8], &mut recv)),
        ("neighbor_allgatherv", freed.neighbor_allgatherv(&[1u8], &mut recv, blocks.0, blocks.1)),
        ("neighbor_alltoall", freed.neighbor_alltoall(&send, &mut recv)),
        ("neighbor_alltoallv", freed.neighbor_alltoallv(&send, blocks, &mut recv, blocks)),
        ("neighbor_alltoallw", freed.neighbor_alltoallw(&[send; 2], &mut [send; 2])),
        ("ineighbor_alltoall", freed.start(coll::neighbor_alltoall(send, recv)).map(drop)),
        ("neighbor_alltoall_init", freed.prepare(coll::neighbor_alltoall(send, recv)).map(drop)),
    ] {
        let error = outcome.expect_err(call);
        assert_eq!((error.class(), error.call()), (ErrorClass::Comm, call));
    }
    world.barrier()
}

#[mpj::test(ranks = 3)]
fn graph_with_one_way_edges_has_no_neighbourhood_collectives(world: World) -> mpj::Result<()> {
    // 0 → 1 and 0 ↔ 2.
    let graph = world.graph(&[2, 2, 3], &[1, 2, 0], Reorder::No)?.expect("3 nodes");
    let error = graph.neighbor_allgather(&[1u8], &mut [0u8; 2]).expect_err("not symmetric");
    assert_eq!(error.class(), ErrorClass::Topology);
    assert!(error.to_string().contains("more edges from 0 to 1 than back"), "{error}");
    world.barrier()
}

#[test]
fn dead_neighbour_fails_the_exchange() {
    let error = job(3, |world| {
        let ring = world.cart(&[Dim::periodic(3)], Reorder::No).map_err(|e| e.to_string())?.expect("3 cells");
        ring.barrier().map_err(|e| e.to_string())?;
        if ring.rank() == 1 {
            return Err("no input".to_owned());
        }
        let failed = ring.neighbor_alltoall(&[1u8, 2], &mut [0u8; 2]).expect_err("rank 1 has died");
        assert_eq!(failed.failed_rank(), Some(1), "{failed}");
        Ok(())
    });
    assert!(error.expect_err("rank 1 fails").to_string().contains("no input"));
}
