//! Ctrl-C and Ctrl-\ without a launcher: they print which rank waits for what.
//!
//! Only [`run`](crate::run) and its variants install the handlers. The action of a signal that is already ignored or
//! handled is not changed. Nothing is printed if the only rank of the job or, after SIGQUIT, of this process does not
//! wait.
//!
//! | signal | first | again |
//! |---|---|---|
//! | SIGINT | prints the [table of the job](super::job_waits), completes the trace, then ends the process as SIGINT does by default | ends it at once |
//! | SIGQUIT | prints the waits of this process's ranks; the program continues | the same |

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError, Weak};

use signal_hook::consts::{SIGINT, SIGQUIT};
use signal_hook::iterator::Signals;
use signal_hook::{flag, low_level};

use super::print_error;
use super::watch::Watch;

static WATCH: Mutex<Weak<Watch>> = Mutex::new(Weak::new());

pub(super) fn report_on_signals(watch: &Arc<Watch>) {
    static INSTALLED: Once = Once::new();
    *WATCH.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(watch);
    // The program runs even if the handlers cannot be installed.
    INSTALLED.call_once(|| drop(install()));
}

fn install() -> std::io::Result<()> {
    let used = ignored_or_caught();
    let free = [SIGINT, SIGQUIT].into_iter().filter(|signal| used >> (signal - 1) & 1 == 0);
    let free: Vec<i32> = free.collect();
    if free.is_empty() {
        return Ok(());
    }
    install_for(free, &Arc::new(AtomicBool::new(false)))
}

/// Installs the handlers of these signals. If that fails, sets `unhandled`, with which each signal has its default
/// effect.
fn install_for(signals: Vec<i32>, unhandled: &Arc<AtomicBool>) -> std::io::Result<()> {
    let started = start_thread(signals, unhandled);
    // Without a thread that handles the signals, even the first one must terminate the process.
    if started.is_err() {
        unhandled.store(true, Ordering::Relaxed);
    }
    started
}

fn start_thread(signals: Vec<i32>, unhandled: &Arc<AtomicBool>) -> std::io::Result<()> {
    for signal in &signals {
        flag::register_conditional_default(*signal, Arc::clone(unhandled))?;
    }
    // The first SIGINT sets the flag. Once it is set, the next SIGINT terminates the process.
    let interrupted = Arc::new(AtomicBool::new(false));
    if signals.contains(&SIGINT) {
        flag::register_conditional_default(SIGINT, Arc::clone(&interrupted))?;
        flag::register(SIGINT, Arc::clone(&interrupted))?;
    }
    let mut signals = Signals::new(signals)?;
    let body = move || signals.forever().for_each(on_signal);
    std::thread::Builder::new().name("signals".into()).spawn(body).map(drop)
}

fn on_signal(signal: i32) {
    let watch = WATCH.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
    let what = if signal == SIGINT { "interrupted" } else { "SIGQUIT" };
    if let Some(waits) = watch.as_ref().and_then(|watch| waits(watch, signal)) {
        print_error(&format_args!("{what}; what the ranks wait for:{waits}"));
    }
    if signal == SIGINT {
        watch.iter().for_each(|watch| watch.end_trace());
        // This does not return.
        let _ = low_level::emulate_default_handler(SIGINT);
    }
}

/// Returns what this process prints after a signal.
fn waits(watch: &Watch, signal: i32) -> Option<String> {
    // Ctrl-C usually interrupts all processes of a job, and then these can exchange what they wait for.
    match signal {
        SIGINT if watch.has_other_processes() => watch.job_table(),
        _ if watch.has_nothing_to_report() => None,
        _ => Some(watch.table()),
    }
}

/// Returns the signals that are ignored or handled, bit n − 1 for signal n; all signals if that is unknown.
fn ignored_or_caught() -> u64 {
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else { return u64::MAX };
    let mask = |name: &str| {
        let hex = status.lines().find_map(|line| line.strip_prefix(name))?;
        u64::from_str_radix(hex.trim(), 16).ok()
    };
    mask("SigIgn:").zip(mask("SigCgt:")).map_or(u64::MAX, |(ignored, caught)| ignored | caught)
}

#[cfg(test)]
mod tests {
    use signal_hook::consts::SIGURG;

    use super::*;

    #[test]
    fn signals_have_their_default_effect_if_a_handler_cannot_be_installed() {
        let unhandled = Arc::new(AtomicBool::new(false));
        // The first handler is installed. The second signal does not exist.
        install_for(vec![SIGURG, 1000], &unhandled).unwrap_err();
        assert!(unhandled.load(Ordering::Relaxed));
    }
}
