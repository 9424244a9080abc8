//! The waits of all ranks of a job that ends and has no launcher that prints them.
//!
//! The processes exchange them through the key-value store of the job:
//!
//! | process | puts | gets, until the time limit |
//! |---|---|---|
//! | of rank 0 | `waits-known`, after the gets | `waits` of the other ranks; then it prints the table |
//! | of another rank | `waits`: its report | `waits-known` of rank 0; without that, it prints its own waits |

use std::collections::BTreeMap;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::watch::Watch;
use crate::boot::Boot;
use crate::report::{RankReport, RankWaits, waits_table};

const WAITS: &str = "waits";
const KNOWN: &str = "waits-known";

/// The time that rank 0 waits for the reports. The other ranks wait twice as long for rank 0.
const LIMIT: Duration = Duration::from_secs(1);

/// Returns the waits that this process must print, once in a job. `None` if rank 0 prints them.
pub(super) fn table(watch: &Watch, boot: &dyn Boot) -> Option<String> {
    let mut reports = watch.reports();
    if boot.rank() != 0 {
        return (!sent_to_rank_0(&reports, boot)).then(|| waits_table(&reports));
    }
    let others: Vec<u32> = (0..boot.size()).filter(|rank| !reports.contains_key(rank)).collect();
    let mut received = receive(boot, &others);
    for rank in others {
        let report = match received.remove(&rank) {
            Some(Some(waits)) => RankReport::Waits(waits),
            Some(None) => RankReport::Missing("has not started, or has left the job"),
            None if boot.roster().has_left(rank) => RankReport::Missing("has exited"),
            None => RankReport::Missing("did not respond"),
        };
        reports.insert(rank, report);
    }
    // The other ranks print their waits if this fails.
    let _ = boot.put(KNOWN, &[]);
    Some(waits_table(&reports))
}

/// Sends the waits of this rank to rank 0. Returns whether rank 0 has received them.
fn sent_to_rank_0(reports: &BTreeMap<u32, RankReport>, boot: &dyn Boot) -> bool {
    let own = match reports.get(&boot.rank()) {
        Some(RankReport::Waits(waits)) => Some(waits),
        _ => None,
    };
    let is_put = postcard::to_allocvec(&own).is_ok_and(|report| boot.put(WAITS, &report).is_ok());
    let (sender, known) = mpsc::channel();
    let then = move |value: Result<_, _>| {
        // The receiver is gone after the time limit.
        let _ = sender.send(value.is_ok());
    };
    boot.get(0, KNOWN, Box::new(then));
    is_put && known.recv_timeout(2 * LIMIT) == Ok(true)
}

/// Receives the reports of these ranks; `None` in place of the waits of a rank that has none to report.
fn receive(boot: &dyn Boot, ranks: &[u32]) -> BTreeMap<u32, Option<RankWaits>> {
    let deadline = Instant::now() + LIMIT;
    let (sender, values) = mpsc::channel();
    for rank in ranks.iter().copied() {
        let sender = sender.clone();
        boot.get(rank, WAITS, Box::new(move |value| drop(sender.send((rank, value)))));
    }
    // Only the requests have senders now: after the last one has ended, no value can arrive.
    drop(sender);
    let next = || values.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok();
    let decode = |(rank, value): (u32, Result<Vec<u8>, String>)| {
        value.ok().and_then(|value| Some((rank, postcard::from_bytes(&value).ok()?)))
    };
    std::iter::from_fn(next).filter_map(decode).collect()
}
