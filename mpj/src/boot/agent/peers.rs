//! The connections between the agents of a job: a star with the agent of the first host, the root, in the middle.
//!
//! ```text
//!   agent of another host                         root
//!   connects to one of the root's addresses  ─►
//!   both prove that they have the job's key (the handshake of `niodev`, with hosts in place of ranks)
//!   Report: a message of one of its processes ─►
//!   Closed: a process has ended its connection ─►
//!                                            ◄─   ToProcess, ToOthers
//!   Watch: the address for a `HostWatch`     ◄─►
//! ```

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mpj_devices::config::Config;
use mpj_devices::handshake::{Handshake, HandshakeAction, Identity, Verdict};
use mpj_devices::network::{connect_order, listen};
use mpj_devices::{HostId, JobKey};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, sockopt};
use rustix::rand::{GetRandomFlags, getrandom};
use serde::{Deserialize, Serialize};

use super::root_card::RootCard;
use crate::boot::control_plane::ControlConnection;
use crate::boot::wire::{ToLauncher, ToProcess};

/// The label of the proofs. Those of other protocols with the same key are invalid here.
const PURPOSE: &[u8] = b"mpj agent";

/// How often an agent tries each address of the root, and how long it waits for a connection and for a reply.
const ROUNDS: u32 = 3;
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
const REPLY_LIMIT: Duration = Duration::from_secs(20);

/// The number of connections that the root keeps before their proof, and for how long. One for each host is added,
/// because all agents can connect at the same time.
const MAX_STRANGERS: usize = 64;
const PROOF_LIMIT: Duration = Duration::from_secs(20);

/// A message to the root.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(in crate::boot) enum ToRoot {
    /// A message from the process of a rank.
    Report { rank: u32, message: ToLauncher },
    /// The connection to the process of a rank has ended.
    Closed { rank: u32, cause: String },
    /// The root can watch the host of the agent at this address.
    Watch { at: SocketAddr },
}

/// A message from the root.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(in crate::boot) enum FromRoot {
    /// A message to the process of a rank.
    ToProcess { rank: u32, message: ToProcess },
    /// A message to all processes that have joined, except that of a rank.
    ToOthers { except: u32, message: ToProcess },
    /// The agent can watch the host of the root at this address.
    Watch { at: SocketAddr },
}

/// The connection of an agent to the root.
pub(in crate::boot) type Upstream = ControlConnection<FromRoot>;

fn identity(key: &JobKey, host: HostId, hosts: u32) -> Arc<Identity> {
    Arc::new(Identity { key: Arc::new(key.clone()), rank: host.0, size: hosts, purpose: PURPOSE })
}

fn nonce() -> Result<[u8; 32], String> {
    let mut nonce = [0; 32];
    getrandom(&mut nonce, GetRandomFlags::empty()).map_err(|e| format!("no random numbers: {e}"))?;
    Ok(nonce)
}

/// Connects the agent of `host` to the root.
///
/// # Errors
/// No address of the root leads to it. The text names the last address and its error.
pub(in crate::boot) fn connect_to_root(
    mut card: RootCard,
    host: HostId,
    hosts: u32,
) -> Result<Upstream, String> {
    connect_order(&mut card.addresses);
    let mut failure = "it has no address".to_owned();
    for _ in 0..ROUNDS {
        for at in &card.addresses {
            match try_connect(*at, identity(&card.key, host, hosts)) {
                Ok(stream) => return Ok(ControlConnection::new(stream)),
                Err(why) => failure = format!("{at}: {why}"),
            }
        }
    }
    Err(format!(
        "cannot connect to the host of rank 0 at {failure}; MPJ_NIO_INTERFACES selects networks, MPJ_NIO_PORTS ports"
    ))
}

fn try_connect(at: SocketAddr, id: Arc<Identity>) -> Result<TcpStream, String> {
    let system = |e: std::io::Error| e.to_string();
    let mut stream = TcpStream::connect_timeout(&at, CONNECT_LIMIT).map_err(system)?;
    stream.set_read_timeout(Some(REPLY_LIMIT)).map_err(system)?;
    let (mut handshake, hello) = Handshake::connect(id, 0, nonce()?);
    stream.write_all(&hello).map_err(system)?;
    loop {
        let count = match stream.read(handshake.room()) {
            Ok(0) => return Err("another process listens there, or another job's".into()),
            Ok(count) => count,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(system(e)),
        };
        match handshake.received(count) {
            Ok(HandshakeAction::ReadMore) => {}
            Ok(HandshakeAction::Send(bytes)) => stream.write_all(&bytes).map_err(system)?,
            Ok(HandshakeAction::Decided(Verdict::Accept)) => break,
            Ok(HandshakeAction::Decided(_)) => return Err("another agent has joined for this host".into()),
            Ok(HandshakeAction::PeerProven) | Err(_) => {
                return Err("the process that listens there does not have the key of the job".into());
            }
        }
    }
    prepare(&stream);
    Ok(stream)
}

/// Makes a connection send without delay, and find out after about three minutes that the other host is unreachable, for
/// hosts that cannot be [watched](super::host_watch). A stopped process still acknowledges the probes.
fn prepare(socket: &impl std::os::fd::AsFd) {
    // Only speed depends on it.
    let _ = sockopt::set_tcp_nodelay(socket, true);
    // Without the probes, the process manager has to notice that a host is lost.
    let _ = sockopt::set_tcp_keepidle(socket, Duration::from_secs(60));
    let _ = sockopt::set_tcp_keepintvl(socket, Duration::from_secs(10));
    let _ = sockopt::set_tcp_keepcnt(socket, 12);
    let _ = sockopt::set_socket_keepalive(socket, true);
}

/// The sockets at which the root listens, and the connections that have not proved their identity.
#[derive(Debug)]
pub(in crate::boot) struct RootListener {
    pub(super) sockets: Vec<OwnedFd>,
    addresses: Vec<SocketAddr>,
    id: Arc<Identity>,
    strangers: Vec<Stranger>,
}

#[derive(Debug)]
struct Stranger {
    stream: OwnedFd,
    handshake: Handshake,
    since: Instant,
}

impl RootListener {
    /// Listens for the agents of the other hosts.
    ///
    /// # Errors
    /// No address or port can be used.
    pub(in crate::boot) fn open(key: &JobKey, hosts: u32, config: &Config) -> Result<RootListener, String> {
        let (sockets, addresses) = listen(config, true)?.into_iter().unzip();
        Ok(RootListener { sockets, addresses, id: identity(key, HostId(0), hosts), strangers: Vec::new() })
    }

    /// Returns the card to publish.
    pub(in crate::boot) fn card(&self) -> RootCard {
        RootCard { key: (*self.id.key).clone(), addresses: self.addresses.clone() }
    }

    /// Returns the sockets to poll, without those for new connections unless `accepts`.
    pub(super) fn to_poll(&self, accepts: bool) -> impl Iterator<Item = &OwnedFd> {
        let listening = if accepts { &self.sockets[..] } else { &[] };
        listening.iter().chain(self.strangers.iter().map(|stranger| &stranger.stream))
    }

    /// Returns the time at which [`arrivals`](Self::arrivals) must be called even without input.
    pub(super) fn due(&self) -> Option<Instant> {
        self.strangers.iter().map(|stranger| stranger.since + PROOF_LIMIT).min()
    }

    /// Returns the connections that have proved to be the agent of a host since the last call. `is_known` tells whether
    /// the agent of a host has connected before.
    pub(super) fn arrivals(&mut self, is_known: impl Fn(HostId) -> bool) -> Vec<(HostId, OwnedFd)> {
        let now = Instant::now();
        let mut proven = Vec::new();
        for mut stranger in std::mem::take(&mut self.strangers) {
            match stranger.advance() {
                Ok(false) if stranger.since + PROOF_LIMIT > now => self.strangers.push(stranger),
                Ok(true) => {
                    let host = HostId(stranger.handshake.from());
                    let is_new = !is_known(host) && proven.iter().all(|(other, _)| *other != host);
                    let verdict = if is_new { Verdict::Accept } else { Verdict::Duplicate };
                    let sent = rustix::net::send(&stranger.stream, &[verdict.to_byte()], SendFlags::NOSIGNAL);
                    if is_new && sent == Ok(1) {
                        proven.push((host, stranger.stream));
                    }
                }
                Ok(false) | Err(()) => {}
            }
        }
        proven
    }

    /// Accepts the connections that wait.
    ///
    /// # Errors
    /// This process lacks a descriptor or memory, so the connections stay in the queue.
    pub(super) fn accept(&mut self) -> Result<(), Errno> {
        let most = MAX_STRANGERS + self.id.size as usize;
        for socket in &self.sockets {
            loop {
                let stream = match rustix::net::accept_with(socket, SocketFlags::CLOEXEC) {
                    Ok(stream) => stream,
                    Err(Errno::AGAIN) => break,
                    Err(Errno::INTR | Errno::CONNABORTED) => continue,
                    Err(error) => return Err(error),
                };
                let nonce = nonce().map_err(|_| Errno::NOMEM)?;
                prepare(&stream);
                if self.strangers.len() == most {
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
    /// Performs the steps of the handshake that are possible now. Returns whether the proof is complete, or an error if
    /// the connection must be closed.
    fn advance(&mut self) -> Result<bool, ()> {
        loop {
            let count = match rustix::net::recv(&self.stream, self.handshake.room(), RecvFlags::DONTWAIT) {
                Ok((_, count @ 1..)) => count,
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => continue,
                Ok(_) | Err(_) => return Err(()),
            };
            match self.handshake.received(count).map_err(drop)? {
                HandshakeAction::ReadMore => {}
                HandshakeAction::Send(bytes) => {
                    // The socket of a new connection has space for the message.
                    let sent =
                        rustix::net::send(&self.stream, &bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
                    if sent != Ok(bytes.len()) {
                        return Err(());
                    }
                }
                HandshakeAction::PeerProven => return Ok(true),
                HandshakeAction::Decided(_) => return Err(()),
            }
        }
    }
}

#[cfg(test)]
mod tests;
