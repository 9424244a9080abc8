use std::panic::{AssertUnwindSafe, catch_unwind};

use mpj_collectives::{BufIndex, OperandOrder, Operation};

use super::super::call_id::CallDigest;
use super::super::plan::MaybeOwned;
use super::*;
use crate::op::Op;
use crate::raw::Comm;

fn run(comm: &Comm, steps: Vec<Step>, memory: [&mut [u64]; 2], op: Option<&Op>) -> Result<()> {
    let [send, recv] = memory.map(Buf::slice_mut);
    let digest = CallDigest::new(Operation::Allreduce, 0);
    let call = CallId { name: "test", seq: 1, digest, first_group_size: None };
    let plan = Plan { op: op.map(MaybeOwned::Borrowed), ..Plan::new(digest, steps, &send, &recv) };
    // SAFETY: the tests' spans lie in their memory, which outlives the schedule.
    unsafe { Schedule::new(&**comm.collectives(), call, plan) }.run()
}

#[test]
fn panicking_op_cancels_pending_receives() {
    crate::threads(2, |world| {
        let comm = world.as_raw();
        let (mut send, mut recv) = ([7u64; 2], [3u64; 2]);
        if world.rank() == 0 {
            let into = Span::new(BufIndex::RECV, 0, 1);
            let reduce = Step::ReduceLocal {
                from: Span::new(BufIndex::SEND, 0, 1),
                into,
                order: OperandOrder::IncomingFirst,
            };
            let steps = vec![Step::Recv { from: 1, into: Span::new(BufIndex::RECV, 1, 1) }, reduce];
            let op = Op::user(true, |_: &u64, _: &u64| panic!("deliberate"));
            let run = || run(comm, steps, [&mut send, &mut recv], Some(&op));
            assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
            world.send(&[1u8], 1, 0)?;
            world.recv(&mut [0u8], 1, 0)?;
            assert_eq!(recv, [3; 2]);
        } else {
            world.recv(&mut [0u8], 0, 0)?;
            let steps = vec![Step::Send { to: 0, from: Span::new(BufIndex::SEND, 0, 1) }];
            run(comm, steps, [&mut send, &mut recv], None)?;
            world.send(&[1u8], 0, 0)?;
        }
        Ok::<(), Error>(())
    })
    .expect("both ranks continue");
}

/// The tags of messages have fewer bits than sequence numbers, which wrap around, too.
#[test]
fn calls_stay_in_step_when_their_numbers_wrap_around() {
    crate::threads(3, |world| {
        let sum = crate::coll::allreduce([world.rank() as u64 + 1], [0u64], Op::Sum);
        let mut persistent = world.prepare(sum)?;
        let sync = world.dup()?;
        for first in [i32::MAX as u32 - 2, u32::MAX - 2] {
            let comm = world.dup()?;
            // No rank is still in `dup` when another one skips numbers.
            sync.barrier()?;
            for comm in [&*world, &comm] {
                comm.as_raw().collectives().coll_state().sequence().skip_to(first);
            }
            for round in 0..8u64 {
                let mut items = [if world.rank() == 1 { round } else { 0 }];
                comm.bcast(&mut items, 1)?;
                assert_eq!(items, [round]);
                assert_eq!(persistent.start()?.wait()?.1, [6]);
            }
            comm.barrier()?;
            let refused = comm.bcast(&mut [0u8], if world.rank() == 2 { 9 } else { 0 });
            let error = refused.and_then(|()| comm.barrier()).expect_err("rank 2 is refused").to_string();
            assert!(error.contains("root 9"), "{error}");
        }
        Ok::<(), Error>(())
    })
    .expect("all ranks stay in step");
}
