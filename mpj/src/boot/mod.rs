//! Start-up: the place of a rank in the job, a key-value store for use before the ranks can send messages, and the
//! failure detector.
//!
//! `README.md` in this folder describes how the processes learn that a rank has exited.

#[allow(unsafe_code, reason = "a descriptor is inherited by its number")]
mod control_fd;
mod control_reader;
mod control_writer;
mod detect;
mod mpjrun_boot;
mod thread_boot;
mod unsupported;
#[doc(hidden)]
pub mod wire;

use std::fmt;
use std::sync::Arc;

use mpj_devices::{Address, Callback, CardExchange, Engine, Hosts, Registry, Roster, Site};

use crate::config::{self, Config, DEVICES};
pub(crate) use detect::LAUNCHER;
pub use detect::{LocalRanks, detect};
use mpjrun_boot::MpjrunBoot;
pub use thread_boot::ThreadBoot;

/// The start-up service of a rank: threads of one process, a launcher, or a process on its own.
///
/// Each key is put by one rank and can be read by every rank. The cost of a call does not grow with the number of
/// ranks: a rank requests a value when it needs it, and does not wait for the answer.
pub trait Boot: Send + Sync + fmt::Debug {
    /// Returns this rank.
    fn rank(&self) -> u32;

    /// Returns the map of ranks to hosts: the same on all ranks, and cheap to clone.
    ///
    /// Ranks on one host may be able to share memory; nothing else is promised. One machine may appear as several hosts
    /// (`MPJ_SIMULATED_HOSTS` of `mpjrun`).
    fn hosts(&self) -> Hosts;

    /// Returns the number of ranks.
    fn size(&self) -> u32 {
        self.hosts().size()
    }

    /// Returns the site of this rank; called once.
    ///
    /// # Errors
    /// A doorbell or the memory of the host could not be obtained.
    fn site(&self) -> Result<Site, String>;

    /// Returns the registry of the devices that the ranks of this process may use, with their shared state.
    fn registry(&self) -> Registry;

    /// Returns the names of the devices to use; `None` for all available ones.
    ///
    /// The names are those of `MPJ_DEVICES`, unless the launcher has named others. A pair of ranks uses the device with the
    /// highest [affinity](mpj_devices::device::Affinity); the order of the names only decides between equals.
    fn devices(&self, config: &Config) -> Option<Vec<String>> {
        // The value was checked when it was read.
        config::devices(config.text(&DEVICES)).unwrap_or_default()
    }

    /// Publishes a value under a key of this rank.
    ///
    /// # Errors
    /// The error of the start-up service.
    fn put(&self, key: &str, value: &[u8]) -> Result<(), String>;

    /// Requests the value of a rank's key; returns immediately.
    ///
    /// `then` is called after that rank has put the value, on any thread, possibly on this one before this function
    /// returns. It is dropped if the rank exits without putting the value; [`roster`](Self::roster) reports the exit.
    fn get(&self, rank: u32, key: &str, then: Callback<Vec<u8>>);

    /// Waits until every rank has called it.
    ///
    /// # Errors
    /// The error of the start-up service, or a rank has exited.
    fn fence(&self) -> Result<(), String>;

    /// Lets the start-up service query the waits of this rank's engine, as long as the engine exists.
    fn attach_engine(&self, engine: &Arc<Engine>) {
        let _ = engine;
    }

    /// Returns the roster, which records the ranks that have died or left.
    fn roster(&self) -> Arc<Roster>;

    /// Aborts the whole job with an exit code.
    fn abort(&self, code: i32, why: &str);

    /// Returns whether a launcher supervises the ranks.
    ///
    /// A launcher reports once why ranks could not start, ends the job after `MPJ_TIMEOUT`, reports the waits of the
    /// ranks when it is interrupted, and merges the parts of a trace (`MPJ_TRACE`). Without a launcher, a process that
    /// hosts all ranks does so. If there are several processes and no launcher, the parts of the trace are not merged.
    fn has_launcher(&self) -> bool {
        false
    }

    /// Reports the traffic of this rank to the launcher; called only if there [is one](Self::has_launcher).
    #[doc(hidden)]
    fn tell_stats(&self, stats: crate::report::RankStats) {
        let _ = stats;
    }

    /// Returns the code that a rank of this process aborted the job with, if this process must exit with it.
    fn abort_code(&self) -> Option<i32> {
        None
    }
}

/// Exchanges the device cards of ranks, each rank's as one value under one key.
#[derive(Debug)]
pub(crate) struct KvsCards(pub(crate) Arc<dyn Boot>);

/// The key of a rank's cards.
const CARDS: &str = "cards";

impl CardExchange for KvsCards {
    fn publish(&self, cards: Vec<(String, Address)>) -> Result<(), String> {
        let mut value = Vec::new();
        for (name, address) in cards {
            for part in [name.as_bytes(), &address.0] {
                let len = u16::try_from(part.len()).map_err(|_| format!("the card of {name} is too long"))?;
                value.extend_from_slice(&len.to_le_bytes());
                value.extend_from_slice(part);
            }
        }
        self.0.put(CARDS, &value)
    }

    fn request(&self, rank: u32, then: Callback<Vec<(String, Address)>>) {
        let read = move |value: Vec<u8>| {
            cards(&value).ok_or_else(|| format!("the cards of rank {rank} are malformed"))
        };
        self.0.get(rank, CARDS, Box::new(move |value| then(value.and_then(read))));
    }
}

fn cards(mut value: &[u8]) -> Option<Vec<(String, Address)>> {
    let mut cards = Vec::new();
    while !value.is_empty() {
        let name = String::from_utf8(part(&mut value)?.to_vec()).ok()?;
        cards.push((name, Address(part(&mut value)?.to_vec())));
    }
    Some(cards)
}

fn part<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (len, tail) = rest.split_first_chunk::<2>()?;
    let (part, tail) = tail.split_at_checked(usize::from(u16::from_le_bytes(*len)))?;
    *rest = tail;
    Some(part)
}
