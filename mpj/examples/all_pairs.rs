//! Every rank exchanges a message with every other rank, which connects all pairs. Rank 0 prints how long that took.
//!
//! `mpjrun -n 64 target/release/examples/all_pairs`
#![expect(clippy::print_stdout, reason = "a program that prints one line")]

use std::process::ExitCode;

use mpj::{Error, World};

fn main() -> ExitCode {
    mpj::run(|world| {
        let start = mpj::wtime();
        exchange(&world)?;
        world.barrier()?;
        if world.rank() == 0 {
            println!("{} ranks: all pairs connected in {:.2} s", world.size(), mpj::wtime() - start);
        }
        Ok::<(), Error>(())
    })
}

fn exchange(world: &World) -> Result<(), Error> {
    let (me, size) = (world.rank() as u64, world.size());
    let others = || (0..size).filter(|other| *other != world.rank());
    let mut got = vec![u64::MAX; size];
    world.scope(|s| {
        let receives = got.iter_mut().enumerate().filter(|(from, _)| *from as u64 != me);
        let receives: Vec<_> =
            receives.map(|(from, item)| s.irecv(item, from, 0)).collect::<Result<_, Error>>()?;
        let sends: Vec<_> = others().map(|to| s.isend(&me, to, 0)).collect::<Result<_, Error>>()?;
        sends.into_iter().try_for_each(|send| send.wait().map(|_| ()))?;
        receives.into_iter().try_for_each(|receive| receive.wait().map(|_| ()))
    })?;
    assert!(others().all(|from| got[from] == from as u64), "rank {me} got {got:?}");
    Ok(())
}
