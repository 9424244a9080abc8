//! The suite of [`CardExchange`].

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::Duration;

use super::owned::bytes;
use crate::{Address, Callback, CardExchange};

type Cards = Vec<(String, Address)>;

/// The time after which a reply counts as missing.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Returns the cards of a rank: up to three, whose addresses have various lengths.
fn cards_of(rank: u32) -> Cards {
    let card = |(i, len)| (format!("device {i} of {rank}"), Address(bytes(u64::from(rank), len)));
    [0, 40, 9000].into_iter().enumerate().map(card).take(rank as usize % 4).collect()
}

fn send_to(sender: Sender<Result<Cards, String>>) -> Callback<Cards> {
    Box::new(move |cards| drop(sender.send(cards)))
}

fn request(exchange: &dyn CardExchange, of: u32) -> (u32, Receiver<Result<Cards, String>>) {
    let (sender, reply) = channel();
    exchange.request(of, send_to(sender));
    (of, reply)
}

fn assert_arrives((of, reply): (u32, Receiver<Result<Cards, String>>)) {
    assert_eq!(reply.recv_timeout(TIME_LIMIT).expect("a reply"), Ok(cards_of(of)), "cards of rank {of}");
}

/// Runs the suite of [`CardExchange`] on one of `size` ranks, while the other ranks call this function, too. `barrier`
/// waits until all ranks have called it.
///
/// # Panics
/// If the exchange breaks a promise of the trait.
pub fn exchange_cards(exchange: &Arc<dyn CardExchange>, rank: u32, size: u32, barrier: impl Fn()) {
    let request_all = || (0..size).map(|of| request(&**exchange, of));
    let early: Vec<_> = request_all().chain(request_all()).collect();
    barrier();
    assert!(
        early.iter().all(|(_, reply)| reply.try_recv() == Err(TryRecvError::Empty)),
        "nothing is published"
    );
    barrier();
    exchange.publish(cards_of(rank)).unwrap();
    early.into_iter().chain(request_all()).for_each(assert_arrives);
    // A callback can start another request.
    let (sender, reply) = channel();
    let nested = Arc::clone(exchange);
    exchange.request(rank, Box::new(move |_| nested.request(size - 1, send_to(sender))));
    assert_arrives((size - 1, reply));
    barrier();
}
