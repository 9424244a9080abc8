//! Cases of the tests of MPJ Express that no other test here covers. `mpj/tests/README.md` maps its tests to ours.

use std::thread;
use std::time::Duration;

use mpj::buffer::Buffer;
use mpj::{ANY_SOURCE, BoxError, Datatype, View, ViewMut, World, wait_all};

use crate::common::{Sample, blanks, job, samples};

/// Numbers per message. If a number has 8 bytes: eager, and a rendezvous.
const LENS: [usize; 2] = [100, 100_000];

/// `BreakANYSRC`: the receive is posted after the send, before it, and before it from any source.
#[mpj::test(ranks = 2)]
fn messages_to_the_rank_itself_match_every_receive(world: World) -> mpj::Result<()> {
    let me = world.rank();
    for len in LENS {
        let sent = samples::<i64>(me, 0, len);
        let mut got = blanks::<i64>(len);
        let sending = world.isend(sent.clone(), me, 1)?;
        world.recv(&mut got, me, 1)?;
        assert_eq!((got, sending.wait()?.0), (sent.clone(), sent.clone()));
        for source in [me.into(), ANY_SOURCE] {
            let receiving = world.irecv(blanks::<i64>(len), source, 1)?;
            world.send(&sent, me, 1)?;
            let (got, status) = receiving.wait()?;
            assert_eq!((got, status.source_rank(), status.tag()), (sent.clone(), me, 1));
        }
    }
    Ok(())
}

/// `Send_eager_fairness`, `Send_rendez_fairness`: the receiver is late. All messages of one type are in its queue, or
/// wait for it at the sender.
#[mpj::test(ranks = 2)]
fn late_receiver_gets_messages_of_every_type_in_order(world: World) -> mpj::Result<()> {
    fn pass<T: Sample>(world: &World, tag: i32) -> mpj::Result<()> {
        for len in LENS {
            if world.rank() == 0 {
                let sends = (0..10).map(|at| world.isend(samples::<T>(0, at, len), 1, tag));
                for sent in wait_all(sends.collect::<mpj::Result<Vec<_>>>()?) {
                    sent?;
                }
                continue;
            }
            thread::sleep(Duration::from_millis(2));
            for at in 0..10 {
                let mut got = blanks::<T>(len);
                world.recv(&mut got, 0, tag)?;
                assert_eq!(got, samples::<T>(0, at, len));
            }
        }
        Ok(())
    }
    pass::<i32>(&world, 999)?;
    pass::<i8>(&world, 998)?;
    pass::<char>(&world, 997)?;
    pass::<f64>(&world, 996)?;
    pass::<i64>(&world, 995)?;
    pass::<bool>(&world, 994)?;
    pass::<i16>(&world, 993)?;
    pass::<f32>(&world, 992)
}

/// `Isend_rendez_fairness`: rank 2 sends only after the message of rank 1 has arrived, whose receive was posted later.
#[mpj::test(ranks = 3)]
fn pending_long_receive_does_not_delay_that_of_another_sender(world: World) -> mpj::Result<()> {
    let len = LENS[1];
    match world.rank() {
        0 => {
            let from_two = world.irecv(blanks::<i64>(len), 2, 992)?;
            let from_one = world.irecv(blanks::<i64>(len), 1, 991)?;
            assert_eq!(from_one.wait()?.0, samples::<i64>(1, 0, len));
            world.send(&[0u8], 2, 0)?;
            assert_eq!(from_two.wait()?.0, samples::<i64>(2, 0, len));
            Ok(())
        }
        1 => world.send(&samples::<i64>(1, 0, len), 0, 991),
        _ => {
            world.recv(&mut [0u8], 0, 0)?;
            world.send(&samples::<i64>(2, 0, len), 0, 992)
        }
    }
}

/// The number of messages of a thread.
const MESSAGES: i32 = 100;

fn send_all(world: &World, first_tag: i32, len: usize) -> mpj::Result<()> {
    let data = samples::<i32>(world.rank(), first_tag as usize, len);
    (first_tag..first_tag + MESSAGES).try_for_each(|tag| world.send(&data, 1 - world.rank(), tag))
}

fn receive_all(world: &World, first_tag: i32, len: usize) -> mpj::Result<()> {
    let other = 1 - world.rank();
    (first_tag..first_tag + MESSAGES).try_for_each(|tag| {
        let mut got = blanks::<i32>(len);
        world.recv(&mut got, other, tag)?;
        assert_eq!(got, samples::<i32>(other, first_tag as usize, len));
        Ok(())
    })
}

type Task<'a> = &'a (dyn Fn() -> mpj::Result<()> + Sync);

/// Runs both at the same time, each in a thread.
fn both(one: Task<'_>, two: Task<'_>) -> mpj::Result<()> {
    thread::scope(|scope| {
        let [one, two] = [one, two].map(|task| scope.spawn(task));
        one.join().expect("does not panic")?;
        two.join().expect("does not panic")
    })
}

/// `SimulSend`: two threads of a rank send with one communicator, and two of the other rank receive.
#[test]
fn two_threads_send_while_two_threads_receive() {
    for len in [100, 50_000] {
        let outcome = job(2, |world| match world.rank() {
            0 => both(&|| send_all(&world, 1000, len), &|| send_all(&world, 2000, len)),
            _ => both(&|| receive_all(&world, 1000, len), &|| receive_all(&world, 2000, len)),
        });
        outcome.expect("no rank fails");
    }
}

/// `SimulSendRecv`: one thread of each rank sends, and the other one receives.
#[test]
fn one_thread_of_a_rank_sends_while_the_other_receives() {
    for len in [100, 50_000] {
        let outcome = job(2, |world| {
            let (mine, theirs) = if world.rank() == 0 { (1000, 2000) } else { (2000, 1000) };
            both(&|| send_all(&world, mine, len), &|| receive_all(&world, theirs, len))
        });
        outcome.expect("no rank fails");
    }
}

/// `ProgressionTest1`, `MultithreadedComm`: rank 0 enters the barrier only after it has sent all messages.
#[test]
fn thread_in_a_barrier_does_not_delay_receives_of_another_thread() {
    for is_synchronous in [false, true] {
        let outcome = job(3, |world| {
            let send = |tag| match is_synchronous {
                true => world.ssend(&[tag; 100], 1, tag),
                false => world.send(&[tag; 100], 1, tag),
            };
            let receive = |tag| {
                let mut got = [0; 100];
                world.recv(&mut got, 0, tag)?;
                assert_eq!(got, [tag; 100]);
                Ok(())
            };
            let tags = || 1000..1000 + MESSAGES;
            match world.rank() {
                0 => tags().try_for_each(send)?,
                1 => return both(&|| world.barrier(), &|| tags().try_for_each(receive)),
                _ => {}
            }
            world.barrier()
        });
        outcome.expect("no rank fails");
    }
}

/// `ssendO`, `rsendO`, `bsendO`, `startO`: `send_object` has one mode; a `Buffer` with an object can be sent in all.
#[mpj::test(ranks = 2)]
fn objects_in_buffers_are_sent_in_every_mode(world: World) -> Result<(), BoxError> {
    let (me, other) = (world.rank(), 1 - world.rank());
    let value = |rank: usize, tag: i32| (rank, format!("message {tag}"), vec![Some(tag); 3]);
    let message = |tag| -> Result<_, BoxError> {
        let mut message = Buffer::with_capacity(256)?;
        message.write_object(&value(me, tag))?;
        Ok(message.commit())
    };
    let check_arrival = |tag| -> Result<(), BoxError> {
        let (mut got, _status) = world.recv_buffer(other, tag)?;
        assert_eq!(got.read_object::<(usize, String, Vec<Option<i32>>)>()?, value(other, tag));
        Ok(())
    };
    let attached = world.attach(4096)?;
    let sends = vec![
        world.issend(message(0)?, other, 0)?,
        world.irsend(message(1)?, other, 1)?,
        world.ibsend(message(2)?, other, 2)?,
    ];
    let mut persistent = world.send_init(message(3)?, other, 3)?;
    for _ in 0..3 {
        let sending = persistent.start()?;
        check_arrival(3)?;
        sending.wait()?;
    }
    (0..3).try_for_each(check_arrival)?;
    for sent in wait_all(sends) {
        sent?;
    }
    Ok(attached.detach()?)
}

/// `lbub`, `lbub2`: the bounds of structures. `resized` replaces the markers `MPI_LB` and `MPI_UB`.
#[test]
fn bounds_of_structures_are_those_of_their_fields_or_markers() -> Result<(), mpj::TypeError> {
    let bounds = |datatype: &Datatype| (datatype.lb(), datatype.lb() + datatype.extent());
    let int = Datatype::of::<i32>();
    let four = int.contiguous(4)?;
    assert_eq!(bounds(&four), (0, 16));
    let apart = Datatype::structure(&[(1, 65, four.clone()), (1, 97, int)])?;
    assert_eq!(bounds(&apart), (65, 101));
    let marked = |len, at, lb, ub| Datatype::structure(&[(len, at, four.clone())])?.resized(lb, ub - lb);
    for (len, at, lb, ub) in [(1, 3, 0, 100), (1, 32, 3, 94), (2, 13, -3, 96), (2, 5, -3, 86)] {
        let datatype = marked(len, at, lb, ub)?;
        assert_eq!((bounds(&datatype), datatype.size()), ((lb, ub), 16 * len));
        assert_eq!((datatype.true_lb(), datatype.true_extent()), (at, 16 * len as i64));
    }
    // The markers of the fields give the bounds of the structure, even if items lie outside of them.
    let nested = Datatype::structure(&[(1, 0, marked(1, 3, 0, 50)?), (1, 48, marked(2, 13, -3, 9)?)])?;
    assert_eq!(bounds(&nested), (0, 57));
    assert_eq!((nested.true_lb(), nested.true_extent()), (3, 48 + 13 + 32 - 3));
    Ok(())
}

/// `zero1`, `zero5`: a field of no items, and a structure without fields.
#[mpj::test(ranks = 2)]
fn fields_without_items_move_nothing(world: World) -> Result<(), BoxError> {
    let int = Datatype::of::<i32>();
    let gap = Datatype::structure(&[(0, 8, int.clone()), (1, 0, int.clone()), (2, 8, int)])?;
    let nothing = Datatype::structure(&[])?;
    if world.rank() == 0 {
        let all: Vec<i32> = (0..10).collect();
        world.send(&View::new(&all, 0, &gap, 2)?, 1, 0)?;
        world.send(&View::new(&all, 0, &nothing, 100)?, 1, 1)?;
        return Ok(());
    }
    let mut got = [-1; 10];
    let status = world.recv(&mut ViewMut::new(&mut got, 0, &gap, 2)?, 0, 0)?;
    assert_eq!(got, [0, -1, 2, 3, 4, -1, 6, 7, -1, -1]);
    assert_eq!((status.count_of(&gap), status.elements_of(&gap)), (Some(2), Some(6)));
    let status = world.recv(&mut ViewMut::new(&mut got, 0, &nothing, 100)?, 0, 1)?;
    assert_eq!(got, [0, -1, 2, 3, 4, -1, 6, 7, -1, -1]);
    assert_eq!(
        (status.bytes(), status.count_of(&nothing), status.elements_of(&nothing)),
        (0, Some(0), Some(0))
    );
    Ok(())
}
