//! Programs that receive messages in place, in the sender's blocks. The messages differ on every rank.
#![allow(dead_code, reason = "each test file uses some of it")]

use mpj::buffer::Buffer;
use mpj::pool::Pool;
use mpj::{DataPath, ErrorClass, World};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Empty, short, and long enough for a rendezvous on every device.
const LENS: [usize; 6] = [0, 1, 1000, 50_000, 150_000, 700_000];

fn numbers(rank: usize, len: usize) -> impl Iterator<Item = u32> {
    (0..len).map(move |at| (rank * 1_000_003 + at * 7) as u32)
}

/// Sends numbers and messages of sections around a ring. Returns how many messages were read in the sender's memory.
pub(crate) fn ring(world: &World) -> Result<usize, Failure> {
    let (me, size) = (world.rank(), world.size());
    let (left, right) = ((me + size - 1) % size, (me + 1) % size);
    let mut in_place = 0;
    for (tag, len) in (0..).zip(LENS) {
        let mut mine = world.alloc_slice(0u32, len)?;
        mine.iter_mut().zip(numbers(me, len)).for_each(|(place, number)| *place = number);
        let sending = world.isend(mine, right, tag)?;
        let (lent, status) = world.recv_block(left, tag)?;
        assert_eq!(
            (status.source_rank(), status.tag(), status.bytes(), lent.len()),
            (left, tag, 4 * len, 4 * len)
        );
        assert!(
            lent.try_as_slice::<u32>()?.iter().copied().eq(numbers(left, len)),
            "{len} numbers of rank {left}"
        );
        in_place += usize::from(lent.is_zero_copy());
        assert_other_types_are_rejected(&lent, len);
        std::thread::spawn(move || {
            assert!(lent.try_as_slice::<u32>().unwrap().iter().copied().eq(numbers(left, len)));
        })
        .join()
        .unwrap();
        let (mine, _) = sending.wait()?;
        assert!(mine.iter().copied().eq(numbers(me, len)));

        // A message of sections is a single block unless it has a dynamic part.
        for has_object in [false, true] {
            let mut message = Buffer::new(world.pool().alloc(4 * len + 256)?)?;
            message.write(&mine[..])?;
            if has_object {
                message.write_object(&(me, "word"))?;
            }
            let sending = world.isend(message.commit(), right, tag)?;
            let (lent, _) = world.mprobe(left, tag)?.recv_block()?;
            in_place += usize::from(lent.is_zero_copy());
            let mut message = lent.try_into_buffer()?;
            assert!(message.view::<u32>()?.iter().copied().eq(numbers(left, len)));
            if has_object {
                assert_eq!(message.read_object::<(usize, String)>()?, (left, "word".to_owned()));
            }
            drop(message);
            sending.wait()?;
        }

        let sending = world.isend(mine, right, tag)?;
        let mut copy = vec![0u32; len];
        if tag % 2 == 0 {
            world.recv(&mut copy, left, tag)?;
        } else {
            let (lent, _) = world.with_path(DataPath::Buffered).recv_block(left, tag)?;
            assert!(!lent.is_zero_copy());
            copy.copy_from_slice(lent.try_as_slice::<u32>()?);
        }
        assert!(copy.into_iter().eq(numbers(left, len)));
        sending.wait()?;
    }
    world.barrier()?;
    assert_eq!(world.pool().stats().live_blocks, 0, "all blocks have been returned");
    Ok(in_place)
}

fn assert_other_types_are_rejected(lent: &mpj::ReceivedBlock, len: usize) {
    if len > 0 {
        assert_eq!(lent.try_as_slice::<f32>().unwrap_err().class(), ErrorClass::Type);
        assert_eq!(lent.try_as_slice::<u8>().unwrap_err().class(), ErrorClass::Type);
        assert_eq!(lent.try_as_slice::<[u32; 3]>().is_ok(), len.is_multiple_of(3));
        assert_eq!(lent.try_as_slice::<bool>().unwrap_err().class(), ErrorClass::Type);
    }
}

/// Checks that invalid uses are rejected, such as reading in place values that need validation.
pub(crate) fn refusals(world: &World) -> Result<(), Failure> {
    const LEN: usize = 1 << 20;
    let (me, size) = (world.rank(), world.size());
    let (left, right) = ((me + size - 1) % size, (me + 1) % size);
    let sending = world.isend(world.alloc_slice(true, LEN)?, right, 0)?;
    let (lent, _) = world.recv_block(left, 0)?;
    let error = lent.try_as_slice::<bool>().unwrap_err();
    assert!(error.class() == ErrorClass::Type && error.to_string().contains("recv"), "{error}");
    let error = lent.try_into_buffer().unwrap_err();
    assert_eq!(error.class(), ErrorClass::Buffer, "{error}");
    assert_eq!(sending.wait()?.0.len(), LEN);
    assert_eq!(world.alloc_slice(0u64, usize::MAX / 4).unwrap_err().class(), ErrorClass::Count);
    assert_eq!(world.alloc_slice(0u64, usize::MAX / 64).unwrap_err().class(), ErrorClass::NoMem);
    let no_rank = world.recv_block(size, 0).unwrap_err();
    assert!(no_rank.class() == ErrorClass::Rank && no_rank.call() == "recv_block", "{no_rank}");
    Ok(())
}

/// Rank 0 leaves while rank 1 reads its block, and rank 1 returns with the block. No rank hangs. Returns the block that
/// rank 1 still reads.
pub(crate) fn sender_leaves_with_lent_block(world: &World) -> Result<Option<mpj::ReceivedBlock>, Failure> {
    const LEN: usize = 200_000;
    match world.rank() {
        0 => {
            let mut mine = world.alloc_slice(0u32, LEN)?;
            mine.iter_mut().zip(numbers(0, LEN)).for_each(|(place, number)| *place = number);
            drop(world.isend(mine, 1, 0)?);
            Ok(None)
        }
        1 => {
            let (lent, _) = world.recv_block(0, 0)?;
            let left = world.recv(&mut [0u8], 0, 1).unwrap_err();
            assert_eq!(left.class(), ErrorClass::ProcAborted, "{left}");
            assert!(lent.try_as_slice::<u32>()?.iter().copied().eq(numbers(0, LEN)));
            Ok(Some(lent))
        }
        _ => Ok(None),
    }
}

pub(crate) fn is_whole(lent: &mpj::ReceivedBlock) -> bool {
    lent.try_as_slice::<u32>()
        .is_ok_and(|found| found.iter().copied().eq(numbers(0, found.len())) && found.len() == 200_000)
}
