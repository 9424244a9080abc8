//! A long copy that two threads make together: who receives copies from the front on, and who sends, if it looks for news
//! meanwhile, from the end.
//!
//! One core has so many lines on their way and no more, and each line that the other core has just written comes from there.
//! Two cores have twice as many, and the sender finds what it has written in its own cache.
//!
//! ```text
//!   who receives (copy)             pieces                who sends (help)
//!   opens them, rings          0 1 2 3 4 5 6 7
//!   takes the first left  ──►  ■ ■ ■ ■ . . ■ ■  ◄──  takes the last left
//!   waits for the helper's pieces when none is left
//! ```
//! Nobody waits for a helper that does not come: it has taken nothing.

use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::sync::pause;

#[cfg(all(test, loom))]
mod model;

/// Bytes from which on a copy is made together.
pub(super) const FROM: usize = 16 << 10;

/// Returns the bytes of a piece of so many: both threads take pieces from one word, which goes back and forth between them,
/// and wait for each other's last one.
fn piece_of(len: usize) -> usize {
    match len {
        _ if cfg!(loom) => 1,
        0..0x2_0000 => 8 << 10,
        _ => 16 << 10,
    }
}

/// How often who receives looks whether the helper has copied its piece, before it lets others run.
const LOOKS: u32 = if cfg!(loom) { 0 } else { 2_000 };

/// The copies that one rank makes out of the memory of another, one after the other.
///
/// # Invariants
/// 1. `from`, `to` and `len` name a copy that may be made whenever `first < last` in `left`, and do not change while a
///    piece that was taken has yet to be copied.
/// 2. Each piece is taken once.
#[derive(Debug, Default)]
pub(super) struct Together {
    /// The pieces nobody has taken: `first` (low half) to before `last`.
    left: AtomicU64,
    /// The pieces that the helper has copied.
    helped: AtomicUsize,
    from: AtomicUsize,
    to: AtomicUsize,
    len: AtomicUsize,
}

/// Which end of the pieces that are left somebody takes from.
#[derive(Clone, Copy, Debug)]
enum End {
    First,
    Last,
}

impl Together {
    /// Copies `len` bytes; `call` tells the owner of `from` that it may help. Returns how many pieces it has helped with.
    ///
    /// # Safety
    /// `len` bytes at `from` may be read and do not change, as many at `to` may be written and nobody else uses them; the
    /// provenance of both is exposed. Nobody else copies by this `Together` at the same time.
    pub(super) unsafe fn copy(&self, from: usize, to: usize, len: usize, call: impl FnOnce()) -> usize {
        let pieces = len.div_ceil(piece_of(len));
        self.from.store(from, Ordering::Relaxed);
        self.to.store(to, Ordering::Relaxed);
        self.len.store(len, Ordering::Relaxed);
        self.helped.store(0, Ordering::Relaxed);
        // SYNC together-open (release)
        self.left.store((pieces as u64) << 32, Ordering::Release);
        call();
        let mut mine = 0;
        while let Some(piece) = self.take(End::First) {
            // SAFETY: the piece was taken by us; invariant 1.
            unsafe { self.copy_piece(piece) };
            mine += 1;
        }
        let theirs = pieces - mine;
        let mut round = 0_u32;
        // SYNC together-helped (acquire)
        while self.helped.load(Ordering::Acquire) < theirs {
            match round.checked_sub(LOOKS) {
                None => std::hint::spin_loop(),
                Some(round) => pause(round),
            }
            round = round.saturating_add(1);
        }
        theirs
    }

    /// Copies a piece, if one is left; returns whether there was one.
    pub(super) fn help(&self) -> bool {
        let Some(piece) = self.take(End::Last) else { return false };
        // SAFETY: the piece was taken by us; who called waits in `copy` until it is counted below (invariant 1).
        unsafe { self.copy_piece(piece) };
        // SYNC together-helped (release)
        self.helped.fetch_add(1, Ordering::Release);
        true
    }

    /// Takes a piece that nobody has taken.
    fn take(&self, end: End) -> Option<usize> {
        // SYNC together-open (acquire)
        let mut left = self.left.load(Ordering::Acquire);
        loop {
            let (first, last) = (left & u64::from(u32::MAX), left >> 32);
            if first >= last {
                return None;
            }
            let (piece, rest) = match end {
                End::First => (first, left + 1),
                End::Last => (last - 1, left - (1 << 32)),
            };
            // SYNC together-open (acquire): a copy that was opened since may look the same, and is another one.
            match self.left.compare_exchange_weak(left, rest, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => return Some(piece as usize),
                Err(now) => left = now,
            }
        }
    }

    /// # Safety
    /// The piece was taken by the caller, and is not yet counted as copied.
    unsafe fn copy_piece(&self, piece: usize) {
        let (from, to) = (self.from.load(Ordering::Relaxed), self.to.load(Ordering::Relaxed));
        let all = self.len.load(Ordering::Relaxed);
        let at = piece * piece_of(all);
        let len = piece_of(all).min(all - at);
        let from = std::ptr::with_exposed_provenance::<u8>(from + at);
        let to = std::ptr::with_exposed_provenance_mut::<u8>(to + at);
        // SAFETY: invariant 1: the bytes lie within a copy that may be made, and no other piece has any of them.
        unsafe { std::ptr::copy(from, to, len) };
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use super::*;

    /// Copies of many lengths, odd ones among them, with or without a helper that looks all the time.
    fn copies(with_help: bool) -> usize {
        let (together, over) = (Together::default(), AtomicBool::new(false));
        let mut helped = 0;
        thread::scope(|scope| {
            if with_help {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        together.help();
                    }
                });
            }
            for round in 0..200_u32 {
                let len = [1, 8191, 8192, 8193, 40_001, 131_071, 131_072, 300_007][round as usize % 8];
                let from: Vec<u8> = (0..len as u32).map(|i| (i.wrapping_mul(7) + round) as u8).collect();
                let mut to = vec![0; len];
                let (src, dst) = (from.as_ptr().expose_provenance(), to.as_mut_ptr().expose_provenance());
                // SAFETY: both are `len` bytes that stay until it returns; nobody else copies.
                helped += unsafe { together.copy(src, dst, len, || ()) };
                assert!(to == from, "{len} bytes in round {round}");
            }
            over.store(true, Ordering::Relaxed);
        });
        helped
    }

    #[test]
    fn all_is_copied_when_it_returns_and_nobody_helps() {
        assert_eq!(copies(false), 0);
    }

    #[test]
    fn all_is_copied_when_it_returns_and_somebody_helps() {
        let tries = (0..20).find(|_| copies(true) > 0);
        assert!(tries.is_some(), "a helper that looks all the time has never found a piece");
    }
}
