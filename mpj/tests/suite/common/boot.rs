//! The suite of [`Boot`], of [`KvsCards`] on it, and of its roster. All ranks of a small job run each case.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use mpj::boot::{Boot, KvsCards, LocalRanks};
use mpj_devices::config::Config;
use mpj_devices::conformance::{Member, exchange_cards};
use mpj_devices::{CardExchange, Engine, Exit, ExitEvent};

pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// The smallest number of ranks.
    pub(crate) min_ranks: u32,
    run: fn(&Rank),
}

macro_rules! cases {
    ($($name:ident [$ranks:literal])*) => {
        pub(crate) const CASES: &[Case] =
            &[$(Case { name: stringify!($name), min_ranks: $ranks, run: $name }),*];
    };
}

cases! {
    ranks_agree_on_the_hosts [1]
    get_waits_for_the_put [1]
    callback_can_use_the_service [1]
    cards_reach_every_rank [1]
    engine_connects_all_ranks [1]
    fence_waits_for_all_ranks [1]
    fence_succeeds_for_ranks_that_then_leave [1]
    fence_fails_after_a_rank_has_left [2]
    fence_fails_after_a_rank_has_died [2]
    get_returns_only_values_put_before_the_rank_left [2]
    get_returns_only_values_put_before_the_rank_died [2]
    requested_exits_become_known [2]
    losses_have_one_order_and_cause [4]
    abort_is_a_death_with_its_code_and_reason [2]
    abort_of_a_rank_that_has_left_has_no_effect [2]
}

const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Longer than another rank usually takes to reach the same line.
const PAUSE: Duration = Duration::from_millis(20);

/// Runs a case on the ranks of this process.
pub(crate) fn run_case(boots: &LocalRanks, case: &Case) {
    std::thread::scope(|threads| {
        for boot in boots {
            let thread = std::thread::Builder::new().name(case.name.into());
            let run = || {
                let rank = Rank { boot: Arc::clone(boot), me: boot.rank(), size: boot.size() };
                let outcome = catch_unwind(AssertUnwindSafe(|| (case.run)(&rank)));
                // The exit ends the waits of the other ranks.
                rank.report(outcome.as_ref().map_or_else(|_| Exit::Died("failed".into()), |()| Exit::Left));
                outcome.unwrap_or_else(|panic| resume_unwind(panic));
            };
            thread.spawn_scoped(threads, run).unwrap();
        }
    });
}

struct Rank {
    boot: Arc<dyn Boot>,
    me: u32,
    size: u32,
}

type Reply = Receiver<Result<Vec<u8>, String>>;

impl Rank {
    fn put(&self, key: &str, value: &[u8]) {
        self.boot.put(key, value).unwrap();
    }

    fn get(&self, of: u32, key: &str) -> Reply {
        let (sender, reply) = channel();
        self.boot.get(of, key, Box::new(move |value| drop(sender.send(value))));
        reply
    }

    fn get_now(&self, of: u32, key: &str) -> Vec<u8> {
        value(&self.get(of, key))
    }

    fn fence(&self) {
        self.boot.fence().unwrap();
    }

    fn report(&self, exit: Exit) {
        self.boot.roster().report(self.me, exit);
    }

    fn exits_of(&self, rank: u32) -> Vec<Exit> {
        let events = self.boot.roster().since(0);
        events.into_iter().filter(|event| event.rank == rank).map(|event| event.exit).collect()
    }

    fn deaths(&self) -> Vec<ExitEvent> {
        let events = self.boot.roster().since(0);
        events.into_iter().filter(|event| matches!(event.exit, Exit::Died(_))).collect()
    }

    /// Waits until this rank knows that rank 1 has exited in this way. A death must become known without a request.
    fn wait_for_exit_of_1(&self, exit: &Exit) {
        wait_until(|| {
            if !matches!(exit, Exit::Died(_)) {
                // Later requests have no effect until the reply has arrived.
                (0..3).for_each(|_| self.boot.roster().request_exits());
            }
            self.exits_of(1).contains(exit)
        });
    }
}

fn value(reply: &Reply) -> Vec<u8> {
    reply.recv_timeout(TIME_LIMIT).expect("a value").unwrap()
}

fn wait_until(mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < TIME_LIMIT, "an exit does not become known");
        sleep(Duration::from_millis(1));
    }
}

fn died() -> Exit {
    Exit::Died("failed on purpose".into())
}

fn ranks_agree_on_the_hosts(r: &Rank) {
    let hosts = r.boot.hosts();
    let here = hosts.ranks_of(hosts.host_of(r.me).unwrap()).len();
    let [site, other] = [(); 2].map(|()| r.boot.site().unwrap());
    assert_eq!((hosts.size(), site.size, site.rank, site.ranks_on_host), (r.size, r.size, r.me, here));
    assert!(!Arc::ptr_eq(&site.bell, &other.bell), "the doorbell is new");
    let map: Vec<_> = hosts.runs().collect();
    let text = |rank| format!("rank {rank} of {map:?}");
    r.put("hosts", text(r.me).as_bytes());
    (0..r.size).for_each(|of| assert_eq!(r.get_now(of, "hosts"), text(of).as_bytes()));
}

fn get_waits_for_the_put(r: &Rank) {
    const LENGTHS: [usize; 4] = [100_000, 0, 1, 300];
    let content = |rank: u32, key: &str| [vec![rank as u8; LENGTHS[rank as usize % 4]], key.into()].concat();
    let get_all =
        || ["a", "b"].map(|key| (0..r.size).map(|of| (of, key, r.get(of, key))).collect::<Vec<_>>());
    let early: Vec<_> = get_all().into_iter().chain(get_all()).flatten().collect();
    r.fence();
    for (of, key, reply) in &early {
        assert_eq!(reply.try_recv(), Err(TryRecvError::Empty), "value of {of} for {key}");
    }
    r.fence();
    ["b", "a"].iter().for_each(|key| r.put(key, &content(r.me, key)));
    for (of, key, reply) in early.iter().chain(get_all().iter().flatten()) {
        assert!(value(reply) == content(*of, key), "value of {of} for {key}");
    }
}

/// The callback of `get` puts a value and gets another one.
fn callback_can_use_the_service(r: &Rank) {
    let next = (r.me + 1) % r.size;
    let (sender, reply) = channel();
    let boot = Arc::clone(&r.boot);
    let forward = move |first: Result<Vec<u8>, String>| {
        boot.put("second", &first.unwrap()).unwrap();
        boot.get(next, "second", Box::new(move |second| drop(sender.send(second))));
    };
    r.boot.get(next, "first", Box::new(forward));
    r.fence();
    r.put("first", &r.me.to_le_bytes());
    assert_eq!(value(&reply), ((r.me + 2) % r.size).to_le_bytes());
}

fn cards_reach_every_rank(r: &Rank) {
    let cards: Arc<dyn CardExchange> = Arc::new(KvsCards(Arc::clone(&r.boot)));
    exchange_cards(&cards, r.me, r.size, || r.fence());
}

fn engine_connects_all_ranks(r: &Rank) {
    let config = Config::default();
    let names = r.boot.devices(&config);
    let registry = names.map_or(r.boot.registry(), |names| r.boot.registry().select(&names).unwrap());
    let cards = Arc::new(KvsCards(Arc::clone(&r.boot)));
    let site = r.boot.site().unwrap();
    let engine = Engine::open(site, &registry, &config, cards, r.boot.roster()).unwrap();
    r.boot.attach_engine(&engine);
    assert_eq!(Arc::strong_count(&engine), 1, "the service keeps only a weak reference");
    let member = Member::join(engine).unwrap();
    member.others().for_each(|to| member.send(to, 1, &[r.me]));
    member.others().for_each(|from| assert_eq!(member.recv::<u32>(from as i32, 1, 1).1, [from]));
    member.engine.close();
}

fn fence_waits_for_all_ranks(r: &Rank) {
    let now = || SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos();
    for round in 0..3 {
        let (last, key) = (round % r.size, round.to_string());
        if r.me == last {
            sleep(PAUSE);
            r.put(&key, &now().to_le_bytes());
        }
        r.fence();
        let after = now();
        let before = u128::from_le_bytes(r.get_now(last, &key).try_into().unwrap());
        assert!(before <= after, "the fence {round} did not wait for rank {last}");
    }
}

fn fence_succeeds_for_ranks_that_then_leave(r: &Rank) {
    r.fence();
}

/// Rank 0 is at the fence when rank 1 exits. The other ranks enter the fence later.
fn exit_fails_fences(r: &Rank, exit: Exit) {
    if r.me == 1 {
        sleep(PAUSE);
        r.report(Exit::Closing);
        return r.report(exit);
    }
    if r.me > 1 {
        r.wait_for_exit_of_1(&exit);
    }
    for _ in 0..2 {
        let why = r.boot.fence().unwrap_err();
        assert!(why.contains("rank 1"), "{why}");
    }
}

fn fence_fails_after_a_rank_has_left(r: &Rank) {
    exit_fails_fences(r, Exit::Left);
}

fn fence_fails_after_a_rank_has_died(r: &Rank) {
    exit_fails_fences(r, died());
}

fn exit_keeps_values(r: &Rank, exit: Exit) {
    if r.me == 1 {
        r.put("known", &[7]);
        r.fence();
        return r.report(exit);
    }
    let early = r.get(1, "never");
    r.fence();
    r.wait_for_exit_of_1(&exit);
    let [late, no_rank] = [1, r.size].map(|of| r.get(of, "never"));
    assert_eq!(r.get_now(1, "known"), [7]);
    let replies = [early, late, no_rank].map(|reply| reply.recv_timeout(PAUSE).ok());
    assert_eq!(replies, [None, None, None], "no rank has put the values");
}

fn get_returns_only_values_put_before_the_rank_left(r: &Rank) {
    exit_keeps_values(r, Exit::Left);
}

fn get_returns_only_values_put_before_the_rank_died(r: &Rank) {
    exit_keeps_values(r, died());
}

fn requested_exits_become_known(r: &Rank) {
    let exits = [Exit::ClosingExcept([7, 9].into()), Exit::Closing, Exit::Left];
    for (at, exit) in exits.iter().enumerate() {
        if r.me == 1 {
            r.report(exit.clone());
        }
        r.wait_for_exit_of_1(exit);
        assert_eq!(r.exits_of(1), exits[..=at]);
        if *exit != Exit::Left {
            r.fence();
        }
    }
}

/// The ranks from 2 on report the loss of ranks 0 and 1, in different orders and with different causes.
fn losses_have_one_order_and_cause(r: &Rank) {
    r.fence();
    if r.me > 1 {
        for lost in [r.me % 2, 1 - r.me % 2] {
            r.boot.roster().report(lost, Exit::Died(format!("lost by {}", r.me).into()));
        }
        wait_until(|| r.deaths().len() == 2);
        r.put("deaths", format!("{:?}", r.deaths()).as_bytes());
    }
    let seen: Vec<_> = (2..r.size).map(|of| String::from_utf8(r.get_now(of, "deaths")).unwrap()).collect();
    assert!(seen.iter().all(|deaths| *deaths == seen[0]), "{seen:#?}");
}

fn abort_is_a_death_with_its_code_and_reason(r: &Rank) {
    if r.me == 1 {
        r.boot.abort(42, "enough");
    }
    wait_until(|| !r.deaths().is_empty());
    let ExitEvent { rank, exit } = r.deaths().swap_remove(0);
    let text = format!("{exit:?}");
    assert!(rank == 1 && text.contains("code 42") && text.contains("enough"), "rank {rank}: {text}");
    assert!(r.boot.reports_failures() || r.boot.abort_code() == Some(42));
}

/// Rank 1 leaves, and then aborts the job.
fn abort_of_a_rank_that_has_left_has_no_effect(r: &Rank) {
    r.fence();
    if r.me == 1 {
        r.report(Exit::Closing);
        r.report(Exit::Left);
        return r.boot.abort(42, "too late");
    }
    r.wait_for_exit_of_1(&Exit::Left);
    sleep(PAUSE);
    assert!(r.deaths().is_empty(), "{:?}", r.deaths());
    assert_eq!(r.boot.abort_code(), None);
}
