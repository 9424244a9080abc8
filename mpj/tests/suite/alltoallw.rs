//! `alltoallw`: a buffer and a datatype of its own for each rank.
#![allow(unsafe_code, reason = "the raw calls take pointers")]

use crate::common::{job, ranks};
use mpj::coll::{self, Operation, Rules};
use mpj::raw::{self, Buf};
use mpj::{Datatype, ErrorClass, Intracomm, RecvBuf, SendBuf, SplitViews, View, ViewSpec, World};

/// The number of items that `from` sends to `to`; some are 0.
fn len(from: usize, to: usize) -> usize {
    (from * 7 + to * 3) % 5 * if from == 2 { 1000 } else { 1 }
}

fn item(from: usize, to: usize, at: usize) -> u64 {
    (from * 1_000_000_007 + to * 10_007 + at) as u64
}

fn sent(from: usize, to: usize) -> Vec<u64> {
    (0..len(from, to)).map(|at| item(from, to, at)).collect()
}

/// Returns a buffer of these items: from even ranks `u64`s, from odd ranks `[u32; 2]`s.
pub(crate) fn boxed(from: usize, items: Vec<u64>) -> Box<dyn SendBuf + Send + Sync> {
    match from % 2 {
        0 => Box::new(items),
        _ => Box::new(items.into_iter().map(|item| [item as u32, (item >> 32) as u32]).collect::<Vec<_>>()),
    }
}

/// A buffer for the items of [`boxed`].
pub(crate) enum Received {
    Words(Vec<u64>),
    Halves(Vec<[u32; 2]>),
}

impl Received {
    pub(crate) fn new(from: usize, len: usize) -> Self {
        match from % 2 {
            0 => Received::Words(vec![0; len]),
            _ => Received::Halves(vec![[0; 2]; len]),
        }
    }

    pub(crate) fn words(&self) -> Vec<u64> {
        match self {
            Received::Words(words) => words.clone(),
            Received::Halves(halves) => {
                halves.iter().map(|half| u64::from(half[0]) | u64::from(half[1]) << 32).collect()
            }
        }
    }
}

// SAFETY: a vector of either type.
unsafe impl SendBuf for Received {
    fn send_buf(&self) -> Buf {
        match self {
            Received::Words(words) => words.send_buf(),
            Received::Halves(halves) => halves.send_buf(),
        }
    }
}

// SAFETY: as above.
unsafe impl RecvBuf for Received {
    fn recv_buf(&mut self) -> Buf {
        match self {
            Received::Words(words) => words.recv_buf(),
            Received::Halves(halves) => halves.recv_buf(),
        }
    }
}

fn exchange(comm: &Intracomm) -> mpj::Result<()> {
    let (me, size) = (comm.rank(), comm.size());
    let send: Vec<_> = (0..size).map(|to| boxed(me, sent(me, to))).collect();
    let mut recv: Vec<_> = (0..size).map(|from| Received::new(from, len(from, me))).collect();
    comm.alltoallw(&send, &mut recv)?;
    (0..size).for_each(|from| assert_eq!(recv[from].words(), sent(from, me), "{from} to {me}"));
    Ok(())
}

#[test]
fn each_pair_of_ranks_has_a_length_and_a_type() {
    for size in 1..=9 {
        ranks(size, |world| {
            exchange(&world)?;
            for algorithm in coll::algorithms_of(Operation::Alltoallw) {
                let mut rules = Rules::default();
                rules.set(Operation::Alltoallw, algorithm.name).expect("its name");
                exchange(&world.dup_with_rules(rules)?)?;
            }
            Ok(())
        });
    }
}

#[test]
fn views_of_one_matrix_are_exchanged() {
    for size in [1, 2, 3, 5] {
        ranks(size, |world| {
            // Each rank has a square matrix. It sends one row to each rank, and receives one column from each rank.
            let (me, row) = (world.rank(), Datatype::of::<u32>().contiguous(size).expect("fits"));
            let column = Datatype::of::<u32>().vector(size, 1, size as isize).expect("fits");
            let element = |rank: usize, at: usize| (rank * 1000 + at) as u32;
            let matrix: Vec<u32> = (0..size * size).map(|at| element(me, at)).collect();
            let send: Vec<View<'_>> =
                (0..size).map(|to| View::new(&matrix, to * size, &row, 1).expect("inside")).collect();
            let columns: Vec<ViewSpec> = (0..size).map(|from| ViewSpec::new(from, &column, 1)).collect();
            let columns = SplitViews::<u32>::new(size * size, &columns, &[]).expect("disjoint");
            let mut got = vec![0u32; size * size];
            let (mut recv, _) = columns.split(&mut got).expect("long enough");
            world.alltoallw(&send, &mut recv)?;
            for (at, got) in got.iter().enumerate() {
                assert_eq!(*got, element(at % size, me * size + at / size));
            }
            Ok(())
        });
    }
}

#[test]
fn in_place_exchange_replaces_the_sent_items() {
    for size in [1, 2, 3, 5, 8] {
        ranks(size, |world| {
            let me = world.rank();
            // Both directions of a pair have the same length and type.
            let same = |one: usize, other: usize| (one + other) % 4 * if one * other > 5 { 500 } else { 1 };
            let items = |from: usize, to: usize| -> Vec<u64> {
                (0..same(from, to)).map(|at| item(from, to, at)).collect()
            };
            let mut bufs: Vec<Vec<u64>> = (0..size).map(|to| items(me, to)).collect();
            world.alltoallw_in_place(&mut bufs)?;
            (0..size).for_each(|from| assert_eq!(bufs[from], items(from, me), "{from} to {me}"));
            // Columns of a matrix: items with gaps, of which the temporary memory has copies.
            let column = Datatype::of::<u64>().vector(3, 1, size as isize).expect("fits");
            let specs: Vec<ViewSpec> = (0..size).map(|to| ViewSpec::new(to, &column, 1)).collect();
            let columns = SplitViews::<u64>::new(3 * size, &specs, &[]).expect("disjoint");
            let mut matrix: Vec<u64> = (0..3 * size).map(|at| item(me, at % size, at / size)).collect();
            let (mut views, _) = columns.split(&mut matrix).expect("long enough");
            world.alltoallw_in_place(&mut views)?;
            assert!((0..3 * size).all(|at| matrix[at] == item(at % size, me, at / size)));
            Ok(())
        });
    }
}

#[test]
fn owned_exchange_works_in_place() {
    for size in [1, 2, 3, 5] {
        ranks(size, |world| {
            let me = world.rank();
            // Both directions of a pair have the same length.
            let items = |from: usize, to: usize, round: usize| -> Vec<u64> {
                (0..(from + to) % 4 * 300).map(|at| item(from, to, at + 13 * round)).collect()
            };
            let bufs = |round| (0..size).map(|to| items(me, to, round)).collect::<Vec<_>>();
            let (got, _) = world.start(coll::alltoallw_in_place(bufs(9)))?.wait()?;
            (0..size).for_each(|from| assert_eq!(got[from], items(from, me, 9)));
            let mut exchange = world.prepare(coll::alltoallw_in_place(bufs(0)))?;
            for round in 0..4 {
                *exchange.buffers_mut() = bufs(round);
                let got = exchange.start()?.wait()?;
                (0..size).for_each(|from| assert_eq!(got[from], items(from, me, round)));
            }
            // The request no longer has a buffer for each rank.
            exchange.buffers_mut().pop();
            let error = exchange.start().map(drop).expect_err("a buffer is missing");
            assert_eq!(error.class(), ErrorClass::Buffer, "{error}");
            Ok(())
        });
    }
}

#[test]
fn persistent_exchange_uses_the_current_buffers() {
    for size in [1, 2, 3, 5] {
        ranks(size, |world| {
            let me = world.rank();
            let items = |from: usize, to: usize, round: usize| -> Vec<u64> {
                (0..len(from, to)).map(|at| item(from, to, at + 13 * round)).collect()
            };
            let blanks = || (0..size).map(|from| vec![0u64; len(from, me)]).collect::<Vec<_>>();
            let first = (0..size).map(|to| items(me, to, 0)).collect();
            let mut exchange = world.prepare(coll::alltoallw(first, blanks()))?;
            for round in 0..4 {
                *exchange.buffers_mut() = ((0..size).map(|to| items(me, to, round)).collect(), blanks());
                let (_, got) = exchange.start()?.wait()?;
                (0..size).for_each(|from| assert_eq!(got[from], items(from, me, round)));
            }
            Ok(())
        });
    }
}

/// Buffers that the request no longer has must not be used.
#[test]
fn removed_buffers_fail_the_start() {
    ranks(2, |world| {
        for remaining in [1, 0] {
            let comm = world.dup()?;
            let buffers = || vec![vec![world.rank() as u8; 1000]; 2];
            let mut exchange = comm.prepare(coll::alltoallw(buffers(), buffers()))?;
            exchange.start()?.wait()?;
            let (send, recv) = exchange.buffers_mut();
            send.truncate(remaining);
            recv.truncate(remaining);
            let error = exchange.start().map(drop).expect_err("buffers are missing");
            let found = format!(
                "expected 2 send and 2 receive buffers as in the prepared call, found {remaining} and"
            );
            assert!(error.class() == ErrorClass::Buffer && error.to_string().contains(&found), "{error}");
            // A buffer of another length.
            let comm = world.dup()?;
            let mut exchange = comm.prepare(coll::alltoallw(buffers(), buffers()))?;
            exchange.buffers_mut().1[1].push(0);
            assert_eq!(exchange.start().map(drop).expect_err("one is longer").class(), ErrorClass::Buffer);
        }
        Ok(())
    });
}

/// A collective must not write to a buffer that it only sends.
#[test]
fn buffer_moved_between_the_lists_fails_the_start() {
    static CONSTANT: [u8; 4] = [7; 4];
    for (more, fewer) in [(0, 1), (1, 0)] {
        ranks(2, |world| {
            let send: Vec<&'static [u8]> = vec![&CONSTANT; 2];
            let mut exchange = world.prepare(coll::alltoallw(send, vec![vec![0u8; 4]; 2]))?;
            exchange.start()?.wait()?;
            let (send, recv) = exchange.buffers_mut();
            send.resize(2 + more - fewer, &CONSTANT);
            recv.resize(2 + fewer - more, vec![0; 4]);
            let error = exchange.start().map(drop).expect_err("the lists have other lengths");
            assert_eq!(error.class(), ErrorClass::Buffer, "{error}");
            Ok(())
        });
    }
}

#[test]
fn wrong_buffers_fail_on_every_rank() {
    let outcome = job(3, |world: World| {
        let me = world.rank();
        let failed = |call: &dyn Fn(&Intracomm) -> mpj::Result<()>| {
            let comm = world.dup().expect("a communicator");
            let outcome = call(&comm).and_then(|()| comm.barrier());
            outcome.expect_err("an error on every rank")
        };
        // Only rank 1 has a buffer too few, or too many.
        let text = failed(&|comm| {
            let send = vec![[1u8; 2]; if me == 1 { 2 } else { 3 }];
            comm.alltoallw(&send, &mut [[0u8; 2]; 3])
        });
        assert!(text.to_string().contains("2 send buffers for 3 ranks"), "{text}");
        let text = failed(&|comm| {
            let mut recv = vec![[0u8; 2]; if me == 1 { 4 } else { 3 }];
            comm.alltoallw(&[[1u8; 2]; 3], &mut recv)
        });
        assert!(text.to_string().contains("4 receive buffers for 3 ranks"), "{text}");
        // The items for rank 2 are too many, or of another type.
        let text = failed(&|comm| {
            let send = [vec![1u8; 2], vec![1; 2], vec![1; if me == 0 { 3 } else { 2 }]];
            comm.alltoallw(&send, &mut [[0u8; 2]; 3])
        });
        assert!(text.to_string().contains("rank 0 sent 3 bytes, expected 2"), "{text}");
        let text = failed(&|comm| {
            let other: Box<dyn SendBuf> = if me == 0 { Box::new([1i8; 2]) } else { Box::new([1u8; 2]) };
            let send: [Box<dyn SendBuf>; 3] = [Box::new([1u8; 2]), Box::new([1u8; 2]), other];
            comm.alltoallw(&send, &mut [[0u8; 2]; 3])
        });
        assert!(text.to_string().contains("rank 0 sent 2 × i8, expected 2 × u8"), "{text}");
        // The rank's own buffers differ.
        let text = failed(&|comm| {
            let mut recv = vec![vec![0u8; 2]; 3];
            recv[me].push(0);
            comm.alltoallw(&[[1u8; 2]; 3], &mut recv)
        });
        assert_eq!(text.class(), ErrorClass::Count, "{text}");
        world.barrier()
    });
    outcome.expect("every rank returns `Ok`");
}

#[test]
fn raw_call_takes_addresses_counts_and_datatypes() {
    ranks(3, |world| {
        let (me, size) = (world.rank(), world.size());
        let words: Vec<u32> = (0..6).map(|at| (100 * me + at) as u32).collect();
        let (mut got, one) = (vec![0u8; 4 * 2 * size], Datatype::of::<u32>());
        let pair = one.contiguous(2).expect("fits");
        let at = |base: *const u8, bytes: usize| base.wrapping_add(bytes);
        let send: Vec<Buf> =
            (0..size).map(|to| Buf::read_only(at(words.as_ptr().cast(), 8 * to), 2, &one)).collect();
        let base: *mut u8 = got.as_mut_ptr();
        // The block of the last rank comes first.
        let recv: Vec<Buf> =
            (0..size).map(|from| Buf::new(base.wrapping_add(8 * (size - 1 - from)), 1, &pair)).collect();
        // SAFETY: the items lie in the two vectors, and do not overlap.
        unsafe { raw::alltoallw(world.as_raw(), &send, &recv) }?;
        let expected =
            (0..size).rev().flat_map(|from| (0..2).map(move |at| (100 * from + 2 * me + at) as u32));
        assert!(got.chunks(4).map(|word| u32::from_ne_bytes(word.try_into().expect("4 bytes"))).eq(expected));
        Ok(())
    });
}

#[test]
fn raw_persistent_exchange_works_in_place() {
    ranks(3, |world| {
        let (me, size, comm) = (world.rank(), world.size(), world.as_raw());
        let fill = |items: &mut [u64], round: usize| {
            items.iter_mut().enumerate().for_each(|(to, place)| *place = item(me, to, round));
        };
        let (mut first, mut second) = (vec![0u64; size], vec![0u64; size]);
        let bufs = |items: &mut Vec<u64>| -> Vec<Buf> { items.chunks_mut(1).map(Buf::slice_mut).collect() };
        let places = [bufs(&mut first), bufs(&mut second)];
        let in_place = [Buf::in_place()];
        let call = raw::Collective::alltoallw(&in_place, &places[0]);
        let mut exchange = raw::collective_init(comm, call, None)?;
        for round in 0..4 {
            let items = if round % 2 == 0 { &mut first } else { &mut second };
            fill(items, round);
            match round {
                // SAFETY: the items live until the call has completed, and are not accessed meanwhile.
                0 => unsafe { exchange.start() }?,
                // SAFETY: as above.
                _ => unsafe { exchange.start_with_lists(&in_place, &places[round % 2]) }?,
            }
            exchange.wait()?;
            let items = if round % 2 == 0 { &first } else { &second };
            assert!(items.iter().copied().eq((0..size).map(|from| item(from, me, round))), "round {round}");
        }
        fill(&mut first, 9);
        // SAFETY: as above.
        unsafe { raw::start(comm, raw::Collective::alltoallw(&in_place, &places[0]), None) }?.wait()?;
        assert!(first.iter().copied().eq((0..size).map(|from| item(from, me, 9))));
        // SAFETY: the call is refused.
        let refused = unsafe { exchange.start_with(&in_place[0], &places[0][0]) };
        assert_eq!(refused.expect_err("one buffer").class(), ErrorClass::Buffer);
        Ok(())
    });
}
