//! Sends messages between ranks of one process by ring cells, fragments, rendezvous and exported blocks. The tests are
//! short because Miri is slow.

use mpj::buffer::Buffer;
use mpj::datatypes::Datatype;
use mpj::pool::Pool;
use mpj::{Op, View, ViewMut, World, coll};

type Outcome = Result<(), Box<dyn std::error::Error + Send + Sync>>;

fn pair(rank: impl Fn(&World, usize) -> Outcome + Send + Sync) {
    mpj::threads(2, |world| rank(&world, 1 - world.rank())).unwrap();
}

#[test]
fn borrowed_and_owned_messages_arrive() {
    pair(|world, other| {
        // In a ring cell, twice in a fragment, and by rendezvous.
        for len in [1, 1 << 9, 20 << 10, 70 << 10] {
            let (mine, mut theirs) = (vec![world.rank() as u8 + 1; len], vec![0u8; len]);
            world.scope(|scope| {
                let receive = scope.irecv(&mut theirs, other, 0)?;
                scope.isend(&mine, other, 0)?;
                receive.wait().map(|_| ())
            })?;
            assert_eq!((theirs[0], theirs[len - 1]), (other as u8 + 1, other as u8 + 1));
            let send = world.isend(mine, other, 1)?;
            let (theirs, status) = world.irecv(theirs, other, 1)?.wait()?;
            assert_eq!((status.bytes(), theirs[len / 2]), (len, other as u8 + 1));
            let (mine, _) = send.wait()?;
            assert_eq!(mine[len / 2], world.rank() as u8 + 1);
        }
        Ok(())
    });
}

#[test]
fn exported_blocks_are_returned() {
    pair(|world, other| {
        if world.rank() == 0 {
            let mut samples = world.alloc_slice(0u8, 20 << 10)?;
            samples.fill(7);
            let (samples, _) = world.isend(samples, other, 0)?.wait()?;
            assert_eq!(samples[9], 7);
            let mut message = Buffer::new(world.pool().alloc(20 << 10)?)?;
            message.write(&vec![1u64; 2200])?;
            message.write_object("a word")?;
            world.isend(message.commit(), other, 1)?.wait()?;
        } else {
            let (lent, _) = world.recv_block(other, 0)?;
            assert_eq!((lent.is_zero_copy(), lent.try_as_slice::<u8>()?[19 << 10]), (true, 7));
            drop(lent);
            let mut message = world.recv_block(other, 1)?.0.try_into_buffer()?;
            assert_eq!(message.view::<u64>()?[2199], 1);
            assert_eq!(message.read_object::<String>()?, "a word");
        }
        Ok(())
    });
}

#[test]
fn columns_are_sent_from_matrix_to_matrix() {
    pair(|world, other| {
        let rows = 40;
        let column = Datatype::of::<u64>().vector(rows, 1, 8)?;
        let mine: Vec<u64> = (0..8 * rows as u64).collect();
        let mut theirs = vec![0; 8 * rows];
        let sent = View::new(&mine, 0, &column, 1)?;
        let mut got = ViewMut::new(&mut theirs, 1, &column, 1)?;
        world.sendrecv(&sent, other, 0, &mut got, other, 0)?;
        assert_eq!((theirs[1], theirs[8 * rows - 7]), (0, mine[8 * (rows - 1)]));
        Ok(())
    });
}

#[test]
fn collectives_and_objects_return_their_results() {
    pair(|world, other| {
        let mut sum = [0u64; 3];
        world.allreduce(&[world.rank() as u64 + 1; 3], &mut sum, Op::Sum)?;
        let mut all = [0u8; 2];
        world.allgather(&[world.rank() as u8], &mut all)?;
        assert_eq!((sum, all), ([3; 3], [0, 1]));
        let words = world.bcast_object(vec!["one".to_string(), "two".to_string()], 0)?;
        assert_eq!(words.len(), 2);
        let mut prepared = world.prepare(coll::allreduce([1u32; 4], [0u32; 4], Op::Max))?;
        for round in 0..2 {
            prepared.buffers_mut().0[3] = (world.rank() + 10 * round) as u32;
            prepared.start()?.wait()?;
            assert_eq!(prepared.buffers_mut().1[3], 1 + 10 * round as u32);
        }
        let half = world.split(Some(world.rank() as u32), 0)?;
        assert!(half.is_some_and(|half| half.size() == 1));
        world.send(&[1u8], other, 5)?;
        world.recv(&mut [0u8], other, 5)?;
        Ok(())
    });
}
