//! Start-up: what a rank is told, how ranks exchange a few bytes before they can send messages, and who has died.

mod control;
mod ear;
#[allow(unsafe_code, reason = "a descriptor is inherited by its number")]
mod inherit;
mod local;
#[doc(hidden)]
pub mod wire;

use std::fmt;
use std::sync::Arc;

use mpj_devices::{Address, Cards, Roster, Site};

pub(crate) use control::Control;
pub use local::Local;

/// What starts the ranks of a job: threads, a launcher, or nobody.
///
/// Keys are put by one rank and read by any. Nothing here is O(world size): a rank asks for what it needs when it
/// needs it.
pub trait Boot: Send + Sync + fmt::Debug {
    /// Returns this rank.
    fn rank(&self) -> u32;

    /// Returns the number of ranks.
    fn size(&self) -> u32;

    /// Returns the place of this rank; called once.
    ///
    /// # Errors
    /// What could not be had: a doorbell, the memory of the host.
    fn site(&self) -> Result<Site, String>;

    /// Returns the names of the devices to use, best first; `None` for all there are.
    fn devices(&self) -> Option<Vec<String>> {
        None
    }

    /// Makes a value known under a key of this rank.
    ///
    /// # Errors
    /// What the start-up service said.
    fn put(&self, key: &str, value: &[u8]) -> Result<(), String>;

    /// Returns the value of a rank's key, and waits for it if that rank has not put it yet.
    ///
    /// # Errors
    /// What the start-up service said, or that the rank has ended without putting it.
    fn get(&self, rank: u32, key: &str) -> Result<Vec<u8>, String>;

    /// Waits until every rank has called it.
    ///
    /// # Errors
    /// What the start-up service said, or that a rank has ended.
    fn fence(&self) -> Result<(), String>;

    /// Returns who has died and who has left.
    fn deaths(&self) -> Arc<Roster>;

    /// Ends the whole job with an exit code.
    fn abort(&self, code: i32, why: &str);
}

/// A rank's device cards, as one value under one key.
#[derive(Debug)]
pub(crate) struct BootCards(pub(crate) Arc<dyn Boot>);

const KEY: &str = "cards";

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
        self.0.put(KEY, &value)
    }

    fn cards(&self, rank: u32) -> Result<Vec<(String, Address)>, String> {
        let value = self.0.get(rank, KEY)?;
        let mut rest = value.as_slice();
        let mut cards = Vec::new();
        while !rest.is_empty() {
            let malformed = || format!("the cards of rank {rank} are malformed");
            let name =
                part(&mut rest).and_then(|p| String::from_utf8(p.to_vec()).ok()).ok_or_else(malformed)?;
            let address = part(&mut rest).ok_or_else(malformed)?;
            cards.push((name, Address(address.to_vec())));
        }
        Ok(cards)
    }
}

fn part<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (len, tail) = rest.split_first_chunk::<2>()?;
    let (part, tail) = tail.split_at_checked(usize::from(u16::from_le_bytes(*len)))?;
    *rest = tail;
    Some(part)
}
