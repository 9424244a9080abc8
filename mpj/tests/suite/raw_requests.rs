//! Untyped operations. Most have no typed form: exchanges, statuses of several requests, non-blocking receives of
//! extracted messages, and flushes as requests.
#![expect(
    unsafe_code,
    reason = "the buffers outlive the requests, which are complete when they are accessed"
)]

use std::sync::Arc;
use std::time::Duration;

use crate::common::{ranks, samples};
use crate::intercomm::connect;
use mpj::raw::{self, ANY_SOURCE, ANY_TAG, BSEND_OVERHEAD, Buf, Mode, PROC_NULL};
use mpj::{ErrorClass, World};

const LENS: [usize; 4] = [0, 5, 2000, 200_000];

fn neighbours(world: &World) -> (i32, i32) {
    let (me, size) = (world.rank() as i32, world.size() as i32);
    ((me + 1) % size, (me + size - 1) % size)
}

#[test]
fn exchanges_are_one_request() {
    for size in [1, 2, 3] {
        ranks(size, |world| {
            let (comm, me, (right, left)) = (world.as_raw(), world.rank(), neighbours(&world));
            for len in LENS {
                let (mut mine, mut theirs): (Vec<u64>, _) = (samples(me, 0, len), vec![0u64; len]);
                let (send, recv) = (Buf::slice(&mine), Buf::slice_mut(&mut theirs));
                // SAFETY: see the reason at the top of this file.
                let exchange =
                    unsafe { raw::isendrecv(comm, send, right, me as i32, recv, left, ANY_TAG, None)? };
                assert!(!exchange.cancel());
                let status = exchange.wait()?;
                assert_eq!(
                    (status.source(), status.tag(), status.bytes()),
                    (Some(left as usize), left, 8 * len)
                );
                assert_eq!(theirs, samples::<u64>(left as usize, 0, len));
                let buf = Buf::slice_mut(&mut mine);
                // SAFETY: see the reason at the top of this file.
                let replace = unsafe { raw::isendrecv_replace(comm, buf, right, 3, left, 3, None)? };
                let mut requests = [None, Some(replace)];
                let (at, status) = raw::wait_any(&mut requests).expect("one is active");
                assert_eq!((at, status?.bytes()), (1, 8 * len));
                assert_eq!(mine, theirs);
            }
            Ok(())
        });
    }
}

#[test]
fn status_of_many_requests_does_not_consume_them() {
    ranks(2, |world| {
        let (comm, me, other) = (world.as_raw(), world.rank(), 1 - world.rank());
        let mut items = [[0u64; 2]; 2];
        let [first, second] = items.each_mut().map(|items| Buf::slice_mut(items));
        // SAFETY: see the reason at the top of this file.
        let first = unsafe { raw::irecv(comm, first, other as i32, 0, None)? };
        // SAFETY: see the reason at the top of this file.
        let second = unsafe { raw::irecv(comm, second, other as i32, 1, None)? };
        let mut requests = [None, Some(first), Some(second)];
        assert!(raw::status_all(&requests).is_none() && raw::status_some(&requests).is_empty());
        assert!(raw::status_any(&requests).is_none());
        // The other rank sends only after this barrier.
        world.barrier()?;
        world.send(&[me as u64; 2], other, 1)?;
        while raw::status_any(&requests).is_none() {}
        for _ in 0..2 {
            let (at, status) = raw::status_any(&requests).expect("one is complete");
            assert_eq!((at, status?.tag()), (2, 1));
            let some = raw::status_some(&requests);
            assert_eq!(some.into_iter().map(|(at, _)| at).collect::<Vec<_>>(), [2]);
            assert!(raw::status_all(&requests).is_none());
        }
        world.barrier()?;
        world.send(&[me as u64; 1], other, 0)?;
        let all = loop {
            if let Some(all) = raw::status_all(&requests) {
                break all;
            }
        };
        let bytes: Vec<usize> =
            all.into_iter().map(|it| it.map(|it| it.bytes())).collect::<Result<_, _>>()?;
        assert_eq!(bytes, [0, 8, 16]);
        assert!(raw::wait_all(&mut requests).iter().all(Result::is_ok));
        assert_eq!(items, [[other as u64, 0], [other as u64; 2]]);
        assert!(raw::status_any(&requests).is_none() && raw::status_all(&requests).is_some());
        Ok(())
    });
}

/// Dropping a request is MPI_Request_free: the operation continues.
#[test]
fn dropped_requests_complete() {
    ranks(2, |world| {
        let (comm, me, other) = (world.as_raw(), world.rank(), 1 - world.rank());
        for len in LENS {
            let (mine, mut theirs) = (samples::<u64>(me, 0, len), vec![0u64; len]);
            let alive: Arc<()> = Arc::default();
            let (recv, send) = (Buf::slice_mut(&mut theirs), Buf::slice(&mine));
            // SAFETY: the buffers are not accessed until the operations have dropped `alive`.
            drop(unsafe { raw::irecv(comm, recv, other as i32, 0, Some(alive.clone()))? });
            // SAFETY: as above.
            drop(unsafe { raw::isend(comm, send, other as i32, 0, Mode::Standard, Some(alive.clone()))? });
            while Arc::strong_count(&alive) > 1 {
                // Probes this rank itself, which makes progress: a probe of the other rank fails if it has left.
                world.iprobe(me, 1)?;
            }
            assert_eq!(theirs, samples::<u64>(other, 0, len));
        }
        Ok(())
    });
}

#[test]
fn failed_exchange_leaves_nothing_pending() {
    ranks(2, |world| {
        let (comm, other) = (world.as_raw(), 1 - world.rank() as i32);
        let (mine, mut theirs) = ([1u8; 4], [0u8; 4]);
        for (dest, tag, source, class) in [
            (2, 0, other, ErrorClass::Rank),
            (other, -1, other, ErrorClass::Tag),
            (other, 0, 7, ErrorClass::Rank),
        ] {
            let (send, recv) = (Buf::slice(&mine), Buf::slice_mut(&mut theirs));
            // SAFETY: see the reason at the top of this file.
            let error = unsafe { raw::isendrecv(comm, send, dest, tag, recv, source, 0, None) };
            assert_eq!(error.expect_err("invalid").class(), class);
        }
        let (send, recv) = (Buf::slice(&mine), Buf::slice_mut(&mut theirs[..2]));
        // SAFETY: see the reason at the top of this file.
        let short = unsafe { raw::isendrecv(comm, send, other, 0, recv, other, 0, None)? };
        assert_eq!(short.wait().expect_err("4 bytes").class(), ErrorClass::Truncate);
        let (send, recv) = (Buf::slice(&mine), Buf::slice_mut(&mut theirs));
        // SAFETY: see the reason at the top of this file.
        let nothing = unsafe { raw::isendrecv(comm, send, PROC_NULL, 0, recv, PROC_NULL, 0, None)? };
        assert_eq!(nothing.wait()?.source(), None);
        world.barrier()?;
        assert_eq!(raw::iprobe(comm, ANY_SOURCE, ANY_TAG)?, None);
        world.barrier()
    });
}

#[test]
fn extracted_message_is_received_without_blocking() {
    ranks(2, |world| {
        let (comm, me, other) = (world.as_raw(), world.rank(), 1 - world.rank());
        for len in LENS {
            let mine: Vec<u64> = samples(me, 0, len);
            let sending = world.isend(mine.clone(), other, 0)?;
            let message = raw::mprobe(comm, other as i32, 0)?;
            let mut theirs = vec![0u64; len];
            // SAFETY: see the reason at the top of this file.
            let receiving = unsafe { raw::imrecv(comm, Buf::slice_mut(&mut theirs), message, None)? };
            assert_eq!(receiving.wait()?.bytes(), 8 * len);
            assert_eq!(theirs, samples::<u64>(other, 0, len));
            sending.wait()?;
        }
        // An invalid buffer discards the message.
        let sending = world.issend([1u8; 4], other, 1)?;
        let message = raw::mprobe(comm, other as i32, 1)?;
        // SAFETY: nothing is accessed.
        let refused = unsafe { raw::imrecv(comm, Buf::in_place(), message, None) };
        assert_eq!(refused.expect_err("no other buffer").class(), ErrorClass::Buffer);
        sending.wait().map(drop).map_err(Into::into)
    });
}

#[test]
fn partitioned_messages_of_an_intercommunicator_go_to_the_remote_group() {
    ranks(4, |world| {
        let inter = connect(&world, 1)?;
        let (comm, me) = (inter.as_raw(), world.rank());
        for peer in 0..inter.remote_size() {
            let (mine, mut theirs) = ([10 * me; 4], [0usize; 4]);
            let mut recv = raw::precv_init(comm, Buf::slice_mut(&mut theirs), 2, peer as i32, 3, None)?;
            let mut send = raw::psend_init(comm, Buf::slice(&mine), 2, peer as i32, 3, None)?;
            // SAFETY: see the reason at the top of this file.
            unsafe { recv.start()? };
            // SAFETY: see the reason at the top of this file.
            unsafe { send.start()? };
            for part in 0..2 {
                // SAFETY: see the reason at the top of this file.
                unsafe { send.pready(part)? };
            }
            send.wait()?;
            recv.wait()?;
            let world_rank = comm.remote_group().and_then(|group| group.peer(peer as u32)).expect("a rank");
            assert_eq!(theirs, [10 * world_rank.0 as usize; 4]);
        }
        inter.barrier()
    });
}

#[test]
fn flush_is_a_request() {
    ranks(2, |world| {
        const LEN: usize = 1 << 20;
        let (comm, me, other) = (world.as_raw(), world.rank(), 1 - world.rank());
        assert_eq!(raw::iflush_buffer(comm).expect_err("no buffer").class(), ErrorClass::Buffer);
        assert_eq!(raw::flush_buffer(comm).expect_err("no buffer").class(), ErrorClass::Buffer);
        assert_eq!(raw::detach(comm).expect_err("no buffer").class(), ErrorClass::Buffer);
        raw::attach(comm, LEN + BSEND_OVERHEAD)?;
        let flushed = raw::iflush_buffer(comm)?;
        assert!(flushed.test()?.is_some());
        let mine = vec![me as u8; LEN];
        // SAFETY: the message is copied.
        unsafe { raw::bsend(comm, Buf::slice(&mine), other as i32, 0)? };
        let flushed = raw::iflush_buffer(comm)?;
        if me == 0 {
            assert!(flushed.test()?.is_none(), "rank 1 has not received the message");
            world.send(&[0u8], 1, 1)?;
        } else {
            world.recv(&mut [0u8], 0, 1)?;
        }
        assert_eq!(world.recv_vec::<u8>(other, 0)?.0, vec![other as u8; LEN]);
        flushed.wait()?;
        assert_eq!(raw::detach(comm)?, LEN + BSEND_OVERHEAD);
        Ok(())
    });
}

#[test]
fn flush_does_not_wait_for_later_messages() {
    ranks(2, |world| {
        const LEN: usize = 1 << 20;
        if world.rank() == 1 {
            world.recv_vec::<u8>(0, 0)?;
            world.recv(&mut [0u8], 0, 2)?; // the flush has completed
            return world.recv_vec::<u8>(0, 1).map(drop);
        }
        let (comm, items) = (world.as_raw(), vec![1u8; LEN]);
        raw::attach(comm, usize::MAX)?;
        // SAFETY: the message is copied.
        unsafe { raw::bsend(comm, Buf::slice(&items), 1, 0)? };
        let flushed = raw::iflush_buffer(comm)?;
        // SAFETY: as above.
        unsafe { raw::bsend(comm, Buf::slice(&items), 1, 1)? };
        flushed.wait()?;
        world.send(&[0u8], 1, 2)?;
        raw::detach(comm).map(drop)
    });
}

#[test]
fn inactive_persistent_requests_are_not_waited_for() {
    ranks(1, |world| {
        let send = raw::send_init(world.as_raw(), Buf::empty(), 0, 0, Mode::Standard, None)?;
        let recv = raw::recv_init(world.as_raw(), Buf::empty(), 0, 0, None)?;
        let part = raw::precv_init(world.as_raw(), Buf::empty(), 1, 0, 0, None)?;
        let mut requests = [None, Some(send), Some(recv), Some(part)].map(|it| it.map(raw::Request::from));
        assert!(raw::wait_any(&mut requests).is_none());
        assert!(raw::wait_any_timeout(&mut requests, Duration::MAX).is_none());
        assert!(raw::wait_all_timeout(&mut requests, Duration::MAX).is_empty());
        assert!(raw::wait_some(&mut requests).is_empty());
        Ok(())
    });
}
