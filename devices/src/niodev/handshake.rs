//! How two ranks prove to each other that they hold the job's key, as a machine that does no input or output.
//!
//! ```text
//!  connects                                              accepts
//!  HELLO      mark, version, job, from, to, nonce  ─────►
//!            ◄─────  CHALLENGE  mark, version, nonce, proof of who accepts
//!  PROOF      of who connects                      ─────►
//!            ◄─────  VERDICT    GO, TAKEN: the other connection of this pair is the one,
//!                               or FULL: there is no descriptor to keep it by
//! ```
//! A proof is HMAC-SHA256 under the job's secret over the role, the version, the job, both ranks and both nonces: it
//! fits one connection, one direction, one pair. It is compared in constant time. Nothing of the engine's is sent
//! before the verdict.

use std::sync::Arc;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::site::JobKey;

const VERSION: u8 = 1;
const HELLO_MARK: [u8; 5] = [b'M', b'P', b'J', b'>', VERSION];
const CHALLENGE_MARK: [u8; 5] = [b'M', b'P', b'J', b'<', VERSION];

const NONCE: usize = 32;
const MAC: usize = 32;
const HELLO: usize = 24 + NONCE;
const CHALLENGE: usize = 8 + NONCE + MAC;

/// A verdict on the wire.
const GO: u8 = b'G';
const TAKEN: u8 = b'T';
const FULL: u8 = b'F';

/// Random bytes that are used once.
pub(super) type Nonce = [u8; NONCE];

/// Who this rank is.
#[derive(Debug)]
pub(super) struct Identity {
    pub(super) key: Arc<JobKey>,
    pub(super) rank: u32,
    pub(super) size: u32,
}

/// Why a stranger was turned away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refusal {
    /// It does not speak this protocol, or not this version.
    Noise,
    /// It is of another job.
    Job,
    /// It claims a rank there is not, or wants another one than this.
    Rank,
    /// It does not hold the key.
    Key,
}

/// What was decided about a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// It stands.
    Go,
    /// The pair has, or is about to have, another one.
    Taken,
    /// The peer has no descriptor for it.
    Full,
}

impl Verdict {
    pub(super) fn to_byte(self) -> u8 {
        match self {
            Verdict::Go => GO,
            Verdict::Taken => TAKEN,
            Verdict::Full => FULL,
        }
    }
}

/// What follows from bytes that came.
#[derive(Debug)]
pub(super) enum Step {
    /// More must come.
    ReadMore,
    /// These bytes must be sent.
    Send(Vec<u8>),
    /// The one who connects has proved itself; a verdict is due.
    PeerProven,
    /// The verdict has come.
    Decided(Verdict),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Await {
    Hello,
    Challenge,
    Proof,
    Verdict,
}

/// One side of a handshake.
#[derive(Debug)]
pub(super) struct Handshake {
    id: Arc<Identity>,
    awaits: Await,
    /// The rank that connects and the one that accepts.
    pair: (u32, u32),
    /// Their nonces.
    nonces: (Nonce, Nonce),
    buffer: [u8; CHALLENGE],
    have: usize,
}

impl Handshake {
    /// Begins as the one who connects; returns the hello to send.
    pub(super) fn connect(id: Arc<Identity>, to: u32, nonce: Nonce) -> (Self, Vec<u8>) {
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

    /// Begins as the one who accepts.
    pub(super) fn accept(id: Arc<Identity>, nonce: Nonce) -> Self {
        let pair = (u32::MAX, id.rank);
        Handshake::new(id, Await::Hello, pair, ([0; NONCE], nonce))
    }

    fn new(id: Arc<Identity>, awaits: Await, pair: (u32, u32), nonces: (Nonce, Nonce)) -> Self {
        Handshake { id, awaits, pair, nonces, buffer: [0; CHALLENGE], have: 0 }
    }

    /// Returns the rank that connects.
    pub(super) fn from(&self) -> u32 {
        self.pair.0
    }

    /// Returns the rank that the other side says it is, after a hello that named this job.
    pub(super) fn claims(&self) -> Option<u32> {
        (self.awaits == Await::Proof).then_some(self.pair.0)
    }

    /// Whether the proof was sent and the verdict is the peer's.
    pub(super) fn awaits_verdict(&self) -> bool {
        self.awaits == Await::Verdict
    }

    /// Returns where to put what comes next: exactly as much as the message under way still lacks.
    pub(super) fn room(&mut self) -> &mut [u8] {
        let end = match self.awaits {
            Await::Hello => HELLO,
            Await::Challenge => CHALLENGE,
            Await::Proof => MAC,
            Await::Verdict => 1,
        };
        &mut self.buffer[self.have..end]
    }

    /// Takes note of `count` bytes that were put in the [`room`](Self::room).
    pub(super) fn took(&mut self, count: usize) -> Result<Step, Refusal> {
        let whole = count >= self.room().len();
        self.have += count;
        let said = &self.buffer[..self.have];
        match self.awaits {
            Await::Hello if !alike(said, &HELLO_MARK) => return Err(Refusal::Noise),
            Await::Challenge if !alike(said, &CHALLENGE_MARK) => return Err(Refusal::Noise),
            _ if !whole => return Ok(Step::ReadMore),
            _ => (),
        }
        self.have = 0;
        match self.awaits {
            Await::Hello => self.on_hello(),
            Await::Challenge => self.on_challenge(),
            Await::Proof => {
                self.check(Role::Connects, self.buffer.first_chunk())?;
                Ok(Step::PeerProven)
            }
            Await::Verdict => match self.buffer[0] {
                GO => Ok(Step::Decided(Verdict::Go)),
                TAKEN => Ok(Step::Decided(Verdict::Taken)),
                FULL => Ok(Step::Decided(Verdict::Full)),
                _ => Err(Refusal::Noise),
            },
        }
    }

    fn on_hello(&mut self) -> Result<Step, Refusal> {
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
        Ok(Step::Send(challenge))
    }

    fn on_challenge(&mut self) -> Result<Step, Refusal> {
        self.nonces.1 = field(&self.buffer, 8);
        self.check(Role::Accepts, self.buffer.last_chunk())?;
        self.awaits = Await::Verdict;
        Ok(Step::Send(self.mac(Role::Connects)?.finalize().into_bytes().to_vec()))
    }

    fn check(&self, role: Role, proof: Option<&[u8; MAC]>) -> Result<(), Refusal> {
        // Constant time: `verify_slice` looks at every byte.
        self.mac(role)?.verify_slice(proof.ok_or(Refusal::Key)?).map_err(|_| Refusal::Key)
    }

    fn mac(&self, role: Role) -> Result<Hmac<Sha256>, Refusal> {
        // A key of any length will do, so this does not fail.
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.id.key.secret).map_err(|_| Refusal::Key)?;
        mac.update(b"mpj niodev");
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

/// Whether what came so far is a beginning of `mark`, or begins with it.
fn alike(said: &[u8], mark: &[u8]) -> bool {
    said.iter().zip(mark).all(|(a, b)| a == b)
}

/// Copies a field of a message out; a field lies within the message by its constant offset.
fn field<const N: usize>(message: &[u8; CHALLENGE], at: usize) -> [u8; N] {
    message.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
}
