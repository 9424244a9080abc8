//! Receives of messages of unknown length, and the counts of a status.

use std::thread;
use std::time::Duration;

use crate::common::{Sample, job, ranks, samples};
use mpj::{ANY_SOURCE, ANY_TAG, Datatype, ErrorClass, PROC_NULL, View, World};

const LENS: [usize; 5] = [0, 1, 7, 5000, 200_000];

#[repr(C)]
#[derive(Clone, Copy, PartialEq, Debug, mpj::Datatype)]
struct Padded {
    kind: u8,
    value: f64,
    flag: bool,
}

fn padded(rank: usize, len: usize) -> Vec<Padded> {
    (0..len)
        .map(|at| Padded {
            kind: at as u8,
            value: (at * 3 + rank) as f64,
            flag: (at + rank).is_multiple_of(2),
        })
        .collect()
}

fn ring_of<T: Sample>(world: &World) -> mpj::Result<()> {
    let (me, size) = (world.rank(), world.size());
    let (right, left) = ((me + 1) % size, (me + size - 1) % size);
    for (tag, len) in (0..).zip(LENS) {
        let sending = world.isend(samples::<T>(me, len, len), right, tag)?;
        let (got, status) = if tag % 2 == 0 {
            world.recv_vec::<T>(left, tag)?
        } else {
            world.mprobe(ANY_SOURCE, ANY_TAG)?.recv_vec()?
        };
        assert_eq!(got, samples::<T>(left, len, len));
        assert_eq!((status.source_rank(), status.tag()), (left, tag));
        assert_eq!(status.count::<T>(), Some(len));
        sending.wait()?;
        world.barrier()?;
    }
    Ok(())
}

#[test]
fn messages_of_every_length_arrive_whole() {
    for size in [1, 2, 4] {
        ranks(size, |world| {
            ring_of::<u8>(&world)?;
            ring_of::<f64>(&world)?;
            ring_of::<bool>(&world)?;
            ring_of::<char>(&world)?;
            let right = (world.rank() + 1) % size;
            let sending = world.isend(padded(world.rank(), 1000), right, 0)?;
            assert_eq!(
                world.recv_vec::<Padded>(ANY_SOURCE, 0)?.0,
                padded((world.rank() + size - 1) % size, 1000)
            );
            sending.wait()?;
            assert_eq!(world.recv_vec::<u8>(PROC_NULL, 0)?.0, [0u8; 0]);
            Ok(())
        });
    }
}

#[test]
fn other_types_fail_the_receive_and_consume_the_message() {
    ranks(2, |world| {
        if world.rank() == 0 {
            world.ssend(&[1u32, 2, 3], 1, 0)?; // completes although the receive fails
            world.ssend(&[1u8, 2, 3], 1, 1)?;
            world.send(&[true; 3], 1, 2)?;
            let bytes = vec![7u8; 300_000];
            return world.send(&View::new(&bytes, 0, &Datatype::of::<u8>(), 300_000).expect("fits"), 1, 3);
        }
        for (tag, error) in [
            (0, world.recv_vec::<f32>(0, 0).expect_err("u32")),
            (1, world.recv_vec::<[u8; 2]>(0, 1).expect_err("3 bytes")),
        ] {
            assert_eq!((error.class(), error.call()), (ErrorClass::Type, "recv_vec"), "{tag}: {error}");
            assert!(error.to_string().contains("rank 0"), "{error}");
        }
        assert_eq!(world.recv_vec::<bool>(0, 2)?.0, [true; 3]);
        assert_eq!(world.recv_vec::<u8>(0, 3)?.0, vec![7; 300_000]);
        let no_rank = world.recv_vec::<u8>(2, 0).expect_err("2 ranks");
        assert_eq!((no_rank.class(), no_rank.call()), (ErrorClass::Rank, "recv_vec"));
        let no_tag = world.recv_vec::<u8>(0, -7).expect_err("negative");
        assert_eq!(no_tag.class(), ErrorClass::Tag);
        Ok(())
    });
}

#[test]
fn dead_sender_fails_the_receive() {
    let outcome = job(2, |world| {
        if world.rank() == 0 {
            thread::sleep(Duration::from_millis(5));
            return Err("on purpose".to_owned());
        }
        let error = world.recv_vec::<u8>(0, 0).expect_err("rank 0 has died");
        assert_eq!((error.class(), error.failed_rank()), (ErrorClass::ProcAborted, Some(0)), "{error}");
        Ok(())
    });
    assert_eq!(outcome.expect_err("rank 0 failed").rank(), 0);
}

/// Defect 12 of MPJ Express: a count of another type was a number, and a probe counted primitives.
#[test]
fn count_of_another_type_is_none() {
    ranks(1, |world| {
        world.send(&[1.5f64; 6], 0, 0)?;
        let probed = world.probe(0, 0)?;
        let mut got = [0.0f64; 6];
        let status = world.recv(&mut got, 0, 0)?;
        assert_eq!(status, probed);
        assert_eq!((status.count::<f64>(), status.count::<[f64; 2]>()), (Some(6), Some(3)));
        assert_eq!(
            (status.count::<[f64; 4]>(), status.count::<u64>(), status.count::<u8>()),
            (None, None, None)
        );
        let pairs = Datatype::of::<[f64; 4]>();
        assert_eq!((status.count_of(&pairs), status.elements_of(&pairs)), (None, Some(6)));
        assert_eq!((status.elements::<[f64; 4]>(), status.elements::<u64>()), (Some(6), None));
        world.send(&padded(0, 3), 0, 0)?;
        let status = world.probe(0, 0)?;
        assert_eq!(
            (status.count::<Padded>(), status.elements_of(&Datatype::of::<Padded>())),
            (Some(3), Some(9))
        );
        world.recv_vec::<Padded>(0, 0)?;
        world.send(&[0u8; 0], 0, 0)?;
        let (_, status) = world.recv_vec::<u32>(0, 0)?;
        assert_eq!((status.count::<f32>(), status.elements_of(&pairs)), (Some(0), Some(0)));
        Ok(())
    });
}
