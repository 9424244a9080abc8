//! A job closes all its file descriptors. The test is alone in its file because it counts those of the whole process.

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Runs two ranks. Rank 1 sends a message that arrives at rank 0 unexpected, and leaves before or after rank 0.
fn run(first_to_leave: usize) {
    let outcome = mpj::threads(2, |world| {
        if world.rank() == 1 {
            world.send(&[1u8; 8], 0, 0)?;
            if first_to_leave == 0 {
                world.recv(&mut [0u8], 0, 1)?;
            }
        } else {
            std::thread::sleep(std::time::Duration::from_millis(2));
            world.probe(1, 0)?;
            world.recv(&mut [0u8; 8], 1, 0)?;
            if first_to_leave == 0 {
                world.send(&[0u8], 1, 1)?;
            }
        }
        Ok::<_, mpj::Error>(())
    });
    outcome.unwrap();
}

/// Runs two ranks. Rank 0 returns an error or panics while collectives are pending.
fn fail(panics: bool) {
    let outcome = mpj::threads(2, |world| {
        let sum =
            world.start(mpj::coll::allreduce(vec![1u64; 100_000], vec![0u64; 100_000], mpj::Op::Sum))?;
        if world.rank() == 0 {
            drop(world.start(mpj::coll::barrier())?);
            if panics {
                std::panic::resume_unwind(Box::new("on purpose"));
            }
            return Err(world.send(&[0u8], 7, 0).unwrap_err());
        }
        sum.wait()?;
        world.recv(&mut [0u8], 0, 0)
    });
    assert_eq!(outcome.unwrap_err().rank(), 0);
}

#[test]
fn jobs_leak_no_descriptor() {
    for panics in [false, true] {
        fail(panics);
        let before = open_descriptors();
        (0..20).for_each(|_| fail(panics));
        assert_eq!(open_descriptors(), before, "20 jobs in which a rank fails");
    }
    for first in [0, 1] {
        run(first);
        let before = open_descriptors();
        (0..100).for_each(|_| run(first));
        assert_eq!(open_descriptors(), before, "100 jobs in which rank {first} leaves first");
    }
}
