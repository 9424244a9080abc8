//! A rank other than rank 0 at a rendezvous.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mpj_devices::handshake::Identity;
use mpj_devices::network::connect_order;

use super::messages::{FromServer, Joining, ToServer, limit_silence, truncated};
use super::{Placement, Rendezvous, TIMEOUT_NAME, own_place};
use crate::boot::backoff::Backoff;
use crate::boot::proven::{ConnectError, connect_with_proof};
use crate::boot::wire::{FrameDecoder, ProtocolVersion, encode_frame};

/// The number of consecutive attempts that reach a process with another key after which this process gives up. Rank 0
/// of an earlier job might still listen for a moment.
const MAX_WRONG_KEYS: u32 = 4;

/// The time that a rank waits after the time limit of rank 0, so that rank 0 can report the missing ranks to it.
const REPORT_TIME: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct RendezvousClient {
    stream: TcpStream,
    frames: FrameDecoder,
    at: String,
    timeout: Duration,
    values: Vec<(String, String)>,
}

impl RendezvousClient {
    /// Connects to rank 0, which may start later, and whose name may be unknown until then; and joins.
    ///
    /// # Errors
    /// Rank 0 cannot be reached within the time limit, or it has another key.
    pub(super) fn connect(rendezvous: &Rendezvous) -> Result<RendezvousClient, String> {
        let Rendezvous { rank, size, address, key, host, timeout, .. } = rendezvous;
        let id = Identity { key: Arc::clone(key), rank: *rank, size: *size, purpose: super::PURPOSE };
        let stream = reach(rendezvous, &Arc::new(id))?;
        limit_silence(&stream);
        let at = address.to_string();
        let (frames, timeout) = (FrameDecoder::default(), *timeout);
        let mut client = RendezvousClient { stream, frames, at, timeout, values: Vec::new() };
        let (version, host, at) = (ProtocolVersion::own(), host.clone(), own_place());
        client.send(&ToServer::Join(Box::new(Joining { version, size: *size, host, at })))?;
        Ok(client)
    }

    /// Waits until all ranks have joined. Returns the runs of ranks on each host, and a nonce for the job.
    ///
    /// # Errors
    /// The job cannot start.
    pub(super) fn place(&mut self) -> Result<Placement, String> {
        match self.receive()? {
            FromServer::Placed { hosts, nonce } => Ok((hosts, nonce)),
            _ => Err(self.violated()),
        }
    }

    /// Waits until all ranks are ready.
    ///
    /// # Errors
    /// The job cannot start.
    pub(super) fn fence(&mut self) -> Result<(), String> {
        self.send(&ToServer::Ready)?;
        match self.receive()? {
            FromServer::Proceed { values } => self.values = values,
            _ => return Err(self.violated()),
        }
        Ok(())
    }

    pub(super) fn get(&self, key: &str) -> Result<String, String> {
        let found = self.values.iter().find(|(name, _)| name == key).map(|(_, value)| value.clone());
        found.ok_or_else(|| format!("rank 0 at {} has sent no {key}", self.at))
    }

    /// Reports that this process has connected to its agent.
    pub(super) fn joined(&mut self) {
        // If rank 0 has exited, the connection to its agent shows that.
        let _ = self.send(&ToServer::Joined);
    }

    /// Reports that this process cannot join.
    pub(super) fn failed(&mut self, why: &str) {
        // If rank 0 has exited, the job has ended.
        let _ = self.send(&ToServer::Failed(truncated(why.to_owned())));
    }

    fn violated(&self) -> String {
        format!("rank 0 at {} violated the protocol of the rendezvous", self.at)
    }

    fn send(&mut self, message: &ToServer) -> Result<(), String> {
        let frame = encode_frame(message).map_err(|e| e.to_string())?;
        self.stream
            .write_all(&frame)
            .map_err(|e| format!("the connection to rank 0 at {} is broken: {e}", self.at))
    }

    fn receive(&mut self) -> Result<FromServer, String> {
        let until = Instant::now() + self.timeout + REPORT_TIME;
        loop {
            if let Some(message) = self.frames.next().map_err(|e| format!("{}: {e}", self.violated()))? {
                return match message {
                    FromServer::Refused(why) => Err(truncated(why)),
                    message => Ok(message),
                };
            }
            let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            let mut bytes = [0; 4096];
            let received =
                self.stream.set_read_timeout(Some(left)).and_then(|()| self.stream.read(&mut bytes));
            match received {
                Ok(0) => return Err(format!("rank 0 at {} has exited while the job started", self.at)),
                Ok(count) => self.frames.push(&bytes[..count]),
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) if until <= Instant::now() => {
                    return Err(format!("rank 0 at {} does not reply ({TIMEOUT_NAME})", self.at));
                }
                Err(e)
                    if matches!(e.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {}
                Err(e) => return Err(format!("the connection to rank 0 at {} is broken: {e}", self.at)),
            }
        }
    }
}

fn reach(rendezvous: &Rendezvous, id: &Arc<Identity>) -> Result<TcpStream, String> {
    let Rendezvous { rank, address, timeout, .. } = rendezvous;
    let deadline = Instant::now() + *timeout;
    let (mut backoff, mut wrong_keys) = (Backoff::new(*rank, deadline), 0);
    loop {
        let failure = match address.resolve() {
            Err(why) => why,
            Ok(at) => {
                let mut at: Vec<_> = at.collect();
                connect_order(&mut at);
                let mut failure = "it has no address".to_owned();
                let mut is_wrong_key = false;
                for at in at {
                    match connect_with_proof(at, Arc::clone(id), deadline) {
                        Ok(stream) => return Ok(stream),
                        Err(error) => {
                            is_wrong_key |= matches!(error, ConnectError::WrongKey);
                            failure = format!("{at}: {error}");
                        }
                    }
                }
                wrong_keys = if is_wrong_key { wrong_keys + 1 } else { 0 };
                failure
            }
        };
        if wrong_keys == MAX_WRONG_KEYS {
            return Err(format!(
                "rank {rank} and rank 0 at {address} have different keys: MPJ_SECRET, or the file of \
                 MPJ_SECRET_FILE, must be the same for all ranks"
            ));
        }
        if !backoff.sleep() {
            return Err(format!(
                "rank {rank} did not reach rank 0 at {address} within {} s ({failure}): check that rank 0 was \
                 started and listens there (MPJ_RENDEZVOUS), or raise {TIMEOUT_NAME}",
                timeout.as_secs_f64()
            ));
        }
    }
}
