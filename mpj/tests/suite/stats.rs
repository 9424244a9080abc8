//! The statistics of a rank are the messages and bytes that it has moved, by path.

use mpj::buffer::Buffer;
use mpj::{DataPath, Datatype, ErrorClass, Op, Stats, View, World};

/// Returns the traffic of the device that the job uses, and the local traffic.
fn traffic(world: &World) -> (mpj::devices::Traffic, mpj::devices::LocalTraffic) {
    let Stats { devices, local, .. } = world.stats();
    let moved = devices.iter().find(|(_, traffic)| *traffic != Default::default());
    (moved.or(devices.first()).expect("there is a device").1, local)
}

#[mpj::test(ranks = 2)]
fn short_messages_are_eager_and_copied_at_both_ends(world: World) -> mpj::Result<()> {
    const MESSAGES: u64 = 10;
    let early = traffic(&world).0;
    // Rank 1 takes its snapshot before the barrier, because rank 0 sends directly after it.
    world.barrier()?;
    let before = if world.rank() == 0 { traffic(&world).0 } else { early };
    for _ in 0..MESSAGES {
        match world.rank() {
            0 => world.send(&[1u64; 100], 1, 0)?,
            _ => drop(world.recv(&mut [0u64; 100], 0, 0)?),
        }
    }
    let after = traffic(&world).0;
    let sent = if world.rank() == 0 { MESSAGES } else { 0 };
    assert_eq!(after.eager.bytes - before.eager.bytes, 800 * sent);
    assert!(after.eager.number - before.eager.number >= sent);
    assert_eq!(after.copied.number - before.copied.number, MESSAGES);
    assert_eq!(after.copied.bytes - before.copied.bytes, 800 * MESSAGES);
    assert_eq!(after.rendezvous, before.rendezvous);
    Ok(())
}

#[mpj::test(ranks = 2)]
fn long_messages_use_rendezvous_and_zero_copy(world: World) -> mpj::Result<()> {
    const BYTES: usize = 1 << 20;
    world.barrier()?;
    let before = traffic(&world).0;
    match world.rank() {
        0 => world.with_path(DataPath::ZeroCopy).send(&vec![7u8; BYTES], 1, 0)?,
        _ => drop(world.with_path(DataPath::ZeroCopy).recv(&mut vec![0u8; BYTES], 0, 0)?),
    }
    let after = traffic(&world).0;
    let (announced, lent) =
        (after.rendezvous.bytes - before.rendezvous.bytes, after.zero_copy.bytes - before.zero_copy.bytes);
    let wanted = if world.rank() == 0 { (BYTES as u64, 0) } else { (0, BYTES as u64) };
    assert_eq!((announced, lent), wanted);
    assert_eq!(after.copied, before.copied);
    Ok(())
}

#[mpj::test(ranks = 2)]
fn received_unexpected_message_is_counted(world: World) -> mpj::Result<()> {
    if world.rank() == 0 {
        world.send(&[1u8; 500], 1, 0)?;
        return world.barrier();
    }
    world.probe(0, 0)?;
    let before = traffic(&world).1;
    world.recv(&mut [0u8; 500], 0, 0)?;
    let after = traffic(&world).1;
    assert_eq!(after.unexpected.number - before.unexpected.number, 1);
    assert_eq!(after.unexpected.bytes - before.unexpected.bytes, 500);
    world.barrier()
}

/// The message of a matched probe outlives its communicator. It is counted if its receive copies the body, and not if
/// the receive takes over the block.
#[mpj::test(ranks = 2)]
fn matched_message_of_a_freed_communicator_is_counted(
    world: World,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let other = world.dup()?;
    if world.rank() == 0 {
        let mut message = Buffer::with_capacity(1024)?;
        message.write(&[7u8; 500])?;
        other.send(&message.commit(), 1, 0)?;
        other.send(&[1u8; 300], 1, 1)?;
        return Ok(world.barrier()?);
    }
    let (first, second) = (other.mprobe(0, 0)?, other.mprobe(0, 1)?);
    let before = traffic(&world).1;
    other.free()?;
    assert_eq!(traffic(&world).1, before);
    assert_eq!(first.recv_buffer()?.0.view::<u8>()?, [7; 500]);
    assert_eq!(traffic(&world).1, before, "its block was taken over");
    second.recv(&mut [0u8; 300])?;
    let after = traffic(&world).1;
    assert_eq!(
        (
            after.unexpected.number - before.unexpected.number,
            after.unexpected.bytes - before.unexpected.bytes
        ),
        (1, 300)
    );
    Ok(world.barrier()?)
}

/// A view of overlapping items can have more bytes than any memory. The bytes of three such views exceed the range of a
/// counter, which saturates.
#[mpj::test(ranks = 2)]
fn messages_of_any_length_are_counted(world: World) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let (one, everywhere) = ([7u8], Datatype::of::<u8>().resized(0, 0)?);
    let endless = View::new(&one, 0, &everywhere, isize::MAX as usize)?;
    world.barrier()?;
    let before = world.stats();
    for _ in 0..3 {
        // No memory can hold the message, so nothing was moved.
        let error = world.send(&endless, world.rank(), 0).expect_err("too long");
        assert_eq!(error.class(), ErrorClass::NoMem);
        match world.rank() {
            0 => world.send(&endless, 1, 0)?,
            _ => {
                assert_eq!(world.recv(&mut [0u8], 0, 0).expect_err("too long").class(), ErrorClass::Truncate)
            }
        }
    }
    assert_eq!(world.stats().local.to_self, before.local.to_self);
    if world.rank() == 0 {
        assert_eq!(traffic(&world).0.rendezvous.bytes, u64::MAX, "the counter saturates");
    }
    Ok(world.barrier()?)
}

#[mpj::test(ranks = 1)]
fn message_to_self_is_counted_as_local(world: World) -> mpj::Result<()> {
    let before = world.stats();
    let mut got = [0u32; 25];
    world.sendrecv(&[3u32; 25], 0, 0, &mut got, 0, 0)?;
    let after = world.stats();
    assert_eq!(after.devices, before.devices);
    assert_eq!(after.local.to_self.bytes - before.local.to_self.bytes, 100);
    assert!(after.copies().bytes > before.copies().bytes);
    Ok(())
}

#[mpj::test(ranks = 3)]
fn traffic_of_a_freed_communicator_is_counted(world: World) -> mpj::Result<()> {
    let other = world.dup()?;
    let before = world.stats().local.to_self;
    other.sendrecv(&[1u8; 64], other.rank(), 0, &mut [0u8; 64], other.rank(), 0)?;
    let mut sum = [0u64];
    other.allreduce(&[1u64], &mut sum, Op::Sum)?;
    other.free()?;
    drop(other);
    assert_eq!(world.stats().local.to_self.bytes - before.bytes, 64);
    assert!(world.stats().to_string().contains("copies in total"));
    world.barrier()
}
