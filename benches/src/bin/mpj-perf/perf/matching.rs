//! Many messages of 8 bytes with different tags, which match their receives in order or in reverse. Either the receives
//! are posted before the messages arrive, or the messages are unexpected.

use mpj::{ANY_SOURCE, Error, Intracomm, Source, World};

use super::Failure;
use super::report::Report;
use super::stats::{now_ns, quantile_f64};

const RECEIVER: usize = 0;
const SENDER: usize = 1;

const MESSAGES: [usize; 4] = [100, 1000, 10_000, 100_000];
const RUNS: usize = 5;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Queue {
    Posted,
    Unexpected,
}

/// The order of the receives by tag. Messages are sent with increasing tags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Order {
    Same,
    Reverse,
    /// In reverse, from any source.
    AnySource,
}

const CASES: [(Queue, Order, &str); 6] = [
    (Queue::Posted, Order::Same, "posted,same"),
    (Queue::Posted, Order::Reverse, "posted,reverse"),
    (Queue::Posted, Order::AnySource, "posted,reverse_any"),
    (Queue::Unexpected, Order::Same, "unexpected,same"),
    (Queue::Unexpected, Order::Reverse, "unexpected,reverse"),
    (Queue::Unexpected, Order::AnySource, "unexpected,reverse_any"),
];

pub(crate) fn run(world: &World, max_messages: usize) -> Result<(), Failure> {
    let sizes = MESSAGES.into_iter().filter(|messages| *messages <= max_messages);
    let report = Report::begin(world, CASES.len() * sizes.clone().count())?;
    for messages in sizes {
        let mut values = vec![0u64; messages];
        for (queue, order, name) in CASES {
            let mut once = || match (world.rank() == RECEIVER, queue) {
                (false, _) => send(world, &values),
                (true, Queue::Posted) => time_posted(world, &mut values, order),
                (true, Queue::Unexpected) => time_unexpected(world, &mut values, order),
            };
            once()?;
            let mut times = [0.0; RUNS];
            for time in &mut times {
                *time = once()? as f64 / 1e3;
            }
            let median = quantile_f64(&mut times, 0.5);
            let each = median * 1e3 / messages as f64;
            report.row(format_args!("MATCH,{name},{messages},{median:.1},{:.1},{each:.1}", times[0]))?;
        }
    }
    report.finish(world, None, || unreachable!("no picture was requested"))
}

/// The tag of the messages that start and end a run.
const SYNC_TAG: i32 = i32::MAX;

/// Sends all messages when the receiver is ready, and then a message that ends the run. Returns 0.
fn send(world: &Intracomm, values: &[u64]) -> Result<u64, Error> {
    world.recv(&mut 0u8, RECEIVER, SYNC_TAG)?;
    world.scope(|s| {
        let sending = values.iter().zip(0..).map(|(value, tag)| s.isend(value, RECEIVER, tag));
        let sending: Vec<_> = sending.collect::<Result<_, Error>>()?;
        world.send(&0u8, RECEIVER, SYNC_TAG)?;
        sending.into_iter().try_for_each(|request| request.wait().map(drop))
    })?;
    Ok(0)
}

/// Calls `receive` for each value with its source and tag, in the order that `order` names.
fn receive_each<'a>(
    values: &'a mut [u64],
    order: Order,
    mut receive: impl FnMut(&'a mut u64, Source, i32) -> Result<(), Error>,
) -> Result<(), Error> {
    let source = if order == Order::AnySource { ANY_SOURCE } else { SENDER.into() };
    let tags = 0..values.len() as i32;
    let mut tagged = values.iter_mut().zip(tags);
    match order {
        Order::Same => tagged.try_for_each(|(value, tag)| receive(value, source, tag)),
        _ => tagged.rev().try_for_each(|(value, tag)| receive(value, source, tag)),
    }
}

/// Posts all receives, notifies the sender, and returns the nanoseconds until the last receive completes.
fn time_posted(world: &Intracomm, values: &mut [u64], order: Order) -> Result<u64, Error> {
    world.scope(|s| {
        let mut receiving = Vec::with_capacity(values.len());
        receive_each(values, order, |value, source, tag| {
            receiving.push(s.irecv(value, source, tag)?);
            Ok(())
        })?;
        let start = now_ns();
        world.send(&0u8, SENDER, SYNC_TAG)?;
        receiving.into_iter().try_for_each(|request| request.wait().map(drop))?;
        let time = now_ns() - start;
        world.recv(&mut 0u8, SENDER, SYNC_TAG)?;
        Ok(time)
    })
}

/// Returns the nanoseconds that the receives take after all messages have arrived.
fn time_unexpected(world: &Intracomm, values: &mut [u64], order: Order) -> Result<u64, Error> {
    world.send(&0u8, SENDER, SYNC_TAG)?;
    // All messages of the run have arrived before this one.
    world.recv(&mut 0u8, SENDER, SYNC_TAG)?;
    let start = now_ns();
    receive_each(values, order, |value, source, tag| world.recv(value, source, tag).map(drop))?;
    Ok(now_ns() - start)
}
