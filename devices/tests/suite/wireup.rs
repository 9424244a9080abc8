//! Messages to peers whose cards have not arrived yet.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::time::Duration;

use mpj_devices::config::Config;
use mpj_devices::conformance::{LocalCardExchange, Member, Sending, exchange_cards};
use mpj_devices::{
    Address, Buf, Callback, CardExchange, Coalesce, Doorbell, Engine, Exit, Fault, Hub, KeepAlive, Mode,
    Registry, Roster, Site, SmDriver, Source, Started,
};

type Cards = Vec<(String, Address)>;

/// A card exchange that keeps requests until the test answers them.
struct DelayedCards {
    inner: Arc<dyn CardExchange>,
    requests: Mutex<Vec<(u32, Callback<Cards>)>>,
}

impl fmt::Debug for DelayedCards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DelayedCards")
    }
}

impl CardExchange for DelayedCards {
    fn publish(&self, cards: Cards) -> Result<(), String> {
        self.inner.publish(cards)
    }

    fn request(&self, rank: u32, then: Callback<Cards>) {
        self.requests.lock().unwrap().push((rank, then));
    }
}

impl DelayedCards {
    fn take_request(&self, of: u32) -> Callback<Cards> {
        let mut requests = self.requests.lock().unwrap();
        let at = requests.iter().position(|(rank, _)| *rank == of).expect("a request");
        let (_, then) = requests.swap_remove(at);
        assert!(requests.iter().all(|(rank, _)| *rank != of), "rank {of} was requested twice");
        then
    }

    fn answer(&self, of: u32) {
        let then = self.take_request(of);
        self.inner.request(of, then);
    }
}

/// A job in one process. The cards that rank 0 requests are delayed.
struct Job {
    cards: Arc<DelayedCards>,
    roster: Arc<Roster>,
    ranks: Vec<Member>,
}

impl Job {
    fn new(size: u32) -> Self {
        let (hub, board, roster) =
            (Hub::new(0..size), Arc::<LocalCardExchange>::default(), Arc::<Roster>::default());
        let cards = Arc::new(DelayedCards { inner: board.of(0), requests: Mutex::default() });
        let registry = Registry::empty().with(SmDriver::new(hub));
        let open = |rank| {
            let site = Site::new(rank, size, Arc::new(Doorbell::new().unwrap()));
            let cards = if rank == 0 { Arc::clone(&cards) as _ } else { board.of(rank) };
            let engine = Engine::open(site, &registry, &Config::default(), cards, Arc::clone(&roster));
            Member::join(engine.unwrap()).unwrap()
        };
        let ranks = (0..size).map(open).collect();
        Job { cards, roster, ranks }
    }
}

/// Runs a test; panics if it takes more than a minute.
fn run_with_timeout(test: impl FnOnce() + Send + 'static) {
    let (done, over) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        test();
        done.send(()).unwrap();
    });
    if over.recv_timeout(Duration::from_secs(60)) == Err(mpsc::RecvTimeoutError::Timeout) {
        panic!("the test hangs");
    }
    thread.join().unwrap();
}

const LENGTHS: [usize; 7] = [1, 40_000, 0, 300_000, 8, 5000, 16 << 10];

fn data(at: usize) -> Vec<u8> {
    (0..LENGTHS[at % LENGTHS.len()]).map(|i| (i * 31 + at) as u8).collect()
}

/// Starts message number `at`. Every third message is synchronous.
fn start(from: &Member, to: u32, at: usize) -> Sending<u8> {
    if at % 3 == 1 { from.issend(to, 5, data(at)) } else { from.isend(to, 5, data(at)) }
}

fn receive(at: &Member, from: i32, message: usize) {
    let expected = data(message);
    let (_, received) = at.recv::<u8>(from, 5, expected.len());
    assert!(received == expected, "message {message}");
}

#[test]
fn local_cards_reach_every_rank() {
    const RANKS: u32 = 4;
    let (board, barrier) = (Arc::<LocalCardExchange>::default(), Barrier::new(RANKS as usize));
    std::thread::scope(|threads| {
        for rank in 0..RANKS {
            let (cards, barrier) = (board.of(rank), &barrier);
            let wait = move || {
                barrier.wait();
            };
            threads.spawn(move || exchange_cards(&cards, rank, RANKS, wait));
        }
    });
}

#[test]
fn messages_keep_their_order_across_the_wireup() {
    const MESSAGES: usize = 300;
    run_with_timeout(|| {
        for before in [0, 1, 10, 150] {
            let job = Job::new(2);
            let [zero, one] = &job.ranks[..] else { unreachable!() };
            let is_running = AtomicBool::new(true);
            std::thread::scope(|threads| {
                threads.spawn(|| (0..MESSAGES).for_each(|at| receive(one, 0, at)));
                threads.spawn(|| {
                    while is_running.load(Ordering::Relaxed) {
                        zero.engine.progress();
                    }
                });
                let mut sends: Vec<_> = (0..before).map(|at| start(zero, 1, at)).collect();
                assert!(sends.iter().all(|send| !send.has_ended()));
                sends.push(start(zero, 1, before));
                threads.spawn(|| job.cards.answer(1));
                sends.extend((before + 1..MESSAGES).map(|at| start(zero, 1, at)));
                sends.into_iter().for_each(|send| assert!(send.wait(zero).is_ok()));
                is_running.store(false, Ordering::Relaxed);
            });
        }
    });
}

#[test]
fn exit_fails_sends_to_an_unconnected_peer() {
    let died = || Exit::Died("killed".into());
    let dead = |fault: &Fault, who| matches!(fault, Fault::Dead { rank, .. } if *rank == who);
    run_with_timeout(move || {
        for (rank, end) in [
            (1, died()),
            (2, died()),
            (1, Exit::ClosingExcept([99].into())),
            (1, Exit::Closing),
            (1, Exit::Left),
        ] {
            let job = Job::new(3);
            let zero = &job.ranks[0];
            let sends: Vec<_> = (0..4).map(|at| start(zero, 1, at)).collect();
            job.roster.report(rank, end.clone());
            let is_expected = |fault: &Fault| match end {
                Exit::Died(_) => dead(fault, rank),
                Exit::ClosingExcept(_) | Exit::Closing | Exit::Left => {
                    *fault == Fault::Left { rank: Some(1) }
                }
            };
            for send in sends {
                let fault = send.wait(zero).unwrap_err();
                assert!(is_expected(&fault), "{end:?} of {rank}: {fault}");
            }
            // If rank 1 has exited, its cards arrive too late. If rank 2 has died, the cards of rank 1 never arrive.
            if rank == 1 {
                job.cards.answer(1);
            }
            zero.engine.progress();
            zero.engine.close();
        }
    });
}

#[test]
fn sends_to_an_unconnected_peer_can_be_cancelled() {
    run_with_timeout(|| {
        let job = Job::new(2);
        let zero = &job.ranks[0];
        for (mode, len) in [(Mode::Standard, 8), (Mode::Synchronous, 8), (Mode::Standard, 1 << 20)] {
            let memory = Arc::new(vec![7u8; len]);
            let keep: KeepAlive = Arc::clone(&memory) as KeepAlive;
            // SAFETY: `keep` keeps the bytes, and nothing writes to them.
            #[expect(unsafe_code, reason = "see above")]
            let source = unsafe { Source::new(Buf::slice(&memory[..len]), Some(keep)) };
            let started =
                zero.engine.send(&zero.world, 1, 5, source.unwrap(), mode, Coalesce::Allowed).unwrap();
            let Started::Pending(completion) = started else { panic!("it was sent") };
            assert!(zero.engine.cancel(&zero.world, &completion));
            assert_eq!(completion.outcome(), Some(&Err(Fault::Cancelled)));
            assert_eq!(Arc::strong_count(&memory), 1);
        }
        zero.engine.close();
    });
}

#[test]
fn sends_beyond_the_limit_to_an_unconnected_peer_are_refused() {
    const LIMIT: u64 = 1 << 20;
    run_with_timeout(|| {
        let job = Job::new(2);
        let zero = &job.ranks[0];
        let send = |mode| {
            // SAFETY: the bytes are constant.
            #[expect(unsafe_code, reason = "see above")]
            let source = unsafe { Source::new(Buf::slice(&[7u8; 8]), None) };
            zero.engine.send(&zero.world, 1, 5, source.unwrap(), mode, Coalesce::Allowed)
        };
        for at in 0..LIMIT {
            let mode = if at % 2 == 0 { Mode::Standard } else { Mode::Synchronous };
            assert!(matches!(send(mode), Ok(Started::Pending(_))), "message {at}");
        }
        for mode in [Mode::Standard, Mode::Synchronous] {
            assert_eq!(send(mode).unwrap_err(), Fault::TooManyMessages { rank: 1, limit: LIMIT });
        }
        job.roster.report(1, Exit::Died("killed".into()));
        zero.engine.progress();
        zero.engine.close();
    });
}

#[test]
fn cards_of_an_unreachable_peer_are_requested_again() {
    run_with_timeout(|| {
        let job = Job::new(2);
        let [zero, one] = &job.ranks[..] else { unreachable!() };
        let other = vec![("pigeon".to_owned(), Address(Vec::new()))];
        for (answer, why) in [(Err("nobody knows".to_owned()), "nobody knows"), (Ok(other), "there: pigeon")]
        {
            let sends: Vec<_> = (0..4).map(|at| start(zero, 1, at)).collect();
            job.cards.take_request(1)(answer);
            for send in sends {
                let fault = send.wait(zero).unwrap_err();
                assert!(matches!(fault, Fault::Unreachable { rank: 1, .. }), "{fault:?}");
                assert!(fault.to_string().contains(why), "{fault}");
            }
        }
        assert!(job.roster.first_death().is_none());
        let sends: Vec<_> = (0..4).map(|at| start(zero, 1, at)).collect();
        job.cards.answer(1);
        zero.engine.progress();
        std::thread::scope(|threads| {
            threads.spawn(|| (0..4).for_each(|at| receive(one, 0, at)));
            sends.into_iter().for_each(|send| assert!(send.wait(zero).is_ok()));
        });
    });
}

#[test]
fn cards_are_requested_again_for_a_reply() {
    run_with_timeout(|| {
        let job = Job::new(2);
        let [zero, one] = &job.ranks[..] else { unreachable!() };
        let refused = start(zero, 1, 0);
        job.cards.take_request(1)(Err("nobody knows".to_owned()));
        assert!(matches!(refused.wait(zero), Err(Fault::Unreachable { rank: 1, .. })));
        let (sent, received) = (one.issend(0, 5, data(3)), zero.irecv::<u8>(1, 5, data(3).len()));
        one.engine.progress();
        zero.engine.progress();
        job.cards.answer(1);
        std::thread::scope(|threads| {
            threads.spawn(|| assert!(sent.wait(one).is_ok()));
            let (outcome, received) = received.wait(zero);
            assert!(outcome.is_ok() && received == data(3));
        });
    });
}

#[test]
fn peer_that_cannot_get_its_reply_is_reported() {
    run_with_timeout(|| {
        let job = Job::new(2);
        let [zero, one] = &job.ranks[..] else { unreachable!() };
        let (sent, received) = (one.issend(0, 5, data(3)), zero.irecv::<u8>(1, 5, data(3).len()));
        one.engine.progress();
        zero.engine.progress();
        job.cards.take_request(1)(Err("nobody knows".to_owned()));
        let (outcome, _) = received.wait(zero);
        let Err(Fault::Dead { rank: 1, cause, .. }) = outcome else { panic!("{outcome:?}") };
        assert_eq!(&*cause, "it cannot be replied to: nobody knows");
        // Rank 0 has failed, so it exits.
        job.roster.report(0, Exit::Died("it has failed".into()));
        assert!(sent.wait(one).is_err());
    });
}

#[test]
fn threads_that_connect_to_different_peers_do_not_wait_for_each_other() {
    run_with_timeout(|| {
        let job = Job::new(4);
        let [zero, one, two, three] = &job.ranks[..] else { unreachable!() };
        std::thread::scope(|threads| {
            let late = [1, 2].map(|to| threads.spawn(move || zero.send(to, 5, &data(3))));
            let sent = threads.spawn(|| {
                for _ in 0..100 {
                    zero.send(3, 5, &data(1));
                    receive(zero, 3, 1);
                }
            });
            while job.cards.requests.lock().unwrap().len() < 3 {
                std::thread::yield_now();
            }
            job.cards.answer(3);
            for _ in 0..100 {
                receive(three, 0, 1);
                three.send(0, 5, &data(1));
            }
            sent.join().unwrap();
            assert!(late.iter().all(|thread| !thread.is_finished()));
            job.cards.answer(2);
            receive(two, 0, 3);
            job.cards.answer(1);
            receive(one, 0, 3);
        });
    });
}

#[test]
fn close_waits_for_an_unconnected_peer_or_its_exit() {
    run_with_timeout(|| {
        for is_answered in [true, false] {
            let job = Job::new(2);
            let [zero, one] = &job.ranks[..] else { unreachable!() };
            let sent = start(zero, 1, 3);
            std::thread::scope(|threads| {
                let closing = threads.spawn(|| zero.engine.close());
                std::thread::sleep(Duration::from_millis(20));
                assert!(
                    !closing.is_finished() && job.roster.event_count() == 0,
                    "the rank has left before its message was sent"
                );
                if is_answered {
                    job.cards.answer(1);
                    receive(one, 0, 3);
                } else {
                    job.roster.report(1, Exit::Died("killed".into()));
                }
            });
            assert_eq!(sent.wait(zero).is_ok(), is_answered);
        }
    });
}

#[test]
fn messages_arrive_before_the_exit_of_their_sender() {
    run_with_timeout(|| {
        let job = Job::new(2);
        let [zero, one] = &job.ranks[..] else { unreachable!() };
        let posted = zero.irecv::<u8>(1, 5, 1000);
        let (eager, confirmed, fetched) =
            (one.isend(0, 5, vec![1u8; 1000]), one.issend(0, 6, data(4)), start(one, 0, 3));
        std::thread::scope(|threads| {
            threads.spawn(|| one.engine.close());
            assert_eq!(zero.received(posted).1, [1; 1000]);
            assert_eq!(zero.recv::<u8>(1, 6, 8).1, data(4));
            assert!(!confirmed.has_ended(), "the reply to an unconnected peer waits");
            // Rank 1, which is closing, waits for replies.
            let long = zero.irecv::<u8>(1, 5, data(3).len());
            job.cards.answer(1);
            assert!(zero.received(long).1 == data(3));
        });
        for sent in [eager, confirmed, fetched] {
            sent.wait(one).unwrap();
        }
        let fault = zero.irecv::<u8>(1, 5, 10).wait(zero).0.unwrap_err();
        assert_eq!(fault, Fault::Left { rank: Some(1) });
    });
}
