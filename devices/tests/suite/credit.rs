//! Credit for eager messages moves from idle peers to a busy one.

use mpj_devices::config::{self, Config};
use mpj_devices::conformance::{Case, Member, run_threads};

/// The number of ranks that send to rank 0, one after the other.
const SENDERS: u32 = 10;
/// The number of messages in a burst: more than the largest credit allows.
const MESSAGES: usize = 100;
const LEN: usize = 4000;
/// The largest credit of a peer in bytes; the initial credit is 128 KiB.
const GROWN: u64 = 320 << 10;
/// The part of the credit that might not have been granted again yet.
const ON_ITS_WAY: u64 = 48 << 10;

/// The number of bursts after which the credit has grown to [`GROWN`].
const ROUNDS: usize = 12;

fn rendezvous_bytes(m: &Member) -> u64 {
    m.engine.stats().devices[0].1.rendezvous.bytes
}

/// Sends a burst to rank 0; returns how many of its bytes were sent eagerly.
fn burst(m: &Member) -> u64 {
    let before = rendezvous_bytes(m);
    let sends: Vec<_> = (0..MESSAGES).map(|_| m.isend(0, 1, vec![m.rank as u8; LEN])).collect();
    m.send(0, 2, &[0u8]);
    sends.into_iter().for_each(|send| assert!(send.wait(m).is_ok()));
    (MESSAGES * LEN) as u64 - (rendezvous_bytes(m) - before)
}

/// The senders are busy one after another. The budget suffices for the grown credit of only two of them.
fn credit_of_each_sender_grows(m: &Member) {
    if m.rank > 0 {
        m.recv::<u8>(0, 0, 1);
        for _ in 0..ROUNDS {
            burst(m);
            m.recv::<u8>(0, 0, 1);
        }
        let sent_eagerly = burst(m);
        assert!(sent_eagerly > GROWN - ON_ITS_WAY, "rank {} sent {sent_eagerly} bytes", m.rank);
        // While this rank waits, it returns credit that rank 0 recalls.
        m.recv::<u8>(0, 3, 1);
        return;
    }
    for from in m.others() {
        for _ in 0..=ROUNDS {
            m.send(from, 0, &[0u8]);
            // When this message arrives, the whole burst has been started.
            m.recv::<u8>(from.cast_signed(), 2, 1);
            for _ in 0..MESSAGES {
                assert!(m.recv::<u8>(from.cast_signed(), 1, LEN).1.iter().all(|byte| *byte == from as u8));
            }
        }
    }
    m.others().for_each(|to| m.send(to, 3, &[0u8]));
}

fn run(device: &str) {
    static CASE: Case =
        Case { name: "credit_of_each_sender_grows", ranks: &[SENDERS + 1], run: credit_of_each_sender_grows };
    let mut config = Config::default();
    config.set(&config::EAGER_CREDIT_TOTAL, 1 << 20).unwrap();
    config.set(&config::EAGER_CREDIT, GROWN).unwrap();
    run_threads(|all| all.select(&[device]).unwrap(), &config, SENDERS + 1, &CASE);
}

#[test]
fn credit_of_each_sender_grows_among_threads() {
    run("smdev");
}

#[cfg(all(target_os = "linux", not(mpj_portable)))]
#[test]
fn credit_of_each_sender_grows_over_shared_memory() {
    run("shmdev");
}

#[cfg(all(target_os = "linux", not(mpj_portable)))]
#[test]
fn credit_of_each_sender_grows_over_tcp() {
    run("niodev");
}
