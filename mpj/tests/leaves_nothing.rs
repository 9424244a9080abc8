//! A job gives back all it took. Alone in its file, as it counts what the process has open.

fn open() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Two ranks; rank 1 sends a message that rank 0 takes in early, and leaves before or after rank 0.
fn run(first: usize) {
    let outcome = mpj::threads(2, |world| {
        if world.rank() == 1 {
            world.send(&[1u8; 8], 0, 0)?;
            if first == 0 {
                world.recv(&mut [0u8], 0, 1)?;
            }
        } else {
            std::thread::sleep(std::time::Duration::from_millis(2));
            world.probe(1, 0)?;
            world.recv(&mut [0u8; 8], 1, 0)?;
            if first == 0 {
                world.send(&[0u8], 1, 1)?;
            }
        }
        Ok::<_, mpj::Error>(())
    });
    outcome.unwrap();
}

#[test]
fn jobs_leave_no_descriptor_behind() {
    for first in [0, 1] {
        run(first);
        let before = open();
        (0..100).for_each(|_| run(first));
        assert_eq!(open(), before, "100 jobs in which rank {first} leaves first");
    }
}
