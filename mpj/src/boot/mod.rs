//! Start-up: the number of a rank, a key-value store for use before the ranks can send messages, and the failure
//! detector. `README.md` in this folder describes how the processes learn that a rank has exited.

#[doc(hidden)]
pub mod agent;
mod backoff;
#[allow(unsafe_code, reason = "a descriptor is inherited by its number")]
mod control_fd;
#[doc(hidden)]
pub mod control_plane;
mod control_reader;
mod control_writer;
mod detect;
mod launched_boot;
mod managed;
#[doc(hidden)]
pub mod pmi;
#[doc(hidden)]
pub mod pmix;
mod proven;
#[doc(hidden)]
pub mod rendezvous;
mod thread_boot;
mod unsupported;
#[doc(hidden)]
pub mod wire;

use std::fmt;
use std::sync::Arc;

use mpj_devices::{Address, Callback, CardExchange, Engine, Hosts, Registry, Roster, Site};

use crate::config::{self, Config, DEVICES};
pub(crate) use detect::{LAUNCHER, connect};
pub use detect::{LocalRanks, detect};
use launched_boot::LaunchedBoot;
pub(crate) use managed::RENDEZVOUS_TIMEOUT;
pub use thread_boot::ThreadBoot;

/// The start-up service of a rank (a thread, or a process with or without a launcher), like PMI for an MPI process.
///
/// Each key is put by one rank and can be read by every rank. Except for [`fence`](Self::fence), the cost of a call
/// must not grow with the number of ranks.
pub trait Boot: Send + Sync + fmt::Debug {
    /// Returns the number of this rank.
    fn rank(&self) -> u32;

    /// Returns the map of ranks to hosts: the same on all ranks, and cheap to clone. One machine can appear as several
    /// hosts (`MPJ_SIMULATED_HOSTS`).
    fn hosts(&self) -> Hosts;

    /// Returns the number of ranks.
    fn size(&self) -> u32 {
        self.hosts().size()
    }

    /// Creates the data that the drivers of this rank need, with a new doorbell.
    ///
    /// # Errors
    /// The doorbell cannot be created.
    fn site(&self) -> Result<Site, String>;

    /// Returns the drivers of the devices that the ranks of this process may use.
    fn registry(&self) -> Registry;

    /// Returns the names of the devices to use, or `None` for all available ones. By default they are those of
    /// `MPJ_DEVICES`.
    ///
    /// A pair of ranks uses the device with the highest [affinity](mpj_devices::device::Affinity). The order of names
    /// matters only for devices of equal affinity.
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
    /// `then` is called after that rank has put the value, on any thread, possibly on this one before `get` returns. If
    /// the rank exits without putting the value, or the service fails, `then` is never called.
    fn get(&self, rank: u32, key: &str, then: Callback<Vec<u8>>);

    /// Waits until every rank has called this method.
    ///
    /// # Errors
    /// The error of the start-up service, or a rank has left or died.
    fn fence(&self) -> Result<(), String>;

    /// Passes the engine of this rank to the service, which reports what the rank waits for. The service must keep only
    /// a weak reference.
    fn attach_engine(&self, engine: &Arc<Engine>) {
        let _ = engine;
    }

    /// Returns the roster, which records the ranks that have died or left.
    fn roster(&self) -> Arc<Roster>;

    /// Aborts the whole job with an exit code. Has no effect if this rank has left.
    fn abort(&self, code: i32, why: &str);

    /// Returns whether a launcher supervises the ranks: it ends the job after `MPJ_TIMEOUT`, prints what the ranks wait
    /// for when it is interrupted, and merges the trace files (`MPJ_TRACE`). Without a launcher, this process does so,
    /// but it merges trace files only if it hosts all ranks.
    fn has_launcher(&self) -> bool {
        false
    }

    /// Returns whether the service prints why ranks failed, and derives the exit code of the job from that. Called
    /// after the ranks of this process have returned: the service might have exited by then.
    fn reports_failures(&self) -> bool {
        self.has_launcher()
    }

    /// Leaves the job with this process, after its ranks have left or failed. In a failed job, the service might kill
    /// the process during this call.
    fn leave(&self) {}

    /// Reports the traffic of this rank to the [launcher](Self::has_launcher).
    #[doc(hidden)]
    fn report_stats(&self, stats: crate::report::RankStats) {
        let _ = stats;
    }

    /// Returns the code of [`abort`](Self::abort), if this process must derive its exit code from it.
    fn abort_code(&self) -> Option<i32> {
        None
    }
}

/// Exchanges the cards of ranks. The cards of a rank, the name and address of each of its devices, are one value.
#[doc(hidden)]
#[derive(Debug)]
pub struct KvsCards(pub Arc<dyn Boot>);

const CARDS: &str = "cards";

impl CardExchange for KvsCards {
    fn publish(&self, cards: Vec<(String, Address)>) -> Result<(), String> {
        let mut value = Vec::new();
        for (name, address) in cards {
            for part in [name.as_bytes(), &address.0] {
                let len =
                    u16::try_from(part.len()).map_err(|_| format!("the address of {name} is too long"))?;
                value.extend_from_slice(&len.to_le_bytes());
                value.extend_from_slice(part);
            }
        }
        self.0.put(CARDS, &value)
    }

    fn request(&self, rank: u32, then: Callback<Vec<(String, Address)>>) {
        let read = move |value: Vec<u8>| {
            parse_cards(&value).ok_or_else(|| format!("invalid device addresses from rank {rank}"))
        };
        self.0.get(rank, CARDS, Box::new(move |value| then(value.and_then(read))));
    }
}

fn parse_cards(mut value: &[u8]) -> Option<Vec<(String, Address)>> {
    let mut cards = Vec::new();
    while !value.is_empty() {
        let name = String::from_utf8(take_part(&mut value)?.to_vec()).ok()?;
        cards.push((name, Address(take_part(&mut value)?.to_vec())));
    }
    Some(cards)
}

fn take_part<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (len, tail) = rest.split_first_chunk::<2>()?;
    let (part, tail) = tail.split_at_checked(usize::from(u16::from_le_bytes(*len)))?;
    *rest = tail;
    Some(part)
}
