//! Buffered and ready sends, and the exchange in one buffer.

use std::thread;
use std::time::Duration;

use crate::common::{alive, forget, job, ranks, samples};
use mpj::raw::BSEND_OVERHEAD;
use mpj::{ANY_TAG, Datatype, ErrorClass, PROC_NULL, ViewMut, World};

/// Bytes of a message that waits for its receiver on every device.
const LONG: usize = 1 << 20;

/// Defect 18 of MPJ Express: a second `Bsend` waited for the first.
#[test]
fn several_buffered_sends_are_pending() {
    ranks(2, |world| {
        let (me, other) = (world.rank(), 1 - world.rank());
        let buffer = world.attach(3 * (LONG + BSEND_OVERHEAD))?;
        for tag in 0..3 {
            world.bsend(&samples::<u8>(me, tag, LONG), other, tag as i32)?;
        }
        world.send(&[me], other, 9)?;
        world.recv(&mut [0usize], other, 9)?;
        for tag in [2, 0, 1] {
            assert_eq!(world.recv_vec::<u8>(other, tag as i32)?.0, samples::<u8>(other, tag, LONG));
        }
        buffer.flush()?;
        // The space is free again.
        world.bsend(&samples::<u8>(me, 5, LONG), other, 5)?;
        assert_eq!(world.recv_vec::<u8>(other, 5)?.0, samples::<u8>(other, 5, LONG));
        buffer.detach()
    });
}

#[test]
fn full_buffer_is_an_error_that_names_the_missing_bytes() {
    ranks(2, |world| {
        let me = world.rank();
        if me == 0 {
            let none = world.bsend(&[0u8], 1, 0).expect_err("no buffer");
            assert_eq!((none.class(), none.call()), (ErrorClass::Buffer, "bsend"), "{none}");
            let buffer = world.attach(2 * (LONG + BSEND_OVERHEAD) - 1)?;
            let twice = world.attach(1).expect_err("the world has a buffer");
            assert!(twice.class() == ErrorClass::Buffer && twice.to_string().contains("already"), "{twice}");
            world.bsend(&samples::<u8>(me, 0, LONG), 1, 0)?;
            let full = world.bsend(&samples::<u8>(me, 1, LONG), 1, 1).expect_err("one byte is missing");
            assert!(
                full.class() == ErrorClass::Buffer && full.to_string().contains("lacks 1 bytes"),
                "{full}"
            );
            // Exactly the rest of the space.
            world.bsend(&samples::<u8>(me, 1, LONG - 1), 1, 1)?;
            let full = world.bsend(&[0u8; 0], 1, 2).expect_err("the overhead does not fit");
            assert!(full.to_string().contains(&format!("lacks {BSEND_OVERHEAD} bytes")), "{full}");
            for (dest, tag, class) in [(2, 0, ErrorClass::Rank), (1, -1, ErrorClass::Tag)] {
                assert_eq!(world.bsend(&[0u8], dest, tag).expect_err("invalid").class(), class);
            }
            world.bsend(&[0u8; 5000], PROC_NULL, 0)?; // needs no space
            world.send(&[0u8], 1, 7)?;
            drop(buffer);
            assert_eq!(world.bsend(&[0u8], 1, 0).expect_err("detached").class(), ErrorClass::Buffer);
            let tiny = world.attach(BSEND_OVERHEAD)?;
            assert!(world.bsend(&[0u8], 1, 8).is_err());
            world.bsend(&[0u8; 0], 1, 8)?;
            return tiny.detach();
        }
        world.recv(&mut [0u8], 0, 7)?;
        assert_eq!(world.recv_vec::<u8>(0, 1)?.0, samples::<u8>(0, 1, LONG - 1));
        assert_eq!(world.recv_vec::<u8>(0, 0)?.0, samples::<u8>(0, 0, LONG));
        assert_eq!(world.recv_vec::<u8>(0, 8)?.0, [0u8; 0]);
        Ok(())
    });
}

#[test]
fn communicator_without_a_buffer_uses_that_of_the_world() {
    ranks(2, |world| {
        let (me, other) = (world.rank(), 1 - world.rank());
        let comm = world.dup()?;
        let buffer = world.attach(LONG + BSEND_OVERHEAD)?;
        comm.bsend(&samples::<u8>(me, 0, LONG), other, 0)?;
        assert!(world.bsend(&[0u8], other, 0).is_err(), "the buffer is full");
        let own = comm.attach(LONG + BSEND_OVERHEAD)?;
        comm.bsend(&samples::<u8>(me, 1, LONG), other, 1)?;
        for tag in [0, 1] {
            assert_eq!(comm.recv_vec::<u8>(other, tag)?.0, samples::<u8>(other, tag as usize, LONG));
        }
        own.detach()?;
        buffer.detach()
    });
}

#[test]
fn derived_types_and_own_messages_are_buffered() {
    ranks(2, |world| {
        let (me, other) = (world.rank(), 1 - world.rank());
        let mut matrix: Vec<u32> = samples(me, 0, 12);
        let column = Datatype::of::<u32>().vector(4, 1, 3).expect("valid");
        let _buffer = world.attach(usize::MAX)?; // no limit
        let view = ViewMut::new(&mut matrix, 0, &column, 1).expect("fits");
        world.bsend(&view, other, 0)?;
        world.bsend(&view, me, 1)?;
        matrix.fill(0);
        for (from, tag) in [(other, 0), (me, 1)] {
            let sent: Vec<u32> = samples(from, 0, 12).into_iter().step_by(3).collect();
            assert_eq!(world.recv_vec::<u32>(from, tag)?.0, sent);
        }
        let (sent, _) = world.ibsend(vec![me; 10], other, 2)?.wait()?;
        assert_eq!(sent, [me; 10]);
        assert_eq!(world.recv_vec::<usize>(other, 2)?.0, [other; 10]);
        Ok(())
    });
}

#[test]
fn dead_receiver_fails_the_flush_and_the_detach() {
    for detach in [false, true] {
        let outcome = job(2, |world| {
            if world.rank() == 1 {
                world.recv(&mut [0u8], 0, 0).map_err(|error| error.to_string())?;
                return Err("on purpose".to_owned());
            }
            let buffer = world.attach(usize::MAX).map_err(|error| error.to_string())?;
            world.bsend(&vec![0u8; LONG], 1, 1).expect("pending");
            world.send(&[0u8], 1, 0).expect("alive");
            let error = if detach { buffer.detach() } else { buffer.flush() }.expect_err("rank 1 has died");
            assert_eq!((error.class(), error.failed_rank()), (ErrorClass::ProcAborted, Some(1)), "{error}");
            assert_eq!(error.call(), if detach { "detach" } else { "flush" });
            Ok(())
        });
        assert_eq!(outcome.expect_err("rank 1 failed").rank(), 1);
    }
}

#[test]
fn forgotten_buffer_is_harmless() {
    ranks(2, |world| {
        let other = 1 - world.rank();
        forget(world.attach(LONG + BSEND_OVERHEAD)?);
        world.bsend(&vec![world.rank() as u8; LONG], other, 0)?;
        assert_eq!(world.attach(1).expect_err("still attached").class(), ErrorClass::Buffer);
        assert_eq!(world.recv_vec::<u8>(other, 0)?.0, vec![other as u8; LONG]);
        Ok(())
    });
}

#[test]
fn panic_with_pending_buffered_sends_does_not_hang() {
    let outcome = alive(|| {
        job(2, |world: World| -> mpj::Result<()> {
            if world.rank() == 0 {
                let _buffer = world.attach(usize::MAX)?;
                world.bsend(&vec![0u8; LONG], 1, 0)?;
                std::panic::resume_unwind(Box::new("on purpose"));
            }
            let mut never = [0u8];
            world.recv(&mut never, 0, 1).map(drop)
        })
    });
    assert!(outcome.expect_err("rank 0 panics").is_panic());
}

#[test]
fn many_threads_share_a_buffer() {
    const THREADS: usize = 4;
    const ROUNDS: usize = 50;
    ranks(2, |world| {
        let (me, other) = (world.rank(), 1 - world.rank());
        let buffer = world.attach(THREADS * (40_000 + BSEND_OVERHEAD))?;
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let (world, buffer) = (&world, &buffer);
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        let data = samples::<u8>(me, thread + round, 40_000);
                        world.bsend(&data, other, thread as i32).expect("each thread has its share");
                        let got = world.recv_vec::<u8>(other, thread as i32).expect("sent").0;
                        assert_eq!(got, samples::<u8>(other, thread + round, 40_000));
                        if round % 7 == thread {
                            buffer.flush().expect("the other rank receives");
                        }
                        // After this, the other rank has received the last message of this thread.
                        world
                            .sendrecv(
                                &[0u8; 0],
                                other,
                                100 + thread as i32,
                                &mut [0u8; 0],
                                other,
                                100 + thread as i32,
                            )
                            .expect("alive");
                    }
                });
            }
        });
        buffer.detach()
    });
}

#[test]
fn ready_sends_arrive() {
    ranks(2, |world| {
        let (me, other) = (world.rank(), 1 - world.rank());
        let receiving = world.irecv(vec![0u64; 100], other, 0)?;
        let late = world.irecv(vec![0u64; 100], other, 1)?;
        world.barrier()?;
        world.rsend(&samples::<u64>(me, 0, 100), other, 0)?;
        let sending = world.irsend(samples::<u64>(me, 1, 100), other, 1)?;
        assert_eq!(receiving.wait()?.0, samples::<u64>(other, 0, 100));
        assert_eq!(late.wait()?.0, samples::<u64>(other, 1, 100));
        sending.wait()?;
        world.rsend(&[0u8], PROC_NULL, 0)?;
        assert_eq!(world.rsend(&[0u8], 9, 0).expect_err("2 ranks").call(), "rsend");
        assert_eq!(world.irsend([0u8], 9, 0).expect_err("2 ranks").call(), "irsend");
        Ok(())
    });
}

#[test]
fn exchange_replaces_the_buffer() {
    for size in [1, 2, 3] {
        ranks(size, |world| {
            let me = world.rank();
            let (right, left) = ((me + 1) % size, (me + size - 1) % size);
            for len in [0, 1, 1000, 200_000] {
                let mut item = samples::<i32>(me, 0, len);
                let status = world.sendrecv_replace(&mut item, right, me as i32, left, ANY_TAG)?;
                assert_eq!(item, samples::<i32>(left, 0, len));
                assert_eq!(
                    (status.source_rank(), status.tag(), status.bytes()),
                    (left, left as i32, 4 * len)
                );
            }
            let mut matrix: Vec<u32> = samples(me, 0, 12);
            let column = Datatype::of::<u32>().vector(4, 1, 3).expect("valid");
            let mut view = ViewMut::new(&mut matrix, 0, &column, 1).expect("fits");
            world.sendrecv_replace(&mut view, right, 0, left, 0)?;
            let (mine, theirs) = (samples::<u32>(me, 0, 12), samples::<u32>(left, 0, 12));
            for (at, item) in matrix.iter().enumerate() {
                assert_eq!(*item, if at % 3 == 0 { theirs[at] } else { mine[at] });
            }
            let mut kept = [me];
            world.sendrecv_replace(&mut kept, PROC_NULL, 0, PROC_NULL, 0)?;
            assert_eq!(kept, [me]);
            let error = world.sendrecv_replace(&mut kept, size, 0, 0, 0).expect_err("out of range");
            assert_eq!((error.class(), error.call()), (ErrorClass::Rank, "sendrecv_replace"));
            Ok(())
        });
    }
}

#[test]
fn exchange_checks_the_type_of_the_message() {
    ranks(2, |world| {
        let other = 1 - world.rank();
        if world.rank() == 0 {
            let error = world.sendrecv_replace(&mut [1u32; 3], other, 0, other, 0).expect_err("f32");
            assert_eq!((error.class(), error.call()), (ErrorClass::Type, "sendrecv_replace"), "{error}");
        } else {
            let error = world.sendrecv_replace(&mut [1.0f32; 3], other, 0, other, 0).expect_err("u32");
            assert_eq!(error.class(), ErrorClass::Type);
        }
        thread::sleep(Duration::from_millis(1));
        world.barrier()
    });
}

#[test]
fn attached_buffer_outlives_its_rank() {
    let buffers = job(2, |world| {
        let buffer = world.attach(usize::MAX)?;
        if world.rank() == 0 {
            world.bsend(&vec![1u8; LONG], 1, 0)?;
        }
        Ok::<_, mpj::Error>(buffer)
    });
    drop(buffers.expect("both ranks leave in order"));
}

#[test]
fn buffered_messages_outlive_their_communicator() {
    for frees in [false, true] {
        ranks(2, |world| {
            let (me, other) = (world.rank(), 1 - world.rank());
            let comm = world.dup()?;
            let buffer = comm.attach(2 * (LONG + BSEND_OVERHEAD))?;
            comm.bsend(&samples::<u8>(me, 0, LONG), other, 0)?;
            comm.bsend(&samples::<u8>(me, 1, LONG), me, 0)?;
            let mut mine = vec![0u8; LONG];
            comm.recv(&mut mine, me, 0)?;
            assert_eq!(mine, samples::<u8>(me, 1, LONG));
            let receiving = comm.irecv(vec![0u8; LONG], other, 0)?;
            if frees {
                comm.free()?;
            }
            drop(comm);
            buffer.flush()?;
            assert_eq!(receiving.wait()?.0, samples::<u8>(other, 0, LONG));
            buffer.detach()
        });
    }
}

#[test]
fn one_of_many_threads_attaches() {
    ranks(1, |world| {
        for _ in 0..50 {
            let attach = || world.attach(BSEND_OVERHEAD);
            let all = thread::scope(|scope| {
                let threads = [scope.spawn(attach), scope.spawn(attach), scope.spawn(attach)];
                threads.map(|thread| thread.join().expect("does not panic"))
            });
            assert_eq!(all.iter().filter(|buffer| buffer.is_ok()).count(), 1);
        }
        let empty = world.attach(0)?;
        assert_eq!(world.bsend(&[0u8; 0], 0, 0).expect_err("no space").class(), ErrorClass::Buffer);
        world.bsend(&[0u8; 0], PROC_NULL, 0)?;
        empty.detach()
    });
}

#[test]
fn exchange_accepts_shorter_messages_and_rejects_longer_ones() {
    for size in [1, 2] {
        ranks(size, |world| {
            let (me, other) = (world.rank(), world.size() - 1 - world.rank());
            for (long, short) in [(1, 0), (1000, 999), (LONG, 1000), (LONG, LONG - 1)] {
                let receiving =
                    (world.irecv(vec![0u8; long], other, 0)?, world.irecv(vec![0u8; short], other, 2)?);
                // Each rank receives a shorter message, and then a longer one.
                let extra = world.isend(samples::<u8>(me, 5, short), other, 1)?;
                let mut item = samples::<u8>(me, 0, long);
                let status = world.sendrecv_replace(&mut item, other, 0, other, 1)?;
                assert_eq!(status.bytes(), short);
                assert_eq!(item[..short], samples::<u8>(other, 5, short));
                assert_eq!(item[short..], samples::<u8>(me, 0, long)[short..]);
                extra.wait()?;
                let extra = world.isend(samples::<u8>(me, 6, long), other, 3)?;
                let mut item = samples::<u8>(me, 7, short);
                let error = world.sendrecv_replace(&mut item, other, 2, other, 3).expect_err("too long");
                assert_eq!(error.class(), ErrorClass::Truncate, "{error}");
                extra.wait()?;
                // Both calls have sent their contents.
                assert_eq!(receiving.0.wait()?.0, samples::<u8>(other, 0, long));
                assert_eq!(receiving.1.wait()?.0, samples::<u8>(other, 7, short));
            }
            Ok(())
        });
    }
}

/// The threads of each rank exchange with those of the other rank, and with those of their own rank.
#[test]
fn many_threads_exchange() {
    const THREADS: usize = 3;
    ranks(2, |world| {
        let me = world.rank();
        let exchange = |thread: usize| {
            let world = &world;
            move || -> mpj::Result<()> {
                for round in 0..40 {
                    let other = [1 - me, me][round % 2];
                    // Within a rank, threads 0 and 1 exchange, and thread 2 exchanges with itself.
                    let partner = if other == me { [1, 0, 2][thread] } else { thread };
                    let len = [0, 10, 3000, 100_000][round / 2 % 4];
                    let mut item = samples::<u16>(me, 10 * thread + round, len);
                    let (mine, theirs) = (thread as i32, partner as i32);
                    world.sendrecv_replace(&mut item, other, mine, other, theirs)?;
                    assert_eq!(item, samples::<u16>(other, 10 * partner + round, len));
                    world.rsend(&[round], other, 100 + mine)?;
                    let mut got = [usize::MAX];
                    world.recv(&mut got, other, 100 + theirs)?;
                    assert_eq!(got, [round]);
                }
                Ok(())
            }
        };
        thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(exchange(thread))).collect();
            threads.into_iter().try_for_each(|thread| thread.join().expect("does not panic"))
        })
    });
}

#[test]
fn ready_send_to_this_rank_itself_needs_no_receive() {
    ranks(1, |world| {
        for len in [0, 1, 100, LONG] {
            world.rsend(&samples::<u8>(0, 0, len), 0, 0)?;
            let sending = world.irsend(samples::<u8>(0, 1, len), 0, 1)?;
            assert_eq!(world.recv_vec::<u8>(0, 1)?.0, samples::<u8>(0, 1, len));
            assert_eq!(sending.wait()?.0, samples::<u8>(0, 1, len));
            let mut got = vec![0u16; len];
            let error = world.recv(&mut got, 0, 0);
            assert_eq!(error.is_err(), len > 0, "another type");
        }
        Ok(())
    });
}

/// The receiver holds the message until the sender has its space back.
#[test]
fn space_of_a_buffered_message_is_free_while_the_receiver_holds_the_message() {
    mpj::threads(2, |world| {
        let other = 1 - world.rank();
        let buffer = world.attach(1 << 20)?;
        world.bsend(&vec![7u8; 300_000], other, 0)?;
        let (block, _) = world.recv_block(other, 0)?;
        buffer.detach()?;
        assert!(block.iter().all(|byte| *byte == 7));
        let mut items = vec![world.rank() as u8; 300_000];
        world.sendrecv_replace(&mut items, other, 1, other, 1)?;
        assert!(items.iter().all(|byte| usize::from(*byte) == other));
        Ok::<(), mpj::Error>(())
    })
    .unwrap();
}
