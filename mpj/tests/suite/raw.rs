//! The raw interface: pointers, counts and datatypes.
#![allow(unsafe_code)]

use std::sync::Arc;
use std::time::Duration;

use crate::common::{samples, text_of};
use mpj::raw::{self, ANY_SOURCE, ANY_TAG, BlockLayout, Buf, ChainSegment, Comm, Mode, PROC_NULL, UNDEFINED};
use mpj::{Datatype, ErrorClass, Op, Primitive, SendBuf, World};

/// A struct whose datatype excludes the padding: { u8, pad, f64, u16, pad }.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Debug)]
struct Mixed(u8, f64, u16);

fn mixed() -> Datatype {
    let fields = [
        (1, std::mem::offset_of!(Mixed, 0) as i64, Datatype::of::<u8>()),
        (1, std::mem::offset_of!(Mixed, 1) as i64, Datatype::of::<f64>()),
        (1, std::mem::offset_of!(Mixed, 2) as i64, Datatype::of::<u16>()),
    ];
    Datatype::structure(&fields).and_then(|t| t.resized(0, size_of::<Mixed>() as i64)).expect("fits")
}

fn mixes(rank: i32, len: usize) -> Vec<Mixed> {
    (0..len).map(|at| Mixed(rank as u8 + 1, at as f64 / 3.0, (at * 7) as u16)).collect()
}

fn out<T>(of: &[T]) -> *const u8 {
    of.as_ptr().cast()
}

fn into<T>(of: &mut [T]) -> *mut u8 {
    of.as_mut_ptr().cast()
}

fn from<T>(of: &[T], datatype: &Datatype) -> Buf {
    Buf::read_only(out(of), of.len(), datatype)
}

fn to<T>(of: &mut [T], datatype: &Datatype) -> Buf {
    Buf::new(into(of), of.len(), datatype)
}

#[mpj::test(ranks = 2)]
fn items_with_padding_are_sent_and_received(world: World) -> mpj::Result<()> {
    let comm = world.as_raw();
    let (me, other, mixed) = (comm.rank() as i32, 1 - comm.rank() as i32, mixed());
    for len in [0usize, 1, 30, 5000, 100_000] {
        let mine = mixes(me, len);
        let mut got = vec![Mixed(0, 0.0, 0); len];
        for mode in [Mode::Standard, Mode::Synchronous] {
            if me == 0 {
                // SAFETY: `mine` holds `len` items and outlives the call.
                unsafe { raw::send(comm, from(&mine, &mixed), 1, 3, mode) }?;
                // SAFETY: `got` has room for `len` items and is ours.
                let status = unsafe { raw::recv(comm, to(&mut got, &mixed), 1, ANY_TAG) }?;
                assert_eq!((status.source_rank(), status.tag(), status.bytes()), (1, 4, 11 * len));
                assert_eq!((status.primitive(), status.count_of(&mixed)), (None, Some(len)));
            } else {
                // SAFETY: as above.
                unsafe { raw::recv(comm, to(&mut got, &mixed), ANY_SOURCE, 3) }?;
                // SAFETY: as above.
                unsafe { raw::send(comm, from(&mine, &mixed), 0, 4, mode) }?;
            }
            assert_eq!(got, mixes(other, len));
        }
        got.fill(Mixed(0, 0.0, 0));
        let (send, recv) = (from(&mine, &mixed), to(&mut got, &mixed));
        // SAFETY: two buffers of `len` items that do not overlap.
        let status = unsafe { raw::sendrecv(comm, send, other, 7, recv, ANY_SOURCE, 7) }?;
        assert_eq!((status.source_rank() as i32, &got), (other, &mixes(other, len)));
    }
    Ok(())
}

#[mpj::test(ranks = 2)]
fn requests_complete_or_are_cancelled(world: World) -> mpj::Result<()> {
    let comm = world.as_raw();
    let (me, other, of) = (comm.rank() as usize, 1 - comm.rank() as i32, Datatype::of::<u32>());
    let strided = of.vector(1000, 1, -3).expect("fits");
    let mine = samples::<u32>(me, 0, 3000);
    let mut got = vec![0u32; 3000];
    let (first, last) = (mine.as_ptr().wrapping_add(2999), got.as_mut_ptr().wrapping_add(2999));
    // SAFETY: the items are in `got`, which is not accessed until the wait below.
    let receiving = unsafe { raw::irecv(comm, Buf::new(last.cast(), 1, &strided), other, 0, None) }?;
    // SAFETY: the items are in `mine`, which outlives the wait below.
    let sending = unsafe {
        raw::isend(comm, Buf::read_only(first.cast(), 1, &strided), other, 0, Mode::Standard, None)
    }?;
    assert_eq!(receiving.wait()?.bytes(), 4000);
    sending.wait()?;
    let theirs = samples::<u32>(other as usize, 0, 3000);
    assert!(got.iter().enumerate().all(|(at, x)| *x == if at % 3 == 2 { theirs[at] } else { 0 }));
    // An operation can own a value that keeps its buffer alive, and drops it at completion.
    let owned: Arc<[u8]> = vec![me as u8; 70_000].into();
    let bytes = Datatype::of::<u8>();
    let (keep, base): (raw::KeepAlive, _) = (Arc::new(Arc::clone(&owned)), owned.as_ptr());
    // SAFETY: `keep` holds the bytes.
    let sending = unsafe {
        raw::isend(comm, Buf::read_only(base, 70_000, &bytes), other, 1, Mode::Synchronous, Some(keep))
    }?;
    let mut room = vec![9u8; 70_000];
    // SAFETY: `room` is not accessed until the request has completed.
    let receiving = unsafe { raw::irecv(comm, Buf::new(room.as_mut_ptr(), 70_000, &bytes), other, 1, None) }?;
    while receiving.wait_timeout(Duration::from_millis(1))?.is_none() {}
    assert_eq!(receiving.test()?.map(|status| status.bytes()), Some(70_000), "it stays completed");
    assert!(!receiving.cancel() && !sending.cancel());
    sending.wait()?;
    assert_eq!((Arc::strong_count(&owned), room[69_999] as i32), (1, other));
    // SAFETY: `room` is not accessed until the request has completed.
    let cancelled = unsafe { raw::irecv(comm, Buf::new(room.as_mut_ptr(), 1, &bytes), other, 2, None) }?;
    assert!(cancelled.test()?.is_none() && cancelled.cancel());
    assert_eq!(cancelled.wait().expect_err("cancelled").class(), ErrorClass::Request);
    // SAFETY: the pointer is never written to, because no message comes from PROC_NULL.
    let from_null =
        unsafe { raw::irecv(comm, Buf::new(std::ptr::null_mut(), 4, &bytes), PROC_NULL, ANY_TAG, None) }?;
    assert_eq!(from_null.wait()?.bytes(), 0);
    raw::barrier(comm)
}

#[mpj::test(ranks = 2)]
fn probed_messages_are_received(world: World) -> mpj::Result<()> {
    let (comm, of) = (world.as_raw(), Datatype::of::<i64>());
    if comm.rank() == 0 {
        for tag in 0..3 {
            // SAFETY: three numbers.
            unsafe { raw::send(comm, Buf::read_only(out(&[1i64, 2, 3]), 3, &of), 1, tag, Mode::Standard) }?;
        }
        return raw::barrier(comm);
    }
    let status = raw::probe(comm, ANY_SOURCE, 0)?;
    assert_eq!((status.count_of(&of), raw::iprobe(comm, 0, 0)?), (Some(3), Some(status)));
    let message = raw::mprobe(comm, 0, 0)?;
    assert_eq!((message.envelope().bytes, message.envelope().tag), (24, 0));
    let mut got = [0i64; 3];
    // SAFETY: room for three.
    assert_eq!(unsafe { raw::mrecv(comm, Buf::new(into(&mut got), 3, &of), message) }?, status);
    let message = loop {
        if let Some(message) = raw::improbe(comm, 0, ANY_TAG)? {
            break message;
        }
    };
    // SAFETY: room for one.
    let error =
        unsafe { raw::mrecv(comm, Buf::new(into(&mut got), 1, &of), message) }.expect_err("too short");
    assert_eq!((error.class(), got), (ErrorClass::Truncate, [1, 2, 3]));
    // SAFETY: room for three.
    unsafe { raw::recv(comm, Buf::new(into(&mut got), 3, &of), 0, 2) }?;
    assert_eq!(
        (raw::improbe(comm, 0, ANY_TAG)?.is_none(), raw::iprobe(comm, ANY_SOURCE, ANY_TAG)?),
        (true, None)
    );
    raw::barrier(comm)
}

#[mpj::test(ranks = 3)]
fn collectives_move_items_with_padding(world: World) -> mpj::Result<()> {
    let comm = world.as_raw();
    let (me, size, mixed) = (comm.rank() as usize, comm.size() as usize, mixed());
    let blank = Mixed(0, 0.0, 0);
    for len in [1usize, 20, 20_000] {
        let of = |rank: usize| mixes(rank as i32, len);
        let mut one = if me == 1 { of(1) } else { vec![blank; len] };
        // SAFETY: the buffer has `len` items, which are read at the root and written elsewhere.
        unsafe { raw::bcast(comm, &to(&mut one, &mixed), 1) }?;
        assert_eq!(one, of(1));
        let mut all = vec![blank; len * size];
        // SAFETY: two buffers that do not overlap.
        unsafe {
            raw::gather(comm, &from(&of(me), &mixed), &to(&mut all, &mixed), BlockLayout::Uniform(len), 2)
        }?;
        let everything: Vec<Mixed> = (0..size).flat_map(of).collect();
        assert!(me != 2 || all == everything);
        // SAFETY: as above.
        unsafe {
            raw::scatter(comm, &from(&all, &mixed), BlockLayout::Uniform(len), &to(&mut one, &mixed), 2)
        }?;
        assert_eq!(one, of(me));
        let (counts, reversed) = (vec![len; size], (0..size).rev().map(|r| r * len).collect::<Vec<_>>());
        let layout = BlockLayout::Varying { counts: &counts, displacements: &reversed };
        // SAFETY: as above.
        unsafe { raw::allgather(comm, &from(&of(me), &mixed), &to(&mut all, &mixed), layout) }?;
        assert_eq!(all, (0..size).rev().flat_map(of).collect::<Vec<_>>());
        let mut back = vec![blank; len * size];
        // SAFETY: as above.
        unsafe {
            raw::alltoall(
                comm,
                &from(&all, &mixed),
                layout,
                &to(&mut back, &mixed),
                BlockLayout::Uniform(len),
            )
        }?;
        assert_eq!(back, of(me).repeat(size), "all ranks sent the same blocks");
    }
    // Predefined operations are not defined on mixed items.
    let (mine, mut sum) = (mixes(0, 1), mixes(0, 1));
    // SAFETY: as above.
    let refused = comm.dup().and_then(|comm| unsafe {
        raw::allreduce(&comm, &from(&mine, &mixed), &to(&mut sum, &mixed), &Op::Sum)
    });
    assert_eq!(refused.expect_err("not defined").class(), ErrorClass::Op);
    raw::barrier(comm)
}

#[mpj::test(ranks = 3)]
fn reductions_return_their_results(world: World) -> mpj::Result<()> {
    let comm = world.as_raw();
    let (me, of, bytes) = (comm.rank() as u64, Datatype::of::<u64>(), Datatype::primitive(Primitive::Byte));
    let (mine, mut got) = ([me + 1, 10 * me], [0u64; 2]);
    // SAFETY: two buffers that do not overlap.
    unsafe { raw::reduce(comm, &from(&mine, &of), &to(&mut got, &of), &Op::Prod, 2) }?;
    assert_eq!(got, if me == 2 { [6, 0] } else { [0, 0] });
    // SAFETY: as above.
    unsafe { raw::allreduce(comm, &from(&mine, &of), &to(&mut got, &of), &Op::Sum) }?;
    assert_eq!(got, [6, 30]);
    // SAFETY: as above.
    unsafe { raw::scan(comm, &from(&mine, &of), &to(&mut got, &of), &Op::Max) }?;
    assert_eq!(got, mine);
    let (mine, mut got) = ([1u8 << me, 0xF0], [0u8; 2]);
    // SAFETY: as above.
    unsafe { raw::allreduce(comm, &from(&mine, &bytes), &to(&mut got, &bytes), &Op::Bor) }?;
    assert_eq!(got, [7, 0xF0]);
    // SAFETY: as above.
    let refused = unsafe { raw::allreduce(comm, &from(&mine, &bytes), &to(&mut got, &bytes), &Op::Sum) };
    assert_eq!(refused.expect_err("not defined").class(), ErrorClass::Op);
    Ok(())
}

#[mpj::test(ranks = 3)]
fn overlapping_buffers_are_rejected(world: World) -> mpj::Result<()> {
    let (comm, of, me) = (world.as_raw(), Datatype::of::<u64>(), world.rank() as u64);
    let mut memory = [me + 1; 8];
    let base = into(&mut memory);
    let items = |at: usize, count| Buf::new(base.wrapping_add(8 * at), count, &of);
    // A refused call disables the collectives of its communicator.
    let dup = || comm.dup().expect("a communicator");
    let class = |outcome: mpj::Result<()>| outcome.expect_err("refused").class();
    let part = items(me as usize, 1);
    let (low, high) = (items(0, 2), items(1, 2));
    // SAFETY: all items are in the array, and overlapping buffers are rejected; also below.
    assert_eq!(class(unsafe { raw::scan(&dup(), &low, &high, &Op::Sum) }), ErrorClass::Buffer);
    // SAFETY: as above.
    assert_eq!(class(unsafe { raw::scan(&dup(), &high, &low, &Op::Sum) }), ErrorClass::Buffer);
    // SAFETY: as above.
    let refused = unsafe { raw::allgather(&dup(), &part, &items(0, 3), BlockLayout::EvenSplit) };
    assert_eq!(class(refused), ErrorClass::Buffer);
    let (out, back) = (items(0, 3), items(2, 3));
    // SAFETY: as above.
    let refused =
        unsafe { raw::alltoall(&dup(), &out, BlockLayout::EvenSplit, &back, BlockLayout::EvenSplit) };
    assert_eq!(class(refused), ErrorClass::Buffer);
    // SAFETY: as above; the buffers are adjacent.
    unsafe { raw::allreduce(comm, &items(0, 2), &items(2, 2), &Op::Sum) }?;
    // SAFETY: as above.
    unsafe { raw::allgather(comm, &Buf::in_place(), &items(5, 3), BlockLayout::Uniform(1)) }?;
    assert_eq!(memory, [me + 1, me + 1, 6, 6, me + 1, 1, 2, 3]);
    // Only the root of a gather can have its items in place.
    // SAFETY: as above.
    let refused = unsafe {
        raw::gather(&dup(), &Buf::in_place(), &items(0, 3), BlockLayout::EvenSplit, (me as i32 + 1) % 3)
    };
    assert_eq!(class(refused), ErrorClass::Buffer);
    raw::barrier(comm)
}

#[mpj::test(ranks = 3)]
fn communicators_are_created_and_freed(world: World) -> mpj::Result<()> {
    let comm: &Comm = world.as_raw();
    let twin = comm.dup()?;
    raw::barrier(&twin)?;
    let color = if twin.rank() == 0 { UNDEFINED } else { 4 };
    let pair = twin.split(color, -(twin.rank() as i32))?;
    assert_eq!(
        pair.as_ref().map(|p| (p.rank(), p.size(), p.group().size())),
        [None, Some((1, 2, 2)), Some((0, 2, 2))][twin.rank() as usize]
    );
    assert_eq!(twin.split(-1, 0).expect_err("no color").class(), ErrorClass::Arg);
    twin.free()?;
    assert_eq!(twin.free().expect_err("twice").class(), ErrorClass::Comm);
    assert_eq!(raw::barrier(&twin).expect_err("freed").class(), ErrorClass::Comm);
    assert_eq!(comm.free().expect_err("the world").class(), ErrorClass::Comm);
    if let Some(pair) = pair {
        raw::barrier(&pair)?; // it is independent of its parent
    }
    raw::barrier(comm)
}

/// A receive of invalid bytes into a `bool` or `char` fails, and replaces them with `false` or '\0'.
#[mpj::test(ranks = 2)]
fn invalid_values_are_detected(world: World) -> mpj::Result<()> {
    let comm = world.as_raw();
    if comm.rank() == 0 {
        for len in [3usize, 50_000] {
            let mut flags = vec![1u8; len];
            flags[len - 2] = 2;
            // SAFETY: the bytes are initialised; the receiver must detect that they are not valid `bool`s.
            unsafe {
                raw::send(
                    comm,
                    Buf::read_only(flags.as_ptr(), len, Datatype::of::<bool>()),
                    1,
                    0,
                    Mode::Standard,
                )
            }?;
            let mut chars = vec![0x61u32; len];
            chars[1] = 0xD800;
            // SAFETY: as above.
            unsafe {
                raw::send(
                    comm,
                    Buf::read_only(out(&chars), len, Datatype::of::<char>()),
                    1,
                    0,
                    Mode::Standard,
                )
            }?;
        }
        // Packed bytes can be received as any type, even as a part of a char: 0x10FFFF becomes invalid.
        // SAFETY: as above.
        unsafe {
            raw::send(
                comm,
                Buf::read_only([0u8, 0xD8, 0].as_ptr(), 3, Primitive::Packed),
                1,
                0,
                Mode::Standard,
            )
        }?;
        return raw::barrier(comm);
    }
    for len in [3usize, 50_000] {
        let (mut flags, mut chars) = (vec![false; len], vec!['x'; len]);
        let error = world.recv(&mut flags, 0, 0).expect_err("2 is no bool");
        assert_eq!(error.to_string(), "recv: rank 0 sent an invalid bool or char with tag 0");
        assert_eq!(error.class(), ErrorClass::Type);
        assert!(flags.iter().enumerate().all(|(at, flag)| *flag == (at != len - 2)));
        let failed = world.irecv(chars, 0, 0)?.wait().expect_err("a surrogate");
        assert_eq!(failed.error().class(), ErrorClass::Type);
        chars = failed.into_parts().1.expect("the buffer comes back");
        assert!(chars.iter().enumerate().all(|(at, c)| *c == if at == 1 { '\0' } else { 'a' }));
    }
    let mut half = ['\u{10FFFF}'];
    let outcome = world.recv(&mut half, 0, 0);
    assert!(outcome.is_err() && half == ['\0'], "{outcome:?} {half:?}");
    raw::barrier(comm)
}

#[mpj::test(ranks = 1)]
fn overlapping_types_are_rejected_for_receiving(world: World) -> mpj::Result<()> {
    let comm = world.as_raw();
    let dup = || comm.dup().expect("a communicator");
    let (mut got, bytes) = ([7u8; 4], Datatype::of::<u8>());
    let twice = bytes.indexed(&[(2, 0), (2, 1)]).expect("fits");
    // SAFETY: all bytes of the type are in the array.
    let error =
        unsafe { raw::recv(comm, Buf::new(into(&mut got), 1, &twice), 0, 1) }.expect_err("an overlap");
    let text = "recv: the datatype contains byte 1 more than once and cannot be received into";
    assert_eq!((error.class(), error.to_string().as_str(), got), (ErrorClass::Type, text, [7; 4]));
    let mine = Buf::read_only(out(&[1u8, 2, 3, 4]), 1, &twice);
    let room = Buf::new(into(&mut got), 1, &twice);
    for (call, outcome) in [
        // SAFETY: all bytes of the type are in the arrays, also below.
        ("allgather", unsafe { raw::allgather(&dup(), &mine, &room, BlockLayout::Uniform(1)) }),
        // SAFETY: as above.
        ("alltoall", unsafe {
            raw::alltoall(&dup(), &mine, BlockLayout::Uniform(1), &room, BlockLayout::Uniform(1))
        }),
        // SAFETY: as above.
        ("gather", unsafe { raw::gather(&dup(), &mine, &room, BlockLayout::Uniform(1), 0) }),
        // SAFETY: as above.
        ("scatter", unsafe { raw::scatter(&dup(), &mine, BlockLayout::Uniform(1), &room, 0) }),
        // SAFETY: as above.
        ("reduce", unsafe { raw::reduce(&dup(), &mine, &room, &Op::Sum, 0) }),
        // SAFETY: as above.
        ("allreduce", unsafe { raw::allreduce(&dup(), &mine, &room, &Op::Sum) }),
        // SAFETY: as above.
        ("scan", unsafe { raw::scan(&dup(), &mine, &room, &Op::Sum) }),
        // SAFETY: as above.
        ("reduce_scatter", unsafe { raw::reduce_scatter(&dup(), &mine, &room, &[1], &Op::Sum) }),
    ] {
        let text = format!("{call}: the datatype contains byte 1 more than once and cannot be received into");
        assert_eq!(text_of(&outcome.expect_err("an overlap")), text);
    }
    assert_eq!(got, [7; 4]);
    // SAFETY: the items lie in `got`, which is not used before the wait below.
    let request = unsafe { raw::irecv(comm, Buf::new(into(&mut got), 4, &bytes), 0, 1, None) }?;
    // SAFETY: the items lie in the array, which outlives the call.
    unsafe { raw::send(comm, Buf::read_only(out(&[1u8, 2, 3]), 1, &twice), 0, 1, Mode::Standard) }?;
    assert_eq!((request.wait()?.bytes(), got), (4, [1, 2, 2, 3]));
    Ok(())
}

/// The function of a raw operation gets the datatype, and any number of items at once. The order of ranks is kept.
#[mpj::test(ranks = 3)]
fn raw_operations_get_the_datatype(world: World) -> mpj::Result<()> {
    let (comm, me, mixed) = (world.as_raw(), world.rank() as i32, mixed());
    // Composes two affine maps, the second after the first: associative, but not commutative.
    let then = Op::from_raw_fn(false, move |first, second, len, datatype| {
        assert_eq!(datatype.extent() as usize, size_of::<Mixed>());
        for at in 0..len {
            let (a, b) = (first.cast::<Mixed>().wrapping_add(at), second.cast::<Mixed>().wrapping_add(at));
            // SAFETY: the datatype is that of `Mixed`, and both pointers are to `len` such items.
            let (a, b) = (unsafe { a.read() }, unsafe { &mut *b });
            (b.0, b.1) = (a.0.wrapping_mul(b.0), a.1 * f64::from(b.0) + b.1);
        }
    });
    for len in [1usize, 10_000] {
        let mine = vec![Mixed(me as u8 + 2, f64::from(me), 7); len];
        let mut got = vec![Mixed(0, 0.0, 0); len];
        // SAFETY: two buffers that do not overlap.
        unsafe { raw::allreduce(comm, &from(&mine, &mixed), &to(&mut got, &mixed), &then) }?;
        // Rank 0 is x·2 + 0, rank 1 x·3 + 1, rank 2 x·4 + 2.
        assert!(got.iter().all(|x| (x.0, x.1) == (24, 6.0)), "{:?}", got[0]);
        // SAFETY: as above.
        unsafe { raw::scan(comm, &from(&mine, &mixed), &to(&mut got, &mixed), &then) }?;
        assert!(got.iter().all(|x| (x.0, x.1) == [(2, 0.0), (6, 1.0), (24, 6.0)][me as usize]));
    }
    Ok(())
}

#[mpj::test(ranks = 3)]
fn collectives_send_chains(world: World) -> mpj::Result<()> {
    let (comm, me, of) = (world.as_raw(), world.rank() as u32, Datatype::of::<u32>());
    let mine: Vec<u8> = (0..3000u32).flat_map(|i| (i + 10_000 * me).to_ne_bytes()).collect();
    let cut = |bytes: &[u8]| Buf::chain(bytes.chunks(1001).map(ChainSegment::from), Primitive::U32);
    let whole = |rank: u32| (0..3000u32).map(move |i| i + 10_000 * rank);
    let (chain, mut got, mut all) = (cut(&mine), vec![0u32; 3000], vec![0u32; 9000]);
    // SAFETY: buffers that do not overlap; also below.
    unsafe { raw::bcast(comm, &if me == 1 { chain.clone() } else { to(&mut got, &of) }, 1) }?;
    assert!(me == 1 || got.iter().copied().eq(whole(1)));
    // SAFETY: as above.
    unsafe { raw::allgather(comm, &chain, &to(&mut all, &of), BlockLayout::Uniform(3000)) }?;
    assert!(all.iter().copied().eq((0..3).flat_map(whole)));
    // SAFETY: as above.
    unsafe { raw::scatter(comm, &chain, BlockLayout::Uniform(1000), &to(&mut got[..1000], &of), 2) }?;
    assert!(got[..1000].iter().copied().eq(whole(2).skip(1000 * me as usize).take(1000)));
    for root in 0..3 {
        // SAFETY: as above.
        unsafe { raw::reduce(comm, &chain, &to(&mut got, &of), &Op::Sum, root) }?;
        assert!(me as i32 != root || got.iter().copied().eq((0..3000).map(|i| 3 * i + 30_000)));
    }
    // SAFETY: as above.
    unsafe { raw::allreduce(comm, &chain, &to(&mut got, &of), &Op::Max) }?;
    assert!(got.iter().copied().eq(whole(2)));
    // SAFETY: the call rejects the chain, and receives nothing into it.
    let refused = unsafe { raw::allgather(comm, &to(&mut got, &of), &chain, BlockLayout::Uniform(1000)) };
    assert_eq!(refused.expect_err("a chain").class(), ErrorClass::Buffer);
    Ok(())
}

#[mpj::test(ranks = 1)]
fn invalid_buffers_are_rejected(world: World) -> mpj::Result<()> {
    #[derive(Debug)]
    struct Huge;
    // SAFETY: every call rejects the buffer before anything is read.
    unsafe impl SendBuf for Huge {
        fn send_buf(&self) -> Buf {
            Buf::read_only(std::ptr::null(), usize::MAX / 4, Primitive::F64)
        }
    }
    let text = format!("send: {} items overflow the byte count", usize::MAX / 4);
    let error = world.send(&Huge, 0, 0).expect_err("too large");
    assert_eq!((error.class(), error.to_string()), (ErrorClass::Count, text));
    assert_eq!(world.isend(Huge, 0, 0).expect_err("too large").class(), ErrorClass::Count);
    let (comm, bytes) = (world.as_raw(), [1u8; 7]);
    let dup = || comm.dup().expect("a communicator");
    let ragged = Buf::chain([ChainSegment::from(&bytes[..])], Primitive::U32);
    // SAFETY: initialised bytes, and nothing is written; also below.
    let error = unsafe { raw::send(comm, ragged, 0, 0, Mode::Standard) }.expect_err("7 bytes");
    let text = "send: the chain has 7 bytes, not a multiple of the item size 4";
    assert_eq!((error.class(), error.to_string().as_str()), (ErrorClass::Count, text));
    let endless = Buf::chain([ChainSegment { base: bytes.as_ptr(), len: usize::MAX }; 3], Primitive::U8);
    // SAFETY: the buffer is rejected before anything is read.
    let error = unsafe { raw::send(comm, endless, 0, 0, Mode::Standard) }.expect_err("endless");
    assert_eq!(error.class(), ErrorClass::Count);
    // SAFETY: as above.
    let error = unsafe { raw::send(comm, Buf::in_place(), 0, 0, Mode::Standard) }.expect_err("no other");
    assert_eq!(error.class(), ErrorClass::Buffer);
    let chain = Buf::chain([ChainSegment::from(&bytes[..])], Primitive::U8);
    // SAFETY: the buffer is rejected before anything is written.
    let error = unsafe { raw::recv(comm, chain, 0, 0) }.expect_err("a chain");
    assert_eq!(error.class(), ErrorClass::Buffer);
    let (mut got, everywhere) = ([0u64], Datatype::of::<u64>().resized(0, 0).expect("no extent"));
    let endless = Buf::read_only(bytes.as_ptr(), 1 << 62, everywhere);
    let varying = BlockLayout::Varying { counts: &[1 << 61], displacements: &[1] };
    for (send, layout, class) in [
        (endless, varying, ErrorClass::Count),
        (Buf::in_place(), BlockLayout::Uniform(0), ErrorClass::Buffer),
    ] {
        // SAFETY: the buffer is rejected before anything is read; also below.
        let refused = unsafe { raw::scatter(&dup(), &send, layout, &Buf::in_place(), 0) };
        assert_eq!(refused.expect_err("nothing to send").class(), class);
    }
    let ragged = || Buf::chain([ChainSegment::from(&bytes[..])], Primitive::U32);
    let into = Buf::slice_mut(&mut got);
    // SAFETY: as above.
    let refused =
        unsafe { raw::alltoall(&dup(), &ragged(), BlockLayout::Uniform(0), &into, BlockLayout::Uniform(0)) };
    assert_eq!(refused.expect_err("7 bytes").class(), ErrorClass::Count);
    // SAFETY: as above.
    let refused =
        unsafe { raw::reduce_scatter(&dup(), &ragged(), &Buf::slice_mut(&mut [0u32; 0]), &[0], &Op::Sum) };
    assert_eq!(refused.expect_err("7 bytes").class(), ErrorClass::Count);
    let beyond = Buf::new(into.base(), 1 << 61, Primitive::U64);
    let varying = BlockLayout::Varying { counts: &[1 << 61], displacements: &[0] };
    // SAFETY: as above.
    let refused = unsafe { raw::gather(&dup(), &Buf::in_place(), &beyond, varying, 0) };
    assert_eq!(refused.expect_err("too large").class(), ErrorClass::Count);
    let (mine, mut got) = ([5u16, 6], [0u16; 2]);
    let at = mine.as_ptr().expose_provenance() as i64;
    let absolute = Datatype::of::<u16>().hindexed(&[(2, at)]).expect("fits");
    // SAFETY: the two numbers are at this address.
    unsafe { raw::send(comm, Buf::absolute(1, absolute), 0, 0, Mode::Standard) }?;
    world.recv(&mut got, 0, 0)?;
    assert_eq!(got, mine);
    Ok(())
}

/// A completed request is replaced with `None` in the slice.
#[mpj::test(ranks = 2)]
fn request_slices_can_be_waited_for(world: World) -> mpj::Result<()> {
    const N: usize = 6;
    let (comm, of) = (world.as_raw(), Datatype::of::<u16>());
    if comm.rank() == 0 {
        // Each list is sent in reverse order, after rank 1 has posted its receives.
        for list in 0..8 {
            world.recv(&mut [0u8; 0], 1, 100)?;
            for tag in (0..N as i32).rev() {
                world.send(&[10 * list + tag as u16], 1, tag)?;
            }
        }
        return raw::barrier(comm);
    }
    for list in 0..8u16 {
        let mut got = [0u16; N];
        let base = into(&mut got);
        let mut open = Vec::new();
        for tag in 0..N {
            let buf = Buf::new(base.wrapping_add(2 * tag), 1, &of);
            // SAFETY: each request receives into its own element, which is not accessed before all have completed.
            open.push(Some(unsafe { raw::irecv(comm, buf, 0, tag as i32, None) }?));
        }
        open.insert(3, None);
        assert!(raw::test_all(&mut open).is_none());
        assert!(raw::wait_any_timeout(&mut open, Duration::from_millis(1)).is_none());
        assert!(raw::wait_all_timeout(&mut open, Duration::from_millis(1)).is_empty());
        assert!(raw::test_any(&mut open).is_none() && raw::test_some(&mut open).is_empty());
        world.send(&[0u8; 0], 0, 100)?;
        let mut ended: Vec<(usize, mpj::Result<mpj::Status>)> = Vec::new();
        while open.iter().any(Option::is_some) {
            match list {
                0 => {
                    ended.extend(raw::wait_all(&mut open).into_iter().enumerate().filter(|(at, _)| *at != 3))
                }
                1 => ended.extend(raw::wait_any(&mut open)),
                2 => ended.extend(raw::wait_some(&mut open)),
                3 => ended.extend(
                    raw::test_all(&mut open)
                        .into_iter()
                        .flat_map(|all| all.into_iter().enumerate().filter(|(at, _)| *at != 3)),
                ),
                4 => ended.extend(raw::test_any(&mut open)),
                5 => ended.extend(raw::wait_any_timeout(&mut open, Duration::from_millis(1))),
                6 => ended.extend(raw::wait_all_timeout(&mut open, Duration::from_millis(1))),
                _ => ended.extend(raw::test_some(&mut open)),
            }
        }
        ended.sort_by_key(|(at, _)| *at);
        let tags: Vec<i32> =
            ended.into_iter().map(|(_, outcome)| outcome.map(|s| s.tag())).collect::<mpj::Result<_>>()?;
        assert_eq!((tags, got), ((0..N as i32).collect(), core::array::from_fn(|at| 10 * list + at as u16)));
        assert!(raw::wait_any(&mut open).is_none() && raw::wait_some(&mut open).is_empty());
        assert_eq!(raw::wait_all(&mut open).len(), N + 1);
    }
    raw::barrier(comm)
}
