//! Several threads of one rank, and threads that wait for a long time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use mpj_datatypes::Datatype;

use super::Member;
use super::owned::{Layout, bytes};
use crate::{ANY_SOURCE, Fault, Group, Mode, Pattern};

pub(super) fn concurrent_senders_and_receivers_keep_the_order(m: &Member) {
    const MESSAGES: u64 = 1000;
    let len = |i: u64| if i % 200 == 3 { m.rendezvous_len() } else { (i % 90) as usize };
    std::thread::scope(|scope| {
        for tag in [0, 1] {
            scope.spawn(move || {
                for i in 0..MESSAGES {
                    m.send(m.next(), tag, &bytes(i + 1, len(i)));
                }
            });
            scope.spawn(move || {
                for i in 0..MESSAGES {
                    let (_, got) = m.recv::<u8>(m.previous() as i32, tag, m.rendezvous_len());
                    assert!(got == bytes(i + 1, len(i)), "message {i} of stream {tag}");
                }
            });
        }
    });
}

pub(super) fn receive_and_probe_wait_in_two_threads(m: &Member) {
    const ROUNDS: u64 = 100;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for i in 0..ROUNDS {
                assert_eq!(m.recv::<u64>(m.previous() as i32, 1, 1).1, [i]);
            }
        });
        scope.spawn(|| {
            for i in 0..ROUNDS {
                let envelope =
                    m.engine.probe(&m.world, Pattern { source: m.previous() as i32, tag: 2 }).unwrap();
                assert_eq!(envelope.bytes, 16);
                assert_eq!(m.recv::<u64>(m.previous() as i32, 2, 2).1, [i, i]);
            }
        });
        for i in 0..ROUNDS {
            let (first, second) = if i % 2 == 0 { (1, 2) } else { (2, 1) };
            m.send(m.next(), first, &vec![i; first as usize]);
            if i % 10 == 0 {
                // Usually long enough for both threads to fall asleep.
                std::thread::sleep(Duration::from_millis(3));
            }
            m.send(m.next(), second, &vec![i; second as usize]);
        }
    });
}

pub(super) fn self_sends_wake_a_sleeping_thread(m: &Member) {
    const ROUNDS: u64 = 30;
    let me = m.rank as i32;
    let (begun, done) = (Instant::now(), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for i in 0..ROUNDS {
                assert_eq!(m.recv::<u64>(me, 1, 1).1, [i]);
                done.fetch_add(1, Ordering::SeqCst);
                m.engine.probe(&m.world, Pattern { source: me, tag: 2 }).unwrap();
                assert_eq!(m.recv::<u64>(me, 2, 1).1, [i]);
                done.fetch_add(1, Ordering::SeqCst);
            }
        });
        for i in 0..ROUNDS {
            for tag in [1, 2] {
                std::thread::sleep(Duration::from_millis(5));
                m.send(m.rank, tag, &[i]);
                while done.load(Ordering::SeqCst) < 2 * i + tag as u64 {
                    std::thread::sleep(Duration::from_micros(200));
                }
            }
        }
    });
    // Without wake-ups, each of the 60 waits would take up to 100 ms, the longest sleep.
    let enough = Duration::from_secs(if cfg!(miri) { 3600 } else { 4 });
    assert!(begun.elapsed() < enough, "sleepers are not woken: {:?}", begun.elapsed());
}

/// The number of rounds in which a thread falls asleep and is woken.
const WAKES: u64 = 20;
/// A wake-up takes less than this time. Most sleeps that are not interrupted take longer, up to 100 ms.
const SOON: Duration = Duration::from_millis(40);

pub(super) fn synchronous_self_send_wakes_when_received(m: &Member) {
    let wake = |i| {
        std::thread::scope(|scope| {
            let sender = scope.spawn(move || {
                m.issend(m.rank, 1, vec![i]).wait(m).unwrap();
                Instant::now()
            });
            std::thread::sleep(Duration::from_millis(5));
            let received = Instant::now();
            assert_eq!(m.recv::<u64>(m.rank as i32, 1, 1).1, [i]);
            sender.join().unwrap() - received < SOON
        })
    };
    let soon = (0..WAKES).filter(|i| wake(*i)).count();
    assert!(soon > WAKES as usize / 2, "{soon} of {WAKES} senders were woken");
}

pub(super) fn receive_wakes_when_its_channel_is_freed(m: &Member) {
    let wake = |i| {
        let on = m.join_also(100 + i, Group::Range { first: 0, len: m.size }, m.rank);
        std::thread::scope(|scope| {
            let receiver = scope.spawn(|| {
                assert_eq!(on.irecv::<u8>(ANY_SOURCE, 1, 1).wait(&on).0, Err(Fault::Freed));
                Instant::now()
            });
            std::thread::sleep(Duration::from_millis(5));
            let left = Instant::now();
            m.engine.free(&on.world);
            receiver.join().unwrap() - left < SOON
        })
    };
    let soon = (0..WAKES).filter(|i| wake(*i)).count();
    assert!(soon > WAKES as usize / 2, "{soon} of {WAKES} receivers were woken");
    // A rank that returns closes, which would fail the receives of the other ranks.
    m.barrier();
}

/// Long messages of a rank to itself match receives of another thread, whichever is started first.
pub(super) fn self_sends_match_receives_of_another_thread(m: &Member) {
    const ROUNDS: u64 = 60;
    let me = m.rank as i32;
    let len = 3 * m.rendezvous_len();
    let strided = Datatype::of::<u8>().vector(len, 1, 2).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for i in 0..ROUNDS {
                let (envelope, got) = m.recv::<u8>(me, 1, len);
                assert_eq!(envelope.bytes, len);
                assert!(got.iter().all(|byte| u64::from(*byte) == i), "message {i}");
            }
        });
        for i in 0..ROUNDS {
            let layout = Layout::typed(1, &strided);
            let send = m.start(m.rank, 1, vec![i as u8; 2 * len], layout, Mode::Standard).unwrap();
            assert!(send.has_ended(), "the send copies the message, or a posted receive takes it");
            send.wait(m).unwrap();
        }
    });
}

pub(super) fn long_wait_sleeps(m: &Member) {
    m.barrier();
    if m.rank > 0 {
        std::thread::sleep(Duration::from_millis(1500));
        return m.send(0, 1, &[m.rank]);
    }
    let begun = thread_time();
    for from in m.others() {
        assert_eq!(m.recv::<u32>(from as i32, 1, 1).1, [from]);
    }
    if let (Some(begun), Some(ended)) = (begun, thread_time()) {
        assert!(
            ended - begun < Duration::from_millis(300),
            "a wait of 1.5 s used {:?} of CPU time",
            ended - begun
        );
    }
}

/// Returns the CPU time that this thread has used, if the kernel reports it.
pub(crate) fn thread_time() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_ascii_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}
