//! Messages that contain values of serde types.

use std::any::type_name;
use std::collections::BTreeMap;

use crate::common::{job, ranks};
use mpj::{ANY_SOURCE, ANY_TAG, ErrorClass, World};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
enum Shape {
    Nothing,
    Circle { radius: f64 },
    Group(Vec<Shape>, BTreeMap<String, Option<i128>>),
}

fn shape(rank: usize) -> Shape {
    let names =
        (0..rank as i128 + 3).map(|at| (format!("näme {at}"), (at % 2 == 0).then_some(-at << 90))).collect();
    Shape::Group(
        vec![
            Shape::Nothing,
            Shape::Circle { radius: rank as f64 / 3.0 },
            Shape::Group(vec![], BTreeMap::new()),
        ],
        names,
    )
}

#[mpj::test(ranks = 3)]
fn objects_are_sent_around_a_ring(world: World) -> mpj::Result<()> {
    let (me, n) = (world.rank(), world.size());
    let (right, left) = ((me + 1) % n, (me + n - 1) % n);
    world.send_object(&shape(me), right, 4)?;
    world.send_object("text", right, 5)?;
    world.send_object(&(), right, 6)?;
    world.send_object(&Vec::<u64>::new(), right, 7)?;
    let (empty, status) = world.recv_object::<Vec<u64>>(left, 7)?;
    assert_eq!((empty, status.source_rank(), status.tag()), (vec![], left, 7));
    world.recv_object::<()>(ANY_SOURCE, 6)?;
    assert_eq!(world.recv_object::<Shape>(left, ANY_TAG)?.0, shape(left));
    assert_eq!(world.recv_object::<String>(left, ANY_TAG)?.0, "text");
    world.send_object(&(me, 'x'), me, 0)?; // to the rank itself
    assert_eq!(world.recv_object::<(usize, char)>(me, 0)?.0, (me, 'x'));
    world.send_object(&1u8, mpj::PROC_NULL, 0)
}

#[mpj::test(ranks = 2)]
fn long_objects_arrive(world: World) -> mpj::Result<()> {
    let value = |rank: usize| -> Vec<u8> { (0..8 << 20).map(|at: usize| (at % 251 + rank) as u8).collect() };
    let other = 1 - world.rank();
    let sending = value(world.rank());
    std::thread::scope(|s| {
        let sender = s.spawn(|| world.send_object(&sending, other, 0));
        let (got, status) = world.recv_object::<Vec<u8>>(other, 0)?;
        assert!(got == value(other) && status.bytes() >= 8 << 20);
        sender.join().expect("does not panic")
    })
}

#[test]
fn bcast_object_sends_the_value_of_the_root() {
    for size in [1, 2, 3, 5, 8] {
        ranks(size, |world| {
            for root in 0..size {
                assert_eq!(world.bcast_object(shape(world.rank()), root)?, shape(root));
                let long = if world.rank() == root { vec![root; 200_000] } else { Vec::new() };
                assert_eq!(world.bcast_object(long, root)?, vec![root; 200_000]);
            }
            assert_eq!(
                world.dup()?.bcast_object((), size).expect_err("no such root").class(),
                ErrorClass::Root
            );
            world.barrier()
        });
    }
}

#[mpj::test(ranks = 2)]
fn object_of_another_type_is_an_error(world: World) -> mpj::Result<()> {
    if world.rank() == 0 {
        world.send_object(&vec![7u8; 5], 1, 0)?;
        world.send(&[1.5f64; 3], 1, 0)?;
        world.send(&[0u8; 0], 1, 0)?;
        world.send_object("still here", 1, 0)?;
        world.send_object(&3u32, 1, 1)?;
        return world.barrier();
    }
    let error = world.recv_object::<BTreeMap<u16, String>>(0, 0).expect_err("a vector");
    let text = format!(
        "recv_object: cannot decode a {} from the message of rank 0: ",
        type_name::<BTreeMap<u16, String>>()
    );
    assert!(error.class() == ErrorClass::Buffer && error.to_string().starts_with(&text), "{error}");
    assert!(matches!(
        world.recv_object::<[f64; 3]>(0, 0).expect_err("numbers").class(),
        ErrorClass::Buffer | ErrorClass::Type
    ));
    assert_eq!(world.recv_object::<u8>(0, 0).expect_err("an empty message").class(), ErrorClass::Buffer);
    assert_eq!(world.recv_object::<String>(0, 0)?.0, "still here");
    // The object is longer than the slice into which it is received.
    let truncated = world.recv(&mut [0u8; 1], 0, 1).expect_err("longer");
    assert_eq!(truncated.class(), ErrorClass::Truncate);
    world.barrier()
}

#[test]
fn unserializable_object_fails_the_send() {
    struct Never;
    impl Serialize for Never {
        fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            Err(serde::ser::Error::custom("never"))
        }
    }
    let outcome = job(2, |world| {
        let refused = world.send_object(&Never, 1 - world.rank(), 0).expect_err("cannot be serialized");
        assert_eq!(refused.class(), ErrorClass::Buffer);
        let refused = world.recv_object::<u8>(9, 0).expect_err("no such rank");
        assert_eq!(
            refused.to_string(),
            "recv_object: rank 9 is out of range: the communicator has ranks 0 to 1"
        );
        world.barrier()?;
        assert_eq!(world.iprobe(ANY_SOURCE, ANY_TAG)?, None);
        world.barrier()
    });
    outcome.expect("no rank fails");
}
