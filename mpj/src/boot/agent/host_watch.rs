//! Detection of hosts that became unreachable, by one connection between two agents that carries no data.
//!
//! The kernel of a host answers probes of a connection, and accepts new connections, even if all processes of the host
//! are stopped or busy. So a [`HostWatch`] detects whether the host can be reached, and not whether its processes make
//! progress. The connection must carry no data: while data is not acknowledged, the kernel sends no probes.
//!
//! ```text
//!                  3 probes without a reply,                    20 attempts without a reply
//!                  or the connection ends
//!   CONNECTED ───────────────────────────────► RECONNECTING ─────────────────────────────────► CUT
//!       ▲                                          │  │
//!       └─────────── an attempt succeeds ──────────┘  └── refused: the agent has exited, as its connections show ──► OFF
//! ```
//! If a link loses 20 % of the packets in each direction, 3 probes in a row fail about every half minute, but 20
//! attempts in a row once in 10⁹ times. A cut is detected after 4 s of probes and 2.5 s of attempts.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use mpj_devices::config::Config;
use mpj_devices::network::{self, listen};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, sockopt};

/// The time of silence before the first probe, the time between probes, and their number.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
const PROBES: u32 = 3;

const ATTEMPTS: u32 = 20;
const ATTEMPT_INTERVAL: Duration = Duration::from_millis(100);
/// The time for a reply to the last attempt.
const LAST_REPLY: Duration = Duration::from_millis(600);

/// The state of a watched host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum HostState {
    /// It is reachable, or nothing is known yet.
    Reachable,
    /// It no longer answers.
    Cut,
    /// It cannot be watched: the first connection failed, or the agent at the other end has exited.
    Unknown,
}

/// The watch of one agent over the host of another one.
#[derive(Debug)]
pub(super) struct HostWatch {
    at: SocketAddr,
    state: State,
}

#[derive(Debug)]
enum State {
    Connected(OwnedFd),
    Reconnecting(Reconnect),
    Ended(HostState),
}

#[derive(Debug)]
struct Reconnect {
    /// Whether there was a connection before.
    was_connected: bool,
    attempts: Vec<OwnedFd>,
    count: u32,
    last: Instant,
}

impl Reconnect {
    fn start(was_connected: bool) -> State {
        let now = Instant::now();
        let last = now.checked_sub(ATTEMPT_INTERVAL).unwrap_or(now);
        State::Reconnecting(Reconnect { was_connected, attempts: Vec::new(), count: 0, last })
    }

    fn due(&self) -> Instant {
        self.last + if self.count < ATTEMPTS { ATTEMPT_INTERVAL } else { LAST_REPLY }
    }

    /// Starts the next attempt if it is due. Returns the next state after an answer, or after all attempts have failed.
    fn check(&mut self, at: SocketAddr, now: Instant) -> Option<State> {
        let (mut connected, mut refused) = (None, false);
        self.attempts.retain(|socket| match outcome(socket) {
            Outcome::Pending => true,
            Outcome::Failed => false,
            Outcome::Refused => {
                refused = true;
                false
            }
            Outcome::Connected => {
                connected = socket.try_clone().ok();
                true
            }
        });
        if let Some(socket) = connected {
            return Some(State::Connected(socket));
        }
        if refused {
            return Some(State::Ended(HostState::Unknown));
        }
        if now < self.due() {
            return None;
        }
        if self.count == ATTEMPTS {
            let state = if self.was_connected { HostState::Cut } else { HostState::Unknown };
            return Some(State::Ended(state));
        }
        self.last = now;
        match connect(at) {
            Ok(socket) => {
                self.count += 1;
                self.attempts.push(socket);
            }
            // Without a descriptor or memory, this process made no attempt.
            Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {}
            // This host has no route, for example because its own network is down.
            Err(_) => self.count += 1,
        }
        None
    }
}

enum Outcome {
    Pending,
    Connected,
    /// The host answers, but nothing listens at the address.
    Refused,
    Failed,
}

fn outcome(socket: &OwnedFd) -> Outcome {
    match sockopt::socket_error(socket) {
        Ok(Ok(())) if rustix::net::getpeername(socket).is_ok() => Outcome::Connected,
        Ok(Ok(())) => Outcome::Pending,
        Ok(Err(Errno::CONNREFUSED | Errno::CONNRESET)) => Outcome::Refused,
        Ok(Err(_)) | Err(_) => Outcome::Failed,
    }
}

/// Starts to connect, with probes while nothing is sent.
fn connect(at: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_tcp_keepidle(&socket, PROBE_INTERVAL)?;
    sockopt::set_tcp_keepintvl(&socket, PROBE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(&socket, PROBES)?;
    sockopt::set_socket_keepalive(&socket, true)?;
    match rustix::net::connect(&socket, &at) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error),
    }
}

impl HostWatch {
    /// Begins to watch the host of the agent that has opened a [`WatchPort`] at this address.
    pub(super) fn new(at: SocketAddr) -> HostWatch {
        HostWatch { at, state: Reconnect::start(false) }
    }

    /// Returns the address of the watched host.
    pub(super) fn ip(&self) -> IpAddr {
        self.at.ip()
    }

    /// Returns the sockets to poll, with the events to poll for.
    pub(super) fn to_poll(&self) -> impl Iterator<Item = (BorrowedFd<'_>, PollFlags)> {
        let (sockets, flags) = match &self.state {
            State::Connected(socket) => (std::slice::from_ref(socket), PollFlags::IN),
            State::Reconnecting(reconnect) => (&reconnect.attempts[..], PollFlags::OUT),
            State::Ended(_) => (&[][..], PollFlags::IN),
        };
        sockets.iter().map(move |socket| (socket.as_fd(), flags))
    }

    /// Returns the time at which [`check`](Self::check) must be called even without an event.
    pub(super) fn due(&self) -> Option<Instant> {
        match &self.state {
            State::Reconnecting(reconnect) => Some(reconnect.due()),
            State::Connected(_) | State::Ended(_) => None,
        }
    }

    /// Performs what is due, and returns what is known of the host.
    pub(super) fn check(&mut self, now: Instant) -> HostState {
        let next = match &mut self.state {
            State::Connected(socket) => {
                let (mut byte, how) = ([0], RecvFlags::PEEK | RecvFlags::DONTWAIT);
                let is_alive =
                    matches!(rustix::net::recv(&*socket, &mut byte, how), Err(Errno::AGAIN | Errno::INTR));
                (!is_alive).then(|| Reconnect::start(true))
            }
            State::Reconnecting(reconnect) => reconnect.check(self.at, now),
            State::Ended(state) => return *state,
        };
        if let Some(next) = next {
            self.state = next;
        }
        match self.state {
            State::Ended(state) => state,
            State::Connected(_) | State::Reconnecting(_) => HostState::Reachable,
        }
    }
}

/// The sockets at which an agent accepts the connections of the [`HostWatch`]es of other agents.
#[derive(Debug)]
pub(in crate::boot) struct WatchPort {
    listeners: Vec<network::Listener>,
    accepted: Vec<OwnedFd>,
    max_accepted: usize,
}

/// The longest time between two calls of [`WatchPort::accept`]. The kernel answers connections that wait for a call.
pub(super) const ACCEPT_INTERVAL: Duration = Duration::from_secs(10);

impl WatchPort {
    /// Listens for the watches of the agents of `hosts` hosts.
    ///
    /// # Errors
    /// No address or port can be used: without the watches, calls that need a host that is cut off would never return.
    pub(in crate::boot) fn open(hosts: u32, config: &Config) -> Result<WatchPort, String> {
        let listeners = listen(config, true)
            .map_err(|why| format!("the agent of this host cannot listen for those of other hosts: {why}"))?;
        // Each host has one connection, and possibly some that have failed at its end only.
        let max_accepted = 16 + 2 * hosts as usize;
        Ok(WatchPort { listeners, accepted: Vec::new(), max_accepted })
    }

    /// Returns the address for the agent at the other end of a connection.
    pub(super) fn address_for(&self, connection: BorrowedFd<'_>) -> Option<SocketAddr> {
        let own: SocketAddr = rustix::net::getsockname(connection).ok()?.try_into().ok()?;
        let is_own = |at: &SocketAddr| at.ip().to_canonical() == own.ip().to_canonical();
        self.listeners.iter().map(|(_, at)| *at).find(is_own)
    }

    /// Accepts connections and keeps them open, and closes those whose other end was closed.
    pub(super) fn accept(&mut self) {
        for (listener, _) in &self.listeners {
            while let Ok(socket) = rustix::net::accept_with(listener, SocketFlags::CLOEXEC) {
                // A connection whose other end has vanished then ends, by default after two hours.
                let _ = sockopt::set_socket_keepalive(&socket, true);
                self.accepted.push(socket);
            }
        }
        let is_open = |socket: &OwnedFd| {
            let how = RecvFlags::PEEK | RecvFlags::DONTWAIT;
            matches!(rustix::net::recv(socket, &mut [0], how), Err(Errno::AGAIN | Errno::INTR))
        };
        self.accepted.retain(is_open);
        // Older connections are more likely those of agents than of strangers. An agent whose new connection is closed
        // connects again, which shows it that this host is reachable.
        self.accepted.truncate(self.max_accepted);
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::socket;

    use super::*;

    fn config() -> Config {
        let mut config = Config::default();
        config.set_text(&mpj_devices::config::NIO_INTERFACES, "lo").unwrap();
        config
    }

    fn port() -> WatchPort {
        WatchPort::open(2, &config()).unwrap()
    }

    /// Waits for the kernel: an end of a connection becomes visible at the other end some time later.
    fn until(mut is_done: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !is_done() {
            assert!(begun.elapsed() < Duration::from_secs(60), "it never happens");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn settle(watch: &mut HostWatch) -> HostState {
        until(|| {
            watch.check(Instant::now()) != HostState::Reachable || matches!(watch.state, State::Connected(_))
        });
        watch.check(Instant::now())
    }

    #[test]
    fn watch_connects_again_after_its_connection_was_closed() {
        let mut port = port();
        let at = port.listeners[0].1;
        let mut watch = HostWatch::new(at);
        for _ in 0..3 {
            assert_eq!(settle(&mut watch), HostState::Reachable);
            until(|| {
                port.accept();
                !port.accepted.is_empty()
            });
            assert_eq!(watch.check(Instant::now()), HostState::Reachable);
            assert!(matches!(watch.state, State::Connected(_)), "it stays connected");
            until(|| {
                port.accept();
                port.accepted.clear();
                watch.check(Instant::now());
                !matches!(watch.state, State::Connected(_))
            });
            assert!(matches!(&watch.state, State::Reconnecting(reconnect) if reconnect.was_connected));
        }
    }

    #[test]
    fn watch_port_without_a_free_port_is_an_error() {
        let (mut config, taken) = (config(), port());
        let range = taken.listeners[0].1.port().to_string();
        config.set_text(&mpj_devices::config::NIO_PORTS, &range).unwrap();
        let others: Vec<_> = std::iter::from_fn(|| WatchPort::open(2, &config).ok()).take(2).collect();
        let why = WatchPort::open(2, &config).unwrap_err();
        assert!(others.len() < 2 && why.contains("MPJ_NIO_PORTS"), "{why}");
    }

    #[test]
    fn ended_agent_is_not_a_cut_host() {
        let port = port();
        let mut watch = HostWatch::new(port.listeners[0].1);
        assert_eq!(settle(&mut watch), HostState::Reachable);
        drop(port);
        // The connection ends, and later attempts are refused.
        until(|| watch.check(Instant::now()) != HostState::Reachable);
        assert_eq!(watch.check(Instant::now()), HostState::Unknown);
        assert!(watch.due().is_none() && watch.to_poll().next().is_none());
    }

    #[test]
    fn host_without_a_reply_is_cut_only_if_it_has_replied_before() {
        // A listener whose queue is full answers no further attempt.
        let listener = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        rustix::net::bind(&listener, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let at = rustix::net::getsockname(&listener).unwrap().try_into().unwrap();
        let _queued: Vec<OwnedFd> = (0..4).map(|_| connect(at).unwrap()).collect();
        for (was_connected, expected) in [(false, HostState::Unknown), (true, HostState::Cut)] {
            let mut reconnect = HostWatch { at, state: Reconnect::start(was_connected) };
            let mut now = Instant::now();
            let mut checks = 0;
            while reconnect.check(now) == HostState::Reachable {
                checks += 1;
                now = reconnect.due().unwrap();
            }
            assert_eq!(reconnect.check(now), expected);
            assert_eq!(checks, ATTEMPTS, "all attempts were made");
        }
    }

    #[test]
    fn strangers_neither_use_all_descriptors_nor_end_watches() {
        let mut port = port();
        let at = port.listeners[0].1;
        let mut watch = HostWatch::new(at);
        assert_eq!(settle(&mut watch), HostState::Reachable);
        until(|| {
            port.accept();
            !port.accepted.is_empty()
        });
        let strangers: Vec<_> = (0..100).map(|_| std::net::TcpStream::connect(at).unwrap()).collect();
        until(|| {
            port.accept();
            assert!(port.accepted.len() <= port.max_accepted);
            port.accepted.len() == port.max_accepted
        });
        watch.check(Instant::now());
        assert!(matches!(watch.state, State::Connected(_)), "the watch of an agent stays connected");
        drop(strangers);
        until(|| {
            port.accept();
            port.accepted.len() == 1
        });
    }
}
