//! Start-up: what a rank is told, how ranks exchange a few bytes before they can send messages, and who has died.
//!
//! `README.md` in this folder says who tells whom that a rank has ended.

mod control;
mod detect;
mod ear;
mod foreign;
#[allow(unsafe_code, reason = "a descriptor is inherited by its number")]
mod inherit;
mod local;
mod mouth;
#[doc(hidden)]
pub mod wire;

use std::fmt;
use std::sync::Arc;

use mpj_devices::{Address, Callback, Cards, Engine, Hosts, Registry, Roster, Site};

use crate::config::{self, Config, DEV};
use control::MpjrunBoot;
pub(crate) use detect::LAUNCHER;
pub use detect::{LocalRanks, detect};
pub use local::ThreadBoot;

/// What starts the ranks of a job: threads, a launcher, or nobody.
///
/// Keys are put by one rank and read by any. Nothing here is O(world size): a rank asks for what it needs when it
/// needs it, and does not wait for the answer.
pub trait Boot: Send + Sync + fmt::Debug {
    /// Returns this rank.
    fn rank(&self) -> u32;

    /// Returns which rank runs on which host: the same map at all ranks, and a cheap clone of it.
    ///
    /// Ranks on one host are promised nothing but that they may share memory: a job of one machine may be spread over several
    /// hosts all the same (`MPJ_HOST_ID` of `mpjrun`).
    fn hosts(&self) -> Hosts;

    /// Returns the number of ranks.
    fn size(&self) -> u32 {
        self.hosts().size()
    }

    /// Returns the place of this rank; called once.
    ///
    /// # Errors
    /// What could not be had: a doorbell, the memory of the host.
    fn site(&self) -> Result<Site, String>;

    /// Returns the devices that the ranks of this process may use, with what they share.
    fn registry(&self) -> Registry;

    /// Returns the names of the devices to use, `None` for all there are: those of
    /// `MPJ_DEV`, unless a launcher has been told otherwise. A pair of ranks uses the one with the highest
    /// [affinity](mpj_devices::device::Affinity); the order of the names only decides between equals.
    fn devices(&self, config: &Config) -> Option<Vec<String>> {
        // Each value was checked when it was read.
        config::devices(config.text(&DEV)).unwrap_or_default()
    }

    /// Makes a value known under a key of this rank.
    ///
    /// # Errors
    /// What the start-up service said.
    fn put(&self, key: &str, value: &[u8]) -> Result<(), String>;

    /// Asks for the value of a rank's key; returns at once.
    ///
    /// `then` is called when that rank has put it, on any thread, also on this one at once. It is dropped if that rank
    /// ends without putting it: [`roster`](Self::roster) says so.
    fn get(&self, rank: u32, key: &str, then: Callback<Vec<u8>>);

    /// Waits until every rank has called it.
    ///
    /// # Errors
    /// What the start-up service said, or that a rank has ended.
    fn fence(&self) -> Result<(), String>;

    /// Lets the start-up service ask the engine of this rank what it waits for, for as long as there is one.
    fn attach_engine(&self, engine: &Arc<Engine>) {
        let _ = engine;
    }

    /// Returns who has died and who has left.
    fn roster(&self) -> Arc<Roster>;

    /// Ends the whole job with an exit code.
    fn abort(&self, code: i32, why: &str);

    /// Whether a launcher runs beside the ranks: it says once why ranks could not start, ends the job after `MPJ_TIMEOUT`, says
    /// what the ranks wait for when it is interrupted, and joins the parts of a trace (`MPJ_TRACE`). Otherwise a process that
    /// hosts all ranks does so; of several processes without a launcher, the parts of the trace stay where they are.
    fn has_launcher(&self) -> bool {
        false
    }

    /// Tells the launcher what this rank has moved; called only if there [is one](Self::has_launcher).
    #[doc(hidden)]
    fn tell_stats(&self, stats: crate::report::RankStats) {
        let _ = stats;
    }

    /// Returns the code that a rank of this process ended the job with, if it is this process's to exit with.
    fn abort_code(&self) -> Option<i32> {
        None
    }
}

/// A rank's device cards, as one value under one key.
#[derive(Debug)]
pub(crate) struct BootCards(pub(crate) Arc<dyn Boot>);

/// The key of a rank's cards.
const CARDS: &str = "cards";

impl Cards for BootCards {
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
