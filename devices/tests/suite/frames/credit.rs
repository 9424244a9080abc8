//! Credit limits the bytes of eager messages that a peer may have outstanding. A peer that exceeds it is reported dead.
//! Credit moves from idle to busy peers.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use mpj_devices::config::{Config, EAGER_CREDIT_TOTAL};
use mpj_devices::{Buf, Channel, Coalesce, Fault, Mode, Pattern, Source};
use mpj_pool::Pool;

use super::device::{EAGER_LIMIT, Gets, Step};
use super::fixture::{Fixture, REST, WORLD, report_death};
use super::head_encoding::*;

/// The eager credit of a peer in bytes.
const CREDIT_BYTES: u64 = 8 << 20;
/// The credit that a message uses in addition to its body.
const MESSAGE_COST: u64 = 64;
/// The maximum number of rendezvous and synchronous messages that have no reply yet.
const RTS_LIMIT: u64 = 1 << 20;

fn fixture() -> Fixture {
    fixture_of(&Config::default())
}

fn fixture_of(config: &Config) -> Fixture {
    let fixture = Fixture::with_config(Gets::None, config);
    fixture.play((1..4).map(|rank| Step::Frame(rank, bind(0, WORLD, rank), vec![])));
    fixture
}

fn cause(fixture: &Fixture) -> String {
    match fixture.roster.first_death().expect("a death").exit {
        mpj_devices::Exit::Died(cause) => cause.to_string(),
        other => panic!("{other:?}"),
    }
}

fn granted(fixture: &Fixture) -> u64 {
    let to_1 = |s: &&super::device::Sent| s.0 == 1 && s.1[0] == CREDIT;
    fixture.sent().iter().filter(to_1).map(|s| word(&s.1, 36)).sum()
}

fn eager_message(len: usize) -> Step {
    Step::Frame(1, eager(0), vec![1; len])
}

#[test]
fn peer_that_exceeds_its_credit_is_reported() {
    for streamed in [false, true] {
        let fixture = fixture();
        let before = mpj_pool::global().stats().live_bytes;
        for _ in 0..6000 {
            if streamed {
                fixture.play([
                    Step::Begin(1, eager(0), EAGER_LIMIT),
                    Step::Bytes(1, vec![1; EAGER_LIMIT]),
                    Step::Landed(1),
                ]);
            } else {
                fixture.play([eager_message(EAGER_LIMIT)]);
            }
        }
        let held = mpj_pool::global().stats().live_bytes.saturating_sub(before);
        // The limit leaves room for the memory of tests that run at the same time.
        assert!(held < 24 << 20, "{held} bytes are held for one peer");
        assert_eq!(fixture.death(), Some(1));
        let cause = cause(&fixture);
        assert!(cause.contains("8388608") && cause.contains("granted"), "{cause}");
        fixture.assert_others_communicate();
    }
}

#[test]
fn credit_can_be_used_to_the_last_byte_and_is_granted_again() {
    let fixture = fixture();
    let mut credit = CREDIT_BYTES;
    let mut waiting = 0;
    for round in 0..6 {
        // Use up the credit with messages of several sizes. The last one has exactly the remaining size.
        while credit >= EAGER_LIMIT as u64 + 2 * MESSAGE_COST {
            let len = [0, 1, 1000, EAGER_LIMIT][(waiting + round) % 4];
            fixture.play([eager_message(len)]);
            credit -= len as u64 + MESSAGE_COST;
            waiting += 1;
        }
        fixture.play([eager_message((credit - MESSAGE_COST) as usize)]);
        (credit, waiting) = (0, waiting + 1);
        assert_eq!(fixture.death(), None, "round {round}");
        for _ in 0..waiting {
            let _ = fixture.post_bytes(1, EAGER_LIMIT + 200).finish().unwrap().0.unwrap();
        }
        waiting = 0;
        credit += granted(&fixture);
        assert!(credit > CREDIT_BYTES / 2);
    }
    // Messages that match a posted receive also use credit, which is granted again.
    for _ in 0..5000 {
        let posted = fixture.post_bytes(1, EAGER_LIMIT);
        if credit < EAGER_LIMIT as u64 + MESSAGE_COST {
            credit += granted(&fixture);
        }
        fixture.play([eager_message(EAGER_LIMIT)]);
        credit -= EAGER_LIMIT as u64 + MESSAGE_COST;
        assert!(posted.finish().unwrap().0.is_ok());
    }
    assert_eq!(fixture.death(), None);
}

#[test]
fn busy_peer_is_granted_more_while_the_budget_lasts() {
    let mut config = Config::default();
    config.set(&EAGER_CREDIT_TOTAL, 1 << 20).unwrap();
    let fixture = fixture_of(&config);
    let cost = EAGER_LIMIT as u64 + MESSAGE_COST;
    let (mut credit, mut most) = (128 << 10, 0);
    for _ in 0..100 {
        most = most.max(credit);
        let messages = credit / cost;
        for _ in 0..messages {
            fixture.play([eager_message(EAGER_LIMIT)]);
        }
        credit -= messages * cost;
        for _ in 0..messages {
            let _ = fixture.post_bytes(1, EAGER_LIMIT).finish().unwrap().0.unwrap();
        }
        credit += granted(&fixture);
        assert_eq!(fixture.death(), None);
    }
    let all = (128 + 512) << 10;
    assert!((all - 64 * 1024..=all).contains(&most), "{most} bytes");
    // Another peer has only its initial credit, because the budget is used up.
    assert_eq!(fixture.death(), None);
    let two = |len: usize| Step::Frame(2, eager(0), vec![1; len]);
    for _ in 0..(128 << 10) / cost {
        fixture.play([two(EAGER_LIMIT)]);
    }
    assert_eq!(fixture.death(), None);
    fixture.play([two(EAGER_LIMIT)]);
    assert_eq!(fixture.death(), Some(2));
}

#[test]
fn peer_that_exceeds_the_rts_limit_or_sync_credit_is_reported() {
    for sync in [false, true] {
        let fixture = fixture();
        let announce = |op| if sync { eager_sync(0, op) } else { rts(0, op, 50_000) };
        // Synchronous messages use up the credit before they reach the RTS limit. The credit that these matched
        // messages free is too little to be granted again.
        let before = if sync { 1000 } else { 0 };
        for op in 0..before {
            let _posted = fixture.post_bytes(1, 50_000);
            fixture.play([Step::Frame(1, announce(op), vec![])]);
        }
        let credit = if sync { CREDIT_BYTES / MESSAGE_COST - before } else { RTS_LIMIT };
        for first in (0..credit).step_by(1 << 14) {
            let ops = first..credit.min(first + (1 << 14));
            fixture.play(ops.map(|op| Step::Frame(1, announce(before + op), vec![])));
        }
        assert_eq!(fixture.death(), None);
        fixture.play([Step::Frame(1, announce(1 << 40), vec![])]);
        assert_eq!(fixture.death(), Some(1));
        let cause = cause(&fixture);
        assert!(cause.contains(if sync { "8388608" } else { "1048576" }), "{cause}");
        fixture.assert_others_communicate();
    }
}

#[test]
fn sends_beyond_the_rts_limit_fail_at_the_sender() {
    let fixture = fixture();
    let body = Arc::new(vec![1; EAGER_LIMIT + 1]);
    let send = || {
        let keep = Arc::clone(&body) as mpj_devices::KeepAlive;
        // SAFETY: `keep` keeps the bytes, and nothing writes to them.
        #[expect(unsafe_code, reason = "see above")]
        let source =
            unsafe { Source::new(Buf::read_only(body.as_ptr(), EAGER_LIMIT + 1, BYTES), Some(keep)) }
                .unwrap();
        fixture.engine.send(&fixture.world, 1, 1, source, Mode::Standard, Coalesce::Allowed)
    };
    let mut ops = Vec::new();
    for _ in 0..RTS_LIMIT {
        drop(send().unwrap());
        if ops.len() < 2 {
            ops.extend(fixture.take_ops(1, RTS));
        } else {
            fixture.sent();
        }
    }
    assert_eq!(send().unwrap_err(), Fault::TooManyMessages { rank: 1, limit: RTS_LIMIT });
    let sync = fixture.send(1, vec![1; 10], Mode::Synchronous);
    assert_eq!(sync.unwrap_err(), Fault::TooManyMessages { rank: 1, limit: RTS_LIMIT });
    assert!(fixture.send(1, vec![1; 10], Mode::Standard).is_ok(), "it needs no reply");
    // Each reply permits one more message.
    for (kind, (op, _)) in [CTS, FIN].into_iter().zip(ops) {
        fixture.play([Step::Frame(1, reply(kind, 0, op, 7), vec![])]);
        assert!(send().is_ok() && send().is_err());
    }
}

/// Returns a fixture with a budget of 1 MiB: each peer begins with 128 KiB, and 512 KiB remain for growth.
fn small_budget() -> Fixture {
    let mut config = Config::default();
    config.set(&EAGER_CREDIT_TOTAL, 1 << 20).unwrap();
    fixture_of(&config)
}

const EAGER_FRAME: u8 = super::head_encoding::EAGER;

const GRANT: u64 = 0;
const RECALL: u64 = 1;
const RETURN: u64 = 2;

/// A peer that sends as much as its credit allows.
struct EagerPeer {
    rank: u32,
    /// Its channel, the wire id that it has bound to the channel, and its rank there.
    channel: Arc<Channel>,
    wire_id: u16,
    source: i32,
    /// Credit that it was granted and has not used.
    credit: u64,
    /// The amounts that were recalled.
    recalled: Vec<u64>,
}

impl EagerPeer {
    fn new(rank: u32, wire_id: u16, channel: Arc<Channel>, source: i32) -> Self {
        EagerPeer { rank, channel, wire_id, source, credit: 128 << 10, recalled: Vec::new() }
    }

    /// Sends as much as the credit allows, and lets the engine receive it. Returns the credit before the call.
    fn send(&mut self, fixture: &Fixture) -> u64 {
        let cost = EAGER_LIMIT as u64 + MESSAGE_COST;
        let (credit, messages) = (self.credit, self.credit / cost);
        for _ in 0..messages {
            fixture.play([Step::Frame(self.rank, eager(self.wire_id), vec![1; EAGER_LIMIT])]);
        }
        self.credit -= messages * cost;
        for _ in 0..messages {
            let pattern = Pattern { source: self.source, tag: 1 };
            let _ = fixture
                .post(&self.channel, pattern, BYTES.into(), EAGER_LIMIT, EAGER_LIMIT)
                .finish()
                .unwrap()
                .0
                .unwrap();
        }
        credit
    }

    fn return_credit(&mut self, fixture: &Fixture, bytes: u64) {
        self.credit -= bytes;
        fixture.play([Step::Frame(self.rank, reply(CREDIT, 0, RETURN, bytes), vec![])]);
    }
}

/// Two peers: rank 1, which sends in the world, and rank 2, which sends in [`REST`].
struct TwoPeers {
    idle: EagerPeer,
    busy: EagerPeer,
}

impl TwoPeers {
    /// Lets the first peer obtain all spare credit. Then the second peer sends until that credit is recalled.
    fn until_recall(fixture: &Fixture) -> Self {
        let rest = fixture.engine.join(REST, [0, 2].into_iter().collect(), 0).unwrap();
        fixture.play([Step::Frame(2, bind(40, REST, 1), vec![])]);
        let idle = EagerPeer::new(1, 0, Arc::clone(&fixture.world), 1);
        let mut two = TwoPeers { idle, busy: EagerPeer::new(2, 40, rest, 1) };
        for _ in 0..20 {
            two.idle.send(fixture);
            two.handle_credit_frames(fixture);
        }
        two.send_until_recalled(fixture, 1);
        assert_eq!(two.idle.recalled, [512 << 10], "all but its initial credit");
        two
    }

    /// Lets the second peer send until the credit of the first one was recalled `times` times in total.
    fn send_until_recalled(&mut self, fixture: &Fixture, times: usize) {
        for _ in 0..100 {
            if self.idle.recalled.len() < times {
                self.max_burst(fixture, 1);
            }
        }
        assert_eq!(self.idle.recalled.len(), times, "its credit is not recalled");
    }

    fn handle_credit_frames(&mut self, fixture: &Fixture) {
        for (to, head, _) in fixture.sent().iter().filter(|sent| sent.1[0] == CREDIT) {
            let peer = if *to == 1 { &mut self.idle } else { &mut self.busy };
            match word(head, 28) {
                GRANT => peer.credit += word(head, 36),
                RECALL => peer.recalled.push(word(head, 36)),
                other => panic!("{other}"),
            }
        }
    }

    /// Lets the second peer send `times` times, and returns the largest credit that it had.
    fn max_burst(&mut self, fixture: &Fixture, times: usize) -> u64 {
        let mut most = 0;
        for _ in 0..times {
            most = most.max(self.busy.send(fixture));
            self.handle_credit_frames(fixture);
        }
        most
    }
}

#[test]
fn returned_credit_is_granted_to_another_peer() {
    let fixture = small_budget();
    let mut two = TwoPeers::until_recall(&fixture);
    let most = two.max_burst(&fixture, 20);
    assert!(most <= 128 << 10, "the first peer has not returned its credit yet: {most}");
    assert_eq!(two.idle.recalled.len(), 1, "the credit of a peer is recalled only once");
    two.idle.return_credit(&fixture, 512 << 10);
    let (most, all) = (two.max_burst(&fixture, 20), (128 + 512) << 10);
    assert!((all - 64 * 1024..=all).contains(&most), "{most} bytes");
    // The idle peer keeps only its initial credit.
    assert_eq!(fixture.death(), None);
    for _ in 0..=two.idle.credit / (EAGER_LIMIT as u64 + MESSAGE_COST) {
        fixture.play([eager_message(EAGER_LIMIT)]);
    }
    assert_eq!(fixture.death(), Some(1));
}

#[test]
fn credit_of_a_peer_that_returns_nothing_is_recalled_again_later() {
    let fixture = small_budget();
    let mut two = TwoPeers::until_recall(&fixture);
    for times in 2..5 {
        two.idle.return_credit(&fixture, 0);
        two.send_until_recalled(&fixture, times);
    }
    two.idle.return_credit(&fixture, 64 << 10);
    let most = two.max_burst(&fixture, 20);
    assert!((128 << 10..=192 << 10).contains(&most), "{most} bytes");
    assert_eq!(fixture.death(), None);
}

#[test]
fn recalled_credit_of_a_dead_peer_is_reclaimed_once() {
    for returned in [None, Some(0), Some(100 << 10), Some(512 << 10)] {
        let fixture = small_budget();
        let mut two = TwoPeers::until_recall(&fixture);
        if let Some(bytes) = returned {
            two.idle.return_credit(&fixture, bytes);
        }
        report_death(&fixture, 1);
        fixture.play([]);
        two.idle.credit = u64::MAX;
        two.idle.return_credit(&fixture, 512 << 10);
        let (most, all) = (two.max_burst(&fixture, 20), (128 + 512) << 10);
        assert!((all - 64 * 1024..=all).contains(&most), "{most} bytes after {returned:?}");
    }
}

#[test]
fn peer_that_returns_too_much_credit_is_reported() {
    // Credit that was not recalled.
    for bytes in [0, 1, u64::MAX] {
        let fixture = small_budget();
        fixture.play([Step::Frame(1, reply(CREDIT, 0, RETURN, bytes), vec![])]);
        assert_eq!(fixture.death(), Some(1), "{bytes}");
    }
    let fixture = small_budget();
    let mut two = TwoPeers::until_recall(&fixture);
    two.idle.credit = u64::MAX;
    two.idle.return_credit(&fixture, (512 << 10) + 1);
    assert_eq!(fixture.death(), Some(1), "more than was recalled");
    let fixture = small_budget();
    let two = TwoPeers::until_recall(&fixture);
    for _ in 0..two.idle.credit / (EAGER_LIMIT as u64 + MESSAGE_COST) {
        fixture.play([eager_message(EAGER_LIMIT)]);
    }
    assert_eq!(fixture.death(), None);
    fixture.play([Step::Frame(1, reply(CREDIT, 0, RETURN, 512 << 10), vec![])]);
    assert_eq!(fixture.death(), Some(1), "credit that it has used");
    let fixture = small_budget();
    fixture.play([Step::Frame(1, reply(CREDIT, 0, 3, 1), vec![])]);
    assert_eq!(fixture.death(), Some(1), "there is no such frame");
}

/// A sender returns the recalled credit, except for the part that messages have used.
#[test]
fn recalled_credit_is_returned_once() {
    let fixture = fixture();
    let cost = 1000 + MESSAGE_COST;
    fixture.send(1, vec![1; 1000], Mode::Standard).unwrap();
    fixture.sent();
    let left = CREDIT_BYTES - cost;
    for (asked, given) in [(1 << 20, 1 << 20), (0, 0), (u64::MAX, left - (1 << 20)), (5, 0)] {
        fixture.play([Step::Frame(1, reply(CREDIT, 0, RECALL, asked), vec![])]);
        assert_eq!(fixture.take_ops(1, CREDIT), [(RETURN, given)], "{asked}");
    }
    // Without credit, messages use rendezvous until credit is granted again.
    fixture.send(1, vec![1; 1000], Mode::Standard).unwrap();
    assert_eq!(fixture.take_ops(1, RTS).len(), 1);
    fixture.play([Step::Frame(1, reply(CREDIT, 0, GRANT, cost), vec![])]);
    fixture.send(1, vec![1; 1000], Mode::Standard).unwrap();
    assert_eq!(fixture.sent().iter().filter(|sent| sent.1[0] == EAGER_FRAME).count(), 1);
}

/// A peer must not recall credit again before it can have the first reply. Otherwise replies would accumulate.
#[test]
fn peer_that_recalls_without_pause_is_reported() {
    let fixture = fixture();
    fixture.send(1, vec![1; 1000], Mode::Standard).unwrap();
    fixture.wire.full.store(true, Ordering::Relaxed);
    let recall = || Step::Frame(1, reply(CREDIT, 0, RECALL, 1), vec![]);
    fixture.play([recall()]);
    assert_eq!(fixture.death(), None);
    fixture.play([recall()]);
    assert_eq!(fixture.death(), Some(1));
}
