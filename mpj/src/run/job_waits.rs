//! Collects the waits of all ranks when a job without a launcher ends, so that one process can print them.
//!
//! The processes exchange them through the key-value store of the job. Each get has a time limit.
//!
//! | step | process of rank 0 | process of another rank |
//! |---|---|---|
//! | 1 | | puts its report as `waits` |
//! | 2 | gets `waits` of the other ranks, puts `waits-known` | gets `waits-known`; without it, prints its own waits and ends |
//! | 3 | gets `waits-seen` of these ranks, puts `waits-done`, prints the table | puts `waits-seen`, gets `waits-done`, prints nothing |
//!
//! Step 3 lets a process exit only when the others no longer need it: its exit would end their requests.

use std::collections::BTreeMap;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::watch::Watch;
use crate::boot::Boot;
use crate::report::{RankReport, RankWaits, waits_table};

const WAITS: &str = "waits";
const KNOWN: &str = "waits-known";
const SEEN: &str = "waits-seen";
const DONE: &str = "waits-done";

/// The time limit of the gets of rank 0. That of the other ranks is twice as long.
const LIMIT: Duration = Duration::from_secs(1);

/// Returns the waits that this process must print, or `None` if rank 0 prints them. A job can do this only once.
pub(super) fn table(watch: &Watch, boot: &dyn Boot) -> Option<String> {
    let mut reports = watch.reports();
    if boot.rank() != 0 {
        return (!sent_to_rank_0(&reports, boot)).then(|| waits_table(&reports));
    }
    let others: Vec<u32> = (0..boot.size()).filter(|rank| !reports.contains_key(rank)).collect();
    let received = receive(boot, &others, WAITS, LIMIT);
    let senders: Vec<u32> = received.keys().copied().collect();
    for rank in others {
        let report = received.get(&rank).and_then(|report| postcard::from_bytes(report).ok());
        let report = match report {
            Some(Some(waits)) => RankReport::Waits(waits),
            Some(None) => RankReport::Missing("has not started, or has left the job"),
            None if boot.roster().has_left(rank) => RankReport::Missing("has exited"),
            None => RankReport::Missing("did not respond"),
        };
        reports.insert(rank, report);
    }
    if boot.put(KNOWN, &[]).is_ok() {
        receive(boot, &senders, SEEN, LIMIT);
        let _ = boot.put(DONE, &[]);
    }
    Some(waits_table(&reports))
}

/// Sends the waits of this rank to rank 0. Returns whether rank 0 has received them.
fn sent_to_rank_0(reports: &BTreeMap<u32, RankReport>, boot: &dyn Boot) -> bool {
    let own: Option<&RankWaits> = match reports.get(&boot.rank()) {
        Some(RankReport::Waits(waits)) => Some(waits),
        _ => None,
    };
    let is_put = postcard::to_allocvec(&own).is_ok_and(|report| boot.put(WAITS, &report).is_ok());
    let is_known = is_put && !receive(boot, &[0], KNOWN, 2 * LIMIT).is_empty();
    if is_known && boot.put(SEEN, &[]).is_ok() {
        receive(boot, &[0], DONE, 2 * LIMIT);
    }
    is_known
}

/// Returns the values that these ranks have put under a key, as far as they arrive within `limit`.
fn receive(boot: &dyn Boot, ranks: &[u32], key: &str, limit: Duration) -> BTreeMap<u32, Vec<u8>> {
    let deadline = Instant::now() + limit;
    let (sender, values) = mpsc::channel();
    for rank in ranks.iter().copied() {
        let sender = sender.clone();
        let then = move |value: Result<Vec<u8>, String>| {
            // After the time limit, the receiver has been dropped.
            let _ = value.map(|value| sender.send((rank, value)));
        };
        boot.get(rank, key, Box::new(then));
    }
    // Only pending requests have senders now, so `recv_timeout` fails when no value can arrive any more.
    drop(sender);
    let next = || values.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok();
    std::iter::from_fn(next).collect()
}
