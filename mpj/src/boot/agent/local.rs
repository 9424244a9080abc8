//! The sockets between the agent of a host and the processes of that host.
//!
//! The agent listens at an abstract name: it vanishes with the agent, and only processes of the same network namespace
//! can reach it. A process binds its own end to a name that contains its rank, so the agent knows the rank from the
//! address, and two processes cannot have one rank. Both ends check that the other one belongs to the same user.

use std::fmt;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use mpj_devices::HostId;
use mpj_devices::network::peer_of_unix;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{Pid, PidfdFlags, getpid, pidfd_open};

use crate::boot::rendezvous::fnv1a;

/// The names of one host's sockets.
#[derive(Clone, Debug)]
pub(in crate::boot) struct LocalNames {
    base: String,
}

impl LocalNames {
    /// Creates the names for a host of the job with this key-value store.
    pub(in crate::boot) fn new(store: &str, host: HostId) -> LocalNames {
        // A socket name has at most 107 bytes, and the name of a key-value store up to 256.
        let user = rustix::process::getuid().as_raw();
        LocalNames { base: format!("mpj-{user}-{:016x}-{}", fnv1a(store.as_bytes()), host.0) }
    }

    fn of_rank(&self, rank: u32) -> String {
        format!("{}-{rank}", self.base)
    }

    /// Returns whether the kernel's list of sockets has no socket of a rank. Returns false if the list cannot be read.
    pub(in crate::boot) fn is_free(&self, rank: u32) -> bool {
        let name = format!("@{}", self.of_rank(rank));
        let sockets = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
        sockets.starts_with("Num") && !sockets.lines().any(|line| line.ends_with(&name))
    }

    fn rank_of(&self, name: &[u8]) -> Option<u32> {
        str::from_utf8(name).ok()?.strip_prefix(&self.base)?.strip_prefix('-')?.parse().ok()
    }
}

/// The socket at which an agent listens.
#[derive(Debug)]
pub(in crate::boot) struct LocalListener {
    names: LocalNames,
    listener: UnixListener,
}

/// A process that has connected to its agent.
pub(super) struct Arrival {
    pub(super) rank: u32,
    /// The process id, or 0 if the process is in another process id namespace.
    pub(super) pid: i32,
    pub(super) stream: UnixStream,
}

/// Opens a descriptor that becomes readable when a process exits. Returns `None` for this process, for the id 0, or if
/// `pidfd_open` fails: the process no longer exists, this process lacks descriptors, or the system forbids the call.
pub(in crate::boot) fn process_descriptor(pid: i32) -> Option<OwnedFd> {
    let pid = Pid::from_raw(pid).filter(|pid| *pid != getpid())?;
    pidfd_open(pid, PidfdFlags::empty()).ok()
}

/// Returns whether the process of a descriptor has exited.
pub(in crate::boot) fn has_exited(process: &OwnedFd) -> bool {
    poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&Timespec::default())) == Ok(1)
}

impl LocalListener {
    /// Listens for the processes of a host.
    ///
    /// # Errors
    /// The name is in use, or the system lacks a resource.
    pub(in crate::boot) fn bind(names: LocalNames) -> Result<LocalListener, String> {
        let listener = SocketAddr::from_abstract_name(&names.base).and_then(|at| {
            let listener = UnixListener::bind_addr(&at)?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        });
        let listener = listener.map_err(|e| failed("listen for the processes of this host", &e))?;
        Ok(LocalListener { names, listener })
    }

    /// Returns whether a rank has closed its [`RankSocket`], which happens when its process exits. The result is also
    /// true if the rank has not bound the socket yet, so call this only after the fence of the start.
    pub(super) fn has_exited(&self, rank: u32) -> bool {
        // If this socket can be bound to the name of the rank's socket, the kernel has closed the rank's socket.
        let name = SocketAddr::from_abstract_name(self.names.of_rank(rank));
        name.and_then(|name| UnixListener::bind_addr(&name)).is_ok()
    }

    /// Returns whether a process waits for [`accept`](Self::accept).
    pub(super) fn has_waiting(&self) -> bool {
        poll(&mut [PollFd::new(&self.listener, PollFlags::IN)], Some(&Timespec::default())) == Ok(1)
    }

    /// Accepts the next process of this user that has a rank; `None` if no other waits.
    ///
    /// # Errors
    /// This process lacks a descriptor or memory, so the processes that wait stay in the queue.
    pub(super) fn accept(&self) -> io::Result<Option<Arrival>> {
        loop {
            let (stream, from) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(e) => return Err(e),
            };
            let rank = from.as_abstract_name().and_then(|name| self.names.rank_of(name));
            if let (Some(rank), Ok(pid)) = (rank, check_user(&stream)) {
                return Ok(Some(Arrival { rank, pid, stream }));
            }
        }
    }
}

impl AsFd for LocalListener {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

const CONNECT: &str = "connect to the agent of this host";

fn cannot_connect(error: rustix::io::Errno) -> String {
    failed(CONNECT, &io::Error::from(error))
}

/// The socket of a process that is not connected to the agent of its host yet.
#[derive(Debug)]
pub(in crate::boot) struct RankSocket {
    socket: OwnedFd,
    agent: SocketAddrUnix,
}

impl RankSocket {
    /// Creates the socket of a rank. [`connect`](Self::connect) then needs no further descriptor. While the socket is
    /// open, the agent knows that this process [has not exited](LocalListener::has_exited).
    ///
    /// # Errors
    /// Another process has this rank, or the system lacks a resource.
    pub(in crate::boot) fn bind(names: &LocalNames, rank: u32) -> Result<RankSocket, String> {
        let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
        let socket =
            rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None).map_err(cannot_connect)?;
        let name = |name: &str| SocketAddrUnix::new_abstract_name(name.as_bytes()).map_err(cannot_connect);
        rustix::net::bind(&socket, &name(&names.of_rank(rank))?).map_err(|e| {
            match io::Error::from(e).kind() {
                ErrorKind::AddrInUse => format!(
                    "another process of this job has rank {rank} as well; a program that a rank starts must not \
                     inherit the variables of the process manager (set MPJ_LAUNCHER=none)"
                ),
                _ => cannot_connect(e),
            }
        })?;
        Ok(RankSocket { socket, agent: name(&names.base)? })
    }

    /// Connects to the agent of the host.
    ///
    /// # Errors
    /// The agent has exited, or belongs to another user.
    pub(in crate::boot) fn connect(self) -> Result<UnixStream, String> {
        rustix::net::connect(&self.socket, &self.agent).map_err(cannot_connect)?;
        let stream = UnixStream::from(self.socket);
        check_user(&stream).map_err(|why| format!("cannot {CONNECT}: {why}"))?;
        Ok(stream)
    }
}

/// Returns the process id of the other end, or 0 (see [`peer_of_unix`]); it must belong to the user of this process.
pub(in crate::boot) fn check_user(stream: &UnixStream) -> Result<i32, String> {
    let (user, process) = peer_of_unix(stream).map_err(|e| e.to_string())?;
    if user == rustix::process::getuid().as_raw() {
        Ok(process)
    } else {
        Err(format!("it belongs to user {user}"))
    }
}

fn failed(what: &str, error: &dyn fmt::Display) -> String {
    format!("cannot {what}: {error}")
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use rustix::process::Uid;

    use super::*;

    /// A user that this process is not.
    const OTHER_USER: u32 = 54_321;

    fn connect(names: &LocalNames, rank: u32) -> Result<UnixStream, String> {
        RankSocket::bind(names, rank)?.connect()
    }

    fn names(test: &str) -> LocalNames {
        LocalNames::new(&format!("{test}-{}", std::process::id()), HostId(3))
    }

    #[test]
    fn agent_learns_the_ranks_of_its_processes() {
        let names = names("ranks");
        let listener = LocalListener::bind(names.clone()).unwrap();
        let mut streams: Vec<_> = [0, 70_000].map(|rank| connect(&names, rank).unwrap()).into();
        for (rank, mut stream) in [0, 70_000].into_iter().zip(streams.drain(..)) {
            let mut arrival = listener.accept().unwrap().expect("a process waits");
            assert_eq!((arrival.rank, arrival.pid as u32), (rank, std::process::id()));
            arrival.stream.write_all(&[rank as u8]).unwrap();
            let mut got = [0];
            stream.read_exact(&mut got).unwrap();
            assert_eq!(got, [rank as u8]);
        }
        assert!(listener.accept().unwrap().is_none());
    }

    #[test]
    fn socket_of_a_rank_is_free_until_it_is_bound() {
        let names = names("free");
        assert!(names.is_free(3));
        let socket = RankSocket::bind(&names, 3).unwrap();
        assert!(!names.is_free(3) && names.is_free(33));
        drop(socket);
        assert!(names.is_free(3));
    }

    #[test]
    fn second_process_with_a_rank_is_rejected() {
        let names = names("twice");
        let _listener = LocalListener::bind(names.clone()).unwrap();
        let _first = connect(&names, 5).unwrap();
        let why = connect(&names, 5).unwrap_err();
        assert!(why.starts_with("another process of this job has rank 5 as well"), "{why}");
    }

    #[test]
    fn strangers_without_a_rank_are_ignored() {
        let names = names("strangers");
        let listener = LocalListener::bind(names.clone()).unwrap();
        let at = SocketAddr::from_abstract_name(&names.base).unwrap();
        let mut stranger = UnixStream::connect_addr(&at).unwrap();
        let _member = connect(&names, 1).unwrap();
        assert_eq!(listener.accept().unwrap().map(|arrival| arrival.rank), Some(1));
        assert_eq!(stranger.read(&mut [0]).unwrap(), 0, "the stranger's connection was closed");
        let other = LocalNames::new("another job", HostId(3));
        assert!(connect(&other, 1).unwrap_err().contains("cannot connect to the agent of this host"));
    }

    /// Runs `call` on a thread of another user, as which the kernel reports the sockets of the thread. Returns `None`,
    /// and prints why, if this process must not become another user.
    fn as_another_user<T: Send>(call: impl FnOnce() -> T + Send) -> Option<T> {
        let run = move || rustix::thread::set_thread_uid(Uid::from_raw(OTHER_USER)).map(|()| call());
        let done = std::thread::scope(|scope| scope.spawn(run).join().unwrap());
        let report = |why: &_| drop(writeln!(io::stderr(), "SKIPPED, no other user: {why}"));
        done.inspect_err(report).ok()
    }

    #[test]
    fn processes_of_another_user_are_refused() {
        let names = names("user");
        let listener = LocalListener::bind(names.clone()).unwrap();
        // Without the check of the process itself.
        let connect_unchecked = || {
            let RankSocket { socket, agent } = RankSocket::bind(&names, 6).unwrap();
            rustix::net::connect(&socket, &agent).unwrap();
            UnixStream::from(socket)
        };
        let Some(mut stranger) = as_another_user(connect_unchecked) else { return };
        assert!(listener.accept().unwrap().is_none());
        assert_eq!(stranger.read(&mut [0]).unwrap(), 0, "the connection was closed");
        drop(stranger);
        let why = as_another_user(|| connect(&names, 6)).unwrap().unwrap_err();
        let user = rustix::process::getuid().as_raw();
        assert_eq!(why, format!("cannot connect to the agent of this host: it belongs to user {user}"));
        // The same socket of this user.
        let _member = connect(&names, 6).unwrap();
        let ranks: Vec<u32> = std::iter::from_fn(|| listener.accept().unwrap()).map(|a| a.rank).collect();
        assert_eq!(ranks, [6]);
    }

    #[test]
    fn agent_of_another_user_is_refused() {
        let names = names("agent-user");
        let Some(listener) = as_another_user(|| LocalListener::bind(names.clone())) else { return };
        let why = connect(&names, 6).unwrap_err();
        assert_eq!(why, format!("cannot connect to the agent of this host: it belongs to user {OTHER_USER}"));
        drop(listener);
    }
}
