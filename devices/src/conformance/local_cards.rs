//! The business cards of ranks that are threads of one process.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::{Address, Callback, CardExchange};

type Card = Vec<(String, Address)>;

/// A store in which ranks publish their cards, and their requests for the cards of others.
#[derive(Default)]
pub struct LocalCardExchange(Mutex<Pinned>);

#[derive(Default)]
struct Pinned {
    cards: HashMap<u32, Card>,
    requested: HashMap<u32, Vec<Callback<Card>>>,
}

impl fmt::Debug for LocalCardExchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LocalCardExchange")
    }
}

impl LocalCardExchange {
    /// Returns the board from the point of view of one rank.
    pub fn of(self: &Arc<Self>, rank: u32) -> Arc<dyn CardExchange> {
        Arc::new(RankBoard { board: Arc::clone(self), rank })
    }
}

#[derive(Debug)]
struct RankBoard {
    board: Arc<LocalCardExchange>,
    rank: u32,
}

impl CardExchange for RankBoard {
    fn publish(&self, cards: Card) -> Result<(), String> {
        let mut pinned = self.board.0.lock().unwrap_or_else(PoisonError::into_inner);
        pinned.cards.insert(self.rank, cards.clone());
        let requested = pinned.requested.remove(&self.rank).unwrap_or_default();
        drop(pinned);
        requested.into_iter().for_each(|then| then(Ok(cards.clone())));
        Ok(())
    }

    fn request(&self, rank: u32, then: Callback<Card>) {
        let mut pinned = self.board.0.lock().unwrap_or_else(PoisonError::into_inner);
        match pinned.cards.get(&rank).cloned() {
            Some(cards) => {
                drop(pinned);
                then(Ok(cards));
            }
            None => pinned.requested.entry(rank).or_default().push(then),
        }
    }
}
