//! The channel of partitioned messages: its ranks, its end, and foreign code that runs while it is used.
#![expect(
    unsafe_code,
    reason = "the operations keep the buffers, or complete before the buffers are accessed"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::ranks;
use crate::intercomm::{SHAPES, connect};
use mpj::raw::{self, Buf, PersistentOperation};
use mpj::{Error, ErrorClass, Fault, Intracomm, World};

/// Bytes of a part that waits for its receiver on every device.
const LONG: usize = 1 << 20;

/// Sends two parts to rank 1, which frees the communicator without receiving them. Then notifies rank 1.
fn send_refused_parts(world: &World, comm: &Intracomm) -> Result<(), Error> {
    let mut send = comm.psend_init(vec![1u8; 2 * LONG], 2, 1, 0)?;
    let filling = send.start()?;
    filling.part(0)?.ready()?;
    world.barrier()?;
    let _late = filling.part(1)?.ready();
    let error = filling.wait().expect_err("rank 1 starts no receive");
    assert!(matches!(error.as_fault(), Some(Fault::Refused { rank: 1 })), "{error}");
    world.send(&[0u8; 0], 1, 0)
}

/// Rank 1 has no partitioned operations. It drops its only handle, or frees the communicator and keeps the handle.
#[test]
fn communicator_that_was_freed_without_a_receive_refuses_the_parts() {
    for keeps_handle in [false, true] {
        ranks(2, |world| {
            let comm = world.dup()?;
            if world.rank() == 1 {
                let handle = keeps_handle.then(|| comm.clone());
                if keeps_handle {
                    comm.free()?;
                }
                drop(comm);
                world.barrier()?;
                world.recv(&mut [0u8; 0], 0, 0)?;
                drop(handle);
                return Ok(());
            }
            send_refused_parts(&world, &comm)
        });
    }
}

/// Rank 1 frees the communicator with an inactive receive, which it keeps.
#[test]
fn freed_communicator_refuses_the_parts_of_an_inactive_receive() {
    ranks(2, |world| {
        let comm = world.dup()?;
        if world.rank() == 1 {
            let recv = comm.precv_init(vec![0u8; 2 * LONG], 2, 0, 0)?;
            comm.free()?;
            world.barrier()?;
            world.recv(&mut [0u8; 0], 0, 0)?;
            drop(recv);
            return Ok(());
        }
        send_refused_parts(&world, &comm)
    });
}

/// Rank 1 frees the communicator before the handshake arrives.
#[test]
fn active_round_outlives_its_communicator() {
    ranks(2, |world| {
        let comm = world.dup()?;
        if world.rank() == 1 {
            let mut recv = comm.precv_init(vec![0u8; 2 * LONG], 2, 0, 0)?;
            let arriving = recv.start()?;
            comm.free()?;
            world.barrier()?;
            assert_eq!(arriving.wait()?, vec![1u8; 2 * LONG]);
            world.barrier()?;
            return world.recv(&mut [0u8; 0], 0, 0).map(drop);
        }
        world.barrier()?;
        let new = |tag| comm.psend_init(vec![1u8; 2 * LONG], 2, 1, tag);
        let mut send = new(0)?;
        let filling = send.start()?;
        (0..2).try_for_each(|part| filling.part(part)?.ready())?;
        filling.wait()?;
        world.barrier()?;
        let mut refused = new(1)?;
        let filling = refused.start()?;
        let _ready = (0..2).try_for_each(|part| filling.part(part)?.ready());
        let error = filling.wait().expect_err("the last round of rank 1 has ended");
        assert!(matches!(error.as_fault(), Some(Fault::Refused { rank: 1 })), "{error}");
        world.send(&[0u8; 0], 1, 0)
    });
    ranks(1, |world| {
        let comm = world.dup()?;
        let mut recv = comm.precv_init([0u8; 4], 2, 0, 0)?;
        let mut send = comm.psend_init([7u8; 4], 4, 0, 0)?;
        let (arriving, filling) = (recv.start()?, send.start()?);
        comm.free()?;
        (0..4).try_for_each(|part| filling.part(part)?.ready())?;
        filling.wait()?;
        assert_eq!(arriving.wait()?, [7; 4]);
        assert_eq!(recv.start().expect_err("freed").class(), ErrorClass::Comm);
        Ok(())
    });
}

/// An inactive receive, and one whose round is active.
#[test]
fn dropped_receive_leaves_the_handshake_to_the_next_one() {
    for is_active in [false, true] {
        ranks(2, |world| {
            if world.rank() == 1 {
                let mut dropped = world.precv_init([0u8; 6], 2, 0, 0)?;
                if is_active {
                    let _round = dropped.start()?;
                }
                drop(dropped);
                let mut recv = world.precv_init([0u8; 6], 3, 0, 0)?;
                world.barrier()?;
                for round in 0..3 {
                    assert_eq!(recv.start()?.wait()?, [round; 6]);
                }
                return Ok(());
            }
            world.barrier()?;
            let mut send = world.psend_init([0u8; 6], 2, 1, 0)?;
            for round in 0..3 {
                let filling = send.start()?;
                for part in 0..2 {
                    let mut items = filling.part(part)?;
                    items.fill(round);
                    items.ready()?;
                }
                filling.wait()?;
            }
            Ok(())
        });
    }
}

#[test]
fn parts_go_to_the_remote_group() {
    for (first, size) in SHAPES {
        ranks(size, |world| {
            let inter = connect(&world, first)?;
            let comm = inter.as_raw();
            let (me, others) = (inter.rank() as u64, inter.remote_size() as i32);
            let mine = [me, 10 + me];
            let mut theirs = vec![[0u64; 2]; others as usize];
            let mut sends = Vec::new();
            let mut recvs = Vec::new();
            for (other, items) in (0..).zip(&mut theirs) {
                sends.push(raw::psend_init(comm, Buf::slice(&mine), 2, other, 0, None)?);
                recvs.push(raw::precv_init(comm, Buf::slice_mut(items), 1, other, 0, None)?);
            }
            // SAFETY: see the reason at the top of this file.
            unsafe { raw::start_all(sends.iter_mut().chain(&mut recvs))? };
            for (send, part) in sends.iter().flat_map(|send| [(send, 1), (send, 0)]) {
                // SAFETY: see the reason at the top of this file.
                unsafe { send.pready(part)? };
            }
            for request in sends.iter_mut().chain(&mut recvs) {
                request.wait()?;
            }
            for (other, items) in (0..).zip(theirs) {
                assert_eq!(items, [other, 10 + other]);
            }
            Ok(())
        });
    }
}

#[test]
fn raw_pready_checks_part_and_state() {
    ranks(2, |world| {
        let (comm, me, other) = (world.as_raw(), world.rank() as u64, 1 - world.rank() as u64);
        let (mine, mut theirs) = ([10 * me, 10 * me + 1], [9u64; 2]);
        let mut send = raw::psend_init(comm, Buf::slice(&mine), 2, other as i32, 0, None)?;
        let mut recv = raw::precv_init(comm, Buf::slice_mut(&mut theirs), 2, other as i32, 0, None)?;
        let refused = |send: &PersistentOperation, part, class, why: &str| {
            // SAFETY: the buffer is not written while the request is active.
            let error = unsafe { send.pready(part) }.expect_err(why);
            assert_eq!((error.class(), error.to_string()), (class, format!("pready: {why}")));
        };
        let inactive = "the request is not active: start it first";
        refused(&send, 0, ErrorClass::Request, inactive);
        refused(&recv, 0, ErrorClass::Request, "the request of precv_init has no such parts");
        for _ in 0..2 {
            // SAFETY: see above.
            unsafe { raw::start_all([&mut send, &mut recv])? };
            for part in [2, usize::MAX] {
                let why = format!("part {part} is out of range: the message has 2 parts");
                refused(&send, part, ErrorClass::Arg, &why);
            }
            for (part, unready) in [(1, vec![0]), (0, vec![])] {
                // SAFETY: see above.
                unsafe { send.pready(part)? };
                let why = format!("part {part} was marked ready already in this round");
                refused(&send, part, ErrorClass::Request, &why);
                assert_eq!(send.unready_parts(), unready);
            }
            send.wait()?;
            recv.wait()?;
            refused(&send, 1, ErrorClass::Request, inactive);
        }
        assert_eq!(theirs, [10 * other, 10 * other + 1]);
        world.barrier()
    });
}

/// The owner of the memory of one operation (`keep`). Its drop uses the request of another operation.
struct UsesOnDrop(Arc<PersistentOperation>, Arc<AtomicBool>);

/// The value that [`UsesOnDrop`] passes to `drop_deferred`.
struct Uses(Arc<PersistentOperation>, Arc<AtomicBool>);

impl Drop for UsesOnDrop {
    fn drop(&mut self) {
        mpj_devices::drop_deferred(Uses(Arc::clone(&self.0), Arc::clone(&self.1)));
    }
}

impl Drop for Uses {
    fn drop(&mut self) {
        let _unready = self.0.unready_parts();
        let _arrived = self.0.parrived(0);
        self.1.store(true, Ordering::Release);
    }
}

#[test]
fn drop_of_received_memory_uses_the_send() {
    ranks(1, |world| {
        let (comm, dropped) = (world.as_raw(), Arc::new(AtomicBool::new(false)));
        let (items, mut room) = ([1u8], [0u8]);
        let mut send = raw::psend_init(comm, Buf::slice(&items), 1, 0, 0, None)?;
        // SAFETY: see the reason at the top of this file.
        unsafe { send.start()? };
        let send = Arc::new(send);
        let keep = Arc::new(UsesOnDrop(Arc::clone(&send), Arc::clone(&dropped)));
        let mut recv = raw::precv_init(comm, Buf::slice_mut(&mut room), 1, 0, 0, Some(keep))?;
        // SAFETY: see the reason at the top of this file.
        unsafe { recv.start()? };
        drop(recv);
        // SAFETY: see the reason at the top of this file.
        unsafe { send.pready(0)? };
        assert!(dropped.load(Ordering::Acquire), "the drop waits for later progress");
        assert_eq!(room, [1]);
        Ok(())
    });
}

#[test]
fn drop_of_sent_memory_uses_the_receive() {
    ranks(1, |world| {
        let (comm, dropped) = (world.as_raw(), Arc::new(AtomicBool::new(false)));
        let (items, mut room) = (vec![1u8; LONG], vec![0u8; LONG]);
        let mut recv = raw::precv_init(comm, Buf::slice_mut(&mut room), 1, 0, 0, None)?;
        // SAFETY: see the reason at the top of this file.
        unsafe { recv.start()? };
        let recv = Arc::new(recv);
        let keep = Arc::new(UsesOnDrop(Arc::clone(&recv), Arc::clone(&dropped)));
        let mut send = raw::psend_init(comm, Buf::slice(&items), 1, 0, 0, Some(keep))?;
        // SAFETY: see the reason at the top of this file.
        unsafe { send.start()? };
        // SAFETY: see the reason at the top of this file.
        unsafe { send.pready(0)? };
        drop(send);
        assert!(recv.parrived(0)?);
        assert!(dropped.load(Ordering::Acquire), "the drop waits for later progress");
        assert_eq!(room, items);
        Ok(())
    });
}

#[test]
fn rank_that_has_left_fails_the_rounds() {
    ranks(2, |world| {
        if world.rank() == 1 {
            return Ok(());
        }
        let outcomes = [
            world.precv_init([0u8; 2], 2, 1, 0).and_then(|mut recv| recv.start()?.wait().map(drop)),
            world.psend_init(vec![0u8; LONG], 1, 1, 0).and_then(|mut send| {
                let filling = send.start()?;
                filling.part(0)?.ready()?;
                filling.wait()
            }),
        ];
        for outcome in outcomes {
            assert_eq!(outcome.expect_err("rank 1 has left").failed_rank(), Some(1));
        }
        Ok(())
    });
}
