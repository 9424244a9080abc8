//! Intercommunicators between processes.

use mpj::{Error, IntercommRoot, Op, World};

use super::Test;
use super::job::run;
use super::program::say;

pub(crate) const TESTS: &[Test] = &[
    ("processes_of_two_groups_exchange_and_merge", processes_of_two_groups_exchange_and_merge),
    ("killed_process_fails_both_groups", killed_process_fails_both_groups),
];

fn processes_of_two_groups_exchange_and_merge() {
    for device in ["shmdev", "niodev"] {
        let ended = run(&format!("-n 5 --devices {device}"), "intercomm");
        let done = ended.out.iter().filter(|line| line.starts_with("merged")).count();
        assert_eq!((ended.code, done), (Some(0), 5), "{device}: {ended:#?}");
    }
}

fn killed_process_fails_both_groups() {
    for device in ["shmdev", "niodev"] {
        let ended = run(&format!("-n 5 --devices {device} --on-failure=continue"), "intercomm-killed");
        let failed = ended.out.iter().filter(|line| **line == "failed rank Some(3)").count();
        assert_eq!(failed, 4, "{device}: {ended:#?}");
    }
}

/// Connects ranks 0 and 1 with the others. The leaders are ranks 0 and 2.
fn connect(world: &World) -> Result<mpj::Intercomm, Error> {
    let is_first = world.rank() < 2;
    let group = world.split(Some(is_first.into()), 0)?.expect("every rank has a color");
    group.create_intercomm(0, world, if is_first { 2 } else { 0 }, 1)
}

pub(crate) fn exchange(world: &World) -> Result<(), Error> {
    let inter = connect(world)?;
    let (me, is_first) = (world.rank(), world.rank() < 2);
    for len in [1, 5000, 1 << 20] {
        let sends = (0..inter.remote_size())
            .map(|to| inter.isend(vec![me as u8; len], to, 0))
            .collect::<Result<Vec<_>, _>>()?;
        for from in 0..inter.remote_size() {
            let mut got = vec![9u8; len];
            inter.recv(&mut got, from, 0)?;
            assert!(got.iter().all(|byte| usize::from(*byte) == if is_first { 2 + from } else { from }));
        }
        mpj::wait_all(sends).into_iter().try_for_each(|sent| sent.map(drop).map_err(Error::from))?;
    }
    let mut sum = [0usize];
    inter.allreduce(&[me], &mut sum, Op::Sum)?;
    assert_eq!(sum[0], if is_first { 2 + 3 + 4 } else { 1 });
    let root = match me {
        4 => IntercommRoot::This,
        0 | 1 => IntercommRoot::Remote(2),
        _ => IntercommRoot::Null,
    };
    let mut data = vec![me as u8; 100_000];
    inter.bcast(&mut data, root)?;
    assert!(data.iter().all(|byte| usize::from(*byte) == if is_first { 4 } else { me }));
    let merged = inter.merge(is_first)?;
    assert_eq!(merged.rank(), (me + 3) % 5);
    merged.barrier()?;
    say(&format!("merged {}", merged.rank()));
    Ok(())
}

/// Ranks 0 and 1 wait for rank 2, and ranks 2 and 4 for rank 0.
pub(crate) fn killed(world: &World) -> Result<(), Error> {
    let inter = connect(world)?;
    if world.rank() == 3 {
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::ABORT);
    }
    let error = inter.recv(&mut [0u8], 0, 0).expect_err("rank 3 has died");
    say(&format!("failed rank {:?}", error.failed_rank()));
    Ok(())
}
