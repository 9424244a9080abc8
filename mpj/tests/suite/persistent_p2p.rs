//! Persistent messages: created once and started many times, with different data on every rank and at each start.
#![expect(unsafe_code, reason = "starts of raw requests, whose buffers outlive them")]
#![expect(clippy::forget_non_drop, reason = "a handle might get a `Drop`")]

use std::sync::Arc;
use std::thread;

use crate::common::{forget, job, ranks, samples};
use mpj::raw::{self, Buf, Mode};
use mpj::{ANY_SOURCE, ANY_TAG, ErrorClass, Op, PROC_NULL, Source, Waitable, coll, start_all};

const LENS: [usize; 4] = [0, 3, 500, 200_000];
const STARTS: usize = 4;

#[test]
fn each_start_sends_the_current_data() {
    for size in [1, 2, 3] {
        ranks(size, |world| {
            let me = world.rank();
            let (right, left) = ((me + 1) % size, (me + size - 1) % size);
            let _buffer = world.attach(usize::MAX)?;
            for len in LENS {
                let new = || vec![0u64; len];
                let mut sends = [
                    world.send_init(new(), right, 0)?,
                    world.ssend_init(new(), right, 1)?,
                    world.bsend_init(new(), right, 2)?,
                    world.rsend_init(new(), right, 3)?,
                ];
                let mut recvs = Vec::new();
                for (tag, source) in
                    (0..).zip([Source::Rank(left), ANY_SOURCE, Source::Any, Source::Rank(left)])
                {
                    recvs.push(world.recv_init(new(), source, tag)?);
                }
                for start in 0..STARTS {
                    for (tag, send) in sends.iter_mut().enumerate() {
                        send.buffers_mut().copy_from_slice(&samples(me, start + 10 * tag, len));
                    }
                    let receiving = start_all(&mut recvs)?;
                    let sending = start_all(&mut sends)?;
                    for (tag, got) in mpj::wait_all(receiving).into_iter().enumerate() {
                        assert_eq!(*got?, samples::<u64>(left, start + 10 * tag, len));
                    }
                    for sent in mpj::wait_all(sending) {
                        sent?;
                    }
                }
                let mut alone = world.recv_init(new(), ANY_SOURCE, ANY_TAG)?;
                world.bsend(&samples::<u64>(me, 99, len), right, 7)?;
                alone.start()?.wait()?;
                let status = alone.status();
                assert_eq!((status.source(), status.tag(), status.bytes()), (Some(left), 7, 8 * len));
                assert_eq!(alone.into_buffers(), samples::<u64>(left, 99, len));
            }
            Ok(())
        });
    }
}

#[test]
fn buffers_may_change_their_length_between_starts() {
    ranks(2, |world| {
        let (me, other) = (world.rank(), 1 - world.rank());
        let mut send = world.send_init(Vec::<u32>::new(), other, 0)?;
        let mut recv = world.recv_init(Vec::<u32>::new(), other, 0)?;
        for len in [1, 100_000, 0, 7] {
            *send.buffers_mut() = samples(me, len, len);
            *recv.buffers_mut() = vec![0; len];
            let (sending, receiving) = (send.start()?, recv.start()?);
            assert_eq!(*receiving.wait()?, samples::<u32>(other, len, len));
            sending.wait()?;
        }
        Ok(())
    });
}

#[test]
fn requests_of_messages_and_collectives_are_waited_for_together() {
    ranks(2, |world| {
        let (me, other) = (world.rank(), 1 - world.rank());
        let mut send = world.send_init([me], other, 0)?;
        let mut recv = world.recv_init([9usize], other, 0)?;
        let mut sum = world.prepare(coll::allreduce([me + 1], [0usize], Op::Sum))?;
        for _ in 0..20 {
            let plain = world.irecv([0u8], other, 1)?;
            let (receiving, summing, sending) = (recv.start()?, sum.start()?, send.start()?);
            world.send(&[me as u8 + 5], other, 1)?;
            let mut all = vec![
                receiving.request_ref(),
                plain.request_ref(),
                summing.request_ref(),
                sending.request_ref(),
            ];
            while let Some((_, outcome)) = mpj::wait_any(&mut all) {
                outcome?;
            }
            assert_eq!((*receiving.wait()?, summing.wait()?.1), ([other], [3]));
            assert_eq!(plain.wait()?.0, [other as u8 + 5]);
            sending.wait()?;
        }
        Ok(())
    });
}

#[test]
fn invalid_arguments_fail_at_creation() {
    ranks(1, |world| {
        let errors = [
            world.send_init([0u8], 1, 0).map(drop),
            world.ssend_init([0u8], 0, -1).map(drop),
            world.bsend_init([0u8], 7, 0).map(drop),
            world.rsend_init([0u8], 0, i32::MIN).map(drop),
            world.recv_init([0u8], 1, 0).map(drop),
            world.recv_init([0u8], 0, -5).map(drop),
        ];
        let calls = ["send_init", "ssend_init", "bsend_init", "rsend_init", "recv_init", "recv_init"];
        for (at, (error, call)) in errors.into_iter().zip(calls).enumerate() {
            let error = error.expect_err(call);
            let class = if at % 2 == 0 { ErrorClass::Rank } else { ErrorClass::Tag };
            assert_eq!((error.class(), error.call()), (class, call), "{error}");
        }
        let comm = world.dup()?;
        let mut send = comm.send_init([0u8], 0, 0)?;
        comm.free()?;
        assert_eq!(send.start().expect_err("freed").class(), ErrorClass::Comm);
        assert_eq!(comm.recv_init([0u8], 0, 0).expect_err("freed").class(), ErrorClass::Comm);
        let full = world.bsend_init([0u8; 8], 0, 0)?.start().map(drop).expect_err("no buffer");
        assert_eq!(full.class(), ErrorClass::Buffer);
        let mut nothing = world.recv_init([7u8], PROC_NULL, 0)?;
        assert_eq!(nothing.start()?.wait()?, &[7]);
        assert_eq!(nothing.status().source(), None);
        world.send_init([7u8], PROC_NULL, 0)?.start()?.wait()?;
        Ok(())
    });
}

struct Numbers([u64; 4]);

#[test]
fn start_of_an_active_request_is_an_error() {
    ranks(2, |world| {
        let (comm, me, other) = (world.as_raw(), world.rank(), 1 - world.rank());
        let (mut mine, mut theirs) = (Numbers([me as u64; 4]), Numbers([9; 4]));
        let send = Buf::slice_mut(&mut mine.0);
        let recv = Buf::slice_mut(&mut theirs.0);
        let mut sending = raw::send_init(comm, send, other as i32, 0, Mode::Synchronous, None)?;
        let mut receiving = raw::recv_init(comm, recv, other as i32, 0, None)?;
        assert!(!receiving.is_active() && !receiving.cancel());
        assert_eq!(receiving.wait()?.source(), None, "a wait without a start returns at once");
        for _ in 0..3 {
            // SAFETY: the numbers outlive the requests, and are not accessed while they are active.
            unsafe { raw::start_all([&mut receiving, &mut sending])? };
            // SAFETY: as above.
            let twice = unsafe { receiving.start() };
            assert_eq!(twice.expect_err("active").class(), ErrorClass::Request);
            // SAFETY: as above.
            let twice = unsafe { raw::start_all([&mut sending]) }.expect_err("active");
            assert!(
                twice.to_string().contains("ssend_init") && twice.to_string().contains("active"),
                "{twice}"
            );
            sending.wait()?;
            while receiving.test()?.is_none() {}
            assert!(!receiving.is_active());
        }
        assert_eq!(theirs.0, [other as u64; 4]);
        Ok(())
    });
}

#[test]
fn inactive_requests_are_skipped_by_raw_waits() {
    ranks(1, |world| {
        let comm = world.as_raw();
        let (mut mine, mut theirs) = ([5u64], [0u64]);
        let (send, recv) = (Buf::slice_mut(&mut mine), Buf::slice_mut(&mut theirs));
        let sending = raw::send_init(comm, send, 0, 0, Mode::Standard, None)?;
        let receiving = raw::recv_init(comm, recv, 0, 0, None)?;
        let mut all = [Some(raw::Request::from(receiving)), None, Some(sending.into())];
        assert!(raw::wait_any(&mut all).is_none() && raw::test_any(&mut all).is_none());
        assert!(raw::wait_some(&mut all).is_empty());
        for round in 0..3 {
            for request in all.iter_mut().flatten() {
                // SAFETY: the numbers outlive the requests, and are not accessed while they are active.
                unsafe { request.persistent_mut().expect("persistent").start()? };
            }
            match round {
                0 => {
                    let statuses: Vec<_> = raw::wait_all(&mut all).into_iter().collect::<Result<_, _>>()?;
                    assert_eq!(statuses[0].source(), Some(0));
                }
                1 => {
                    let (first, second) = (raw::wait_any(&mut all), raw::wait_any(&mut all));
                    let mut indices = [first.expect("two are active").0, second.expect("one is active").0];
                    indices.sort_unstable();
                    assert_eq!(indices, [0, 2]);
                    assert!(raw::wait_any(&mut all).is_none());
                }
                _ => while raw::test_all(&mut all).is_none() {},
            }
            assert!(all[0].is_some() && all[1].is_none() && all[2].is_some(), "persistent requests stay");
        }
        assert_eq!(theirs, [5]);
        Ok(())
    });
}

#[test]
fn truncation_fails_one_start_and_not_the_next() {
    ranks(2, |world| {
        if world.rank() == 0 {
            world.send(&[1u8; 9], 1, 0)?;
            world.send(&[2u8; 4], 1, 0)?;
            world.send(&[3.5f32], 1, 0)?;
            return world.send(&[4u8; 4], 1, 0);
        }
        let mut recv = world.recv_init([0u8; 4], 0, 0)?;
        assert_eq!(recv.start()?.wait().expect_err("9 bytes").class(), ErrorClass::Truncate);
        assert_eq!(recv.start()?.wait()?, &[2; 4]);
        assert_eq!(recv.start()?.wait().expect_err("f32").class(), ErrorClass::Type);
        assert_eq!(recv.start()?.wait()?, &[4; 4]);
        Ok(())
    });
}

#[test]
fn forgotten_and_dropped_handles_are_harmless() {
    ranks(2, |world| {
        let (me, other) = (world.rank(), 1 - world.rank());
        let mut recv = world.recv_init([0usize; 3], other, 0)?;
        std::mem::forget(recv.start()?);
        assert_eq!(*recv.buffers_mut(), [0; 3], "the unmatched receive was cancelled");
        drop(recv.start()?);
        std::mem::forget(recv.start()?); // cancels the dropped one
        drop(recv); // cancels the forgotten one
        world.barrier()?;
        world.send(&[me; 3], other, 0)?;
        assert_eq!(world.recv_vec::<usize>(other, 0)?.0, [other; 3], "no cancelled receive took it");

        let mut send = world.send_init(vec![me; 100_000], other, 1)?;
        std::mem::forget(send.start()?);
        assert_eq!(world.recv_vec::<usize>(other, 1)?.0, vec![other; 100_000]);
        send.buffers_mut()[0] = 7; // waits for the send
        drop(send.start()?);
        drop(send); // the message is still sent
        assert_eq!(world.recv_vec::<usize>(other, 1)?.0[..2], [7, other]);
        forget(world.send_init(Arc::new([me; 3]), other, 2)?);
        Ok(())
    });
}

/// The buffer is free when the operation has completed, so no receiver may still read it.
#[test]
fn buffer_of_a_persistent_send_is_not_read_in_place() {
    ranks(2, |world| {
        if world.rank() == 0 {
            let mut send = world.send_init(world.alloc_slice(5u8, 1 << 20)?, 1, 0)?;
            send.start()?.wait()?;
            send.into_buffers();
            return Ok(());
        }
        let (block, _) = world.recv_block(0, 0)?;
        assert!(!block.is_zero_copy() && block.iter().all(|byte| *byte == 5));
        Ok(())
    });
}

#[test]
fn receive_is_cancelled_by_its_handle() {
    ranks(1, |world| {
        let mut recv = world.recv_init([0u8], 0, 0)?;
        let receiving = recv.start()?;
        assert!(receiving.cancel() && !receiving.cancel());
        assert_eq!(receiving.wait().expect_err("cancelled").class(), ErrorClass::Request);
        world.send(&[8u8], 0, 0)?;
        assert_eq!(recv.start()?.wait()?, &[8]);
        Ok(())
    });
}

#[test]
fn dead_peer_fails_the_active_request() {
    let outcome = job(2, |world| {
        if world.rank() == 0 {
            world.recv(&mut [0u8; 0], 1, 1).expect("rank 1 has created its requests");
            return Err("on purpose".to_owned());
        }
        let mut recv = world.recv_init([0u8], 0, 0).expect("valid");
        let mut send = world.ssend_init([0u8], 0, 0).expect("valid");
        world.send(&[0u8; 0], 0, 1).expect("alive");
        for error in [
            recv.start().and_then(|receiving| receiving.wait().map(drop)).expect_err("rank 0 has died"),
            send.start().and_then(|sending| sending.wait().map(drop)).expect_err("rank 0 has died"),
            recv.start().and_then(|receiving| receiving.wait().map(drop)).expect_err("rank 0 has died"),
        ] {
            assert_eq!((error.class(), error.failed_rank()), (ErrorClass::ProcAborted, Some(0)), "{error}");
        }
        assert_eq!(recv.into_buffers(), [0]);
        Ok(())
    });
    assert_eq!(outcome.expect_err("rank 0 failed").rank(), 0);
}

#[test]
fn threads_restart_their_requests_at_the_same_time() {
    ranks(2, |world| {
        let (me, other) = (world.rank(), 1 - world.rank());
        thread::scope(|scope| {
            for tag in 0..4 {
                let world = &world;
                scope.spawn(move || {
                    let mut send = world.send_init([0usize; 50], other, tag).expect("valid");
                    let mut recv = world.recv_init([0usize; 50], other, tag).expect("valid");
                    for round in 0..300 {
                        send.buffers_mut().fill(me + 2 * round);
                        let (receiving, sending) =
                            (recv.start().expect("alive"), send.start().expect("alive"));
                        assert_eq!(*receiving.wait().expect("sent"), [other + 2 * round; 50]);
                        sending.wait().expect("received");
                    }
                });
            }
        });
        Ok(())
    });
}

#[test]
fn requests_of_a_rank_that_has_left_return_their_buffers() {
    let requests = job(2, |world| {
        let other = 1 - world.rank();
        let mut send = world.send_init(vec![1u8; 1 << 20], other, 1)?;
        let mut recv = world.recv_init(vec![2u8; 4], other, 0)?;
        std::mem::forget((send.start()?, recv.start()?));
        Ok::<_, mpj::Error>((send, recv))
    });
    for (mut send, recv) in requests.expect("no rank fails") {
        send.start().map(drop).expect_err("the rank has left");
        assert_eq!((send.into_buffers(), recv.into_buffers()), (vec![1; 1 << 20], vec![2; 4]));
    }
}
