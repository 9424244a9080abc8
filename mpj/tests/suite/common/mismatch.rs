//! Programs in which the ranks call different collectives, or one collective with arguments that do not match. No rank
//! hangs or gets `Ok` with wrong data, and other communication continues.

use std::time::{Duration, Instant};

use mpj::buffer::{Buffer, Reading};
use mpj::pool::DefaultBlock;
use mpj::{Intracomm, Op};

/// The time in which every rank must get an error, on a busy machine.
const LIMIT: Duration = Duration::from_secs(10);

/// Returns the factor for time limits: scripts that run tests in an emulator set `TEST_TIME_FACTOR`.
pub(crate) fn time_factor() -> u32 {
    std::env::var("TEST_TIME_FACTOR").ok().and_then(|factor| factor.parse().ok()).unwrap_or(1)
}

macro_rules! kinds {
    ($($kind:ident)*) => {
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) enum Kind {
            $($kind,)*
        }

        use Kind::*;

        pub(crate) const KINDS: &[Kind] = &[$($kind),*];
    };
}

kinds! {
    Barrier Bcast BcastObject BcastBuffer GatherBuffers ScatterBuffers
    Reduce Allreduce AllreduceInOrder ReduceScatter ReduceScatterBlock Scan Exscan
    Gather Gatherv Scatter Allgather Allgatherv Alltoall Alltoallv Alltoallw
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Call {
    pub(crate) kind: Kind,
    pub(crate) count: usize,
    pub(crate) root: usize,
    pub(crate) has_invalid_argument: bool,
}

/// A program: the call of one rank, and the call of all others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Program {
    pub(crate) odd_rank: usize,
    pub(crate) odd_call: Call,
    pub(crate) others: Call,
}

const BLANK: u32 = 0xdead_beef;

fn item(rank: usize, at: usize) -> u32 {
    (rank * 1_000_000 + at) as u32
}

fn items(rank: usize, from: usize, count: usize) -> Vec<u32> {
    (from..from + count).map(|at| item(rank, at)).collect()
}

fn sum(last: usize, from: usize, count: usize) -> Vec<u32> {
    (from..from + count).map(|at| (0..=last).map(|rank| item(rank, at)).fold(0, u32::wrapping_add)).collect()
}

fn message(items: &[u32]) -> Buffer<DefaultBlock, Reading> {
    let mut message = Buffer::with_capacity(size_of_val(items) + 64).expect("there is room");
    message.write(items).expect("it fits");
    message.commit()
}

fn is_of(mut message: Buffer<DefaultBlock, Reading>, items: &[u32]) -> bool {
    message.view::<u32>().is_ok_and(|got| got == items)
}

impl Call {
    pub(crate) fn new(kind: Kind, count: usize, root: usize) -> Self {
        Call { kind, count, root, has_invalid_argument: false }
    }

    /// Makes the call. The flag says whether the received data are right for a call that all ranks make.
    pub(crate) fn make(&self, comm: &Intracomm) -> (mpj::Result<()>, bool) {
        let (me, size, Call { kind, count, root, has_invalid_argument: wrong }) =
            (comm.rank(), comm.size(), *self);
        let (total, extra) = (count * size, usize::from(wrong));
        let at_root = me == root;
        // If `wrong`, one argument is invalid: the root, the operation, or the length of a buffer or of a list.
        let root_or_none = if wrong { size } else { root };
        let mine = items(me, 0, count);
        let everything = || (0..size).flat_map(|rank| items(rank, 0, count)).collect::<Vec<u32>>();
        let my_parts = || (0..size).flat_map(|rank| items(rank, me * count, count)).collect::<Vec<u32>>();
        let even = (vec![count; size], (0..size).map(|rank| rank * count).collect::<Vec<usize>>());
        let (counts, places) = (&even.0[..], &even.1[..size - extra]);
        match kind {
            Barrier => (comm.barrier(), true),
            Bcast => {
                let mut got = if at_root { mine } else { vec![BLANK; count] };
                (comm.bcast(&mut got, root_or_none), got == items(root, 0, count))
            }
            BcastObject => match comm.bcast_object(mine, root_or_none) {
                Ok(got) => (Ok(()), got == items(root, 0, count)),
                Err(error) => (Err(error), false),
            },
            BcastBuffer => {
                let mut got = message(&mine);
                let outcome = comm.bcast_buffer(&mut got, root_or_none);
                (outcome, is_of(got, &items(root, 0, count)))
            }
            GatherBuffers => match comm.gather_buffers(&message(&mine), root_or_none) {
                Ok(got) => {
                    let is_right = got.len() == if at_root { size } else { 0 };
                    let all = got.into_iter().zip(0..).all(|(got, rank)| is_of(got, &items(rank, 0, count)));
                    (Ok(()), is_right && all)
                }
                Err(error) => (Err(error), false),
            },
            ScatterBuffers => {
                let all: Vec<_> = (0..size).map(|rank| message(&items(me, rank * count, count))).collect();
                match comm.scatter_buffers(&all, root_or_none) {
                    Ok(got) => (Ok(()), is_of(got, &items(root, me * count, count))),
                    Err(error) => (Err(error), false),
                }
            }
            Reduce => {
                let mut got = vec![BLANK; count];
                let outcome = comm.reduce(&mine, &mut got, Op::Sum, root_or_none);
                (outcome, got == if at_root { sum(size - 1, 0, count) } else { vec![BLANK; count] })
            }
            Allreduce => {
                let mut got = vec![BLANK; count + extra];
                (comm.allreduce(&mine, &mut got, Op::Sum), got == sum(size - 1, 0, count))
            }
            AllreduceInOrder => {
                let mut got = vec![BLANK; count + extra];
                let first = Op::user(false, |a: &u32, _| *a);
                (comm.allreduce(&mine, &mut got, first), got == items(0, 0, count))
            }
            ReduceScatter => {
                let mut got = vec![BLANK; count + extra];
                let outcome = comm.reduce_scatter(&items(me, 0, total), &mut got, counts, Op::Sum);
                (outcome, got == sum(size - 1, me * count, count))
            }
            ReduceScatterBlock => {
                let mut got = vec![BLANK; count + extra];
                let outcome = comm.reduce_scatter_block(&items(me, 0, total), &mut got, Op::Sum);
                (outcome, got == sum(size - 1, me * count, count))
            }
            Exscan => {
                let mut got = vec![BLANK; count];
                // An operation on another element type is invalid even on rank 0, whose receive buffer is not used.
                let op = if wrong { Op::user(true, |a: &f32, _| *a) } else { Op::Sum };
                let expected = if me == 0 { vec![BLANK; count] } else { sum(me - 1, 0, count) };
                (comm.exscan(&mine, &mut got, op), got == expected)
            }
            Scan => {
                let mut got = vec![BLANK; count + extra];
                (comm.scan(&mine, &mut got, Op::Sum), got == sum(me, 0, count))
            }
            Gather | Gatherv => {
                let mut got = vec![BLANK; if at_root { total } else { 0 }];
                let outcome = match kind {
                    Gather => comm.gather(&mine, &mut got, root_or_none),
                    _ => comm.gatherv(&mine, &mut got, counts, places, root_or_none),
                };
                (outcome, !at_root || got == everything())
            }
            Scatter => {
                let all = items(me, 0, if at_root { total } else { 0 });
                let mut got = vec![BLANK; count];
                (comm.scatter(&all, &mut got, root_or_none), got == items(root, me * count, count))
            }
            Allgather => {
                let mut got = vec![BLANK; total + extra];
                (comm.allgather(&mine, &mut got), got == everything())
            }
            Allgatherv => {
                let mut got = vec![BLANK; total];
                (comm.allgatherv(&mine, &mut got, counts, places), got == everything())
            }
            Alltoall => {
                let mut got = vec![BLANK; total + extra];
                (comm.alltoall(&items(me, 0, total), &mut got), got == my_parts())
            }
            Alltoallw => {
                let all = items(me, 0, total);
                let send: Vec<&[u32]> = (0..size).map(|rank| &all[rank * count..][..count]).collect();
                let mut got = vec![vec![BLANK; count]; size - extra];
                (comm.alltoallw(&send, &mut got), got.concat() == my_parts())
            }
            Alltoallv => {
                let mut got = vec![BLANK; total];
                let parts = (counts, places);
                (comm.alltoallv(&items(me, 0, total), parts, &mut got, (&even.0, &even.1)), got == my_parts())
            }
        }
    }
}

/// The length on the other ranks, and that on the odd rank. They cover eager and rendezvous messages, several
/// algorithms, and differences of one element.
const LENGTHS: [(usize, usize); 9] = [
    (10, 1),
    (1, 10),
    (0, 3),
    (700, 701),
    (8000, 9000),
    (30_000, 10),
    (10, 30_000),
    (30_000, 30_001),
    (100_000, 40_000),
];

/// Returns every third program, to save time. Jobs of 2, of 3 and of more ranks begin at different programs, so that
/// together they run all.
fn share(programs: Vec<Program>, size: usize) -> Vec<Program> {
    programs.into_iter().skip(size.min(4) - 2).step_by(3).collect()
}

pub(crate) fn lengths(size: usize) -> Vec<Program> {
    // Collectives of objects and messages send their lengths, and a barrier has none.
    let differs =
        |kind: &&Kind| !matches!(kind, Barrier | BcastObject | BcastBuffer | GatherBuffers | ScatterBuffers);
    let mut programs = Vec::new();
    for kind in KINDS.iter().filter(differs) {
        for (at, (count, its)) in LENGTHS.into_iter().enumerate() {
            for odd in [0, size - 1] {
                let call = |count| Call::new(*kind, count, at % size);
                programs.push(Program { odd_rank: odd, odd_call: call(its), others: call(count) });
            }
        }
    }
    share(programs, size)
}

pub(crate) fn operations(size: usize) -> Vec<Program> {
    let mut programs = Vec::new();
    for (at, one) in KINDS.iter().copied().enumerate() {
        for (other_at, other) in KINDS.iter().copied().enumerate() {
            // A gather matches a gather with counts, and an allgather an allgather with counts.
            let both_gather = [one, other].iter().all(|kind| matches!(kind, Gather | Gatherv));
            let both_allgather = [one, other].iter().all(|kind| matches!(kind, Allgather | Allgatherv));
            if one == other || both_gather || both_allgather {
                continue;
            }
            let odd = (at + other_at) % size;
            let (its, others) = (Call::new(one, 12, at % size), Call::new(other, 12, other_at % size));
            programs.push(Program { odd_rank: odd, odd_call: its, others });
        }
    }
    share(programs, size)
}

/// Programs with different roots, in which all ranks could wait for each other.
pub(crate) fn roots(size: usize) -> Vec<Program> {
    let mut programs = Vec::new();
    let rooted = [BcastObject, BcastBuffer, GatherBuffers, ScatterBuffers];
    for kind in rooted.into_iter().chain([Bcast, Reduce, Gather, Gatherv, Scatter]) {
        for odd in [0, size - 1] {
            let (its, others) = (Call::new(kind, 40, (odd + 1) % size), Call::new(kind, 40, odd));
            programs.push(Program { odd_rank: odd, odd_call: its, others });
        }
    }
    programs
}

/// Programs in which one rank's arguments are rejected, and those of the others are valid.
pub(crate) fn refusals(size: usize) -> Vec<Program> {
    let refused = |kind: &&Kind| !matches!(kind, Barrier);
    let mut programs = Vec::new();
    for kind in KINDS.iter().filter(refused) {
        for (odd, count) in [(0, 10), (size - 1, 50_000)] {
            let others = Call::new(*kind, count, size / 2);
            programs.push(Program {
                odd_rank: odd,
                odd_call: Call { has_invalid_argument: true, ..others },
                others,
            });
        }
    }
    programs
}

/// Runs a program on its own communicator. Every rank must soon get an error, from the call or from a later barrier.
/// Other communication must still work.
pub(crate) fn play(world: &Intracomm, program: &Program) -> Result<(), String> {
    let (me, size) = (world.rank(), world.size());
    let text = |error: mpj::Error| error.to_string();
    let (comm, spare) = (world.dup().map_err(text)?, world.dup().map_err(text)?);
    let complain = |what: String| Err(format!("{program:?} on rank {me} of {size}: {what}"));
    let call = if me == program.odd_rank { program.odd_call } else { program.others };
    let began = Instant::now();
    let (outcome, is_right) = call.make(&comm);
    if outcome.is_ok() && !is_right {
        return complain("Ok, but wrong data in the buffer".into());
    }
    // If the calls differ only in a length or in the validity of an argument, a rank fails in this call, so no rank can
    // complete the next one.
    let is_same =
        program.odd_call.kind == program.others.kind && program.odd_call.root == program.others.root;
    let (mut failed, mut barriers) = (outcome, 0);
    while failed.is_ok() {
        if began.elapsed() > LIMIT * time_factor() || (is_same && barriers == 1) {
            return complain(format!("no error after {barriers} barriers"));
        }
        failed = comm.barrier();
        barriers += 1;
    }
    let error = failed.expect_err("it has failed");
    if began.elapsed() > LIMIT * time_factor() {
        return complain(format!("an error after {:?}: {error}", began.elapsed()));
    }
    // The communicator stays disabled.
    match comm.barrier() {
        Err(again) if again.to_string().contains("are disabled since") => (),
        other => return complain(format!("{error}; and then {other:?}")),
    }
    let (right, left, mut got) = ((me + 1) % size, (me + size - 1) % size, [0usize]);
    comm.sendrecv(&[me], right, 5, &mut got, left, 5).map_err(text)?;
    let mut total = [0usize];
    spare.allreduce(&[me], &mut total, Op::Sum).map_err(text)?;
    if (got, total) != ([left], [size * (size - 1) / 2]) {
        return complain(format!("{got:?} from {left}, {total:?} in all"));
    }
    Ok(())
}
