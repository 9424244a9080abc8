//! TCP connections whose ends have proved to each other that they have the same key, by the handshake of `niodev`.
//! A process on the network that lacks the key gets a challenge at most, and is disconnected.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mpj_devices::handshake::{Handshake, HandshakeAction, Identity, Refusal, Verdict};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, sockopt};
use rustix::rand::{GetRandomFlags, getrandom};

/// How long a connecting process waits for a connection and for a reply.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
const REPLY_LIMIT: Duration = Duration::from_secs(20);

/// The number of connections without a proof that a listener keeps in addition to one for each expected peer, and the
/// time that it keeps each. All peers can connect at the same time.
pub(super) const MAX_STRANGERS: usize = 64;
const PROOF_LIMIT: Duration = Duration::from_secs(20);

/// The time after which a process that lacked a descriptor tries to accept connections again.
pub(super) const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// The reason why [`connect_with_proof`] failed.
#[derive(Debug)]
pub(super) enum ConnectError {
    /// No process can be reached at the address, or the connection broke.
    Unreachable(io::Error),
    /// The other end sends nothing.
    NoReply,
    /// The other end is another program, or has ended the connection.
    Stranger,
    /// The other end follows the protocol, but has another key.
    WrongKey,
    /// The other end has a connection with this number already.
    Duplicate,
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectError::Unreachable(error) => write!(f, "{error}"),
            ConnectError::NoReply => f.write_str("the process that listens there does not reply"),
            ConnectError::Stranger => f.write_str("a process of another program or job listens there"),
            ConnectError::WrongKey => {
                f.write_str("the process that listens there does not have the key of the job")
            }
            ConnectError::Duplicate => f.write_str("another process has joined with this number"),
        }
    }
}

impl From<io::Error> for ConnectError {
    fn from(error: io::Error) -> Self {
        ConnectError::Unreachable(error)
    }
}

/// Returns random bytes.
///
/// # Errors
/// The system provides none.
pub(super) fn random_bytes<const N: usize>() -> Result<[u8; N], String> {
    let mut bytes = [0; N];
    getrandom(&mut bytes, GetRandomFlags::empty()).map_err(|e| format!("no random numbers: {e}"))?;
    Ok(bytes)
}

/// Connects to the peer with number 0, and returns after both ends have proved that they have the key. The attempt to
/// connect and each read have a limit of their own: at most the time until `deadline` when it is set, at least 100 ms.
///
/// # Errors
/// No process with the key can be reached at the address, or it has rejected this one.
pub(super) fn connect_with_proof(
    at: SocketAddr,
    id: Arc<Identity>,
    deadline: Instant,
) -> Result<TcpStream, ConnectError> {
    // Limits of 0 are invalid.
    let left = || deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(100));
    let mut stream = TcpStream::connect_timeout(&at, CONNECT_LIMIT.min(left()))?;
    stream.set_read_timeout(Some(REPLY_LIMIT.min(left())))?;
    let nonce = random_bytes().map_err(io::Error::other)?;
    let (mut handshake, hello) = Handshake::connect(id, 0, nonce);
    stream.write_all(&hello)?;
    loop {
        let count = match stream.read(handshake.room()) {
            Ok(0) => return Err(ConnectError::Stranger),
            Ok(count) => count,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                return Err(ConnectError::NoReply);
            }
            Err(e) => return Err(e.into()),
        };
        match handshake.received(count) {
            Ok(HandshakeAction::ReadMore) => {}
            Ok(HandshakeAction::Send(bytes)) => stream.write_all(&bytes)?,
            Ok(HandshakeAction::Decided(Verdict::Accept)) => break,
            Ok(HandshakeAction::Decided(_)) => return Err(ConnectError::Duplicate),
            Err(Refusal::Key) => return Err(ConnectError::WrongKey),
            Ok(HandshakeAction::PeerProven) | Err(_) => return Err(ConnectError::Stranger),
        }
    }
    stream.set_read_timeout(None)?;
    prepare(&stream);
    Ok(stream)
}

/// Makes a connection send without delay, and end about three minutes after the other host became unreachable, if no
/// data is in flight. Without traffic and probes it would never end. The kernel of a stopped process still acknowledges
/// the probes.
fn prepare(socket: &impl std::os::fd::AsFd) {
    // Only speed depends on it.
    let _ = sockopt::set_tcp_nodelay(socket, true);
    // Without the probes, only the process manager can detect that a host is lost.
    let _ = sockopt::set_tcp_keepidle(socket, Duration::from_secs(60));
    let _ = sockopt::set_tcp_keepintvl(socket, Duration::from_secs(10));
    let _ = sockopt::set_tcp_keepcnt(socket, 12);
    let _ = sockopt::set_socket_keepalive(socket, true);
}

/// The sockets at which number 0 listens, and the connections that have not proved their identity.
#[derive(Debug)]
pub(super) struct ProvenListener {
    sockets: Vec<OwnedFd>,
    id: Arc<Identity>,
    strangers: Vec<Stranger>,
    max_strangers: usize,
    unproven: BTreeSet<u32>,
    /// Until this time, no connections are accepted: this process lacks descriptors.
    accepts_at: Option<Instant>,
}

#[derive(Debug)]
struct Stranger {
    stream: OwnedFd,
    handshake: Handshake,
    since: Instant,
}

impl ProvenListener {
    /// Accepts connections at non-blocking sockets from about `peers` processes.
    pub(super) fn new(sockets: Vec<OwnedFd>, id: Arc<Identity>, peers: u32) -> ProvenListener {
        let max_strangers = MAX_STRANGERS + peers as usize;
        ProvenListener {
            sockets,
            id,
            strangers: Vec::new(),
            max_strangers,
            unproven: BTreeSet::new(),
            accepts_at: None,
        }
    }

    /// Returns numbers that connections have claimed without a proof of the key, and that no connection has proved
    /// since then. Usually, these processes have another key.
    pub(super) fn unproven(&self) -> &BTreeSet<u32> {
        &self.unproven
    }

    /// Returns the sockets to poll.
    pub(super) fn to_poll(&self) -> impl Iterator<Item = &OwnedFd> {
        let listening = if self.accepts_at.is_none() { &self.sockets[..] } else { &[] };
        listening.iter().chain(self.strangers.iter().map(|stranger| &stranger.stream))
    }

    /// Returns the time at which [`arrivals`](Self::arrivals) must be called even without input.
    pub(super) fn due(&self) -> Option<Instant> {
        let strangers = self.strangers.iter().map(|stranger| stranger.since + PROOF_LIMIT);
        strangers.chain(self.accepts_at).min()
    }

    /// Accepts connections, and returns those that have proved their number, except numbers that `is_known` accepts.
    pub(super) fn arrivals(&mut self, is_known: impl Fn(u32) -> bool) -> Vec<(u32, OwnedFd)> {
        let now = Instant::now();
        if self.accepts_at.is_none_or(|at| at <= now) {
            // After an error, the connections that wait would let each poll return at once.
            self.accepts_at = self.accept().is_err().then(|| now + ACCEPT_RETRY);
        }
        let mut proven = Vec::new();
        for mut stranger in std::mem::take(&mut self.strangers) {
            let outcome = stranger.advance();
            let claimed = stranger.handshake.claimed_rank();
            match outcome {
                Ok(false) if stranger.since + PROOF_LIMIT > now => self.strangers.push(stranger),
                // The peer gave up while this process computed or was stopped, and it may connect again.
                Ok(true) if !stranger.peer_still_waits() => {}
                Ok(true) => {
                    let number = stranger.handshake.from();
                    self.unproven.remove(&number);
                    let is_new = !is_known(number) && proven.iter().all(|(other, _)| *other != number);
                    let verdict = if is_new { Verdict::Accept } else { Verdict::Duplicate };
                    let sent = rustix::net::send(&stranger.stream, &[verdict.to_byte()], SendFlags::NOSIGNAL);
                    if is_new && sent == Ok(1) {
                        proven.push((number, stranger.stream));
                    }
                }
                Ok(false) | Err(_) if self.unproven.len() < MAX_STRANGERS => self.unproven.extend(claimed),
                Ok(false) | Err(_) => {}
            }
        }
        proven
    }

    /// Accepts the connections that wait.
    ///
    /// # Errors
    /// This process lacks a descriptor or memory, so the connections stay in the queue.
    fn accept(&mut self) -> Result<(), Errno> {
        for socket in &self.sockets {
            loop {
                let stream = match rustix::net::accept_with(socket, SocketFlags::CLOEXEC) {
                    Ok(stream) => stream,
                    Err(Errno::AGAIN) => break,
                    Err(Errno::INTR | Errno::CONNABORTED) => continue,
                    Err(error) => return Err(error),
                };
                let nonce = random_bytes().map_err(|_| Errno::NOMEM)?;
                prepare(&stream);
                if self.strangers.len() == self.max_strangers {
                    self.strangers.remove(0);
                }
                let handshake = Handshake::accept(Arc::clone(&self.id), nonce);
                self.strangers.push(Stranger { stream, handshake, since: Instant::now() });
            }
        }
        Ok(())
    }
}

impl Stranger {
    /// Returns whether the peer still waits for the verdict, after its proof. It sends nothing meanwhile: a byte, the
    /// end of the stream or an error means that it no longer waits.
    fn peer_still_waits(&self) -> bool {
        let received = rustix::net::recv(&self.stream, &mut [0; 1], RecvFlags::DONTWAIT);
        matches!(received, Err(Errno::AGAIN | Errno::INTR))
    }

    /// Performs the steps of the handshake that are possible now. Returns whether the proof is complete, or an error if
    /// the connection must be closed.
    fn advance(&mut self) -> Result<bool, Refusal> {
        loop {
            let count = match rustix::net::recv(&self.stream, self.handshake.room(), RecvFlags::DONTWAIT) {
                Ok((_, count @ 1..)) => count,
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => continue,
                Ok(_) | Err(_) => return Err(Refusal::Noise),
            };
            match self.handshake.received(count)? {
                HandshakeAction::ReadMore => {}
                HandshakeAction::Send(bytes) => {
                    // The socket of a new connection has space for the message.
                    let sent =
                        rustix::net::send(&self.stream, &bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
                    if sent != Ok(bytes.len()) {
                        return Err(Refusal::Noise);
                    }
                }
                HandshakeAction::PeerProven => return Ok(true),
                HandshakeAction::Decided(_) => return Err(Refusal::Noise),
            }
        }
    }
}

#[cfg(test)]
mod tests;
