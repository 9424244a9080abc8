//! Helpers shared by the rank tests: data that varies by rank and position, and jobs under a watchdog.
#![allow(dead_code, reason = "each test file uses some of it")]

pub(crate) mod block_programs;
pub(crate) mod colliding;
pub(crate) mod messages;
pub(crate) mod mismatch;
pub(crate) mod reduction;
pub(crate) mod rival_faults;
pub(crate) mod schedule;
pub(crate) mod trace;

use std::any::Any;
use std::fmt::{Debug, Display};
use std::io::Write;
use std::panic::Location;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use mpj::{JobError, Receivable, RecvBuf, SendBuf, World};

const LIMIT: Duration = Duration::from_secs(60);

/// Numbers of elements. If an element has 8 bytes: empty, short, 16 KiB and just above, and a rendezvous.
pub(crate) const SIZES: [usize; 5] = [0, 1, 2048, 2049, 300_000];

pub(crate) const RANKS: [usize; 5] = [1, 2, 3, 5, 8];
pub(crate) const COUNTS: [usize; 4] = [0, 1, 7, 1000];
pub(crate) const LONG: usize = 100_000;

/// Returns the text of an error without the name of the communicator.
pub(crate) fn text_of(error: &mpj::Error) -> String {
    let name = error.communicator().map(|name| format!(" on {name:?}"));
    error.to_string().replacen(&name.unwrap_or_default(), "", 1)
}

/// Never drops a value, and keeps it reachable, so that leak checkers do not report it.
pub(crate) fn forget(value: impl Send + 'static) {
    static FORGOTTEN: Mutex<Vec<Box<dyn Any + Send>>> = Mutex::new(Vec::new());
    FORGOTTEN.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(value));
}

/// Runs `f`. If it hangs, prints the location and ends the process, so that the test run ends.
#[track_caller]
pub(crate) fn alive<R>(f: impl FnOnce() -> R) -> R {
    let here = Location::caller();
    let (running, over) = mpsc::channel::<()>();
    let watchdog = thread::spawn(move || {
        if over.recv_timeout(LIMIT * mismatch::time_factor()) == Err(RecvTimeoutError::Timeout) {
            abort_hung_test(here);
        }
    });
    let result = f();
    drop(running);
    watchdog.join().expect("the watchdog does not panic");
    result
}

#[expect(clippy::disallowed_methods, reason = "a hang cannot be reported in any other way")]
fn abort_hung_test(here: &Location<'_>) {
    // The test harness captures the output of macros, and would lose it.
    let _ = std::io::stderr().write_all(format!("{here}: hangs\n").as_bytes());
    std::process::abort();
}

/// Runs a job. The job's error names only the rank that failed first, so this panics if another rank has panicked.
#[track_caller]
pub(crate) fn job<R, E, F>(ranks: usize, f: F) -> Result<Vec<R>, JobError>
where
    F: Fn(World) -> Result<R, E> + Send + Sync,
    R: Send,
    E: Display,
{
    let panicked = Mutex::new(Vec::new());
    let outcome = alive(|| {
        mpj::threads(ranks, |world| {
            let _noted = NotePanic(world.rank(), &panicked);
            f(world)
        })
    });
    let mut panicked = panicked.into_inner().unwrap_or_else(PoisonError::into_inner);
    panicked.retain(|rank| outcome.as_ref().err().is_none_or(|error| error.rank() != *rank));
    assert!(panicked.is_empty(), "ranks {panicked:?} have panicked, too: {:?}", outcome.err());
    outcome
}

/// Records the rank if its function panics.
struct NotePanic<'a>(usize, &'a Mutex<Vec<usize>>);

impl Drop for NotePanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.1.lock().unwrap_or_else(PoisonError::into_inner).push(self.0);
        }
    }
}

#[track_caller]
pub(crate) fn ranks<F>(ranks: usize, f: F)
where
    F: Fn(World) -> mpj::Result<()> + Send + Sync,
{
    if let Err(error) = job(ranks, f) {
        panic!("{ranks} ranks: {error}");
    }
}

/// An element type with values that vary by rank and position, and a `blank` value, which differs from all of these
/// except for `bool`.
pub(crate) trait Sample: Receivable + PartialEq + Debug + Send + Sync {
    fn sample(rank: usize, at: usize) -> Self;

    fn blank() -> Self;
}

macro_rules! numbers {
    ($($type:ty),*) => {$(
        impl Sample for $type {
            fn sample(rank: usize, at: usize) -> Self {
                (1 + (rank * 37 + at * 3) % 125) as $type
            }

            fn blank() -> Self {
                127 as $type
            }
        }
    )*};
}

numbers!(u8, i8, u16, i16, u32, i32, u64, i64, u128, i128, usize, isize, f32, f64);

impl Sample for bool {
    fn sample(rank: usize, at: usize) -> Self {
        (rank + at * 5).is_multiple_of(3)
    }

    fn blank() -> Self {
        true
    }
}

impl Sample for char {
    fn sample(rank: usize, at: usize) -> Self {
        char::from_u32(0x100 + ((rank * 977 + at * 13) % 5000) as u32).expect("below the surrogates")
    }

    fn blank() -> Self {
        char::MAX
    }
}

impl<T: Sample> Sample for [T; 3] {
    fn sample(rank: usize, at: usize) -> Self {
        [T::sample(rank, 3 * at), T::sample(rank, 3 * at + 1), T::sample(rank, 3 * at + 2)]
    }

    fn blank() -> Self {
        [T::blank(); 3]
    }
}

pub(crate) fn samples<T: Sample>(rank: usize, from: usize, len: usize) -> Vec<T> {
    (from..from + len).map(|at| T::sample(rank, at)).collect()
}

pub(crate) fn blanks<T: Sample>(len: usize) -> Vec<T> {
    vec![T::blank(); len]
}

/// Sends a message from rank 0 to rank 1.
pub(crate) fn pass<S, R>(world: &World, send: &S, recv: &mut R, tag: i32) -> mpj::Result<Option<mpj::Status>>
where
    S: SendBuf + ?Sized,
    R: RecvBuf + ?Sized,
{
    match world.rank() {
        0 => world.send(send, 1, tag).map(|()| None),
        1 => world.recv(recv, 0, tag).map(Some),
        _ => Ok(None),
    }
}
