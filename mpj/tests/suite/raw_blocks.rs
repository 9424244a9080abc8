//! The raw interface: messages received in blocks.

use std::sync::Arc;

use crate::common::{alive, job, samples};
use mpj::raw::{self, ANY_SOURCE, ANY_TAG, Buf, Comm, PROC_NULL, ReadInPlace, ReceivedBlock};
use mpj::{DataPath, ErrorClass, Status, World};

const LENS: [usize; 5] = [0, 1, 100, 20_000, 300_000];

/// The ways to receive a message in a block.
type Receive = fn(&Comm, i32, i32) -> mpj::Result<(ReceivedBlock, Status)>;

const RECEIVES: [(&str, Receive); 3] = [
    ("recv_block", |comm, source, tag| raw::recv_block(comm, source, tag, ReadInPlace::All)),
    ("recv_block of shared pools", |comm, source, tag| {
        raw::recv_block(comm, source, tag, ReadInPlace::SharedPool)
    }),
    ("mrecv_block", |comm, source, tag| {
        raw::mrecv_block(comm, raw::mprobe(comm, source, tag)?, ReadInPlace::All)
    }),
];

#[mpj::test(ranks = 2)]
fn borrowed_messages_arrive_in_local_blocks(world: World) -> mpj::Result<()> {
    let (comm, me, other) = (world.as_raw(), world.rank(), 1 - world.rank());
    for (name, receive) in RECEIVES {
        for len in LENS {
            let mine = samples::<u8>(me, len, len);
            world.scope(|s| {
                let sending = s.isend(&mine, other, 3)?;
                let (block, status) = receive(comm, ANY_SOURCE, ANY_TAG)?;
                assert_eq!((status.source_rank(), status.tag(), status.bytes()), (other, 3, len), "{name}");
                assert!(block[..] == samples::<u8>(other, len, len) && !block.is_zero_copy(), "{name} {len}");
                sending.wait()
            })?;
            raw::barrier(comm)?;
        }
        // A message to this rank itself is copied, too.
        let sending = world.isend(samples::<u8>(me, 0, 100_000), me, 4)?;
        assert_eq!(receive(comm, me as i32, 4)?.0[..], samples::<u8>(me, 0, 100_000));
        sending.wait()?;
    }
    Ok(())
}

#[mpj::test(ranks = 2)]
fn owned_messages_are_read_in_place_where_allowed(world: World) -> mpj::Result<()> {
    let comm = world.as_raw();
    let buffered = comm.with_path(DataPath::Buffered);
    if comm.rank() == 0 {
        let mine = Arc::new(samples::<u8>(0, 0, 300_000));
        let sends =
            (0..3).map(|tag| world.isend(Arc::clone(&mine), 1, tag)).collect::<mpj::Result<Vec<_>>>()?;
        for sending in sends {
            sending.wait()?;
        }
        assert_eq!(Arc::strong_count(&mine), 1);
        return raw::barrier(comm);
    }
    let kept = [
        raw::recv_block(comm, 0, 0, ReadInPlace::All)?.0,
        raw::recv_block(comm, 0, 1, ReadInPlace::SharedPool)?.0,
        raw::recv_block(&buffered, 0, 2, ReadInPlace::All)?.0,
    ];
    assert_eq!(kept.each_ref().map(ReceivedBlock::is_zero_copy), [true, false, false]);
    assert!(kept.iter().all(|block| block[..] == samples::<u8>(0, 0, 300_000)));
    drop(kept);
    raw::barrier(comm)
}

#[mpj::test(ranks = 2)]
fn discarded_messages_complete_their_sends(world: World) -> mpj::Result<()> {
    let comm = world.as_raw();
    for len in LENS {
        if comm.rank() == 0 {
            world.issend(vec![1u8; len], 1, 0)?.wait()?;
            world.issend(world.alloc_slice(1u8, len)?, 1, 1)?.wait()?;
            world.send(&[len], 1, 2)?;
        } else {
            raw::mdiscard(raw::mprobe(comm, 0, 0)?);
            raw::mdiscard(raw::mprobe(comm, 0, 1)?);
            let mut got = [0usize];
            assert_eq!((world.recv(&mut got, 0, mpj::ANY_TAG)?.tag(), got), (2, [len]));
        }
    }
    Ok(())
}

/// Rank 1 extracts messages of rank 0 and gives them to rank 2, which must not receive them through its own devices.
#[test]
#[expect(unsafe_code, reason = "the raw layer takes raw memory")]
fn message_that_another_rank_has_extracted_is_refused() {
    let (give, take) = std::sync::mpsc::channel();
    let (give, take) = (std::sync::Mutex::new(give), std::sync::Mutex::new(take));
    mpj::threads(3, |world| {
        let comm = world.as_raw();
        match world.rank() {
            0 => {
                for _ in 0..3 {
                    world.ssend(&[7u8; 300_000], 1, 0)?;
                }
            }
            1 => {
                for _ in 0..3 {
                    give.lock().unwrap().send(raw::mprobe(comm, 0, 0)?).unwrap();
                }
            }
            _ => {
                let message = || take.lock().unwrap().recv().unwrap();
                let mut room = [0u8; 8];
                let block = raw::mrecv_block(comm, message(), ReadInPlace::All).map(drop);
                // SAFETY: `room` lives until the call has returned.
                let copied = unsafe { raw::mrecv(comm, Buf::slice_mut(&mut room), message()) }.map(drop);
                // SAFETY: the call is refused.
                let started = unsafe { raw::imrecv(comm, Buf::slice_mut(&mut room), message(), None) };
                for error in [block, copied, started.map(drop)].map(Result::unwrap_err) {
                    assert_eq!(error.class(), ErrorClass::Comm);
                    assert!(error.to_string().contains("world rank 1 has extracted"), "{error}");
                }
                assert_eq!(room, [0; 8]);
            }
        }
        Ok::<(), mpj::Error>(())
    })
    .expect("the refused messages are discarded, so their sends complete");
}

#[mpj::test(ranks = 2)]
fn invalid_arguments_are_rejected(world: World) -> mpj::Result<()> {
    let freed = world.dup()?;
    freed.free()?;
    for in_place in [ReadInPlace::All, ReadInPlace::SharedPool] {
        let class = |comm, source, tag| {
            raw::recv_block(comm, source, tag, in_place).expect_err("an invalid argument").class()
        };
        assert_eq!(class(world.as_raw(), 2, 0), ErrorClass::Rank);
        assert_eq!(class(world.as_raw(), 0, -5), ErrorClass::Tag);
        assert_eq!(class(freed.as_raw(), 0, 0), ErrorClass::Comm);
        assert_eq!(class(freed.as_raw(), PROC_NULL, 0), ErrorClass::Comm);
        let (block, status) = raw::recv_block(world.as_raw(), PROC_NULL, ANY_TAG, in_place)?;
        assert!(block.is_empty() && !block.is_zero_copy() && status.source().is_none());
    }
    raw::barrier(world.as_raw())
}

/// Rank 1 holds a message of rank 0 when rank 0 dies.
#[test]
fn receive_from_a_dead_rank_fails_and_its_block_stays_readable() {
    for (name, receive) in RECEIVES {
        let outcome = job(2, |world| {
            if world.rank() == 0 {
                drop(world.isend(world.alloc_slice(5u8, 300_000)?, 1, 0)?);
                world.recv(&mut [0u8], 1, 0)?;
                return Err("dies".into());
            }
            let (block, _) = receive(world.as_raw(), 0, 0)?;
            world.send(&[0u8], 0, 0)?;
            let error = receive(world.as_raw(), 0, 1).expect_err("a dead sender");
            assert_eq!((error.class(), error.failed_rank()), (ErrorClass::ProcAborted, Some(0)), "{name}");
            assert!(block[..] == [5; 300_000], "{name}");
            Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
        });
        assert_eq!(outcome.expect_err("rank 0 dies").rank(), 0, "{name}");
    }
}

/// A block of another type, or without whole items, fails the conversion, and not the receive.
#[test]
fn blocks_of_other_types_are_rejected() {
    let outcome = alive(|| {
        mpj::threads(2, |world| {
            if world.rank() == 0 {
                return world.send(&[1u32, 2, 3], 1, 0);
            }
            let (block, _) = raw::recv_block(world.as_raw(), 0, 0, ReadInPlace::All)?;
            assert_eq!(block.try_as_slice::<u32>()?, [1, 2, 3]);
            for class in [
                block.try_as_slice::<f32>().expect_err("floats").class(),
                block.try_as_slice::<[u32; 2]>().expect_err("one and a half").class(),
            ] {
                assert_eq!(class, ErrorClass::Type);
            }
            assert_eq!(block.try_into_buffer().expect_err("no header").class(), ErrorClass::Buffer);
            Ok(())
        })
    });
    outcome.unwrap();
}

/// A freed channel stays known while its extracted messages have not been received: otherwise their receives would not
/// learn of the death of a sender.
#[test]
fn extracted_message_of_a_freed_communicator_fails_with_its_sender() {
    let failed = job(2, |world| {
        let dup = world.dup()?;
        if world.rank() == 0 {
            let _unreceived = dup.isend(samples::<u8>(0, 0, 300_000), 1, 0)?;
            drop(dup);
            world.recv(&mut [0u8], 1, 1)?;
            return Err(mpj::BoxError::from("as intended"));
        }
        let message = raw::mprobe(dup.as_raw(), 0, 0)?;
        drop(dup);
        // When a communicator is created, the engine removes freed channels that are idle.
        drop(world.self_comm()?.dup()?);
        world.send(&[1u8], 0, 1)?;
        world.recv(&mut [0u8], 0, 2).unwrap_err();
        let error = raw::mrecv_block(world.as_raw(), message, ReadInPlace::SharedPool).unwrap_err();
        assert_eq!(error.failed_rank(), Some(0), "{error}");
        Ok(())
    });
    assert_eq!(failed.unwrap_err().rank(), 0);
}
