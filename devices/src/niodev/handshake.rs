//! The handshake in which two ranks prove to each other that they have the job's key, as a state machine without I/O.
//!
//! README.md in this folder shows the messages. In `mpj`, agents use this handshake too, with hosts in place of ranks,
//! and so do ranks at a rendezvous. A proof is an HMAC-SHA256 under the job's secret over the purpose, the role, the
//! version, the job, both ranks and both nonces. So it is valid only for one connection and one of its ends.

use std::sync::Arc;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::site::JobKey;

const VERSION: u8 = 2;
const HELLO_MARK: [u8; 5] = [b'M', b'P', b'J', b'>', VERSION];
const CHALLENGE_MARK: [u8; 5] = [b'M', b'P', b'J', b'<', VERSION];

const NONCE: usize = 32;
const MAC: usize = 32;
const HELLO: usize = 24 + NONCE;
const CHALLENGE: usize = 8 + NONCE + MAC;

const GO: u8 = b'G';
const TAKEN: u8 = b'T';
const FULL: u8 = b'F';

pub type Nonce = [u8; NONCE];

#[derive(Debug)]
pub struct Identity {
    pub key: Arc<JobKey>,
    pub rank: u32,
    pub size: u32,
    /// The protocol that follows the handshake: proofs for other protocols are invalid.
    pub purpose: &'static [u8],
}

/// The [purpose](Identity::purpose) of connections between ranks.
pub(super) const NIODEV: &[u8] = b"mpj niodev";

/// The reason why the other side was rejected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The other side does not follow this protocol, or uses another version.
    Noise,
    /// The other side belongs to another job.
    Job,
    /// The hello claims this rank or a rank that does not exist, or is for another rank.
    Rank,
    /// The other side does not have the key.
    Key,
}

/// The accepting rank's decision about a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    Accept,
    /// The pair has another connection, will have one soon, or can no longer have one.
    Duplicate,
    /// The accepting rank has no descriptor for it.
    Full,
}

impl Verdict {
    pub fn to_byte(self) -> u8 {
        match self {
            Verdict::Accept => GO,
            Verdict::Duplicate => TAKEN,
            Verdict::Full => FULL,
        }
    }
}

/// The action that received bytes require.
#[derive(Debug)]
pub enum HandshakeAction {
    ReadMore,
    Send(Vec<u8>),
    /// The connecting side has proved its identity; this side must send a verdict.
    PeerProven,
    /// The verdict has arrived.
    Decided(Verdict),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Await {
    Hello,
    Challenge,
    Proof,
    Verdict,
}

#[derive(Debug)]
pub struct Handshake {
    id: Arc<Identity>,
    awaits: Await,
    /// The connecting rank and the accepting one, and their nonces.
    pair: (u32, u32),
    nonces: (Nonce, Nonce),
    buffer: [u8; CHALLENGE],
    filled: usize,
}

impl Handshake {
    /// Starts on the connecting side; returns the hello to send.
    pub fn connect(id: Arc<Identity>, to: u32, nonce: Nonce) -> (Self, Vec<u8>) {
        let mut hello = Vec::with_capacity(HELLO);
        hello.extend_from_slice(&HELLO_MARK);
        hello.extend_from_slice(&[0; 3]);
        hello.extend_from_slice(&id.key.job.to_le_bytes());
        hello.extend_from_slice(&id.rank.to_le_bytes());
        hello.extend_from_slice(&to.to_le_bytes());
        hello.extend_from_slice(&nonce);
        let pair = (id.rank, to);
        (Handshake::new(id, Await::Challenge, pair, (nonce, [0; NONCE])), hello)
    }

    pub fn accept(id: Arc<Identity>, nonce: Nonce) -> Self {
        let pair = (u32::MAX, id.rank);
        Handshake::new(id, Await::Hello, pair, ([0; NONCE], nonce))
    }

    fn new(id: Arc<Identity>, awaits: Await, pair: (u32, u32), nonces: (Nonce, Nonce)) -> Self {
        Handshake { id, awaits, pair, nonces, buffer: [0; CHALLENGE], filled: 0 }
    }

    /// Returns the connecting rank; `u32::MAX` on the accepting side before the hello.
    pub fn from(&self) -> u32 {
        self.pair.0
    }

    /// Returns the rank that the other side claims, once this side has received a valid hello.
    pub fn claimed_rank(&self) -> Option<u32> {
        (self.awaits == Await::Proof).then_some(self.pair.0)
    }

    /// Returns whether this side connects and has accepted the proof of the other side, so that it awaits the verdict.
    pub fn awaits_verdict(&self) -> bool {
        self.awaits == Await::Verdict
    }

    /// Returns the buffer for the next bytes. Its length is the number of bytes that the current message still lacks.
    pub fn room(&mut self) -> &mut [u8] {
        let end = match self.awaits {
            Await::Hello => HELLO,
            Await::Challenge => CHALLENGE,
            Await::Proof => MAC,
            Await::Verdict => 1,
        };
        &mut self.buffer[self.filled..end]
    }

    /// Processes `count` bytes that were written to the [`room`](Self::room).
    pub fn received(&mut self, count: usize) -> Result<HandshakeAction, Refusal> {
        let whole = count >= self.room().len();
        self.filled += count;
        let said = &self.buffer[..self.filled];
        match self.awaits {
            Await::Hello if !matches_mark(said, &HELLO_MARK) => return Err(Refusal::Noise),
            Await::Challenge if !matches_mark(said, &CHALLENGE_MARK) => return Err(Refusal::Noise),
            _ if !whole => return Ok(HandshakeAction::ReadMore),
            _ => (),
        }
        self.filled = 0;
        match self.awaits {
            Await::Hello => self.on_hello(),
            Await::Challenge => self.on_challenge(),
            Await::Proof => {
                self.check(Role::Connects, self.buffer.first_chunk())?;
                Ok(HandshakeAction::PeerProven)
            }
            Await::Verdict => match self.buffer[0] {
                GO => Ok(HandshakeAction::Decided(Verdict::Accept)),
                TAKEN => Ok(HandshakeAction::Decided(Verdict::Duplicate)),
                FULL => Ok(HandshakeAction::Decided(Verdict::Full)),
                _ => Err(Refusal::Noise),
            },
        }
    }

    fn on_hello(&mut self) -> Result<HandshakeAction, Refusal> {
        let said = &self.buffer;
        let (job, from, to) = (field(said, 8), field(said, 16), field(said, 20));
        let (job, from, to) = (u64::from_le_bytes(job), u32::from_le_bytes(from), u32::from_le_bytes(to));
        if job != self.id.key.job {
            return Err(Refusal::Job);
        }
        if to != self.id.rank || from == self.id.rank || from >= self.id.size {
            return Err(Refusal::Rank);
        }
        self.pair.0 = from;
        self.nonces.0 = field(said, 24);
        self.awaits = Await::Proof;
        let mut challenge = Vec::with_capacity(CHALLENGE);
        challenge.extend_from_slice(&CHALLENGE_MARK);
        challenge.extend_from_slice(&[0; 3]);
        challenge.extend_from_slice(&self.nonces.1);
        challenge.extend_from_slice(&self.mac(Role::Accepts)?.finalize().into_bytes());
        Ok(HandshakeAction::Send(challenge))
    }

    fn on_challenge(&mut self) -> Result<HandshakeAction, Refusal> {
        self.nonces.1 = field(&self.buffer, 8);
        self.check(Role::Accepts, self.buffer.last_chunk())?;
        self.awaits = Await::Verdict;
        Ok(HandshakeAction::Send(self.mac(Role::Connects)?.finalize().into_bytes().to_vec()))
    }

    fn check(&self, role: Role, proof: Option<&[u8; MAC]>) -> Result<(), Refusal> {
        // `verify_slice` compares in constant time.
        self.mac(role)?.verify_slice(proof.ok_or(Refusal::Key)?).map_err(|_| Refusal::Key)
    }

    fn mac(&self, role: Role) -> Result<Hmac<Sha256>, Refusal> {
        // HMAC accepts a key of any length, so this does not fail.
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.id.key.secret).map_err(|_| Refusal::Key)?;
        mac.update(self.id.purpose);
        mac.update(&[role as u8, VERSION]);
        mac.update(&self.id.key.job.to_le_bytes());
        mac.update(&self.pair.0.to_le_bytes());
        mac.update(&self.pair.1.to_le_bytes());
        mac.update(&self.nonces.0);
        mac.update(&self.nonces.1);
        Ok(mac)
    }
}

#[derive(Clone, Copy, Debug)]
#[repr(u8)]
enum Role {
    Connects = 1,
    Accepts = 2,
}

/// Returns whether the bytes are a prefix of `mark`, or begin with it.
fn matches_mark(said: &[u8], mark: &[u8]) -> bool {
    said.iter().zip(mark).all(|(a, b)| a == b)
}

fn field<const N: usize>(message: &[u8; CHALLENGE], at: usize) -> [u8; N] {
    message.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
}
