//! A communicator that was freed: its calls fail, and its pending operations complete.

use crate::common::{blanks, samples};
use mpj::topology::Dim;
use mpj::{ANY_SOURCE, ErrorClass, Info, Intracomm, Op, PROC_NULL, Reorder, World, coll};

/// The name of a call, which its error must report, and its outcome.
type Outcomes = Vec<(&'static str, mpj::Result<()>)>;

/// The blocks of two ranks.
const BLOCKS: (&[usize], &[usize]) = (&[1, 1], &[0, 1]);

fn assert_fail(calls: Outcomes) {
    for (call, outcome) in calls {
        let error = outcome.expect_err(call);
        assert_eq!((error.class(), error.call()), (ErrorClass::Comm, call), "{error}");
    }
}

/// Returns a freed duplicate.
fn freed(world: &World) -> mpj::Result<Intracomm> {
    let comm = world.dup()?;
    let handle = comm.clone();
    comm.barrier()?;
    comm.free()?;
    Ok(handle)
}

#[mpj::test(ranks = 2)]
fn calls_on_a_freed_communicator_fail(world: World) -> mpj::Result<()> {
    let c = &freed(&world)?;
    let other = 1 - world.rank();
    let mut calls = Vec::new();
    calls.extend(messages(c, other));
    calls.extend(requests(c, other));
    calls.extend(collectives(c));
    calls.extend(collectives_in_place(c));
    calls.extend(objects_and_values(c, other));
    calls.extend(creations(c, &world, other));
    assert_fail(calls);
    let refused = world.free().expect_err("the world stays");
    assert_eq!(
        (refused.class(), refused.to_string().as_str()),
        (ErrorClass::Comm, "free: the world cannot be freed")
    );
    world.barrier()
}

fn messages(c: &Intracomm, other: usize) -> Outcomes {
    let (mut one, two) = ([0u8; 1], [0u8; 2]);
    vec![
        ("send", c.send(&one, other, 0)),
        ("send", c.send(&one, PROC_NULL, 0)),
        ("ssend", c.ssend(&one, other, 0)),
        ("rsend", c.rsend(&one, other, 0)),
        ("bsend", c.bsend(&one, other, 0)),
        ("bsend", c.bsend(&one, PROC_NULL, 0)),
        ("attach", c.attach(1000).map(drop)),
        ("recv", c.recv(&mut one, other, 0).map(drop)),
        ("recv", c.recv(&mut one, PROC_NULL, 0).map(drop)),
        ("sendrecv", c.sendrecv(&two, other, 0, &mut one, other, 0).map(drop)),
        ("sendrecv", c.sendrecv(&two, PROC_NULL, 0, &mut one, PROC_NULL, 0).map(drop)),
        ("sendrecv_replace", c.sendrecv_replace(&mut one, other, 0, other, 0).map(drop)),
        ("sendrecv_replace", c.sendrecv_replace(&mut one, PROC_NULL, 0, PROC_NULL, 0).map(drop)),
        ("probe", c.probe(other, 0).map(drop)),
        ("probe", c.probe(PROC_NULL, 0).map(drop)),
        ("iprobe", c.iprobe(other, 0).map(drop)),
        ("mprobe", c.mprobe(other, 0).map(drop)),
        ("improbe", c.improbe(other, 0).map(drop)),
        ("recv_vec", c.recv_vec::<u8>(other, 0).map(drop)),
        ("recv_vec", c.recv_vec::<u8>(PROC_NULL, 0).map(drop)),
        ("recv_block", c.recv_block(other, 0).map(drop)),
        ("recv_buffer", c.recv_buffer(other, 0).map(drop)),
    ]
}

fn requests(c: &Intracomm, other: usize) -> Outcomes {
    let (one, two) = ([0u8; 1], [0u8; 2]);
    let mut into = one;
    vec![
        ("isend", c.isend(one, other, 0).map(drop)),
        ("issend", c.issend(one, other, 0).map(drop)),
        ("ibsend", c.ibsend(one, other, 0).map(drop)),
        ("irsend", c.irsend(one, other, 0).map(drop)),
        ("irecv", c.irecv(one, other, 0).map(drop)),
        ("irecv", c.irecv(one, PROC_NULL, 0).map(drop)),
        ("isend", c.scope(|s| s.isend(&two, other, 0).map(drop))),
        ("irecv", c.scope(|s| s.irecv(&mut into, other, 0).map(drop))),
        ("send_init", c.send_init(one, other, 0).map(drop)),
        ("ssend_init", c.ssend_init(one, other, 0).map(drop)),
        ("bsend_init", c.bsend_init(one, other, 0).map(drop)),
        ("rsend_init", c.rsend_init(one, other, 0).map(drop)),
        ("recv_init", c.recv_init(one, other, 0).map(drop)),
        ("psend_init", c.psend_init(two, 2, other, 0).map(drop)),
        ("precv_init", c.precv_init(two, 2, other, 0).map(drop)),
        ("promise", c.promise::<u8>().map(drop)),
        ("ibarrier", c.start(coll::barrier()).map(drop)),
        ("ibcast", c.start(coll::bcast(one, 0)).map(drop)),
        ("iallreduce", c.start(coll::allreduce(one, one, Op::Sum)).map(drop)),
        ("ialltoallw", c.start(coll::alltoallw(vec![one; 2], vec![one; 2])).map(drop)),
        ("ireduce", c.start(coll::reduce_in_place(one, Op::Sum, 0)).map(drop)),
        ("barrier_init", c.prepare(coll::barrier()).map(drop)),
        ("bcast_init", c.prepare(coll::bcast(one, 0)).map(drop)),
        ("alltoallw_init", c.prepare(coll::alltoallw(vec![one; 2], vec![one; 2])).map(drop)),
    ]
}

fn collectives(c: &Intracomm) -> Outcomes {
    let (counts, at) = BLOCKS;
    let (mut one, mut two) = ([0u8; 1], [0u8; 2]);
    vec![
        ("barrier", c.barrier()),
        ("bcast", c.bcast(&mut one, 0)),
        ("reduce", c.reduce(&[1u8], &mut one, Op::Sum, 0)),
        ("allreduce", c.allreduce(&[1u8], &mut one, Op::Sum)),
        ("scan", c.scan(&[1u8], &mut one, Op::Sum)),
        ("exscan", c.exscan(&[1u8], &mut one, Op::Sum)),
        ("reduce_scatter", c.reduce_scatter(&[1u8; 2], &mut one, &[1, 1], Op::Sum)),
        ("reduce_scatter_block", c.reduce_scatter_block(&[1u8; 2], &mut one, Op::Sum)),
        ("gather", c.gather(&[1u8], &mut two, 0)),
        ("gatherv", c.gatherv(&[1u8], &mut two, counts, at, 0)),
        ("scatter", c.scatter(&[1u8; 2], &mut one, 0)),
        ("scatterv", c.scatterv(&[1u8; 2], counts, at, &mut one, 0)),
        ("allgather", c.allgather(&[1u8], &mut two)),
        ("allgatherv", c.allgatherv(&[1u8], &mut two, counts, at)),
        ("alltoall", c.alltoall(&[1u8; 2], &mut two)),
        ("alltoallv", c.alltoallv(&[1u8; 2], BLOCKS, &mut two, BLOCKS)),
        ("alltoallw", c.alltoallw(&[[1u8]; 2], &mut [[0u8]; 2])),
    ]
}

fn collectives_in_place(c: &Intracomm) -> Outcomes {
    let (counts, at) = BLOCKS;
    let mut two = [1u8; 2];
    vec![
        ("reduce", c.reduce_in_place(&mut two, Op::Sum, 0)),
        ("allreduce", c.allreduce_in_place(&mut two, Op::Sum)),
        ("scan", c.scan_in_place(&mut two, Op::Sum)),
        ("exscan", c.exscan_in_place(&mut two, Op::Sum)),
        ("reduce_scatter", c.reduce_scatter_in_place(&mut two, counts, Op::Sum)),
        ("reduce_scatter_block", c.reduce_scatter_block_in_place(&mut two, Op::Sum)),
        ("gather", c.gather_in_place(&mut two, 0)),
        ("gatherv", c.gatherv_in_place(&mut two, counts, at, 0)),
        ("scatter", c.scatter_in_place(&mut two, 0)),
        ("scatterv", c.scatterv_in_place(&mut two, counts, at, 0)),
        ("allgather", c.allgather_in_place(&mut two)),
        ("allgatherv", c.allgatherv_in_place(&mut two, counts, at)),
        ("alltoall", c.alltoall_in_place(&mut two)),
        ("alltoallv", c.alltoallv_in_place(&mut two, counts, at)),
        ("alltoallw", c.alltoallw_in_place(&mut [[1u8]; 2])),
    ]
}

fn objects_and_values(c: &Intracomm, other: usize) -> Outcomes {
    let list = || vec![5u8, 6];
    vec![
        ("send_object", c.send_object("text", other, 0)),
        ("recv_object", c.recv_object::<String>(other, 0).map(drop)),
        ("isend_object", c.isend_object("text", other, 0).map(drop)),
        ("irecv_object", c.irecv_object::<String>(other, 0).map(drop)),
        ("bcast_object", c.bcast_object(5u8, 0).map(drop)),
        ("gather_object", c.gather_object(5u8, 0).map(drop)),
        ("scatter_object", c.scatter_object(list(), 0).map(drop)),
        ("allgather_object", c.allgather_object(5u8).map(drop)),
        ("alltoall_object", c.alltoall_object(list()).map(drop)),
        ("reduce_object", c.reduce_object(5u8, |one, two| one + two, 0).map(drop)),
        ("allreduce_object", c.allreduce_object(5u8, |one, two| one + two).map(drop)),
        ("bcast", c.bcast_value(5u8, 0).map(drop)),
        ("reduce", c.reduce_value(5u8, Op::Sum, 0).map(drop)),
        ("allreduce", c.allreduce_value(5u8, Op::Sum).map(drop)),
        ("scan", c.scan_value(5u8, Op::Sum).map(drop)),
        ("exscan", c.exscan_value(5u8, Op::Sum).map(drop)),
        ("gather", c.gather_value(5u8, 0).map(drop)),
        ("scatter", c.scatter_value(&list(), 0).map(drop)),
        ("allgather", c.allgather_value(5u8).map(drop)),
        ("alltoall", c.alltoall_value(&list()).map(drop)),
        // The error names the freed communicator, not the wrong number of values.
        ("alltoall_value", c.alltoall_value(&[5u8]).map(drop)),
    ]
}

fn creations(c: &Intracomm, world: &World, other: usize) -> Outcomes {
    let group = c.group();
    vec![
        ("free", c.free()),
        ("dup", c.dup().map(drop)),
        ("dup", c.dup_with_info(&Info::new()).map(drop)),
        ("dup", c.dup_with_rules(coll::Rules::default()).map(drop)),
        ("idup", c.idup().map(drop)),
        ("split", c.split(Some(0), 0).map(drop)),
        ("split_type", c.split_type(mpj::SplitType::Host, 0).map(drop)),
        ("create", c.create(&group).map(drop)),
        ("create_group", c.create_group(&group, 0).map(drop)),
        ("create_intercomm", c.create_intercomm(0, world, other, 0).map(drop)),
        ("cart", c.cart(&[Dim::open(2)], Reorder::No).map(drop)),
        ("cart_map", c.cart_map(&[Dim::open(2)]).map(drop)),
        ("graph", c.graph(&[1, 2], &[1, 0], Reorder::No).map(drop)),
        ("graph_map", c.graph_map(&[1, 2], &[1, 0]).map(drop)),
        ("dist_graph", c.dist_graph(&[(0, 1)], None, Reorder::No).map(drop)),
        ("dist_graph_adjacent", c.dist_graph_adjacent(&[other], &[other], None, Reorder::No).map(drop)),
    ]
}

#[mpj::test(ranks = 2)]
fn freed_bridge_creates_no_intercommunicator(world: World) -> mpj::Result<()> {
    let bridge = freed(&world)?;
    let alone = world.split(Some(world.rank() as u32), 0)?.expect("each rank has a color");
    assert_fail(vec![(
        "create_intercomm",
        alone.create_intercomm(0, &bridge, 1 - world.rank(), 0).map(drop),
    )]);
    world.barrier()
}

/// Short, long and synchronous messages, and a wildcard receive; with and without another handle of the communicator.
#[mpj::test(ranks = 2)]
fn pending_operations_of_a_freed_communicator_complete(world: World) -> mpj::Result<()> {
    let other = 1 - world.rank();
    for len in [4usize, 100_000] {
        for handle_stays in [true, false] {
            let comm = world.dup()?;
            let handle = handle_stays.then(|| comm.clone());
            let receives =
                [comm.irecv(blanks::<u8>(len), other, 0)?, comm.irecv(blanks::<u8>(len), ANY_SOURCE, 1)?];
            let never = comm.irecv([0u8], other, 2)?;
            world.barrier()?;
            if world.rank() == 0 {
                comm.free()?;
                drop(comm);
                world.barrier()?;
                for (tag, receive) in receives.into_iter().enumerate() {
                    assert_eq!(receive.wait()?.0, samples::<u8>(1, tag, len));
                }
                world.send(&samples::<u8>(0, 0, len), 1, 9)?;
            } else {
                world.barrier()?;
                let sends = [
                    comm.isend(samples::<u8>(1, 0, len), 0, 0)?,
                    comm.issend(samples::<u8>(1, 1, len), 0, 1)?,
                ];
                // Rank 0 has not posted a matching receive.
                let refused = comm.issend(samples::<u8>(1, 3, len), 0, 3)?;
                comm.free()?;
                for send in sends {
                    send.wait()?;
                }
                let failed = refused.wait().expect_err("no rank receives it");
                assert_eq!(failed.error().as_fault(), Some(&mpj::Fault::Refused { rank: 0 }), "{failed}");
                world.recv(&mut blanks::<u8>(len), 0, 9)?;
                drop(receives);
            }
            assert!(never.cancel(), "a receive of a freed communicator can be cancelled");
            assert_eq!(never.wait().expect_err("cancelled").error().class(), ErrorClass::Request);
            drop(handle);
        }
    }
    world.barrier()
}

#[test]
fn death_fails_the_pending_receive_of_a_freed_communicator() {
    let error = mpj::threads(3, |world| {
        let comm = world.dup().map_err(|e| e.to_string())?;
        if world.rank() == 1 {
            return Err("no input".to_owned());
        }
        let pending = comm.irecv([0u8], 2 - world.rank(), 0).map_err(|e| e.to_string())?;
        comm.free().map_err(|e| e.to_string())?;
        drop(comm);
        let failed = pending.wait().expect_err("rank 1 has died");
        assert_eq!(failed.error().failed_rank(), Some(1), "{failed}");
        Ok(())
    });
    assert_eq!(error.unwrap_err().to_string(), "rank 1 returned an error: no input");
}
