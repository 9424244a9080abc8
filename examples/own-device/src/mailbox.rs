//! A third-party device: each rank has a mailbox, a locked queue of whole frames.
//!
//! The device only moves frames: `mpj` implements the protocols, collectives and failure detection above it.

use std::collections::{HashMap, VecDeque};
use std::mem::MaybeUninit;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mpj::config::Config;
use mpj::devices::device::{Body, PostError};
use mpj::devices::{
    Address, Affinity, Caps, Device, Doorbell, Driver, Inlet, Endpoint, OpenError, Opened, PeerId, Sink, Site,
};

const NAME: &str = "mailbox";

/// The longest body of a frame, and the longest eager message.
const FRAME: usize = 32 << 10;

/// The maximum number of frames in a mailbox.
const FULL: usize = 64;

/// The driver: the mailboxes of the ranks of this process.
#[derive(Clone, Debug, Default)]
pub struct Mailboxes(Arc<Mutex<HashMap<u32, Arc<Mailbox>>>>);

#[derive(Debug)]
struct Mailbox {
    bell: Arc<Doorbell>,
    state: Mutex<MailboxState>,
}

#[derive(Debug, Default)]
struct MailboxState {
    frames: VecDeque<Frame>,
    /// Doorbells of the senders that found the mailbox full. They are rung when it has room.
    waiting: Vec<Arc<Doorbell>>,
}

#[derive(Debug)]
struct Frame {
    from: PeerId,
    head: Vec<u8>,
    body: Vec<u8>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

// SAFETY: `open` creates the device and its inlet together.
unsafe impl Driver for Mailboxes {
    fn name(&self) -> &'static str {
        NAME
    }

    fn open(&self, site: &Site, _config: &Config) -> Result<Opened, OpenError> {
        let refuse = |why: &str| OpenError { device: NAME, why: why.into() };
        if site.lane.index != 0 {
            return Err(refuse("only lane 0 is supported"));
        }
        let own = Arc::new(Mailbox { bell: Arc::clone(&site.bell), state: Mutex::default() });
        lock(&self.0).insert(site.rank, Arc::clone(&own));
        let device = MailDevice {
            me: PeerId(site.rank),
            bell: Arc::clone(&site.bell),
            all: self.clone(),
            caps: Caps::frames(FRAME, FRAME),
        };
        Ok(Opened { device: Box::new(device), inlet: Box::new(MailInlet { own }) })
    }
}

#[derive(Debug)]
struct MailDevice {
    me: PeerId,
    bell: Arc<Doorbell>,
    all: Mailboxes,
    caps: Caps,
}

// SAFETY: the device only reads user memory, and only during a call of `post`.
unsafe impl Device for MailDevice {
    fn name(&self) -> &'static str {
        NAME
    }

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn address(&self) -> Address {
        // The address identifies the process and its map of mailboxes: another process has other mailboxes.
        Address(
            [std::process::id() as usize, Arc::as_ptr(&self.all.0).addr()].map(usize::to_le_bytes).concat(),
        )
    }

    fn affinity(&self, peer: &Address) -> Option<Affinity> {
        // Higher than the affinity of every `mpj` device, so that this device is chosen.
        (*peer == self.address()).then_some(Affinity(1000))
    }

    fn connect(&self, peer: PeerId, _at: &Address) -> Result<Box<dyn Endpoint>, OpenError> {
        let to = lock(&self.all.0).get(&peer.0).cloned();
        let to = to.ok_or_else(|| OpenError { device: NAME, why: format!("{peer:?} has no mailbox") })?;
        Ok(Box::new(MailEndpoint { me: self.me, bell: Arc::clone(&self.bell), to }))
    }
}

#[derive(Debug)]
struct MailEndpoint {
    me: PeerId,
    bell: Arc<Doorbell>,
    to: Arc<Mailbox>,
}

impl Endpoint for MailEndpoint {
    fn post(&mut self, head: &[u8], body: Body<'_>) -> Result<(), PostError> {
        let mut state = lock(&self.to.state);
        if state.frames.len() >= FULL {
            state.waiting.push(Arc::clone(&self.bell));
            return Err(PostError::Again);
        }
        state.frames.push_back(Frame { from: self.me, head: head.to_vec(), body: bytes(body) });
        drop(state);
        self.to.bell.ring();
        Ok(())
    }
}

fn bytes(body: Body<'_>) -> Vec<u8> {
    let len = body.len();
    match body {
        Body::Empty => Vec::new(),
        Body::Bytes(bytes) => bytes.to_vec(),
        Body::Chain(pieces) => pieces.flatten().copied().collect(),
        Body::Packed(fill) => {
            let mut room = vec![MaybeUninit::new(0); len];
            fill.write(&mut room);
            // SAFETY: every byte was initialised above; `fill` only overwrites bytes.
            room.into_iter().map(|byte| unsafe { byte.assume_init() }).collect()
        }
    }
}

#[derive(Debug)]
struct MailInlet {
    own: Arc<Mailbox>,
}

// SAFETY: it delivers only whole frames.
unsafe impl Inlet for MailInlet {
    fn progress(&mut self, sink: &mut dyn Sink) -> usize {
        // Take the frames out before delivering them, because the sink may post.
        let (frames, waiting) = {
            let mut state = lock(&self.own.state);
            (std::mem::take(&mut state.frames), std::mem::take(&mut state.waiting))
        };
        waiting.iter().for_each(|bell| bell.ring());
        let count = frames.len();
        frames.into_iter().for_each(|Frame { from, head, body }| sink.frame(from, &head, &body));
        count
    }
}
