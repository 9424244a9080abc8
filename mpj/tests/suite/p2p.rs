//! Point-to-point messages: calls, buffers, views, wildcards, status.

use std::sync::Arc;

use crate::common::{Sample, blanks, pass, ranks, samples};
use mpj::{
    ANY_SOURCE, ANY_TAG, Datatype, Equivalent, PROC_NULL, Primitive, Source, Tag, View, ViewMut, World,
};

type TestResult = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// Sends vectors, an array, a boxed and a shared slice with one element type from rank 0 to rank 1.
fn send_buffer_kinds<T: Sample>(world: &World) -> mpj::Result<()> {
    for (tag, len) in [0, 1, 2, 7, 1000, 40_000].into_iter().enumerate() {
        let sent = samples::<T>(0, 0, len);
        let mut got = blanks::<T>(len + 3);
        if let Some(status) = pass(world, &sent, &mut got, tag as i32)? {
            assert_eq!((status.source_rank(), status.tag()), (0, tag as i32));
            assert_eq!(status.bytes(), len * size_of::<T>());
            assert_eq!(status.count::<T>(), Some(len));
            assert_eq!(got[..len], sent);
            assert_eq!(got[len..], blanks::<T>(3), "nothing is written after the message");
            let primitive = Datatype::of::<T>().single_primitive().filter(|_| len > 0);
            assert!(len == 0 || status.primitive() == primitive);
        }
    }
    let sent: [T; 5] = std::array::from_fn(|at| T::sample(0, at));
    let mut array = [T::blank(); 5];
    let boxed: Box<[T]> = sent.into();
    let mut box_got: Box<[T]> = blanks(5).into();
    let shared: Arc<[T]> = sent.into();
    let mut slice_got = blanks::<T>(5);
    pass(world, &sent, &mut array, 100)?;
    pass(world, &boxed, &mut box_got, 101)?;
    pass(world, &shared, slice_got.as_mut_slice(), 102)?;
    if world.rank() == 1 {
        assert_eq!((array, &box_got[..], &slice_got[..]), (sent, &sent[..], &sent[..]));
    }
    Ok(())
}

#[mpj::test(ranks = 2)]
fn slices_arrays_and_boxes_of_every_type_arrive(world: World) -> mpj::Result<()> {
    macro_rules! all {
        ($($type:ty),*) => {$( send_buffer_kinds::<$type>(&world)?; )*};
    }
    all!(
        u8, i8, u16, i16, u32, i32, u64, i64, u128, i128, usize, isize, f32, f64, bool, char, [i16; 3],
        [bool; 3]
    );
    Ok(())
}

#[mpj::test(ranks = 2)]
fn single_values_arrive(world: World) -> mpj::Result<()> {
    macro_rules! all {
        ($($type:ty),*) => {$(
            let mut got = <$type as Sample>::blank();
            let sent = <$type as Sample>::sample(0, 4);
            if let Some(status) = pass(&world, &sent, &mut got, 3)? {
                assert_eq!((got, status.primitive()), (sent, <$type as Equivalent>::PRIMITIVE));
            }
        )*};
    }
    all!(u8, i8, u16, i16, u32, i32, u64, i64, u128, i128, usize, isize, f32, f64, bool, char);
    let mut got = 0.0;
    pass(&world, &[2.5f64], &mut got, 0)?; // an array is sent, a single value received
    assert!(world.rank() == 0 || got == 2.5);
    Ok(())
}

#[mpj::test(ranks = 3)]
fn standard_and_synchronous_sends_arrive(world: World) -> mpj::Result<()> {
    let (me, n) = (world.rank(), world.size());
    for len in [0usize, 1, 6, 500, 5000, 300_000] {
        for synchronous in [false, true] {
            // Only rank 0 sends before it receives, so the ring of blocking sends does not deadlock.
            let mut got = blanks::<u64>(len);
            let send = |to: usize| {
                let data = samples::<u64>(me, len, len);
                if synchronous { world.ssend(&data, to, 9) } else { world.send(&data, to, 9) }
            };
            if me == 0 {
                send(1)?;
                world.recv(&mut got, n - 1, 9)?;
            } else {
                world.recv(&mut got, me - 1, 9)?;
                send((me + 1) % n)?;
            }
            assert_eq!(got, samples::<u64>((me + n - 1) % n, len, len));
        }
    }
    Ok(())
}

#[mpj::test(ranks = 5)]
fn sendrecv_exchanges_messages_around_a_ring(world: World) -> mpj::Result<()> {
    let (me, n) = (world.rank(), world.size());
    for len in [0usize, 1, 1000, 200_000] {
        let mut got = blanks::<i32>(len);
        let (to, from) = ((me + 2) % n, (me + n - 2) % n);
        let status = world.sendrecv(&samples::<i32>(me, 1, len), to, me as i32, &mut got, from, ANY_TAG)?;
        assert_eq!(got, samples::<i32>(from, 1, len));
        assert_eq!((status.source(), status.tag(), status.bytes()), (Some(from), from as i32, 4 * len));
    }
    let mut own = [0u8; 4];
    world.sendrecv(&[me as u8; 4], me, 1, &mut own, me, 1)?; // to the rank itself
    assert_eq!(own, [me as u8; 4]);
    Ok(())
}

#[mpj::test(ranks = 4)]
fn wildcards_keep_each_senders_order(world: World) -> mpj::Result<()> {
    const EACH: u32 = 500;
    if world.rank() > 0 {
        for number in 0..EACH {
            world.send(&[world.rank() as u32, number], 0, (number % 7) as i32)?;
        }
        return Ok(());
    }
    let mut next = [0u32; 4];
    for _ in 0..3 * EACH {
        let mut got = [0u32; 2];
        let status = world.recv(&mut got, ANY_SOURCE, ANY_TAG)?;
        assert_eq!((status.source_rank(), status.tag()), (got[0] as usize, (got[1] % 7) as i32));
        assert_eq!(got[1], next[status.source_rank()], "messages of one sender do not overtake each other");
        next[status.source_rank()] += 1;
    }
    assert_eq!(next, [0, EACH, EACH, EACH]);
    Ok(())
}

#[mpj::test(ranks = 2)]
fn receive_selects_by_tag(world: World) -> mpj::Result<()> {
    let tags = [0, 5, 5, i32::MAX, 1];
    if world.rank() == 0 {
        for (at, tag) in tags.into_iter().enumerate() {
            world.send(&(at as u64), 1, tag)?;
        }
        return Ok(());
    }
    let mut got = 0u64;
    for (tag, expected) in [(1, 4), (i32::MAX, 3), (5, 1), (5, 2), (0, 0)] {
        let status = world.recv(&mut got, 0, tag)?;
        assert_eq!((got, status.tag()), (expected, tag));
    }
    Ok(())
}

#[mpj::test(ranks = 2)]
fn probes_keep_and_matched_probes_remove_the_message(world: World) -> mpj::Result<()> {
    if world.rank() == 0 {
        for len in [3usize, 4, 50_000, 6] {
            world.send(&samples::<u16>(0, len, len), 1, len as i32)?;
        }
        return world.barrier();
    }
    let status = world.probe(0, ANY_TAG)?;
    assert_eq!((status.source_rank(), status.tag(), status.bytes()), (0, 3, 6));
    assert_eq!(world.probe(ANY_SOURCE, 3)?, status, "a probe leaves the message");
    let taken = world.mprobe(0, 3)?;
    assert_eq!(taken.status(), status);
    assert_eq!(world.probe(0, ANY_TAG)?.tag(), 4, "no other call finds a taken message");
    let mut exactly = vec![0u16; 3];
    assert_eq!(taken.recv(&mut exactly)?, status);
    assert_eq!(exactly, samples::<u16>(0, 3, 3));
    let big = loop {
        if let Some(taken) = world.improbe(ANY_SOURCE, 50_000)? {
            break taken;
        }
    };
    let mut all = vec![0u16; big.status().bytes() / 2];
    big.recv(&mut all)?;
    assert_eq!(all, samples::<u16>(0, 50_000, 50_000));
    let last = loop {
        if let Some(status) = world.iprobe(0, 6)? {
            break status;
        }
    };
    assert_eq!((last.bytes(), last.primitive()), (12, Some(Primitive::U16)));
    for len in [4, 6] {
        world.recv(&mut all, 0, len)?;
    }
    assert_eq!(world.iprobe(ANY_SOURCE, ANY_TAG)?, None);
    assert!(world.improbe(ANY_SOURCE, ANY_TAG)?.is_none());
    world.barrier()
}

#[mpj::test(ranks = 2)]
fn proc_null_returns_immediately(world: World) -> mpj::Result<()> {
    let mut kept = [1u8, 2];
    world.send(&kept, PROC_NULL, 0)?;
    world.ssend(&kept, PROC_NULL, 0)?;
    world.isend(kept, PROC_NULL, 0)?.wait()?;
    for status in [
        world.recv(&mut kept, PROC_NULL, ANY_TAG)?,
        world.irecv([0u8; 1], PROC_NULL, 3)?.wait()?.1,
        world.sendrecv(&[1u8], PROC_NULL, 0, &mut [0u8], PROC_NULL, 0)?,
        world.probe(PROC_NULL, ANY_TAG)?,
        world.iprobe(PROC_NULL, ANY_TAG)?.expect("an empty message is always there"),
    ] {
        assert_eq!((status.source(), status.bytes()), (None, 0));
        assert_eq!(Tag::Value(status.tag()), Tag::Value(-2), "MPI_ANY_TAG");
    }
    assert_eq!(kept, [1, 2]);
    // The first and the last rank of a line exchange with PROC_NULL on their open side.
    let (me, mut got) = (world.rank(), [9usize]);
    let left = if me == 0 { Source::Null } else { Source::Rank(0) };
    if me == 0 {
        world.sendrecv(&[me], 1, 0, &mut got, left, 0)?
    } else {
        world.sendrecv(&[me], PROC_NULL, 0, &mut got, left, 0)?
    };
    assert_eq!(got[0], [9, 0][me]);
    Ok(())
}

#[mpj::test(ranks = 2)]
fn views_send_and_receive_parts_of_slices(world: World) -> TestResult {
    let whole = samples::<i32>(0, 0, 60_000);
    // (type, offset, items). One view is longer than the default eager limit.
    let of = Datatype::of::<i32>();
    let cases = [
        (of.vector(3, 2, 5)?, 1, 2),
        (of.vector(4, 1, -3)?, 9, 1),
        (of.indexed(&[(2, 7), (0, 0), (3, 1)])?, 2, 3),
        (of.vector(20_000, 1, 3)?, 0, 1),
        (of.contiguous(7)?, 4, 3),
        (of.resized(0, 12)?, 1, 5),
        (of.contiguous(0)?, 0, 9),
    ];
    for (tag, (datatype, offset, items)) in cases.iter().enumerate() {
        let view = View::new(&whole, *offset, datatype, *items)?;
        let mut expected = Vec::new();
        for run in datatype.runs(*items) {
            let first = (*offset as i64 * 4 + run.offset) / 4;
            expected.extend((0..run.len / 4).map(|at| whole[first as usize + at]));
        }
        let mut flat = vec![0i32; expected.len()];
        pass(&world, &view, &mut flat, tag as i32)?;
        let mut spread = vec![0i32; whole.len()];
        let mut again = vec![0i32; whole.len()];
        pass(&world, &expected, &mut ViewMut::new(&mut spread, *offset, datatype, *items)?, tag as i32)?;
        pass(&world, &view, &mut ViewMut::new(&mut again, *offset, datatype, *items)?, tag as i32)?;
        if world.rank() == 1 {
            assert_eq!(flat, expected, "case {tag}");
            assert_eq!(spread, again, "case {tag}");
            assert_eq!(spread.iter().filter(|x| **x != 0).count(), expected.len(), "nothing else is written");
        }
    }
    Ok(())
}

#[test]
fn views_outside_the_slice_or_of_mixed_types_are_rejected() {
    let mut data = [0i32; 10];
    let of = Datatype::of::<i32>();
    let column = of.vector(3, 1, 4).expect("fits");
    assert!(View::new(&data, 1, &column, 1).is_ok());
    let outside = View::new(&data, 2, &column, 1).unwrap_err();
    assert_eq!((outside.bounds, outside.len, outside.mismatch), ((8, 44), 40, false));
    assert_eq!(outside.to_string(), "the items have bytes 8..44, the slice has 40 bytes");
    assert!(View::new(&data, 11, &of, 1).is_err());
    assert!(View::new(&data, usize::MAX, &of, 1).is_err());
    assert!(View::new(&data, 0, &of, usize::MAX).is_err());
    assert!(View::new(&data, 0, &of.vector(2, 1, -1).expect("fits"), 1).is_err(), "below the slice");
    assert!(ViewMut::new(&mut data, 0, &of.contiguous(11).expect("fits"), 1).is_err());
    assert!(View::new(&data, 0, &of.hvector(2, 1, -8).expect("fits"), 1).is_err());
    // Types with other primitives, mixed types, and types that cover parts of elements.
    assert!(View::new(&data, 0, &Datatype::of::<f32>(), 1).unwrap_err().mismatch);
    assert!(View::new(&data, 0, &Datatype::of::<u8>(), 4).unwrap_err().mismatch);
    let mixed = Datatype::structure(&[(1, 0, of.clone()), (1, 4, Datatype::of::<u32>())]).expect("fits");
    assert!(View::new(&data, 0, &mixed, 1).unwrap_err().mismatch);
    let pairs = [[0i32; 2]; 2];
    assert!(View::new(&pairs, 0, &of, 1).unwrap_err().mismatch, "half of an element");
    assert!(View::new(&pairs, 0, &of.contiguous(4).expect("fits"), 1).unwrap_err().mismatch);
    let pair = Datatype::of::<[i32; 2]>();
    assert!(View::new(&pairs, 0, &pair, 2).is_ok() && View::new(&pairs, 1, &pair, 2).is_err());
    assert!(
        View::new(&pairs, 0, &pair.resized(0, 4).expect("fits"), 2).unwrap_err().mismatch,
        "from one into the next"
    );
    assert!(View::new(&pairs, 1, &pair.vector(2, 1, -1).expect("fits"), 1).is_ok());
    assert!(View::new(&pairs, 0, &pair.vector(2, 1, -1).expect("fits"), 1).is_err(), "below the slice");
    // Writing a char across two elements could make both of them invalid.
    let shifted = Datatype::of::<char>().hvector(1, 1, 0).and_then(|t| t.hindexed(&[(1, 2)])).expect("fits");
    assert!(ViewMut::new(&mut ['a'; 3], 0, &shifted, 1).unwrap_err().mismatch);
}

#[mpj::test(ranks = 4)]
fn none_is_proc_null_and_status_is_an_address(world: World) -> mpj::Result<()> {
    let (me, n) = (world.rank(), world.size());
    let (left, right) = (me.checked_sub(1), (me + 1 < n).then_some(me + 1));
    let mut got = [usize::MAX];
    let status = world.sendrecv(&[me], right, 0, &mut got, left, 0)?;
    assert_eq!((got[0], status.source()), (left.unwrap_or(usize::MAX), left));
    let mine = [me];
    world.scope(|s| {
        s.isend(&mine, left, 1)?.wait()?;
        s.irecv(&mut got, right, 1)?.wait().map(|_| ())
    })?;
    assert_eq!(got[0], right.or(left).unwrap_or(usize::MAX));
    assert_eq!(world.irecv([0u8; 3], None, 1)?.wait()?.1.source(), None);
    if me > 0 {
        world.send(&[me as u64], 0, 2)?;
        let mut answer = [0u64];
        world.recv(&mut answer, 0, 3)?;
        assert_eq!(answer, [100 + me as u64]);
        return Ok(());
    }
    for _ in 1..n {
        let question = world.probe(ANY_SOURCE, 2)?;
        let mut asked = [0u64];
        world.recv(&mut asked, question, question.tag())?;
        world.send(&[100 + asked[0]], question, 3)?;
    }
    Ok(())
}

/// With this many thread ranks, the rings are short and the fragments few.
#[test]
fn many_threads_exchange_messages_of_all_protocols() {
    const RANKS: usize = if cfg!(miri) { 3 } else { 150 };
    ranks(RANKS, |world| {
        let (me, size) = (world.rank(), world.size());
        for (round, len) in [8, 300, 9_000, 40_000].into_iter().enumerate() {
            for distance in [1, 7, size / 2, size - 1] {
                let (to, from) = ((me + distance) % size, (me + size - distance) % size);
                let mut got = vec![0; len];
                world.sendrecv(&vec![me as u32; len], to, round as i32, &mut got, from, round as i32)?;
                assert_eq!(got, vec![from as u32; len]);
            }
        }
        let sends: Vec<u32> = (0..size).map(|to| (me * size + to) as u32).collect();
        let mut got = vec![0; size];
        world.alltoall(&sends, &mut got)?;
        assert!(got.iter().enumerate().all(|(from, value)| *value == (from * size + me) as u32));
        Ok(())
    });
}
