//! The connection of one process to the PMIx server of its host.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use mpj_devices::Hosts;
use rustix::net::RecvFlags;

use super::buffer::{UNDESCRIBED, Unpacker};
use super::frames::{PmixFrames, frame};
use super::packer::Packer;
use super::server::{LEFT_OVER, ServerAddress};
use super::{get_reply, job_info};
use crate::boot::managed::{ProcessManager, RANK_MISSING};

/// The time that a server has for a reply that needs no other rank.
pub(super) const REPLY_LIMIT: Duration = Duration::from_secs(60);

/// The lowest tag of a request. The server uses lower ones for messages of its own.
const FIRST_TAG: u32 = 100;

/// The rank that stands for all ranks.
const ALL_RANKS: u32 = 0xffff_fffe;

/// The scope of values that every rank may read.
const GLOBAL: u8 = 3;

#[derive(Clone, Copy, Debug)]
#[repr(u8)]
enum Command {
    JobInfo = 0,
    Abort = 1,
    Commit = 2,
    Fence = 3,
    Get = 4,
    Finalize = 5,
}

/// A connection that has joined a job.
#[derive(Debug)]
pub(super) struct PmixClient {
    stream: TcpStream,
    frames: PmixFrames,
    /// The number that the server has given this client.
    client: u32,
    last_tag: u32,
    limit: Duration,
    namespace: String,
    rank: u32,
    hosts: Hosts,
    /// The name of the job on this host.
    job: String,
}

impl PmixClient {
    /// Joins the job of a server. The server has the time `limit` for each reply except that to a fence.
    ///
    /// # Errors
    /// The server cannot be reached, refuses, or sends an invalid reply.
    pub(super) fn connect(server: &ServerAddress, limit: Duration) -> Result<PmixClient, String> {
        let ServerAddress { uri, address, namespace, rank, version } = server;
        let stream = TcpStream::connect_timeout(address, limit)
            .map_err(|e| format!("cannot connect to the PMIx server {uri}: {e}; {LEFT_OVER}"))?;
        // Only speed depends on it.
        let _ = stream.set_nodelay(true);
        let mut client = PmixClient {
            stream,
            frames: PmixFrames::default(),
            client: 0,
            last_tag: FIRST_TAG,
            limit,
            namespace: namespace.clone(),
            rank: *rank,
            hosts: Hosts::single_host(0),
            // Namespaces of Open MPI 4 contain a hash of only 16 bits, but no two servers of a host have the same port.
            job: format!("{namespace} {uri}"),
        };
        client.shake_hands(version)?;
        let reply = client.call(Command::JobInfo, Packer::command(Command::JobInfo as u8), limit)?;
        client.hosts = job_info::parse(&reply).map_err(refuse)?;
        match client.rank < client.hosts.size() {
            true => Ok(client),
            false => Err(refuse(format!("a job of {} ranks to rank {rank}", client.hosts.size()))),
        }
    }

    /// Sends the identity of this process, the encoding and the store. The server closes the connection if it does not
    /// support one of them, or does not know the process.
    fn shake_hands(&mut self, version: &str) -> Result<(), String> {
        let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let mut hello = b"native\0".to_vec();
        hello.extend(8u32.to_be_bytes());
        hello.extend([user.to_ne_bytes(), group.to_ne_bytes()].concat());
        // The kind of a client that is not a tool.
        hello.push(0);
        hello.extend(
            [self.namespace.as_bytes(), b"\0", &self.rank.to_be_bytes(), version.as_bytes()].concat(),
        );
        hello.extend(b"\0v21\0");
        hello.push(UNDESCRIBED);
        hello.extend(b"hash\0");
        // This header is in the byte order of the host.
        let header = [u64::MAX.to_ne_bytes(), (hello.len() as u64).to_ne_bytes()].concat();
        self.send(&[header, hello].concat())?;
        let until = Instant::now() + self.limit;
        let status = self.handshake_number(until)?.cast_signed();
        if status != 0 {
            return Err(refuse(format!("error {status} in the handshake; {SUPPORTED}")));
        }
        self.client = self.handshake_number(until)?;
        Ok(())
    }

    fn handshake_number(&mut self, until: Instant) -> Result<u32, String> {
        loop {
            if let Some(number) = self.frames.take() {
                return Ok(u32::from_be_bytes(number));
            }
            if !self.receive("the handshake", until, self.limit)? {
                return Err(format!(
                    "the PMIx server has closed the connection in the handshake: it does not know rank {} of job {}, \
                     or does not support this client; {SUPPORTED}",
                    self.rank, self.namespace
                ));
            }
        }
    }

    fn request(&mut self, body: Packer) -> Result<u32, String> {
        self.last_tag = self.last_tag.wrapping_add(1).max(FIRST_TAG);
        let frame = frame(self.client, self.last_tag, &body.finish());
        self.send(&frame)?;
        Ok(self.last_tag)
    }

    /// Sends a request and returns the reply, for which the server has the time `limit`.
    fn call(&mut self, command: Command, body: Packer, limit: Duration) -> Result<Vec<u8>, String> {
        let wanted = self.request(body)?;
        let until = Instant::now() + limit;
        let what = format!("a reply to {command:?}");
        loop {
            while let Some((tag, body)) = self.frames.next_frame().map_err(refuse)? {
                // Other messages are events, which have no effect.
                if tag == wanted {
                    return check(command, body);
                }
            }
            if !self.receive(&what, until, limit)? {
                return Err(CLOSED.into());
            }
        }
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.stream.set_write_timeout(Some(self.limit)).map_err(|e| broken(&e))?;
        self.stream.write_all(bytes).map_err(|e| broken(&e))
    }

    /// Waits for bytes. Returns false at the end of the connection.
    fn receive(&mut self, what: &str, until: Instant, limit: Duration) -> Result<bool, String> {
        let late = || format!("the PMIx server has not sent {what} for {} s", limit.as_secs_f32());
        let mut bytes = [0; 4096];
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(late());
            }
            self.stream.set_read_timeout(Some(left)).map_err(|e| broken(&e))?;
            match self.stream.read(&mut bytes) {
                Ok(count) => {
                    self.frames.push(&bytes[..count]);
                    return Ok(count > 0);
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::ConnectionReset => return Ok(false),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return Err(late());
                }
                Err(e) => return Err(broken(&e)),
            }
        }
    }
}

impl ProcessManager for PmixClient {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.hosts.size()
    }

    fn job(&self) -> &str {
        &self.job
    }

    fn hosts(&mut self) -> Result<Hosts, String> {
        Ok(self.hosts.clone())
    }

    fn put(&mut self, key: &str, value: &str) -> Result<(), String> {
        let values = Packer::default().kval_string(key, value).finish();
        let request = Packer::command(Command::Commit as u8).byte(GLOBAL).buffer(&values);
        self.call(Command::Commit, request, self.limit).map(drop)
    }

    fn get(&mut self, key: &str) -> Result<String, String> {
        let request = Packer::command(Command::Get as u8).string(&self.namespace).rank(0).size(0).string(key);
        let reply = self.call(Command::Get, request, self.limit)?;
        get_reply::find(&reply, key).map_err(refuse)
    }

    fn fence(&mut self, limit: Duration) -> Result<(), String> {
        let request = Packer::command(Command::Fence as u8).size(1).proc(&self.namespace, ALL_RANKS);
        let request = request.size(1).info_bool("pmix.collect", true);
        let begun = Instant::now();
        let reply = self.call(Command::Fence, request, limit).map(drop);
        reply.map_err(|why| if begun.elapsed() < limit { why } else { format!("{why}: {RANK_MISSING}") })
    }

    fn finalize(&mut self) -> Result<(), String> {
        let request = Packer::command(Command::Finalize as u8).size(0);
        self.call(Command::Finalize, request, self.limit).map(drop)
    }

    fn abort(&mut self, code: u8) -> Result<(), String> {
        let request = Packer::command(Command::Abort as u8).status(code.into()).string("mpj").size(0);
        self.request(request).map(drop)
    }

    fn sockets(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.stream.as_fd()]
    }

    // Events of the server have no effect.
    fn poll(&mut self) -> Result<Vec<(u32, String)>, String> {
        let mut bytes = [0; 4096];
        // One read only: the agent does other work between the messages of a server that never pauses.
        match rustix::net::recv(&self.stream, &mut bytes, RecvFlags::DONTWAIT) {
            Ok((_, 0)) => return Err(CLOSED.into()),
            Ok((_, count)) => self.frames.push(&bytes[..count]),
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            Err(e) => return Err(broken(&e.into())),
        }
        while self.frames.next_frame().map_err(refuse)?.is_some() {}
        Ok(Vec::new())
    }
}

/// Checks the status of a reply. A reply to [`Command::JobInfo`] has a status only if it is an error; otherwise it
/// begins with a string.
fn check(command: Command, body: Vec<u8>) -> Result<Vec<u8>, String> {
    if matches!(command, Command::JobInfo) && body.len() != STATUS_LEN {
        return Ok(body);
    }
    match Unpacker::new(&body).status().map_err(refuse)? {
        0 => Ok(body),
        status => Err(refuse(format!("error {status} in reply to {command:?}"))),
    }
}

/// The number of bytes of a status as an item.
const STATUS_LEN: usize = 8;

const CLOSED: &str = "the PMIx server has exited or closed its connection";

const SUPPORTED: &str =
    "mpj uses the encoding v21, the store hash, and the security module native (not munge)";

fn broken(error: &io::Error) -> String {
    format!("the connection to the PMIx server is broken: {error}")
}

fn refuse(found: String) -> String {
    format!("the PMIx server sent {found}")
}
