//! Tasks of several steps. Waiting threads poll them, even if they wait for something else.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::Member;
use super::owned::Receiving;
use crate::{Pattern, ProgressTask};

/// The last value of the token. The first value is 1.
const LAST_VALUE: u64 = 50;

/// The tag of the token.
const TOKEN: i32 = 1;

/// The tag of the message by which a rank tells the next one that its relay has ended.
const RELAY_ENDED: i32 = 2;

/// Relays a token around the ring of ranks. Each rank adds 1 to its value, up to [`LAST_VALUE`].
#[derive(Debug)]
struct Relay {
    member: Member,
    receiving: Mutex<Option<Receiving<u64>>>,
    is_polled: AtomicBool,
    has_ended: AtomicBool,
}

impl Relay {
    fn start(m: &Member) -> Arc<Self> {
        let receiving = Mutex::new(Some(m.irecv(m.previous() as i32, TOKEN, 1)));
        let (is_polled, has_ended) = (AtomicBool::new(false), AtomicBool::new(false));
        let relay = Arc::new(Relay { member: m.clone(), receiving, is_polled, has_ended });
        m.engine.spawn(&m.world, Arc::clone(&relay) as Arc<dyn ProgressTask>);
        relay
    }

    /// Relays each token that has arrived, unless its value is the last. Returns whether this rank will receive no
    /// further token.
    fn relay_token(&self, receiving: &mut Option<Receiving<u64>>) -> bool {
        let m = &self.member;
        while receiving.as_ref().is_some_and(Receiving::has_ended) {
            let Some((_, token)) = receiving.take().map(|one| m.received(one)) else { break };
            if token[0] < LAST_VALUE {
                m.send(m.next(), TOKEN, &[token[0] + 1]);
            }
            if token[0] + u64::from(m.size) > LAST_VALUE {
                return true;
            }
            *receiving = Some(m.irecv(m.previous() as i32, TOKEN, 1));
        }
        false
    }
}

impl ProgressTask for Relay {
    fn poll(&self) -> bool {
        assert!(!self.is_polled.swap(true, Ordering::SeqCst), "two threads poll the task at once");
        assert!(!self.has_ended.load(Ordering::SeqCst), "the task has ended");
        let has_ended = self.relay_token(&mut self.receiving.lock().unwrap());
        self.has_ended.store(has_ended, Ordering::SeqCst);
        self.is_polled.store(false, Ordering::SeqCst);
        has_ended
    }
}

/// Waits until the relay of this rank has ended, and then notifies the next rank unless that is rank 0.
fn wait_for_last_token(m: &Member, relay: &Relay) {
    if m.rank != 0 {
        // This wait must poll the relay, because the previous rank sends this message after its relay has ended, and
        // its relay can end only if the token passes through this rank.
        m.recv::<u8>(m.previous() as i32, RELAY_ENDED, 1);
    }
    m.engine.wait_until(|| relay.has_ended.load(Ordering::SeqCst).then_some(()));
    if m.next() != 0 {
        m.send(m.next(), RELAY_ENDED, &[1u8]);
    }
}

/// While the token goes around, all ranks except rank 0 wait for a message that is not the token.
pub(super) fn unrelated_wait_polls_tasks(m: &Member) {
    for _ in 0..10 {
        let relay = Relay::start(m);
        m.barrier();
        if m.rank == 0 {
            m.send(m.next(), TOKEN, &[1u64]);
        }
        wait_for_last_token(m, &relay);
        assert_eq!(Arc::strong_count(&relay), 1, "the engine still holds the task");
        m.barrier();
    }
}

pub(super) fn one_thread_polls_a_task_at_a_time(m: &Member) {
    let relay = Relay::start(m);
    m.barrier();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !relay.has_ended.load(Ordering::SeqCst) {
                    m.engine.progress();
                }
            });
        }
        scope.spawn(|| m.engine.wait_until(|| relay.has_ended.load(Ordering::SeqCst).then_some(())));
        if m.rank == 0 {
            m.send(m.next(), TOKEN, &[1u64]);
        }
        wait_for_last_token(m, &relay);
    });
    m.barrier();
}

/// A task that waits for a message in its second `poll`.
#[derive(Debug)]
struct WaitingTask {
    member: Member,
    steps: AtomicU32,
    has_ended: AtomicBool,
}

impl ProgressTask for WaitingTask {
    fn poll(&self) -> bool {
        if self.steps.fetch_add(1, Ordering::SeqCst) == 0 {
            return false;
        }
        let m = &self.member;
        assert_eq!(m.recv::<u8>(m.previous() as i32, TOKEN, 1).1, [1]);
        self.has_ended.store(true, Ordering::SeqCst);
        true
    }
}

/// A wait polls tasks even if its condition probes for messages and the `poll` of the task waits.
pub(super) fn tasks_are_polled_while_a_wait_condition_probes(m: &Member) {
    let task = Arc::new(WaitingTask {
        member: m.clone(),
        steps: AtomicU32::new(0),
        has_ended: AtomicBool::new(false),
    });
    m.barrier();
    m.engine.spawn(&m.world, Arc::clone(&task) as Arc<dyn ProgressTask>);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            m.send(m.next(), TOKEN, &[1u8]);
        });
        m.engine.wait_until(|| {
            let none = Pattern { source: m.previous() as i32, tag: RELAY_ENDED };
            assert!(m.engine.iprobe(&m.world, none).unwrap().is_none());
            task.has_ended.load(Ordering::SeqCst).then_some(())
        });
    });
    m.barrier();
}
