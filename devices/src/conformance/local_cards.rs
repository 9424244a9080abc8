//! The exchange of cards between ranks that are threads of one process.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::{Address, Callback, CardExchange};

type Cards = Vec<(String, Address)>;

/// The published cards of all ranks, and the pending requests for cards.
#[derive(Default)]
pub struct LocalCardExchange(Mutex<CardStore>);

#[derive(Default)]
struct CardStore {
    cards: HashMap<u32, Cards>,
    requested: HashMap<u32, Vec<Callback<Cards>>>,
}

impl fmt::Debug for LocalCardExchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LocalCardExchange")
    }
}

impl LocalCardExchange {
    /// Returns the exchange for one rank.
    pub fn of(self: &Arc<Self>, rank: u32) -> Arc<dyn CardExchange> {
        Arc::new(RankCards { exchange: Arc::clone(self), rank })
    }
}

#[derive(Debug)]
struct RankCards {
    exchange: Arc<LocalCardExchange>,
    rank: u32,
}

impl CardExchange for RankCards {
    fn publish(&self, cards: Cards) -> Result<(), String> {
        let mut store = self.exchange.0.lock().unwrap_or_else(PoisonError::into_inner);
        store.cards.insert(self.rank, cards.clone());
        let requested = store.requested.remove(&self.rank).unwrap_or_default();
        drop(store);
        requested.into_iter().for_each(|then| then(Ok(cards.clone())));
        Ok(())
    }

    fn request(&self, rank: u32, then: Callback<Cards>) {
        let mut store = self.exchange.0.lock().unwrap_or_else(PoisonError::into_inner);
        match store.cards.get(&rank).cloned() {
            Some(cards) => {
                drop(store);
                then(Ok(cards));
            }
            None => store.requested.entry(rank).or_default().push(then),
        }
    }
}
