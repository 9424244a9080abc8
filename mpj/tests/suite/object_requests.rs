//! Non-blocking messages of serde values.

use std::collections::BTreeMap;

use crate::common::{job, ranks};
use mpj::{ANY_SOURCE, ANY_TAG, DataPath, ErrorClass, PROC_NULL, Waitable, World};

type Table = BTreeMap<String, Vec<u64>>;

fn table(rank: usize, len: usize) -> Table {
    (0..3)
        .map(|at| (format!("name {at} of {rank}"), (0..len).map(|n| (n * rank + at) as u64).collect()))
        .collect()
}

/// Numbers per list: short, eager, and long enough for a rendezvous.
const LENS: [usize; 3] = [0, 100, 50_000];

fn exchange(world: &World, comm: &mpj::Intracomm) -> mpj::Result<()> {
    let (me, size) = (world.rank(), world.size());
    let (right, left) = ((me + 1) % size, (me + size - 1) % size);
    for len in LENS {
        // Posted before the messages arrive.
        let receiving = comm.irecv_object::<Table>(left, 0)?;
        world.barrier()?;
        let sending = comm.isend_object(&table(me, len), right, 0)?;
        let (got, status) = receiving.wait()?;
        assert_eq!((got, status.source_rank(), status.tag()), (table(left, len), left, 0));
        sending.wait()?;
        // Posted after the messages have arrived.
        let sending = comm.isend_object(&table(me, len + 1), right, 1)?;
        comm.probe(left, 1)?;
        assert_eq!(comm.irecv_object::<Table>(ANY_SOURCE, ANY_TAG)?.wait()?.0, table(left, len + 1));
        sending.wait()?;
        // Non-blocking calls match blocking ones, in both directions.
        let sending = comm.isend_object(&table(me, len + 2), right, 2)?;
        assert_eq!(comm.recv_object::<Table>(left, 2)?.0, table(left, len + 2));
        sending.wait()?;
        let mut receiving = comm.irecv_object::<Table>(left, 3)?;
        comm.send_object(&table(me, len + 3), right, 3)?;
        let got = loop {
            if let Some(outcome) = receiving.test() {
                break outcome?.0;
            }
        };
        assert_eq!(got, table(left, len + 3));
        world.barrier()?;
    }
    Ok(())
}

#[test]
fn objects_arrive_on_every_path() {
    for size in [2, 3] {
        ranks(size, |world| {
            exchange(&world, world.comm())?;
            for path in [DataPath::Buffered, DataPath::ZeroCopy] {
                exchange(&world, &world.comm().with_path(path))?;
            }
            Ok(())
        });
    }
}

#[test]
fn objects_match_in_the_order_of_the_receives() {
    ranks(2, |world| {
        let other = 1 - world.rank();
        let mut receiving = Vec::new();
        for _ in 0..10 {
            receiving.push(world.irecv_object::<(usize, String)>(other, 0)?);
        }
        let plain = world.irecv([0u8; 3], other, 0)?;
        for at in 0..10 {
            world.send_object(&(at, "x".repeat(at * 5000)), other, 0)?;
        }
        world.send(&[1u8, 2, 3], other, 0)?;
        // Waited for in another order.
        assert_eq!(plain.wait()?.0, [1, 2, 3]);
        while let Some(last) = receiving.pop() {
            let at = receiving.len();
            assert_eq!(last.wait()?.0, (at, "x".repeat(at * 5000)));
        }
        Ok(())
    });
}

#[test]
fn objects_and_buffers_are_waited_for_together() {
    ranks(2, |world| {
        let other = 1 - world.rank();
        let (number, text) = (world.irecv([0usize], other, 0)?, world.irecv_object::<String>(other, 1)?);
        let sending = world.isend_object("text", other, 1)?;
        world.send(&[world.rank()], other, 0)?;
        let mut all = vec![number.request_ref(), text.request_ref(), sending.request_ref()];
        while let Some((_, outcome)) = mpj::wait_any(&mut all) {
            outcome?;
        }
        assert_eq!((number.wait()?.0, text.wait()?.0), ([other], "text".to_owned()));
        sending.wait().map(drop).map_err(Into::into)
    });
}

#[test]
fn other_messages_are_errors_and_nothing_is_lost() {
    ranks(1, |world| {
        let null = world.irecv_object::<u8>(PROC_NULL, 0).expect_err("no value");
        assert_eq!((null.class(), null.call()), (ErrorClass::Rank, "irecv_object"));
        world.isend_object(&1u8, PROC_NULL, 0)?.wait()?;
        assert_eq!(world.isend_object(&1u8, 1, 0).expect_err("1 rank").call(), "isend_object");
        for (sent, path) in
            [(&b"no object"[..], None), (b"", None), (&[7; 100_000], Some(DataPath::Buffered))]
        {
            let comm = path.map_or_else(|| world.comm().clone(), |path| world.comm().with_path(path));
            let receiving = comm.irecv_object::<String>(0, 0)?;
            comm.send(sent, 0, 0)?;
            let error = receiving.wait().expect_err("not a message of an object");
            assert_eq!((error.class(), error.call()), (ErrorClass::Buffer, "irecv_object"), "{error}");
        }
        let receiving = world.irecv_object::<Vec<String>>(0, 0)?;
        world.send_object(&3u8, 0, 0)?;
        assert_eq!(receiving.wait().expect_err("another value").class(), ErrorClass::Buffer);
        // Dropped and cancelled receives take no message.
        drop(world.irecv_object::<u8>(0, 0)?);
        let cancelled = world.irecv_object::<u8>(0, 0)?;
        assert!(cancelled.cancel() && !cancelled.cancel());
        let error = cancelled.wait().expect_err("cancelled");
        assert!(error.class() == ErrorClass::Request && error.is_cancelled(), "{error}");
        world.send_object(&9u8, 0, 0)?;
        assert_eq!(world.recv_object::<u8>(0, 0)?.0, 9);
        Ok(())
    });
}

#[test]
fn dead_sender_fails_the_receive() {
    let outcome = job(2, |world| {
        if world.rank() == 0 {
            world.recv(&mut [0u8; 0], 1, 0).expect("rank 1 has posted the receive");
            return Err("on purpose".to_owned());
        }
        let receiving = world.irecv_object::<u8>(0, 0).expect("valid");
        world.send(&[0u8; 0], 0, 0).expect("alive");
        let error = receiving.wait().expect_err("rank 0 has died");
        assert_eq!((error.class(), error.failed_rank()), (ErrorClass::ProcAborted, Some(0)), "{error}");
        Ok(())
    });
    assert_eq!(outcome.expect_err("rank 0 failed").rank(), 0);
}
