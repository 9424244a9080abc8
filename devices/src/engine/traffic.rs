//! Counters of a rank's traffic. The fast path updates them under locks that it holds anyway.

use std::fmt;
use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Engine, lock};
use crate::matching::{Unexpected, UnexpectedBody};

/// A number of messages or pieces and their bytes. The byte count saturates at `u64::MAX`: if the items of a message
/// overlap, the message can be longer than memory.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Count {
    /// Number of items.
    pub number: u64,
    /// Total number of bytes.
    pub bytes: u64,
}

impl Count {
    #[inline]
    pub(crate) fn add(&mut self, bytes: usize) {
        self.number += 1;
        self.bytes = self.bytes.saturating_add(bytes as u64);
    }
}

impl AddAssign for Count {
    fn add_assign(&mut self, other: Count) {
        self.number += other.number;
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} B)", self.number, self.bytes)
    }
}

/// Traffic of a rank through one device.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Traffic {
    /// Messages sent eagerly, copied through the device.
    pub eager: Count,
    /// Messages sent by the rendezvous protocol: the receiver gets the body, requests it, or views it.
    pub rendezvous: Count,
    /// Bodies, or pieces of them, that the device moves by itself: gets, zero-copy sends, and views in place.
    pub zero_copy: Count,
    /// Memory that was newly registered with the device.
    pub registered: Count,
    /// Bodies, or pieces of them, copied into the device or out of it, by this rank or by the operating system for it,
    /// including copies directly from or to the user's memory, but not `zero_copy` transfers.
    pub copied: Count,
}

impl AddAssign for Traffic {
    fn add_assign(&mut self, other: Traffic) {
        self.eager += other.eager;
        self.rendezvous += other.rendezvous;
        self.zero_copy += other.zero_copy;
        self.registered += other.registered;
        self.copied += other.copied;
    }
}

/// Traffic within the rank: a part of [`Stats`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LocalTraffic {
    /// Messages of the rank to itself; each counts as one copy. A second copy, out of a buffer, counts as `unexpected`.
    pub to_self: Count,
    /// Bodies of unexpected messages that were copied out of their buffers.
    pub unexpected: Count,
}

impl LocalTraffic {
    /// Counts the copy of an unexpected message that is received, if its body was buffered here.
    #[inline]
    pub(crate) fn note_unexpected(&mut self, unexpected: &Unexpected) {
        if let UnexpectedBody::Inline(_) | UnexpectedBody::Block(_) = unexpected.body {
            self.unexpected.add(unexpected.message.bytes);
        }
    }
}

impl AddAssign for LocalTraffic {
    fn add_assign(&mut self, other: LocalTraffic) {
        self.to_self += other.to_self;
        self.unexpected += other.unexpected;
    }
}

/// The traffic of a rank since it started, see [`Engine::stats`].
#[derive(Clone, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct Stats {
    /// For each device, its name and its traffic.
    pub devices: Vec<(&'static str, Traffic)>,
    /// Traffic within the rank.
    pub local: LocalTraffic,
}

impl Stats {
    /// Returns the copies of bodies that this rank has made through devices, to itself, or out of buffers of unexpected
    /// messages. Copies between user memory and bounce buffers are not counted.
    pub fn copies(&self) -> Count {
        let mut all = self.local.to_self;
        all += self.local.unexpected;
        self.devices.iter().for_each(|(_, traffic)| all += traffic.copied);
        all
    }
}

impl fmt::Display for Stats {
    /// Writes one line for each device with traffic, and one for the rest.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, traffic) in self.devices.iter().filter(|(_, traffic)| *traffic != Traffic::default()) {
            let Traffic { eager, rendezvous, zero_copy, registered, copied } = traffic;
            write!(f, "{name}: eager {eager}, rendezvous {rendezvous}, zero-copy {zero_copy}, ")?;
            writeln!(f, "registered {registered}, copied {copied}")?;
        }
        let LocalTraffic { to_self, unexpected } = self.local;
        write!(f, "to self {to_self}, unexpected copied out {unexpected}, copies in total {}", self.copies())
    }
}

/// Bodies copied out of one device; written only by the holder of the progress lock.
#[derive(Debug, Default)]
pub(super) struct AtomicCount {
    number: AtomicU64,
    bytes: AtomicU64,
}

impl AtomicCount {
    #[inline]
    pub(super) fn add(&self, bytes: usize) {
        if bytes > 0 {
            self.number.store(self.number.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            self.bytes.store(self.bytes.load(Ordering::Relaxed) + bytes as u64, Ordering::Relaxed);
        }
    }

    fn read(&self) -> Count {
        Count { number: self.number.load(Ordering::Relaxed), bytes: self.bytes.load(Ordering::Relaxed) }
    }
}

impl Engine {
    /// Returns the traffic of this rank since it started. The counters are not read atomically together.
    pub fn stats(&self) -> Stats {
        let traffic = |copied: &AtomicCount| Traffic { copied: copied.read(), ..Traffic::default() };
        let names = self.devices.iter().map(|device| device.name());
        let mut devices: Vec<(&'static str, Traffic)> =
            names.zip(self.copied_by_device.iter().map(traffic)).collect();
        for peer in self.peers.iter() {
            if let Some((_, traffic)) = peer.device.get().and_then(|at| devices.get_mut(*at)) {
                *traffic += peer.outbox().sent;
            }
        }
        let mut local = *lock(&self.freed_traffic);
        self.all_channels().iter().for_each(|channel| local += channel.matching().local);
        Stats { devices, local }
    }
}
