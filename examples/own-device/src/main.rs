//! Runs four ranks whose messages go through a device of this program, and prints how many each device sent:
//! `cargo run --manifest-path examples/own-device/Cargo.toml`.

mod mailbox;

use std::process::ExitCode;

use mailbox::Mailboxes;
use mpj::boot::{ThreadBoot, detect};
use mpj::{Error, Op, World};

fn main() -> ExitCode {
    // Under a launcher, the ranks that it assigned to this process; otherwise four threads.
    let boots = match detect() {
        Ok(boots) => boots.unwrap_or_else(|| ThreadBoot::ranks(4)),
        Err(why) => {
            eprintln!("own-device: {why}");
            return ExitCode::FAILURE;
        }
    };
    let registry = boots[0].registry().with(Mailboxes::default());
    mpj::run_on(boots, &registry, rank)
}

fn rank(world: World) -> Result<(), Error> {
    let (me, size) = (world.rank(), world.size());
    // An eager message, and one that needs a rendezvous and is sent in fragments.
    for len in [5, 100_000] {
        let (right, left) = ((me + 1) % size, (me + size - 1) % size);
        let mut from_left = vec![0u64; len];
        world.sendrecv(&vec![me as u64; len], right, 0, &mut from_left, left, 0)?;
        assert!(from_left.iter().all(|item| *item == left as u64));
    }
    let mut sum = [0];
    world.allreduce(&[me], &mut sum, Op::Sum)?;
    assert_eq!(sum, [size * (size - 1) / 2]);
    for (device, traffic) in world.stats().devices {
        let sent = traffic.eager.number + traffic.rendezvous.number;
        if sent > 0 {
            println!("rank {me} of {size}: {sent} messages by {device}");
        }
    }
    Ok(())
}
