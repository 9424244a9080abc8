//! What a rank has moved, and how: counted where a lock is held anyway, so that it costs no more than an addition.

use std::fmt;
use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Engine, lock};
use crate::matching::{Unexpected, UnexpectedBody};

/// How many there were, and their bytes, which stay at `u64::MAX` when they would pass that: items that lie on each other
/// are a message of any length.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Count {
    /// How many.
    pub number: u64,
    /// Their bytes, in all.
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

/// What one device has moved for a rank.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Traffic {
    /// Messages sent at once, copied through the device.
    pub eager: Count,
    /// Messages announced to their receivers, which get the body or ask for it.
    pub announced: Count,
    /// Bodies, or pieces of them, that the device was told to move from or to where they lie.
    pub lent: Count,
    /// Memory that was registered with the device, and not that which the device knew already.
    pub registered: Count,
    /// Bodies, or pieces of them, copied into the device or out of it, by this rank or by the system for it, also straight to or
    /// from the user's memory. What is lent is not copied by that.
    pub copied: Count,
}

impl AddAssign for Traffic {
    fn add_assign(&mut self, other: Traffic) {
        self.eager += other.eager;
        self.announced += other.announced;
        self.lent += other.lent;
        self.registered += other.registered;
        self.copied += other.copied;
    }
}

/// What never left the rank: a part of [`Stats`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LocalTraffic {
    /// Messages to itself, each copied once, or twice if they came before their receive.
    pub to_self: Count,
    /// Bodies copied once more, out of where they waited, as they had come before their receive.
    pub unexpected: Count,
}

impl LocalTraffic {
    /// Notes the copy of a message that is received out of where it waited, if it waited here.
    #[inline]
    pub(crate) fn note_early(&mut self, early: &Unexpected) {
        if let UnexpectedBody::Inline(_) | UnexpectedBody::Block(_) = early.body {
            self.unexpected.add(early.message.bytes);
        }
    }
}

impl AddAssign for LocalTraffic {
    fn add_assign(&mut self, other: LocalTraffic) {
        self.to_self += other.to_self;
        self.unexpected += other.unexpected;
    }
}

/// What a rank has moved since it started, see [`Engine::stats`].
#[derive(Clone, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct Stats {
    /// By device: its name, and what it has moved.
    pub devices: Vec<(&'static str, Traffic)>,
    /// What never left the rank.
    pub local: LocalTraffic,
}

impl Stats {
    /// Returns all copies of bodies that this rank has made through devices, or out of where messages waited. What a message is
    /// packed into and out of by [`DataPath::Buffered`](crate::DataPath::Buffered), at either end, comes on top.
    pub fn copies(&self) -> Count {
        let mut all = self.local.to_self;
        all += self.local.unexpected;
        self.devices.iter().for_each(|(_, traffic)| all += traffic.copied);
        all
    }
}

impl fmt::Display for Stats {
    /// One line a device that has moved anything, and one for the rest.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, traffic) in self.devices.iter().filter(|(_, traffic)| *traffic != Traffic::default()) {
            let Traffic { eager, announced, lent, registered, copied } = traffic;
            write!(f, "{name}: eager {eager}, announced {announced}, lent {lent}, ")?;
            writeln!(f, "registered {registered}, copied {copied}")?;
        }
        let LocalTraffic { to_self: own, unexpected: early } = self.local;
        write!(f, "to itself {own}, early ones copied out {early}, copies in all {}", self.copies())
    }
}

/// Bodies copied out of one device; written by the holder of the turn alone.
#[derive(Debug, Default)]
pub(super) struct Tally {
    number: AtomicU64,
    bytes: AtomicU64,
}

impl Tally {
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
    /// Returns what this rank has moved since it started, and how. While messages are under way the numbers need not
    /// belong to one moment.
    pub fn stats(&self) -> Stats {
        let traffic = |tally: &Tally| Traffic { copied: tally.read(), ..Traffic::default() };
        let names = self.devices.iter().map(|device| device.name());
        let mut devices: Vec<(&'static str, Traffic)> =
            names.zip(self.copied_out.iter().map(traffic)).collect();
        for peer in self.peers.iter() {
            if let Some((_, traffic)) = peer.device.get().and_then(|at| devices.get_mut(*at)) {
                *traffic += peer.outbox().sent;
            }
        }
        let mut local = *lock(&self.left);
        self.all_channels().iter().for_each(|channel| local += channel.matching().local);
        Stats { devices, local }
    }
}
