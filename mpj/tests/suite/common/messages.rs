//! Programs whose ranks exchange `mpj::buffer` messages and invalid messages. The messages differ on every rank.
#![allow(dead_code, reason = "each test file uses some of it")]

use mpj::buffer::{Buffer, Reading, Writing};
use mpj::datatypes::Primitive;
use mpj::pool::{DefaultBlock, FilledBlock, Growth, Magazine, Pages, Pool, ReadBlock};
use mpj::raw::{Buf, ChainSegment};
use mpj::{ANY_SOURCE, ErrorClass, Intracomm, SendBuf, Slices, World};

type Failure = Box<dyn std::error::Error + Send + Sync>;

pub(crate) type Program = fn(&World) -> Result<(), Failure>;

pub(crate) const PROGRAMS: [(&str, Program); 7] = [
    ("ring", ring),
    ("collectives", collectives),
    ("pieces", pieces),
    ("limits", limits),
    ("invalid-messages", invalid_messages),
    ("freed", freed),
    ("requests", requests),
];

/// The content of a message: the number of elements in the static part, and the length of the slice between two objects
/// in the dynamic part, if there is one.
type Content = (usize, Option<usize>);

const CONTENTS: [Content; 6] =
    [(0, None), (3, Some(0)), (1000, None), (70_000, None), (200, Some(40_000)), (5, Some(300_000))];

fn number(rank: usize, at: usize) -> u32 {
    (rank * 1_000_003 + at * 7) as u32
}

/// Returns a text of the same length for all ranks, so that a rank's message fits into the block of another's.
fn last(rank: usize) -> String {
    format!("last of {rank:5}")
}

fn write(
    mut message: Buffer<DefaultBlock, Writing>,
    rank: usize,
    (fixed, dynamic): Content,
) -> Result<Buffer<DefaultBlock, Reading>, Failure> {
    message.fill_with(fixed, |at| number(rank, at))?;
    if let Some(len) = dynamic {
        message.write_object(&(rank, "first"))?;
        let values: Vec<u32> = (0..len).map(|at| number(rank, at + 1)).collect();
        message.write_dynamic(&values)?;
        message.write_object(&last(rank))?;
    }
    Ok(message.commit())
}

fn message(rank: usize, content: Content) -> Result<Buffer<DefaultBlock, Reading>, Failure> {
    write(Buffer::with_capacity(4 * content.0 + 128)?, rank, content)
}

fn check<R: ReadBlock>(
    message: &mut Buffer<R, Reading>,
    rank: usize,
    (fixed, dynamic): Content,
) -> Result<(), Failure> {
    message.rewind();
    let numbers = message.view::<u32>()?;
    let right = numbers.len() == fixed && numbers.iter().zip(0..).all(|(n, at)| *n == number(rank, at));
    assert!(right, "{fixed} numbers of rank {rank}");
    if let Some(len) = dynamic {
        assert_eq!(message.read_object::<(usize, String)>()?, (rank, "first".to_owned()));
        let values = message.read_dynamic::<u32>()?;
        let right = values.len() == len && values.iter().zip(1..).all(|(n, at)| *n == number(rank, at));
        assert!(right, "{len} values of rank {rank}");
        assert_eq!(message.read_object::<String>()?, last(rank));
    }
    assert!(message.peek().is_none(), "nothing is left");
    Ok(())
}

/// Sends owned and borrowed messages around a ring, and receives them into blocks of two pools.
fn ring(world: &World) -> Result<(), Failure> {
    let (me, size) = (world.rank(), world.size());
    let (left, right) = ((me + size - 1) % size, (me + 1) % size);
    let pool = Magazine::growing(Growth::default(), Pages::create);
    for (content, tag) in CONTENTS.into_iter().zip(0..) {
        let sending = world.isend(message(me, content)?, right, tag)?;
        let (mut theirs, status) = world.recv_buffer(left, tag)?;
        assert_eq!((status.source_rank(), status.tag(), status.bytes()), (left, tag, theirs.len()));
        check(&mut theirs, left, content)?;
        let (mut mine, _) = sending.wait()?;
        check(&mut mine, me, content)?;
        let mine = write(mine.clear(), me + size, content)?;

        // An unexpected message is already in a block. Receiving it completes the synchronous send.
        let sending = world.issend(theirs, right, tag)?;
        let early = world.mprobe(left, tag)?;
        let (mut second_left, _) = early.recv_buffer()?;
        check(&mut second_left, (left + size - 1) % size, content)?;
        sending.wait()?;

        world.scope(|s| {
            let sending = s.isend(&mine, right, tag)?;
            let (mut theirs, _) = world.recv_buffer_in(&pool, mine.len(), ANY_SOURCE, tag)?;
            check(&mut theirs, left + size, content)?;
            sending.wait()?;
            Ok::<(), Failure>(())
        })?;
        world.send(&mine, me, tag)?;
        check(&mut world.recv_buffer(me, tag)?.0, me + size, content)?;
        world.send(&mine, mpj::PROC_NULL, tag)?;
    }
    assert_eq!(pool.stats().live_blocks, 0);
    Ok(())
}

fn collectives(world: &World) -> Result<(), Failure> {
    let (me, size) = (world.rank(), world.size());
    let content = |rank: usize, round: usize| CONTENTS[(rank + round) % CONTENTS.len()];
    for root in 0..size {
        for round in 0..CONTENTS.len() {
            let mut common = message(me, content(me, round))?;
            world.bcast_buffer(&mut common, root)?;
            check(&mut common, root, content(root, round))?;

            let mut all = world.gather_buffers(&message(me, content(me, round))?, root)?;
            assert_eq!(all.len(), if me == root { size } else { 0 });
            for (rank, message) in all.iter_mut().enumerate() {
                check(message, rank, content(rank, round))?;
            }
            // Scatter the gathered messages: every rank gets its own message back.
            check(&mut world.scatter_buffers(&all, root)?, me, content(me, round))?;
        }
        let object = world.bcast_object(vec![me; 100_000 * root], root)?;
        assert_eq!(object, vec![root; 100_000 * root]);
    }
    let refused = world.scatter_buffers::<DefaultBlock>(&[], 0).map(drop);
    // If the sender has a low eager limit or no credit, the other ranks get the failure without the text.
    let is_cause_or_notice = |refused: &mpj::Error| {
        refused.class() == ErrorClass::Count || refused.to_string().ends_with("failed in a collective")
    };
    assert!(refused.as_ref().is_err_and(is_cause_or_notice), "{refused:?} on all ranks");
    Ok(())
}

fn pieces(world: &World) -> Result<(), Failure> {
    let (me, size) = (world.rank(), world.size());
    let (left, right) = ((me + size - 1) % size, (me + 1) % size);
    for step in [0, 1, 7, 1000, 30_000] {
        let rows: Vec<Vec<u32>> =
            (0..5).map(|row| (0..step * row).map(|at| number(me, row + at)).collect()).collect();
        let theirs: Vec<u32> =
            (0..5).flat_map(|row| (0..step * row).map(move |at| number(left, row + at))).collect();
        let mut got = vec![0u32; 10 * step];
        let sent = Slices::new(rows.iter().map(Vec::as_slice));
        world.sendrecv(&sent, right, 0, &mut got, left, 0)?;
        assert_eq!(got, theirs);

        let every_second = mpj::Datatype::of::<u32>().vector(10 * step, 1, 2)?;
        let mut spread = vec![0u32; 20 * step];
        let mut view = mpj::ViewMut::new(&mut spread, 0, &every_second, 1)?;
        world.sendrecv(&sent, right, 1, &mut view, left, 1)?;
        assert!(spread.iter().step_by(2).eq(&theirs) && spread.iter().skip(1).step_by(2).all(|n| *n == 0));

        let mut block = FilledBlock::new(mpj::pool::global().alloc(40 * step)?);
        rows.iter().flatten().try_for_each(|n| block.extend_from_slice(&n.to_ne_bytes()))?;
        let mut into = FilledBlock::new(mpj::pool::global().alloc(40 * step)?);
        into.extend_from_slice(&vec![0; 40 * step])?;
        world.sendrecv(&block, right, 2, &mut into, left, 2)?;
        assert!(into.as_ref().as_chunks().0.iter().map(|n| u32::from_ne_bytes(*n)).eq(theirs));
    }
    // A message that is sent as bytes, from several segments, can be received as a buffer.
    let mine = message(me, CONTENTS[4])?;
    let segments: Vec<_> = mine.segments().map(std::io::IoSlice::new).collect();
    let joined = Slices::from_io_slices(&segments);
    world.scope(|s| {
        let sending = s.isend(&joined, right, 3)?;
        check(&mut world.recv_buffer(left, 3)?.0, left, CONTENTS[4])?;
        sending.wait()?;
        Ok::<(), Failure>(())
    })?;
    let (sending, mut bytes) = (world.isend(mine, right, 4)?, vec![0u8; 1 << 20]);
    let len = world.recv(&mut bytes, left, 4)?.bytes();
    let block = mpj::pool::global().alloc(len)?;
    let mut theirs = Buffer::from_bytes(block, &bytes[..len]).map_err(|refused| refused.error)?;
    check(&mut theirs, left, CONTENTS[4])?;
    drop(sending.wait()?);
    Ok(())
}

/// A message that is longer than a limit, or than the space in the pool, is dropped. Its sender continues.
fn limits(world: &World) -> Result<(), Failure> {
    let (me, size) = (world.rank(), world.size());
    let (left, right) = ((me + size - 1) % size, (me + 1) % size);
    let small = Magazine::growing(Growth::default().limit(1 << 20), Pages::create);
    for content in CONTENTS {
        let (long, last) = (message(me, content)?, message(me, (1, None))?);
        let sending = world.issend(long, right, 0)?;
        let refused = world.recv_buffer_in(&small, 20, left, 0).expect_err("more than 20 bytes");
        let expected = if content.0 == 0 && content.1.is_none() { "32" } else { "exceeds the limit of 20" };
        assert!(
            refused.class() == ErrorClass::Truncate && refused.to_string().contains(expected),
            "{refused}"
        );
        let (long, _) = sending.wait()?;

        let sending = world.issend(long, right, 0)?;
        let received = world.recv_buffer_in(&small, usize::MAX, left, 0);
        if content.1 == Some(300_000) {
            assert_eq!(received.expect_err("more than a MiB").class(), ErrorClass::NoMem);
        } else {
            check(&mut received?.0, left, content)?;
        }
        sending.wait()?;
        world.send(&last, right, 0)?;
        check(&mut world.recv_buffer(left, 0)?.0, left, (1, None))?;
    }
    Ok(())
}

#[derive(Debug)]
struct Endless;

// SAFETY: every call rejects the buffer before a byte of it is read.
#[allow(unsafe_code, reason = "a type of another crate, with a wrong count")]
unsafe impl SendBuf for Endless {
    fn send_buf(&self) -> Buf {
        Buf::read_only(std::ptr::NonNull::<u64>::dangling().as_ptr().cast(), usize::MAX, Primitive::U64)
    }
}

struct Segments(Vec<Vec<u8>>);

// SAFETY: the segments are the vectors' bytes.
#[allow(unsafe_code, reason = "a type of another crate")]
unsafe impl SendBuf for Segments {
    fn send_buf(&self) -> Buf {
        Buf::chain(self.0.iter().map(|bytes| ChainSegment::from(bytes.as_slice())), Primitive::U8)
    }
}

/// A message of another format fails only its receive. A buffer that cannot be sent fails only its send.
fn invalid_messages(world: &World) -> Result<(), Failure> {
    let (me, size) = (world.rank(), world.size());
    let (left, right) = ((me + size - 1) % size, (me + 1) % size);
    for content in CONTENTS {
        let bytes = message(me, content)?.to_vec();
        let newer = [&bytes[..4], &[200], &bytes[5..]].concat();
        let longer = [&bytes[..], &[0]].concat();
        let bad: [(&[u8], &str); 6] = [
            (&[], "message truncated at byte 0"),
            (&bytes[1..], "not a message"),
            (&newer, "version 200"),
            (&longer, "expected a message of"),
            (&bytes[..bytes.len() - 1], "truncated"),
            (&bytes[..15], "truncated"),
        ];
        for (bytes, why) in bad {
            refused(world, bytes, right, left, why)?;
        }
    }
    refused(world, &[1.5f64; 9][..], right, left, "(72 bytes) is not a valid mpj::buffer message")?;
    for segments in [vec![], vec![vec![]], vec![vec![]; 100]] {
        refused(world, &Segments(segments), right, left, "(0 bytes) is not a valid mpj::buffer message")?;
    }
    let mut mixed = vec![vec![]; 9];
    mixed[3] = message(me, CONTENTS[2])?.to_vec();
    mixed[7] = mixed[3].split_off(1000);
    let mixed = Segments(mixed);
    world.scope(|s| {
        let sending = s.isend(&mixed, right, 0)?;
        check(&mut world.recv_buffer(left, 0)?.0, left, CONTENTS[2])?;
        sending.wait()?;
        Ok::<(), Failure>(())
    })?;
    let endless = world.send(&Endless, right, 0).expect_err("too much");
    assert_eq!(endless.class(), ErrorClass::Count, "{endless}");
    assert_eq!(world.isend(Endless, right, 0).expect_err("too much").class(), ErrorClass::Count);
    let no_rank = world.recv_buffer(size, 0).expect_err("no such rank");
    assert!(no_rank.class() == ErrorClass::Rank && no_rank.call() == "recv_buffer", "{no_rank}");
    world.barrier()?;
    assert_eq!(world.iprobe(ANY_SOURCE, 0)?, None);
    world.barrier()?;
    Ok(())
}

/// Sends an invalid message to the right, and expects that the receive from the left fails; the sends succeed.
fn refused<B: SendBuf + Sync + ?Sized>(
    world: &Intracomm,
    bad: &B,
    right: usize,
    left: usize,
    why: &str,
) -> Result<(), Failure> {
    world.scope(|s| {
        let sending = s.issend(bad, right, 0)?;
        let error = world.recv_buffer(left, 0).expect_err("no buffer");
        assert!(error.class() == ErrorClass::Buffer && error.to_string().contains(why), "{error}: not {why}");
        sending.wait()?;
        Ok(())
    })
}

/// Every rank frees a communicator with pending messages. Those with posted receives arrive; the other send fails.
fn freed(world: &World) -> Result<(), Failure> {
    let (me, size) = (world.rank(), world.size());
    let (right, left) = ((me + 1) % size, (me + size - 1) % size);
    for len in [4usize, 100_000].into_iter().cycle().take(if size == 1 { 0 } else { 10 }) {
        let comm = world.dup()?;
        let receives = [comm.irecv(vec![0u8; len], left, 0)?, comm.irecv(vec![0u8; len], ANY_SOURCE, 1)?];
        world.barrier()?;
        let sends = [comm.isend(vec![me as u8; len], right, 0)?, comm.issend(vec![me as u8; len], right, 1)?];
        let refused = comm.issend(vec![me as u8; len], right, 2)?;
        comm.free()?;
        drop(comm);
        for receive in receives {
            assert_eq!(receive.wait()?.0, vec![left as u8; len]);
        }
        for send in sends {
            send.wait()?;
        }
        let failed = refused.wait().err().ok_or("no rank receives it")?;
        assert_eq!(failed.error().as_fault(), Some(&mpj::Fault::Refused { rank: right as u32 }), "{failed}");
        // A rank that has left the job does not send NACKs, so no rank leaves before this barrier.
        world.barrier()?;
    }
    Ok(())
}

/// A ring of persistent, partitioned and buffered messages and of objects, with other data in each round.
fn requests(world: &World) -> Result<(), Failure> {
    const PARTS: usize = 4;
    let (me, size) = (world.rank(), world.size());
    let (right, left) = ((me + 1) % size, (me + size - 1) % size);
    let buffer = world.attach(usize::MAX)?;
    for len in [4usize, 6000, 400_000] {
        let data = |rank: usize, round: usize| vec![number(rank, round); len];
        let mut send = world.send_init(data(me, 0), right, 0)?;
        let mut recv = world.recv_init(data(me, 0), left, 0)?;
        let mut parts = world.psend_init(data(me, 0), PARTS, right, 0)?;
        let mut whole = world.precv_init(data(me, 0), 2, left, 0)?;
        for round in 0..3 {
            let (receiving, arriving) = (recv.start()?, whole.start()?);
            let object = world.irecv_object::<(usize, Vec<u32>)>(left, 1)?;
            send.buffers_mut().fill(number(me, round));
            let (sending, filling) = (send.start()?, parts.start()?);
            for part in (0..PARTS).rev() {
                let mut part = filling.part(part)?;
                part.fill(number(me, round + 1));
                part.ready()?;
            }
            let sending_object = world.isend_object(&(me, data(me, round + 2)), right, 1)?;
            world.bsend(&data(me, round + 3), right, 2)?;
            assert_eq!(world.recv_vec::<u32>(left, 2)?.0, data(left, round + 3));
            assert_eq!(object.wait()?.0, (left, data(left, round + 2)));
            while arriving.part(1)?.is_none() {}
            assert_eq!(arriving.wait()?, data(left, round + 1));
            assert_eq!(*receiving.wait()?, data(left, round));
            sending.wait()?;
            filling.wait()?;
            sending_object.wait()?;
        }
    }
    buffer.detach()?;
    world.barrier()?;
    Ok(())
}
