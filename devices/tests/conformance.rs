//! Runs the conformance suite on the devices of this crate and on `AsyncDriver`, with several settings.

use std::io::Write;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use mpj_devices::config::{self, Config};
use mpj_devices::conformance::{AsyncDriver, CASES, Case, find, run_threads, unavailable};
use mpj_devices::{Registry, SmDriver, for_each_case};

/// Locked exclusively by the cases that measure the memory of the process, and shared by all others.
static MEMORY: RwLock<()> = RwLock::new(());
const MEASURE_MEMORY: [&str; 2] =
    ["flood_of_small_messages_stays_within_the_credit", "flood_of_eager_messages_stays_within_the_credit"];

fn run(device: &str, name: &str) {
    let case = find(name).unwrap();
    run_with(device, case, &Config::default(), case.ranks);
}

/// Whether the host lacks InfiniBand and RoCE devices. If so, the first use prints that to standard error, bypassing
/// the output capture of tests that pass.
static NO_VERBS: LazyLock<bool> = LazyLock::new(|| {
    let missing = unavailable("ibvdev");
    if let Some(why) = &missing {
        let _ = writeln!(std::io::stderr(), "SKIPPED, all tests of ibvdev: {why}");
    }
    missing.is_some()
});

fn run_with(device: &str, case: &'static Case, config: &Config, ranks: &[u32]) {
    if device == "ibvdev" && *NO_VERBS {
        return;
    }
    // The devices `late` and `later` are smdev with operations that complete late, with two seeds.
    let choose = |all: Registry| {
        let threads = all.get(SmDriver::NAME).cloned().unwrap();
        let late = |name, seed| AsyncDriver::new(name, Arc::clone(&threads), seed);
        all.with(late("late", 2)).with(late("later", 77)).select(&[device]).unwrap()
    };
    let (_shared, _alone);
    if MEASURE_MEMORY.contains(&case.name) {
        _alone = MEMORY.write().unwrap_or_else(PoisonError::into_inner);
    } else {
        _shared = MEMORY.read().unwrap_or_else(PoisonError::into_inner);
    }
    for ranks in ranks {
        run_threads(choose, config, *ranks, case);
    }
}

macro_rules! tests {
    (($device:ident) $($module:ident :: $name:ident $ranks:tt)*) => {
        mod $device {
            $(#[test]
            fn $name() {
                super::run(stringify!($device), stringify!($name));
            })*
        }
    };
}

macro_rules! conformance {
    ($device:ident) => {
        for_each_case!(tests $device);
    };
}

conformance!(smdev);
#[cfg(all(target_os = "linux", not(mpj_portable)))]
conformance!(shmdev);
#[cfg(all(target_os = "linux", not(mpj_portable)))]
conformance!(niodev);
#[cfg(all(target_os = "linux", not(mpj_portable)))]
conformance!(ibvdev);
conformance!(late);

/// Cases that take minutes on an emulated network with a window of four frames. Other cases exhaust the window, too.
const LARGE_VOLUMES: &[&str] = &[
    "long_strided_messages_arrive",
    "chains_of_every_size_arrive",
    "ten_thousand_unexpected_messages_keep_their_order",
    "flood_of_small_messages_stays_within_the_credit",
    "flood_of_eager_messages_stays_within_the_credit",
    "circular_floods_do_not_deadlock",
];

/// Runs each case on its first two job sizes with small queues and buffers, so that operations often wait for free
/// ones. `ibvdev` uses only the first job size and skips [`LARGE_VOLUMES`].
fn smallest_limits(device: &str) {
    let mut config = Config::default();
    for (parameter, value) in [
        (config::SM_EAGER_LIMIT, 48),
        (config::SM_FRAGMENTS, 2),
        (config::SHM_EAGER_LIMIT, 48),
        (config::SHM_FRAGMENTS, 2),
        (config::IBV_EAGER_LIMIT, 48),
        (config::IBV_SEND_WINDOW, 4),
    ] {
        config.set(&parameter, value).unwrap();
    }
    config.set(&config::EAGER_CREDIT, config::EAGER_CREDIT.range.0).unwrap();
    let (skipped, sizes) = if device == "ibvdev" { (LARGE_VOLUMES, 1) } else { (&[][..], 2) };
    for case in CASES.iter().filter(|case| !skipped.contains(&case.name)) {
        run_with(device, case, &config, &case.ranks[..sizes.min(case.ranks.len())]);
    }
}

/// Cases whose sends must complete before they are received. With zero copy, they do not.
const EAGER: &[&str] = &[
    "freeing_a_channel_returns_credit",
    "messages_sent_before_a_death_arrive",
    "sends_leave_while_their_rank_computes",
    "completed_sends_have_left",
];

/// The case that measures pool memory while sends exceed the credit. On the buffered path, such sends use pool blocks.
const UNEXPECTED_MEMORY: &[&str] = &["flood_of_eager_messages_stays_within_the_credit"];

/// Runs each case on its first job size with the given data path, except the cases that assume another path.
fn with_data_path(device: &str, path: &str) {
    let mut config = Config::default();
    config.set_text(&config::DATA_PATH, path).unwrap();
    let skipped = if path == "zerocopy" { EAGER } else { UNEXPECTED_MEMORY };
    for case in CASES.iter().filter(|case| !skipped.contains(&case.name)) {
        run_with(device, case, &config, &case.ranks[..1]);
    }
}

macro_rules! paths {
    ($($buffered:ident $zero_copy:ident $device:ident)*) => {$(
        #[test]
        fn $buffered() {
            with_data_path(stringify!($device), "buffered");
        }

        #[test]
        fn $zero_copy() {
            with_data_path(stringify!($device), "zerocopy");
        }
    )*};
}

paths! {
    smdev_with_buffered_path smdev_with_zero_copy_path smdev
    later_with_buffered_path later_with_zero_copy_path later
}
#[cfg(all(target_os = "linux", not(mpj_portable)))]
paths! {
    shmdev_with_buffered_path shmdev_with_zero_copy_path shmdev
    niodev_with_buffered_path niodev_with_zero_copy_path niodev
}

#[test]
fn smdev_with_smallest_limits() {
    smallest_limits("smdev");
}

#[test]
fn later_with_smallest_limits() {
    smallest_limits("later");
}

#[cfg(all(target_os = "linux", not(mpj_portable)))]
#[test]
fn shmdev_with_smallest_limits() {
    smallest_limits("shmdev");
}

#[cfg(all(target_os = "linux", not(mpj_portable)))]
#[test]
fn ibvdev_with_smallest_limits() {
    smallest_limits("ibvdev");
}
