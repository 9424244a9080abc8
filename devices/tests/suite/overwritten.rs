//! Tests that overwrite words of the shared memory. Either a rank detects and reports the damage, or no rank is
//! affected; no rank sleeps forever.
#![cfg(all(target_os = "linux", not(mpj_portable)))]
#![allow(unsafe_code, reason = "words of a mapping are written by address")]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use mpj_devices::config::Config;
use mpj_devices::conformance::{LocalCardExchange, Member};
use mpj_devices::{
    ANY_TAG, Doorbell, Engine, Exit, ExitEvent, Fault, HostId, Hosts, Pattern, Registry, Roster, Segment,
    ShmDriver, Site,
};
use mpj_pool::{SegmentView, SharedStorage};

/// The time within which a rank must return. A waiting rank verifies its words about once a second.
const DETECTION_TIMEOUT: Duration = Duration::from_secs(60);

/// The bytes of a line of a ring, and the number of lines with control words before its cells.
const LINE: usize = 64;
const CONTROL_LINES: usize = 4;

/// The ranks of a job and their shared memory.
struct Job {
    members: Vec<Member>,
    roster: Arc<Roster>,
    memory: Segment,
    view: SegmentView,
}

impl Job {
    fn new(ranks: u32) -> Self {
        let config = Config::default();
        let memory = Segment::create(ranks, &config).unwrap();
        // SAFETY: only duplicates of the descriptor are used. The tests overwrite words as a faulty rank might.
        let fd = || unsafe { memory.descriptor() }.try_clone_to_owned().unwrap();
        let (board, roster) = (Arc::<LocalCardExchange>::default(), Arc::<Roster>::default());
        let here = Hosts::single_host(ranks).ranks_of(HostId(0));
        let member = |rank| {
            // SAFETY: the descriptor is a duplicate of the segment's.
            let segment = unsafe { Segment::attach(fd(), ranks) }.unwrap();
            let registry = Registry::empty().with(ShmDriver::new(segment, here.clone()));
            let site = Site::new(rank, ranks, Arc::new(Doorbell::new().unwrap()));
            let engine = Engine::open(site, &registry, &config, board.of(rank), Arc::clone(&roster));
            Member::join(engine.unwrap()).unwrap()
        };
        let (members, view) = ((0..ranks).map(member).collect(), SharedStorage::attach(fd()).unwrap());
        Job { members, roster, memory, view }
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        let word = self.view.ptr_at(at, 8).unwrap().cast::<AtomicU64>();
        // SAFETY: `ptr_at` has checked the range, and the word is aligned. The ranks use it as an atomic or copy it.
        unsafe { word.as_ref() }
    }

    /// Returns a word of a line of the first ring in the part of a rank.
    fn ring_word(&self, rank: usize, line: usize, word: usize) -> &AtomicU64 {
        let (_, rings) = self.memory.words();
        self.word(rings[rank][0].start + line * LINE + 8 * word)
    }

    /// Runs `body` on each rank and `meanwhile` on this thread, until all have returned. A rank that returns is
    /// reported dead, as if its process had exited.
    fn run(
        &self,
        body: impl Fn(&Member) -> Result<(), Fault> + Sync,
        meanwhile: impl FnOnce(),
    ) -> Vec<Result<(), Fault>> {
        let (done, ends) = mpsc::channel();
        thread::scope(|scope| {
            for member in &self.members {
                let (done, body) = (done.clone(), &body);
                scope.spawn(move || {
                    let outcome = body(member);
                    member.roster().report(member.rank, Exit::Died("it has returned".into()));
                    done.send((member.rank, outcome)).unwrap();
                });
            }
            meanwhile();
            let mut outcomes = vec![None; self.members.len()];
            while outcomes.iter().any(Option::is_none) {
                let Ok((rank, outcome)) = ends.recv_timeout(DETECTION_TIMEOUT) else {
                    let stuck: Vec<_> =
                        (0..outcomes.len()).filter(|rank| outcomes[*rank].is_none()).collect();
                    // Fail the waits of these ranks, so that the scope ends.
                    stuck
                        .iter()
                        .for_each(|rank| self.roster.report(*rank as u32, Exit::Died("stuck".into())));
                    panic!("ranks {stuck:?} sleep, and no rank has reported the damage");
                };
                outcomes[rank as usize] = Some(outcome);
            }
            outcomes.into_iter().flatten().collect()
        })
    }

    /// Lets two ranks wait for each other, and returns the cause of the first death that was reported.
    fn first_cause(&self) -> String {
        let wait = |m: &Member| m.irecv::<u8>(1 - m.rank as i32, 1, 8).wait(m).0.map(drop);
        let outcomes = self.run(wait, || ());
        assert!(outcomes.iter().all(Result::is_err), "{outcomes:?}");
        match self.roster.since(0).first() {
            Some(ExitEvent { exit: Exit::Died(why), .. }) => why.to_string(),
            other => panic!("{other:?}"),
        }
    }
}

fn job_after_send() -> Job {
    let job = Job::new(2);
    let sent = job.members[0].isend(1, 1, vec![7u8; 8]);
    while !sent.has_ended() {
        job.members[0].engine.progress();
    }
    job
}

fn job_after_receive() -> Job {
    let job = job_after_send();
    let receive = job.members[1].irecv::<u8>(0, 1, 8);
    while !receive.has_ended() {
        job.members[1].engine.progress();
    }
    assert!(receive.wait(&job.members[1]).0.is_ok());
    job
}

#[test]
fn sender_detects_a_cell_that_was_set_back() {
    let job = job_after_send();
    // The frame that binds the channel and the message are in these cells.
    for cell in 0..4 {
        job.ring_word(0, CONTROL_LINES + cell, 0).store(0, Ordering::Relaxed);
    }
    let why = job.first_cause();
    assert!(why.contains("overwritten: the sequence number of a cell is 0 instead of 1"), "{why}");
}

#[test]
fn receiver_detects_a_changed_head() {
    let job = job_after_send();
    // The head of a frame begins in the second word of its cell.
    for cell in 0..4 {
        job.ring_word(0, CONTROL_LINES + cell, 1).fetch_xor(1 << 40, Ordering::Relaxed);
    }
    let why = job.first_cause();
    assert!(why.contains("checksum"), "{why}");
}

#[test]
fn changed_counts_are_detected_by_their_writer() {
    for (line, what) in
        [(0, "count of cells taken"), (1, "count of fragments returned"), (3, "receiver has closed")]
    {
        let job = job_after_receive();
        job.ring_word(0, line, 0).store(1, Ordering::Relaxed);
        let why = job.first_cause();
        assert!(why.contains("was overwritten: the ") && why.contains(what), "{why}");
    }
}

#[test]
fn sender_detects_a_changed_ring_location() {
    let job = job_after_send();
    let (control_words, _) = job.memory.words();
    // The ring locations are in the last two lines: one line for each receiver, with four bytes for each sender.
    for at in (control_words.end - 2 * LINE..control_words.end).step_by(8) {
        job.word(at).store(0, Ordering::Relaxed);
    }
    let why = job.first_cause();
    assert!(why.contains("overwritten: the location of the ring to it is 0x0"), "{why}");
}

/// Rank 1 cannot connect to rank 0 for its reply, so it reports rank 0. Otherwise both ranks would wait forever.
#[test]
fn ring_location_written_before_the_ring_is_detected_by_its_sender() {
    let job = Job::new(2);
    let (control_words, _) = job.memory.words();
    // The line of receiver 0. The second half of its first word is the location of the ring from rank 1.
    let locations = [0_u32, 1].map(u32::to_ne_bytes);
    let word = u64::from_ne_bytes(*locations.as_flattened().first_chunk().unwrap());
    job.word(control_words.end - 2 * LINE).store(word, Ordering::Relaxed);
    let outcomes = job.run(
        |m| match m.rank {
            0 => m.try_isend(1, 1, vec![7u8; 100_000])?.wait(m).map(drop),
            _ => m.irecv::<u8>(0, 1, 100_000).wait(m).0.map(drop),
        },
        || (),
    );
    assert!(outcomes.iter().all(Result::is_err), "{outcomes:?}");
    let first = job.roster.since(0).into_iter().next();
    let Some(ExitEvent { rank: 0, exit: Exit::Died(why) }) = first else { panic!("{first:?}") };
    assert!(why.contains("cannot be replied to: shmdev: already connected to"), "{why}");
}

/// Exchanges messages around the ring of ranks until rank 0 sees `stop` or a call fails. Rank 0 pauses at times, so
/// that waiting ranks sleep.
fn exchange(m: &Member, stop: &AtomicBool) -> Result<(), Fault> {
    for round in 0.. {
        if m.rank == 0 && stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        let (next, previous, tag) = (m.next(), m.previous() as i32, round % 100);
        let len = [8, 48, 2000, 20_000, 100_000][round as usize % 5];
        let sent = m.try_isend(next, tag, vec![1u8; len])?;
        match round % 3 {
            0 => drop(m.engine.probe(&m.world, Pattern { source: previous, tag })?),
            1 => drop(m.engine.probe(&m.world, Pattern { source: previous, tag: ANY_TAG })?),
            _ => (),
        }
        m.irecv::<u8>(previous, tag, len).wait(m).0?;
        sent.wait(m)?;
        if round % 4 == 0 {
            let mut step = 1;
            while step < m.size {
                let sent = m.try_isend((m.rank + step) % m.size, 1000 + step as i32, vec![0u8])?;
                let from = (m.rank + m.size - step) % m.size;
                m.irecv::<u8>(from as i32, 1000 + step as i32, 1).wait(m).0?;
                sent.wait(m)?;
                step *= 2;
            }
        }
        if round % 10 == 9 && m.rank == 0 {
            thread::sleep(Duration::from_millis(3));
        }
    }
    Ok(())
}

#[test]
fn bursts_of_writes_leave_no_rank_asleep() {
    let trials = std::env::var("OVERWRITTEN_TRIALS").map_or(8, |trials| trials.parse().unwrap());
    for trial in 0..trials {
        let job = Job::new(if trial % 2 == 0 { 2 } else { 4 });
        let stop = AtomicBool::new(false);
        let mut state = trial * 2 + 1;
        let mut random = |below: usize| {
            state = u64::wrapping_mul(state, 0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (state >> 33) as usize % below
        };
        let (_, rings) = job.memory.words();
        let outcomes = job.run(
            |m| exchange(m, &stop),
            || {
                thread::sleep(Duration::from_millis(30));
                for _ in 0..300 {
                    let [ring, _] = rings[random(rings.len())].clone();
                    // A line of the whole ring, or of the control words and the first 40 cells.
                    let lines = if random(2) == 0 { ring.len() / LINE } else { CONTROL_LINES + 40 };
                    let at =
                        ring.start + random(lines) * LINE + if random(3) == 0 { 8 * random(8) } else { 0 };
                    let word = job.word(at);
                    let old = word.load(Ordering::Relaxed);
                    let new = match random(6) {
                        0 => 0,
                        1 => old ^ 1 << random(64),
                        2 => old.wrapping_sub(1),
                        3 => old.wrapping_add(1),
                        4 => old.wrapping_sub(256),
                        _ => random(usize::MAX) as u64,
                    };
                    word.store(new, Ordering::Relaxed);
                }
                thread::sleep(Duration::from_millis(30));
                stop.store(true, Ordering::Relaxed);
            },
        );
        drop(outcomes);
    }
}
