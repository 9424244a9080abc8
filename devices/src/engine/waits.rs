//! What the threads of a rank wait for, so that a job that hangs can say where.
//!
//! A thread is entered when it is about to sleep for the first time, and not before: a wait that ends by polling costs
//! nothing more.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::channel::Channel;
use super::{Engine, lock};
use crate::matching::{ANY_SOURCE, ANY_TAG};
use crate::trace::Value;

/// What a call waits for, as its user would say it.
#[derive(Clone, Debug)]
pub struct Wait {
    call: &'static str,
    channel: Option<Arc<Channel>>,
    message: Option<Expected>,
    others: usize,
}

/// Which message: from or to which rank of the channel, and its tag.
#[derive(Clone, Copy, Debug)]
struct Expected {
    way: &'static str,
    peer: i32,
    tag: i32,
}

impl Wait {
    /// A call that waits for no message in particular.
    pub fn call(call: &'static str) -> Self {
        Wait { call, channel: None, message: None, others: 0 }
    }

    /// A call that all members of a channel take part in.
    pub fn collective(call: &'static str, channel: &Arc<Channel>) -> Self {
        Wait { channel: Some(Arc::clone(channel)), ..Wait::call(call) }
    }

    /// A call that waits for a message to be received by rank `peer`.
    pub fn send(call: &'static str, channel: &Arc<Channel>, peer: i32, tag: i32) -> Self {
        let message = Some(Expected { way: "to", peer, tag });
        Wait { message, ..Wait::collective(call, channel) }
    }

    /// A call that waits for a message from rank `peer`, or from anybody.
    pub fn recv(call: &'static str, channel: &Arc<Channel>, peer: i32, tag: i32) -> Self {
        let message = Some(Expected { way: "from", peer, tag });
        Wait { message, ..Wait::collective(call, channel) }
    }

    /// The same, together with so many others.
    pub fn with_others(self, others: usize) -> Self {
        Wait { others, ..self }
    }

    /// Tells a trace its name, and what it waits for.
    pub(crate) fn told(&self) -> ([&'static str; 2], [(&'static str, Value); 5]) {
        const NONE: (&str, Value) = ("", Value::Number(0));
        let channel = self.channel.as_ref();
        let (mut peer, mut tag) = (NONE, NONE);
        if let Some(message) = self.message {
            let rank = |channel: &Arc<Channel>| channel.group().peer(u32::try_from(message.peer).ok()?);
            let of_world = channel.and_then(rank).map(|peer| Value::Number(peer.0.into()));
            peer = (message.way, of_world.unwrap_or(Value::Text("any rank")));
            tag =
                ("tag", if message.tag == ANY_TAG { Value::Text("any") } else { Value::Signed(message.tag) });
        }
        let context = channel.map_or(NONE, |channel| ("context", Value::Number(channel.context())));
        let ranks = channel.map_or(NONE, |channel| ("ranks", Value::Number(channel.group().size().into())));
        let others = if self.others == 0 { NONE } else { ("and others", Value::Number(self.others as u64)) };
        // A collective that waits is a part of its call.
        let prefix = if self.message.is_some() { "" } else { "wait: " };
        ([prefix, self.call], [peer, tag, context, ranks, others])
    }

    /// Writes it for people; a communicator of `world` ranks is all of them.
    fn tell(&self, f: &mut fmt::Formatter<'_>, world: u32) -> fmt::Result {
        f.write_str(self.call)?;
        if let Some(Expected { way, peer, tag }) = self.message {
            match peer {
                ANY_SOURCE => write!(f, " {way} any rank")?,
                peer => write!(f, " {way} rank {peer}")?,
            }
            match tag {
                ANY_TAG => f.write_str(" with any tag")?,
                tag => write!(f, " with tag {tag}")?,
            }
        }
        let Some(group) = self.channel.as_ref().map(|channel| channel.group()) else { return Ok(()) };
        if group.size() != world {
            write!(f, " in a communicator of {} ranks", group.size())?;
            let peer = self.message.and_then(|message| group.peer(u32::try_from(message.peer).ok()?));
            if let Some(peer) = peer {
                write!(f, ", that is rank {} of the world", peer.0)?;
            }
        }
        match self.others {
            0 => Ok(()),
            1 => f.write_str(", and one more"),
            others => write!(f, ", and {others} more"),
        }
    }
}

/// A thread that waits: for what, and for how long.
#[derive(Clone, Debug)]
pub struct Waiting {
    wait: Wait,
    world: u32,
    since: Instant,
}

impl Waiting {
    /// Returns for how long the thread has been waiting.
    pub fn elapsed(&self) -> Duration {
        self.since.elapsed()
    }
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.wait.tell(f, self.world)?;
        write!(f, ", for {:.1} s", self.elapsed().as_secs_f64())
    }
}

/// The waits of a rank's threads that have begun to sleep.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    next: AtomicU64,
    asleep: Mutex<Vec<(u64, Wait, Instant)>>,
}

/// An entry, until it is dropped.
pub(crate) struct Entered<'a> {
    waits: &'a Waits,
    id: u64,
}

impl Waits {
    pub(crate) fn enter(&self, wait: Wait) -> Entered<'_> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        lock(&self.asleep).push((id, wait, Instant::now()));
        Entered { waits: self, id }
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let mut asleep = lock(&self.waits.asleep);
        let at = asleep.iter().position(|(id, ..)| *id == self.id);
        let left = at.map(|at| asleep.swap_remove(at));
        drop(asleep);
        // Its channel may be the last handle.
        drop(left);
    }
}

impl Engine {
    /// Returns what the threads of this rank wait for, those that have waited longest first; empty if none sleeps in a
    /// call.
    pub fn waits(&self) -> Vec<Waiting> {
        let world = self.site.size;
        let asleep = lock(&self.waits.asleep).clone();
        let mut waiting: Vec<Waiting> =
            asleep.into_iter().map(|(_, wait, since)| Waiting { wait, world, since }).collect();
        waiting.sort_by_key(|waiting| waiting.since);
        waiting
    }
}
