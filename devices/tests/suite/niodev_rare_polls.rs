//! Ranks on niodev that do not poll for seconds must not be reported dead, and their messages arrive. A send to a peer
//! that does not listen fails.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use mpj_devices::config::Config;
use mpj_devices::conformance::{Case, Member, run_threads};
use mpj_devices::{Address, Callback, CardExchange, Doorbell, Engine, JobKey, NioDriver, Registry, Site};

/// Makes progress once per `pause` until `done` returns true.
fn poll_rarely(m: &Member, pause: Duration, done: impl Fn() -> bool) {
    while !done() {
        std::thread::sleep(pause);
        m.engine.progress();
    }
}

/// Rank 0 sends and rank 1 receives. The ranks in `lazy` poll rarely; the others wait.
fn first_contact(m: &Member, pause: Duration, lazy: &[u32]) {
    let body: Vec<u32> = (0..25).map(|i| i * 7 + 1).collect();
    let is_lazy = lazy.contains(&m.rank);
    if m.rank == 0 {
        let sending = m.issend(1, 3, body);
        if is_lazy {
            poll_rarely(m, pause, || sending.has_ended());
        }
        sending.wait(m).unwrap();
    } else {
        let receiving = m.irecv::<u32>(0, 3, 25);
        if is_lazy {
            poll_rarely(m, pause, || receiving.has_ended());
        }
        assert_eq!(m.received(receiving).1, body);
    }
}

fn both_at_once(m: &Member, pause: Duration) {
    let other = 1 - m.rank;
    let sending = m.isend(other, 3, vec![m.rank; 25]);
    let receiving = m.irecv::<u32>(other as i32, 3, 25);
    poll_rarely(m, pause, || sending.has_ended() && receiving.has_ended());
    sending.wait(m).unwrap();
    assert_eq!(m.received(receiving).1, [other; 25]);
}

const SHORT: Duration = Duration::from_millis(1500);
const LONG: Duration = Duration::from_millis(2500);

macro_rules! case {
    ($name:literal, $run:expr) => {
        Case { name: $name, ranks: &[2], run: $run }
    };
}

static CASES: [Case; 8] = [
    case!("the_sender_polls_rarely", |m| first_contact(m, SHORT, &[0])),
    case!("the_receiver_polls_rarely", |m| first_contact(m, SHORT, &[1])),
    case!("both_poll_rarely", |m| first_contact(m, SHORT, &[0, 1])),
    case!("both_connect_and_poll_rarely", |m| both_at_once(m, SHORT)),
    case!("the_sender_polls_very_rarely", |m| first_contact(m, LONG, &[0])),
    case!("the_receiver_polls_very_rarely", |m| first_contact(m, LONG, &[1])),
    case!("both_poll_very_rarely", |m| first_contact(m, LONG, &[0, 1])),
    case!("both_connect_and_poll_very_rarely", |m| both_at_once(m, LONG)),
];

#[test]
fn rank_that_polls_rarely_is_not_reported_dead() {
    let tcp = |all: Registry| all.select(&["niodev"]).unwrap();
    // The cases run in parallel, because they sleep most of the time.
    std::thread::scope(|scope| {
        for case in &CASES {
            scope.spawn(|| run_threads(tcp, &Config::default(), 2, case));
        }
    });
}

/// A card exchange that returns an address at which no process listens.
#[derive(Debug)]
struct NoListener;

impl CardExchange for NoListener {
    fn publish(&self, _cards: Vec<(String, Address)>) -> Result<(), String> {
        Ok(())
    }

    fn request(&self, _rank: u32, then: Callback<Vec<(String, Address)>>) {
        let at = TcpListener::bind("127.0.0.1:0").and_then(|closed| closed.local_addr()).unwrap();
        let order = if cfg!(target_endian = "big") { "big" } else { "little" };
        then(Ok(vec![("niodev".into(), Address(format!("{at} 262144 {order}-endian").into_bytes()))]));
    }
}

#[test]
fn send_to_a_peer_that_does_not_listen_fails() {
    let registry = Registry::empty().with(NioDriver::new(Arc::new(JobKey { job: 1, secret: [1; 32] })));
    let site = Site::new(0, 2, Arc::new(Doorbell::new().unwrap()));
    let engine =
        Engine::open(site, &registry, &Config::default(), Arc::new(NoListener), Arc::default()).unwrap();
    let member = Member::join(engine).unwrap();
    let sending = [25, 1 << 20].map(|len| member.isend(1, 3, vec![7u8; len]));
    for outcome in sending.map(|sending| sending.wait(&member)) {
        assert!(outcome.as_ref().is_err_and(|fault| fault.to_string().contains("refused")), "{outcome:?}");
    }
}
