//! The received data do not depend on the data paths that the sender and the receiver use.
#![allow(unsafe_code, reason = "only the raw interface can send bytes that are not valid values")]

use crate::common::SIZES;
use mpj::pool::Pool;
use mpj::raw::{self, Buf, Mode};
use mpj::{DataPath, Datatype, ErrorClass, View, ViewMut, World};

const PATHS: [DataPath; 3] = [DataPath::Auto, DataPath::Buffered, DataPath::ZeroCopy];

fn pairs() -> impl Iterator<Item = (DataPath, DataPath)> {
    PATHS.into_iter().flat_map(|sender| PATHS.map(|receiver| (sender, receiver)))
}

fn numbers(rank: usize, round: usize, len: usize) -> Vec<u32> {
    (0..len).map(|at| (at * 31 + round * 7 + rank) as u32).collect()
}

#[mpj::test(ranks = 3)]
fn received_data_do_not_depend_on_the_path(world: World) -> mpj::Result<()> {
    let (right, left) = ((world.rank() + 1) % 3, (world.rank() + 2) % 3);
    for (round, (sender, receiver)) in pairs().enumerate() {
        for len in SIZES {
            let sent = numbers(world.rank(), round, len);
            let mut room = vec![0u32; len + 1];
            // Either post the receive before the own send, or receive a message that has arrived before.
            let status = if (round + len) % 2 == 0 {
                let receive = world.with_path(receiver).irecv(vec![0u32; len + 1], left, 0)?;
                world.with_path(sender).send(&sent, right, 0)?;
                let (received, status) = receive.wait()?;
                room = received;
                status
            } else {
                let send = world.with_path(sender).isend(sent, right, 0)?;
                world.probe(left, 0)?;
                let status = world.with_path(receiver).recv(&mut room, left, 0)?;
                send.wait()?;
                status
            };
            assert_eq!(status.count::<u32>(), Some(len), "{sender:?} {receiver:?}");
            assert_eq!(room[..len], numbers(left, round, len), "{sender:?} {receiver:?} {len}");
            assert_eq!(room[len], 0);
        }
    }
    Ok(())
}

/// Each rank sends before it receives, which works only if the messages are sent eagerly.
#[mpj::test(ranks = 2)]
fn buffered_and_default_sends_up_to_the_eager_limit_do_not_wait(world: World) -> mpj::Result<()> {
    let other = 1 - world.rank();
    for path in [DataPath::Auto, DataPath::Buffered] {
        for len in [16 << 10, 20_000, 60_000] {
            world.barrier()?;
            let mut theirs = vec![0u8; len];
            world.with_path(path).send(&vec![world.rank() as u8; len], other, 0)?;
            world.recv(&mut theirs, other, 0)?;
            assert_eq!(theirs, vec![other as u8; len], "{path:?}");
        }
    }
    Ok(())
}

#[mpj::test(ranks = 2)]
fn sender_and_receiver_layouts_may_differ(world: World) -> mpj::Result<()> {
    const ROWS: usize = 300;
    let column = Datatype::of::<u32>().vector(ROWS, 1, 3).unwrap();
    for (round, (sender, receiver)) in pairs().enumerate() {
        let table = numbers(0, round, 3 * ROWS);
        if world.rank() == 0 {
            world.with_path(sender).send(&View::new(&table, 1, &column, 1).unwrap(), 1, 0)?;
            world.with_path(sender).send(&table[..ROWS], 1, 1)?;
        } else {
            let mut packed = [0u32; ROWS];
            world.with_path(receiver).recv(&mut packed, 0, 0)?;
            let wanted: Vec<u32> = table.iter().skip(1).step_by(3).copied().collect();
            assert_eq!(packed[..], wanted, "{sender:?} {receiver:?}");
            let mut spread = vec![0u32; 3 * ROWS];
            world.with_path(receiver).recv(&mut ViewMut::new(&mut spread, 2, &column, 1).unwrap(), 0, 1)?;
            for (at, number) in spread.into_iter().enumerate() {
                assert_eq!(number, if at % 3 == 2 { table[at / 3] } else { 0 }, "{sender:?} {receiver:?}");
            }
        }
    }
    Ok(())
}

#[mpj::test(ranks = 2)]
fn rejected_message_leaves_buffer_unchanged(world: World) -> mpj::Result<()> {
    for (sender, receiver) in pairs() {
        for len in [10, 300_000] {
            if world.rank() == 0 {
                // The send succeeds whether or not the receiver rejects the message.
                world.with_path(sender).send(&vec![1.5f32; len], 1, 0)?;
                world.with_path(sender).send(&vec![7u32; len], 1, 0)?;
                world.with_path(sender).send(&vec![9u32; len], 1, 0)?;
            } else {
                let mut room = vec![3u32; len];
                let mistyped = world.with_path(receiver).recv(&mut room, 0, 0).unwrap_err();
                let too_long = world.with_path(receiver).recv(&mut room[1..], 0, 0).unwrap_err();
                assert_eq!((mistyped.class(), too_long.class()), (ErrorClass::Type, ErrorClass::Truncate));
                assert!(room.iter().all(|number| *number == 3), "{sender:?} {receiver:?}");
                world.with_path(receiver).recv(&mut room, 0, 0)?;
                assert!(room.iter().all(|number| *number == 9), "{sender:?} {receiver:?}");
            }
        }
    }
    Ok(())
}

#[mpj::test(ranks = 2)]
fn invalid_bytes_are_errors(world: World) -> mpj::Result<()> {
    for (sender, receiver) in pairs() {
        for len in [10, 100_000] {
            if world.rank() == 0 {
                let twos = vec![2u8; len];
                let flags = Buf::read_only(twos.as_ptr(), len, Datatype::of::<bool>());
                // SAFETY: the bytes stay unchanged; the receiver detects that they are not valid `bool`s.
                unsafe { raw::send(world.with_path(sender).as_raw(), flags, 1, 0, Mode::Standard) }?;
            } else {
                let mut room = vec![true; len];
                let error = world.with_path(receiver).recv(&mut room, 0, 0).unwrap_err();
                assert_eq!(error.to_string(), "recv: rank 0 sent an invalid bool or char with tag 0");
                assert!(room.iter().all(|value| !value), "{sender:?} {receiver:?}");
            }
        }
    }
    Ok(())
}

#[mpj::test(ranks = 2)]
fn zero_copy_messages_are_not_counted_as_copies(world: World) -> mpj::Result<()> {
    let copies = || world.stats().copies();
    world.barrier()?;
    let before = copies();
    for bytes in [1usize, 64, 5000, 1 << 20] {
        match world.rank() {
            0 => world.with_path(DataPath::ZeroCopy).send(&vec![1u8; bytes], 1, 0)?,
            _ => drop(world.with_path(DataPath::ZeroCopy).recv(&mut vec![0u8; bytes], 0, 0)?),
        }
    }
    assert_eq!(copies(), before);
    Ok(())
}

/// A receive buffer is often allocated for the longest possible message.
#[mpj::test(ranks = 2)]
fn receive_allocates_for_its_message_not_for_its_buffer(world: World) -> mpj::Result<()> {
    // More than all tests in this process take from the pool at once.
    const ROOM: usize = if cfg!(miri) { 1 << 28 } else { 1 << 30 };
    let mut room = vec![0u8; if world.rank() == 1 { ROOM } else { 0 }];
    for (sender, len) in PATHS.into_iter().flat_map(|path| [(path, 8), (path, 1 << 20)]) {
        // Alternate between unexpected and expected messages.
        for early in [true, false] {
            if world.rank() == 0 {
                if !early {
                    world.barrier()?;
                }
                let send = world.with_path(sender).isend(vec![len as u8 + 5; len], 1, 0)?;
                if early {
                    world.barrier()?;
                }
                send.wait()?;
                continue;
            }
            let buffered = world.with_path(DataPath::Buffered);
            if early {
                world.probe(0, 0)?;
                world.barrier()?;
                buffered.recv(&mut room, 0, 0)?;
            } else {
                let receive = buffered.irecv(std::mem::take(&mut room), 0, 0)?;
                world.barrier()?;
                room = receive.wait()?.0;
            }
            assert!(room[..len].iter().all(|byte| *byte == len as u8 + 5), "{sender:?} {len}");
            assert_eq!(room[len], 0);
            room[..len].fill(0);
        }
    }
    // The peak covers all tests in this process.
    let taken = mpj::pool::global().stats().peak_bytes;
    assert!(taken < ROOM as u64, "{taken}");
    Ok(())
}

#[mpj::test(ranks = 2)]
fn dup_inherits_the_data_path(world: World) -> mpj::Result<()> {
    let straight = world.with_path(DataPath::ZeroCopy).dup()?;
    assert_eq!(straight.as_raw().path(), Some(DataPath::ZeroCopy));
    assert_eq!(world.comm().as_raw().path(), None);
    Ok(())
}
