//! Ctrl-C and Ctrl-\ without a launcher: they print which rank waits for what.
//!
//! Only [`run`](crate::run) and its variants do this, which are the entry of a program. The library calls
//! [`threads`](crate::threads) and [`init`](crate::init) never do. A signal that is ignored, or that the program
//! handles itself, is left unchanged; a handler that the program sets later replaces this one. Processes that the
//! program starts do not inherit it.
//!
//! | signal | first | again |
//! |---|---|---|
//! | SIGINT | prints the table, then ends the process as SIGINT does by default | ends it at once |
//! | SIGQUIT | prints the table; the program goes on | the same |

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, Once, PoisonError, Weak};

use signal_hook::consts::{SIGINT, SIGQUIT};
use signal_hook::iterator::Signals;
use signal_hook::{flag, low_level};

use super::print_error;
use super::watch::Watch;

/// The ranks that run now.
static NOW: Mutex<Weak<Watch>> = Mutex::new(Weak::new());

/// Makes signals print the table of these ranks from now on.
pub(super) fn tell_of(watch: &Arc<Watch>) {
    static BEGUN: Once = Once::new();
    *NOW.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(watch);
    // Without a handler the signals do what they do by default.
    BEGUN.call_once(|| drop(begin()));
}

fn begin() -> std::io::Result<()> {
    let taken = taken();
    let free = [SIGINT, SIGQUIT].into_iter().filter(|signal| taken >> (signal - 1) & 1 == 0);
    let free: Vec<i32> = free.collect();
    if free.contains(&SIGINT) {
        // The first one raises the flag, with which the next one ends the process in its handler.
        let again = Arc::new(AtomicBool::new(false));
        flag::register_conditional_default(SIGINT, Arc::clone(&again))?;
        flag::register(SIGINT, again)?;
    }
    let mut signals = Signals::new(free)?;
    let body = move || signals.forever().for_each(act);
    std::thread::Builder::new().name("signals".into()).spawn(body).map(drop)
}

fn act(signal: i32) {
    let watch = NOW.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
    let what = if signal == SIGINT { "interrupted" } else { "SIGQUIT" };
    if let Some(watch) = watch.filter(|watch| !watch.is_plain()) {
        print_error(&format_args!("{what}; what the ranks wait for:{}", watch.table()));
    }
    if signal == SIGINT {
        // It does not return.
        let _ = low_level::emulate_default_handler(SIGINT);
    }
}

/// Returns the signals that are ignored or handled, bit n − 1 for signal n. All of them, where that is not known.
fn taken() -> u64 {
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else { return u64::MAX };
    let mask = |name: &str| {
        let hex = status.lines().find_map(|line| line.strip_prefix(name))?;
        u64::from_str_radix(hex.trim(), 16).ok()
    };
    mask("SigIgn:").zip(mask("SigCgt:")).map_or(u64::MAX, |(ignored, caught)| ignored | caught)
}
