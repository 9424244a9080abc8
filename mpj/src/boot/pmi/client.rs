//! One process's connection to its process manager.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use mpj_devices::{HostId, Hosts};
use rustix::net::RecvFlags;

use super::mapping;
use super::message::{LineDecoder, MAX_SEGMENTS, MAX_VALUE_LEN, PmiReply, join_segments, request};
use crate::boot::managed::{ProcessManager, RANK_MISSING};

/// The time that the process manager has for a reply, except to a barrier. A reply needs no other rank.
const REPLY_LIMIT: Duration = Duration::from_secs(60);

/// The advice about variables of another job.
const LEFT_OVER: &str = "if the variables PMI_* are left over from another job, unset them, or set MPJ_LAUNCHER=none to \
                         run this process as a job of its own";

const GONE: &str = "the process manager has exited or closed its connection";

/// A connection that has joined the job of a process manager.
#[derive(Debug)]
pub(crate) struct PmiClient {
    /// A stream socket of any family: only calls that all of them support are used.
    stream: UnixStream,
    lines: LineDecoder,
    /// The name of the job's key-value store, which no other job of the process manager has.
    store: String,
    rank: u32,
    size: u32,
    /// The time for the next reply.
    limit: Duration,
}

impl PmiClient {
    /// Joins by an inherited socket (`PMI_FD`). The environment states the rank and the number of ranks.
    ///
    /// # Errors
    /// The other end is not a process manager, or it refuses.
    pub(crate) fn inherited(socket: UnixStream, rank: u32, size: u32) -> Result<PmiClient, String> {
        let mut client = Self::new(socket, rank, size);
        client.init()?;
        Ok(client)
    }

    /// Joins by an address (`PMI_PORT`). The process manager states the rank and the number of ranks.
    ///
    /// # Errors
    /// The address cannot be reached, the other end is not a process manager, or it refuses.
    pub(crate) fn connect(port: &str, id: &str) -> Result<PmiClient, String> {
        let stream = connect_within(port, REPLY_LIMIT).map_err(|e| {
            format!("cannot connect to the process manager at PMI_PORT={port}: {e}; {LEFT_OVER}")
        })?;
        let mut client = Self::new(UnixStream::from(OwnedFd::from(stream)), 0, 0);
        client.call(&request("initack", &[("pmiid", id)])?, "initack")?;
        let mut rank = None;
        for _ in 0..3 {
            let set = client.reply("set")?;
            if set.get("size").is_some() {
                client.size = set.number("size").map_err(refuse)?;
            } else if set.get("rank").is_some() {
                rank = Some(set.number("rank").map_err(refuse)?);
            }
        }
        client.rank = rank.ok_or_else(|| refuse("no rank".into()))?;
        client.init()?;
        Ok(client)
    }

    fn new(stream: UnixStream, rank: u32, size: u32) -> PmiClient {
        let (lines, store, limit) = (LineDecoder::default(), String::new(), REPLY_LIMIT);
        PmiClient { stream, lines, store, rank, size, limit }
    }

    fn init(&mut self) -> Result<(), String> {
        if self.rank >= self.size {
            return Err(refuse(format!("rank {} of {} ranks", self.rank, self.size)));
        }
        // Slurm reads this request with one call, so no other request must follow before the reply. A process manager
        // may answer with a later subversion.
        let version = [("pmi_version", "1"), ("pmi_subversion", "1")];
        let reply = self.call(&request("init", &version)?, "response_to_init")?;
        let version: u32 = reply.number("pmi_version").map_err(refuse)?;
        if version != 1 {
            return Err(refuse(format!("version {version} of PMI, but this process uses version 1")));
        }
        let reply = self.call(&request("get_my_kvsname", &[])?, "my_kvsname")?;
        self.store = reply.get("kvsname").ok_or_else(|| refuse("no kvsname".into()))?.to_owned();
        Ok(())
    }

    fn get_raw(&mut self, key: &str) -> Result<String, String> {
        let fields = [("kvsname", &*self.store), ("key", key)];
        let reply = self.call(&request("get", &fields)?, "get_result")?;
        Ok(reply.get("value").ok_or_else(|| refuse(format!("no value of {key}")))?.to_owned())
    }

    fn call(&mut self, line: &[u8], reply: &str) -> Result<PmiReply, String> {
        self.stream.write_all(line).map_err(|e| gone(&e))?;
        self.reply(reply)
    }

    fn reply(&mut self, command: &str) -> Result<PmiReply, String> {
        let until = Instant::now() + self.limit;
        let line = loop {
            if let Some(line) = self.lines.take_line().map_err(refuse)? {
                break line;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let seconds = self.limit.as_secs_f32();
                return Err(format!("the process manager has sent no '{command}' for {seconds} s"));
            }
            let mut bytes = [0; 2048];
            let set = self.stream.set_read_timeout(Some(left));
            set.map_err(|e| format!("the socket of the process manager: {e}"))?;
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(GONE.into()),
                Ok(count) => self.lines.push(&bytes[..count]),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
                Err(e) => return Err(gone(&e)),
            }
        };
        let reply = PmiReply::parse(&line).map_err(refuse)?;
        reply.expect(command).map_err(refuse)?;
        Ok(reply)
    }
}

/// Connects to the first address of `port` (`host:number`) that can be reached.
fn connect_within(port: &str, limit: Duration) -> io::Result<TcpStream> {
    let until = Instant::now() + limit;
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in port.to_socket_addrs()? {
        // A limit of 0 is invalid.
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        match TcpStream::connect_timeout(&address, left) {
            Ok(stream) => return Ok(stream),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

impl ProcessManager for PmiClient {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn job(&self) -> &str {
        &self.store
    }

    fn hosts(&mut self) -> Result<Hosts, String> {
        let map = self
            .get_raw("PMI_process_mapping")
            .map_err(|why| format!("{why} (the process manager must provide PMI_process_mapping)"))?;
        let runs = mapping::place(&map, self.size)?;
        let runs = runs.into_iter().map(|(host, ranks)| (HostId(host), ranks));
        Hosts::from_runs(runs).map_err(|e| e.to_string())
    }

    fn put(&mut self, key: &str, value: &str) -> Result<(), String> {
        let room = MAX_VALUE_LEN - 2;
        let segments: Vec<&[u8]> = value.as_bytes().chunks(room).collect();
        if segments.len() > MAX_SEGMENTS {
            let limit = MAX_SEGMENTS * room;
            return Err(format!("the value of {key} has {} bytes, but the limit is {limit}", value.len()));
        }
        for (at, segment) in segments.iter().enumerate() {
            let text = str::from_utf8(segment).map_err(|_| format!("the value of {key} is not ASCII"))?;
            let (key, value) = (format!("{key}-{at}"), format!("{}:{text}", segments.len()));
            let fields = [("kvsname", &*self.store), ("key", &*key), ("value", &*value)];
            self.call(&request("put", &fields)?, "put_result")?;
        }
        Ok(())
    }

    fn get(&mut self, key: &str) -> Result<String, String> {
        let mut failure = None;
        let value = join_segments(|at| {
            self.get_raw(&format!("{key}-{at}")).map_err(|why| failure.insert(why).clone())
        });
        value.map_err(|why| failure.unwrap_or_else(|| refuse(format!("{why} of {key}"))))
    }

    fn fence(&mut self, limit: Duration) -> Result<(), String> {
        self.limit = limit;
        let begun = Instant::now();
        let reply = self.call(&request("barrier_in", &[])?, "barrier_out");
        self.limit = REPLY_LIMIT;
        reply.map_err(|why| if begun.elapsed() < limit { why } else { format!("{why}: {RANK_MISSING}") })?;
        Ok(())
    }

    fn finalize(&mut self) -> Result<(), String> {
        self.call(&request("finalize", &[])?, "finalize_ack").map(drop)
    }

    fn abort(&mut self, code: u8) -> Result<(), String> {
        let line = request("abort", &[("exitcode", &code.to_string())])?;
        self.stream.write_all(&line).map_err(|e| gone(&e))
    }

    fn sockets(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.stream.as_fd()]
    }

    fn poll(&mut self) -> Result<Vec<(u32, String)>, String> {
        // A process manager should send nothing without a request. If it does, that has no effect.
        match rustix::net::recv(&self.stream, &mut [0; 4096], RecvFlags::DONTWAIT) {
            Ok((_, 0)) => Err(GONE.into()),
            Ok(_) | Err(_) => Ok(Vec::new()),
        }
    }
}

fn gone(error: &io::Error) -> String {
    format!("the connection to the process manager is broken: {error}")
}

fn refuse(found: String) -> String {
    format!("the process manager sent {found}")
}
