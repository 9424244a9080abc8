//! `Buffer`s that are read in place, in shared memory.
#![cfg(all(target_os = "linux", not(miri), not(mpj_portable)))]

use std::process::ExitCode;

use crate::common::alive;
use mpj::boot::ThreadBoot;
use mpj::buffer::{Buffer, Fixed, ReadError, Reading};
use mpj::devices::config::Config;
use mpj::devices::{HostId, Hosts, Registry, Segment, ShmDriver};
use mpj::pool::{Pool, RawBuffer, ReadBlock};
use mpj::{DataPath, ErrorClass, World};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Elements of a message, which is longer than any eager limit of `smdev` and `shmdev`.
const LEN: usize = 100_000;

/// Runs `f` on two threads, which `shmdev` connects as it connects processes.
fn shared(f: impl Fn(World) -> Result<(), Failure> + Send + Sync) {
    let segment = Segment::create(2, &Config::default()).expect("shared memory");
    let ranks = Hosts::single_host(2).ranks_of(HostId(0));
    let registry = Registry::empty().with(ShmDriver::new(segment.into(), ranks));
    let code = alive(|| mpj::run_on(ThreadBoot::ranks(2), &registry, f));
    assert_eq!(format!("{code:?}"), format!("{:?}", ExitCode::SUCCESS), "the ranks' errors are printed");
}

fn message(world: &World, value: u64) -> Result<Buffer<impl RawBuffer + Sync + use<>, Reading>, Failure> {
    let mut message = Buffer::new(world.pool().alloc(8 * LEN + 256)?)?;
    message.write(&[value; LEN])?;
    Ok(message.commit())
}

fn is_shared<R: ReadBlock>(message: Buffer<R, Reading>) -> bool {
    message.into_block().is_shared()
}

/// Connects the ranks: messages before that are not exported.
fn connect(world: &World) -> mpj::Result<()> {
    let (other, mut got) = (1 - world.rank(), [0u8]);
    for _ in 0..2 {
        world.sendrecv(&[0u8], other, 9, &mut got, other, 9)?;
    }
    Ok(())
}

#[test]
fn buffers_in_shared_blocks_are_read_in_place() {
    shared(|world| {
        connect(&world)?;
        if world.rank() == 0 {
            let mut mine = message(&world, 7)?;
            for tag in 0..5 {
                mine = world.isend(mine, 1, tag)?.wait().map_err(|failed| failed.into_parts().0)?.0;
            }
            drop(mine);
            assert_eq!(world.pool().stats().live_blocks, 0);
            return Ok(());
        }
        let copies = || world.stats().copies().bytes;
        let before = copies();
        let (mut message, status) = world.recv_buffer(0, 0)?;
        assert_eq!((status.source_rank(), status.bytes()), (0, message.len()));
        assert_eq!(message.view::<u64>()?, [7; LEN]);
        assert_eq!(copies(), before, "no byte was copied");
        assert!(is_shared(message));
        let message = world.mprobe(0, 1)?.recv_buffer()?.0;
        assert!(is_shared(message));
        assert!(!is_shared(world.with_path(DataPath::Buffered).recv_buffer(0, 2)?.0));
        let (message, _) = world.recv_buffer_in(mpj::pool::global(), usize::MAX, 0, 3)?;
        assert!(!is_shared(message));
        let refused = world.recv_buffer_in(mpj::pool::global(), 1000, 0, 4).expect_err("too long");
        assert_eq!(refused.class(), ErrorClass::Truncate);
        Ok(())
    });
}

/// The sender's request completes when the receiver drops the buffer.
#[test]
fn buffer_is_returned_when_its_receiver_drops_it() {
    shared(|world| {
        connect(&world)?;
        if world.rank() == 0 {
            let mut sending = world.isend(message(&world, 1)?, 1, 0)?;
            world.recv(&mut [0u8], 1, 1)?; // the receiver holds the message
            assert!(sending.test().is_none(), "the message is still read");
            world.send(&[0u8], 1, 2)?;
            sending.wait().map_err(|failed| failed.into_parts().0)?;
            return Ok(());
        }
        let (mut message, _) = world.recv_buffer(0, 0)?;
        world.send(&[0u8], 0, 1)?;
        world.recv(&mut [0u8], 0, 2)?;
        assert_eq!(message.view::<u64>()?, [1; LEN]);
        Ok(())
    });
}

/// The memory of another process could change after the check.
#[test]
fn values_that_need_validation_are_copied_from_shared_memory() {
    shared(|world| {
        connect(&world)?;
        let mut message = Buffer::new(world.pool().alloc(9 * LEN + 256)?)?;
        message.write(&[true; LEN])?;
        message.write(&['x'; LEN])?;
        message.write_object_with::<Fixed, _>("a text")?;
        message.write_dynamic(&[false; 10])?;
        let bytes = message.commit().to_vec();
        // A message that lies in one block with its dynamic part, as a received one does.
        let mine = Buffer::from_bytes(world.pool().alloc(bytes.len())?, &bytes).map_err(|e| e.error)?;
        if world.rank() == 0 {
            let mine = world.isend(mine, 1, 0)?.wait().map_err(|failed| failed.into_parts().0)?.0;
            world.isend(mine, 1, 1)?.wait().map_err(|failed| failed.into_parts().0)?;
            return Ok(());
        }
        let (mut theirs, _) = world.recv_buffer(0, 0)?;
        let (mut flags, mut chars) = (vec![false; LEN], vec!['?'; LEN]);
        assert!(matches!(theirs.view::<bool>(), Err(ReadError::Shared { .. })));
        theirs.read(&mut flags)?;
        assert!(matches!(theirs.view::<char>(), Err(ReadError::Shared { .. })));
        theirs.read(&mut chars)?;
        assert!(flags == [true; LEN] && chars == ['x'; LEN]);
        assert!(matches!(theirs.view_object_with::<Fixed, &str>(), Err(ReadError::Shared { .. })));
        assert_eq!(theirs.read_object_with::<Fixed, String>()?, "a text");
        assert!(matches!(theirs.view_dynamic::<bool>(), Err(ReadError::Shared { .. })));
        assert_eq!(theirs.read_dynamic::<bool>()?, [false; 10]);
        assert!(is_shared(theirs));
        // In the receiver's own memory, all of them can be viewed.
        let (mut copy, _) = world.recv_buffer_in(mpj::pool::global(), usize::MAX, 0, 1)?;
        assert_eq!(copy.view::<bool>()?, flags);
        assert_eq!(copy.view::<char>()?, chars);
        assert_eq!(copy.view_object_with::<Fixed, &str>()?, "a text");
        assert_eq!(copy.view_dynamic::<bool>()?, [false; 10]);
        Ok(())
    });
}

/// Rank 1 sends the received buffer back by reference.
#[test]
fn received_buffers_are_forwarded() {
    shared(|world| {
        connect(&world)?;
        if world.rank() == 0 {
            let sending = world.isend(message(&world, 3)?, 1, 0)?;
            let (mut back, _) = world.recv_buffer(1, 1)?;
            assert_eq!(back.view::<u64>()?, [3; LEN]);
            drop(back);
            sending.wait().map_err(|failed| failed.into_parts().0)?;
        } else {
            let (theirs, _) = world.recv_buffer(0, 0)?;
            world.send(&theirs, 0, 1)?;
        }
        Ok(())
    });
}

/// Threads of one process copy, so that a rank may hold a buffer while it waits for its own send.
#[mpj::test(ranks = 2)]
fn threads_exchange_buffers_and_hold_them(world: World) -> Result<(), Failure> {
    let (me, other) = (world.rank(), 1 - world.rank());
    let sending = world.isend(message(&world, me as u64)?, other, 0)?;
    let (mut theirs, _) = world.recv_buffer(other, 0)?;
    sending.wait().map_err(|failed| failed.into_parts().0)?;
    assert_eq!(theirs.view::<u64>()?, [other as u64; LEN]);
    assert!(!is_shared(theirs));
    Ok(())
}
