//! Sends that race with the exit of their receiver.

use std::sync::atomic::{AtomicBool, Ordering};

use mpj_devices::{Exit, Fault, Mode, Started};

use super::device::Step;
use super::fixture::{Fixture, WORLD};
use super::head_encoding::*;

/// A thread sends while another thread learns that the receiver has exited. After `peer_gone`, no frame is posted to
/// the endpoint, and every send completes.
#[test]
fn nothing_is_posted_after_peer_gone() {
    let exits = [Exit::Left, Exit::Died("elsewhere".into())];
    for (round, exit) in (0..100).flat_map(|round| exits.iter().map(move |exit| (round, exit.clone()))) {
        let fixture = Fixture::new();
        fixture.play([Step::Frame(1, bind(0, WORLD, 1), vec![])]);
        fixture.send(1, vec![1; 10], Mode::Standard).unwrap();
        let has_begun = AtomicBool::new(false);
        let sends = || {
            has_begun.store(true, Ordering::Relaxed);
            let mut pending = Vec::new();
            loop {
                match fixture.send(1, vec![1; 10], Mode::Standard) {
                    Ok(Started::Done(_)) => (),
                    Ok(Started::Pending(completion)) => pending.push(completion),
                    Err(fault) => return (pending, fault),
                }
            }
        };
        let (pending, fault) = std::thread::scope(|scope| {
            let sender = scope.spawn(sends);
            while !has_begun.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            (0..round % 64).for_each(|_| std::hint::spin_loop());
            fixture.roster.report(1, exit);
            fixture.play([]);
            sender.join().unwrap()
        });
        fixture.play([]);
        let names_the_exit =
            |fault: &Fault| matches!(fault, Fault::Left { rank: Some(1) } | Fault::Dead { rank: 1, .. });
        assert!(names_the_exit(&fault), "{fault}");
        for send in pending {
            let outcome = send.outcome().expect("it fails with its receiver");
            assert!(outcome.as_ref().is_err_and(names_the_exit), "{outcome:?}");
        }
        assert_eq!(fixture.wire.posted_after_exit.load(Ordering::Relaxed), 0, "frames of round {round}");
    }
}
