//! Programs that break, hang or lose data with other message-passing libraries for Rust. All ranks run them; in most,
//! only ranks 0 and 1 exchange messages. In the comments, "elsewhere" means with one of those libraries.
#![allow(dead_code, reason = "each test file uses some of it")]

use std::mem::forget;
use std::time::Duration;

use mpj::{ANY_SOURCE, ANY_TAG, Error, ErrorClass, World, coll};

type Failure = Box<dyn std::error::Error + Send + Sync>;
type Program = fn(&World) -> Result<(), Failure>;

pub(crate) const FAULTS: [(&str, Program); 13] = [
    ("short buffers truncate with an error", short_buffers_truncate_with_an_error),
    ("messages of another type are errors", messages_of_another_type_are_errors),
    ("forgotten receive is completed by its scope", forgotten_receive_is_completed_by_its_scope),
    ("forgotten send still sends its buffer", forgotten_send_still_sends_its_buffer),
    ("invalid ranks are errors", invalid_ranks_are_errors),
    ("many unexpected messages arrive in order", many_unexpected_messages_arrive_in_order),
    (
        "unexpected messages are found in the reverse order",
        unexpected_messages_are_found_in_the_reverse_order,
    ),
    ("scope holds many requests", scope_holds_many_requests),
    ("long messages can cross", long_messages_can_cross),
    ("receives match in the order of posting", receives_match_in_the_order_of_posting),
    ("synchronous send waits for its receive", synchronous_send_waits_for_its_receive),
    ("cancelled receive takes no message", cancelled_receive_takes_no_message),
    ("started collective does not wait", started_collective_does_not_wait),
];

fn byte(rank: usize, at: usize) -> u8 {
    (rank * 101 + at * 7 + at / 256) as u8
}

fn bytes(rank: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| byte(rank, at)).collect()
}

/// Calls `send` on rank 0 and `recv` on rank 1.
fn between(
    world: &World,
    send: impl FnOnce() -> Result<(), Failure>,
    recv: impl FnOnce() -> Result<(), Failure>,
) -> Result<(), Failure> {
    match world.rank() {
        0 => send()?,
        1 => recv()?,
        _ => {}
    }
    Ok(world.barrier()?)
}

/// Elsewhere the rest is lost without an error, or memory behind the buffer is overwritten.
fn short_buffers_truncate_with_an_error(world: &World) -> Result<(), Failure> {
    for len in [100, 200_000] {
        let send = || {
            for tag in [0, 1, 2] {
                world.send(&bytes(0, len), 1, tag)?;
            }
            Ok(())
        };
        let recv = || {
            let mut all = [9u8; 30];
            let error = world.recv(&mut all[10..20], 0, 0).expect_err("the buffer is too short");
            assert_eq!(error.class(), ErrorClass::Truncate);
            assert_eq!((&all[..10], &all[20..]), (&[9; 10][..], &[9; 10][..]), "only the buffer may change");
            assert!(error.to_string().contains(&len.to_string()), "{error}");
            let error = world.irecv([9u8; 10], 0, 1)?.wait().expect_err("the buffer is too short");
            assert_eq!(error.error().class(), ErrorClass::Truncate);
            // The next message is not affected.
            let (got, _) = world.recv_vec::<u8>(0, 2)?;
            assert_eq!(got, bytes(0, len));
            Ok(())
        };
        between(world, send, recv)?;
    }
    Ok(())
}

/// Elsewhere the bits are reinterpreted, or a part of an element is written.
fn messages_of_another_type_are_errors(world: &World) -> Result<(), Failure> {
    let send = || {
        world.send(&[1.5f64], 1, 0)?;
        world.send(&[1.5f64], 1, 1)?;
        Ok(world.send(&[1i32, 2, 3], 1, 2)?)
    };
    let recv = || {
        let (mut words, mut pairs, mut long) = ([7u64], [[7i32; 2]], [7i64; 2]);
        let errors =
            [world.recv(&mut words, 0, 0), world.recv(&mut pairs, 0, 1), world.recv(&mut long, 0, 2)];
        for error in errors {
            assert_eq!(error.expect_err("another type").class(), ErrorClass::Type);
        }
        assert_eq!((words, pairs, long), ([7], [[7; 2]], [7; 2]));
        Ok(())
    };
    between(world, send, recv)
}

/// Elsewhere nothing is ever written, or the process aborts.
fn forgotten_receive_is_completed_by_its_scope(world: &World) -> Result<(), Failure> {
    for len in [10, 300_000] {
        let send = || Ok(world.send(&bytes(0, len), 1, 0)?);
        let recv = || {
            let mut got = vec![0u8; len];
            world.scope(|scope| {
                forget(scope.irecv(&mut got, 0, 0)?);
                Ok::<(), Error>(())
            })?;
            assert_eq!(got, bytes(0, len));
            Ok(())
        };
        between(world, send, recv)?;
    }
    Ok(())
}

/// Elsewhere the process aborts.
fn forgotten_send_still_sends_its_buffer(world: &World) -> Result<(), Failure> {
    let send = || {
        let mut sent = bytes(0, 1 << 20);
        world.scope(|scope| {
            forget(scope.isend(&sent, 1, 0)?);
            Ok::<(), Error>(())
        })?;
        sent.fill(0);
        forget(world.isend(bytes(0, 1 << 20), 1, 1)?);
        Ok(())
    };
    let recv = || {
        for tag in [0, 1] {
            let (got, _) = world.recv_vec::<u8>(0, tag)?;
            assert!(got == bytes(0, 1 << 20), "tag {tag}");
        }
        Ok(())
    };
    between(world, send, recv)
}

/// Elsewhere the call panics, and the job ends.
fn invalid_ranks_are_errors(world: &World) -> Result<(), Failure> {
    let size = world.size();
    for rank in [size, usize::MAX] {
        let errors = [
            world.send(&[0u8], rank, 0),
            world.recv(&mut [0u8], rank, 0).map(drop),
            world.isend([0u8], rank, 0).map(drop),
            world.scope(|scope| scope.isend(&[0u8], rank, 0).map(drop)),
        ];
        for error in errors {
            assert_eq!(error.expect_err("no such rank").class(), ErrorClass::Rank);
        }
    }
    Ok(world.barrier()?)
}

/// Elsewhere each unexpected message needs kilobytes of memory.
fn many_unexpected_messages_arrive_in_order(world: &World) -> Result<(), Failure> {
    const MESSAGES: u64 = 20_000;
    let send = || {
        for number in 0..MESSAGES {
            world.send(&[number], 1, 0)?;
        }
        Ok(world.send(&[0u64], 1, 1)?)
    };
    let recv = || {
        world.recv(&mut [0u64], 0, 1)?;
        for number in 0..MESSAGES {
            let mut got = [MESSAGES];
            world.recv(&mut got, ANY_SOURCE, 0)?;
            assert_eq!(got, [number]);
        }
        Ok(())
    };
    between(world, send, recv)
}

/// Elsewhere each receive searches all unexpected messages.
fn unexpected_messages_are_found_in_the_reverse_order(world: &World) -> Result<(), Failure> {
    const MESSAGES: i32 = 20_000;
    let send = || {
        for tag in 0..=MESSAGES {
            world.send(&[tag], 1, tag)?;
        }
        Ok(())
    };
    let recv = || {
        for tag in (0..=MESSAGES).rev() {
            let mut got = [-1];
            world.recv(&mut got, 0, tag)?;
            assert_eq!(got, [tag]);
        }
        Ok(())
    };
    between(world, send, recv)
}

/// Elsewhere the table of requests overflows.
fn scope_holds_many_requests(world: &World) -> Result<(), Failure> {
    const REQUESTS: usize = 20_000;
    if world.rank() < 2 {
        let (me, other) = (world.rank(), 1 - world.rank());
        let mine: Vec<u64> = (0..REQUESTS as u64).map(|at| at + (me as u64) * 1_000_000).collect();
        let mut theirs = vec![0u64; REQUESTS];
        world.scope(|scope| {
            let receives = theirs.iter_mut().map(|item| scope.irecv(item, other, 0));
            let receives = receives.collect::<mpj::Result<Vec<_>>>()?;
            let sends =
                mine.iter().map(|item| scope.isend(item, other, 0)).collect::<mpj::Result<Vec<_>>>()?;
            receives.into_iter().try_for_each(|receive| receive.wait().map(drop))?;
            sends.into_iter().try_for_each(|send| send.wait().map(drop))
        })?;
        let is_right = theirs.iter().zip(0..).all(|(got, at)| *got == at + (other as u64) * 1_000_000);
        assert!(is_right, "numbers of rank {other}");
    }
    Ok(world.barrier()?)
}

/// Elsewhere both ranks wait for the other one to read.
fn long_messages_can_cross(world: &World) -> Result<(), Failure> {
    let (me, size) = (world.rank(), world.size());
    let (left, right) = ((me + size - 1) % size, (me + 1) % size);
    for len in [128 << 10, 1 << 20, 4 << 20] {
        let (mine, expected) = (bytes(me, len), bytes(left, len));
        let mut got = vec![0u8; len];
        world.sendrecv(&mine, right, 0, &mut got, left, 0)?;
        assert!(got == expected, "sendrecv of {len} bytes");

        let sending = world.isend(mine.clone(), right, 1)?;
        let (got, _) = world.irecv(vec![0u8; len], left, 1)?.wait()?;
        assert!(got == expected, "irecv of {len} bytes");
        sending.wait()?;

        let sending = world.isend(mine.clone(), right, 2)?;
        let mut got = vec![0u8; len];
        world.recv(&mut got, left, 2)?;
        assert!(got == expected, "recv of {len} bytes");
        sending.wait()?;

        let mut all = vec![0u8; size * len];
        world.allgather(&mine, &mut all)?;
        assert!(all.chunks(len).zip(0..).all(|(part, rank)| part == bytes(rank, len)), "allgather of {len}");
    }
    Ok(())
}

/// Elsewhere a receive is posted when it is waited for.
fn receives_match_in_the_order_of_posting(world: &World) -> Result<(), Failure> {
    for len in [1, 300_000] {
        let send = || {
            world.recv(&mut [0u8], 1, 1)?;
            world.send(&vec![1u8; len], 1, 0)?;
            Ok(world.send(&vec![2u8; len], 1, 0)?)
        };
        let recv = || {
            let (first, second) =
                (world.irecv(vec![0u8; len], 0, 0)?, world.irecv(vec![0u8; len], 0, ANY_TAG)?);
            world.send(&[0u8], 0, 1)?;
            let (later, earlier) = (second.wait()?.0, first.wait()?.0);
            assert!(
                (&earlier, &later) == (&vec![1; len], &vec![2; len]),
                "{len}: {} {}",
                earlier[0],
                later[0]
            );
            Ok(())
        };
        between(world, send, recv)?;
    }
    Ok(())
}

/// Elsewhere a synchronous send returns before the receive is posted.
fn synchronous_send_waits_for_its_receive(world: &World) -> Result<(), Failure> {
    const LATE: Duration = Duration::from_millis(200);
    let send = || {
        world.recv(&mut [0u8], 1, 1)?;
        world.ssend(&[5u8], 1, 0)?;
        let mut posted = [0u8];
        assert!(world.iprobe(1, 2)?.is_some(), "rank 1 has sent it before it posted the receive");
        world.recv(&mut posted, 1, 2)?;
        Ok(())
    };
    let recv = || {
        world.send(&[0u8], 0, 1)?;
        std::thread::sleep(LATE);
        world.send(&[0u8], 0, 2)?;
        Ok(world.recv(&mut [0u8], 0, 0).map(drop)?)
    };
    between(world, send, recv)
}

/// A cancelled receive must not take a later message.
fn cancelled_receive_takes_no_message(world: &World) -> Result<(), Failure> {
    let send = || {
        world.recv(&mut [0u8], 1, 1)?;
        Ok(world.send(&[6u8], 1, 0)?)
    };
    let recv = || {
        let receiving = world.irecv([0u8], ANY_SOURCE, 0)?;
        assert!(receiving.cancel(), "rank 0 has not sent it");
        let error = receiving.wait().expect_err("it was cancelled");
        assert!(error.error().is_cancelled(), "{error}");
        drop(world.irecv([0u8], ANY_SOURCE, 0)?); // this cancels it, too
        world.send(&[0u8], 0, 1)?;
        let mut got = [0u8];
        world.recv(&mut got, 0, 0)?;
        assert_eq!(got, [6]);
        Ok(())
    };
    between(world, send, recv)
}

/// Elsewhere the call waits for the other ranks.
fn started_collective_does_not_wait(world: &World) -> Result<(), Failure> {
    let (me, size) = (world.rank(), world.size());
    let started = if me == 0 { None } else { Some(world.start(coll::allgather(vec![me], vec![0; size]))?) };
    if me == 1 {
        // Rank 0 starts the collective only when this message has arrived.
        world.send(&[0u8], 0, 0)?;
    }
    let started = match started {
        Some(started) => started,
        None => {
            world.recv(&mut [0u8], 1, 0)?;
            world.start(coll::allgather(vec![me], vec![0; size]))?
        }
    };
    let ((_, all), _) = started.wait()?;
    assert!(all.into_iter().eq(0..size));
    Ok(())
}
