//! Long copies that two threads make together.
//!
//! One core can have only a limited number of cache lines in flight. Two cores have twice the number, and the sender
//! finds the lines that it has written in its own cache.

use crate::ring::{SharedCopy, Side};
use crate::sync::pause;

#[cfg(all(test, loom))]
mod model;

/// Bytes from which on the sender may help with a copy.
pub(super) const MIN_COOP: usize = 16 << 10;

/// Returns the bytes of a piece of a copy of `len` bytes. With longer pieces, the cache line of the shared counter
/// moves less often; with shorter ones, the wait for the other's last piece is shorter.
fn piece_len(len: usize) -> usize {
    match len {
        _ if cfg!(loom) => 1,
        0..0x2_0000 => 8 << 10,
        _ => 16 << 10,
    }
}

/// Number of the receiver's polls for the helper's last pieces before it yields its core.
const POLLS_BEFORE_YIELD: u32 = if cfg!(loom) { 0 } else { 2_000 };

/// The copies that one rank makes out of the memory of another, one after the other.
///
/// # Invariants
/// While a piece of a copy is unclaimed, or is claimed and not yet copied, the words of the `SharedCopy` hold the
/// addresses and the length of that copy, which are valid.
#[derive(Debug, Default)]
pub(super) struct SmCoopCopy(SharedCopy);

impl SmCoopCopy {
    /// Copies `len` bytes; `notify` notifies the owner of `from` that it may help. Returns how many pieces the owner
    /// has copied.
    ///
    /// # Safety
    /// `len` bytes at `from` may be read and do not change. `len` bytes at `to` may be written, and nobody else uses
    /// them. The provenance of both is exposed. Nobody else copies through this `SmCoopCopy` at the same time.
    pub(super) unsafe fn copy(&self, from: usize, to: usize, len: usize, notify: impl FnOnce()) -> u32 {
        let pieces = len.div_ceil(piece_len(len)) as u32;
        self.0.open(pieces, [from as u64, to as u64, len as u64, 0, 0]);
        notify();
        let mut mine = 0;
        while let Some(piece) = self.0.claim(Side::Front, |_| 1) {
            // SAFETY: we have claimed the piece, and do not count it.
            unsafe { self.copy_piece(piece.start) };
            mine += 1;
        }
        let theirs = pieces - mine;
        let mut round = 0_u32;
        while self.0.all_copied(theirs).is_none() {
            match round.checked_sub(POLLS_BEFORE_YIELD) {
                None => std::hint::spin_loop(),
                Some(round) => pause(round),
            }
            round = round.saturating_add(1);
        }
        theirs
    }

    /// Copies a piece, if one is left; returns whether there was one.
    pub(super) fn help(&self) -> bool {
        let Some(piece) = self.0.claim(Side::Back, |_| 1) else { return false };
        // SAFETY: we have claimed the piece; the receiver waits in `copy` until it is counted below.
        unsafe { self.copy_piece(piece.start) };
        self.0.count_finished(&piece, true);
        true
    }

    /// # Safety
    /// The caller has claimed the piece, and has not counted it as copied.
    unsafe fn copy_piece(&self, piece: u32) {
        let [from, to, all, ..] = self.0.words().map(|word| word as usize);
        let at = piece as usize * piece_len(all);
        let len = piece_len(all).min(all - at);
        let from = std::ptr::with_exposed_provenance::<u8>(from + at);
        let to = std::ptr::with_exposed_provenance_mut::<u8>(to + at);
        // SAFETY: the invariant: the bytes are within a valid copy, and no other piece contains any of them.
        unsafe { std::ptr::copy(from, to, len) };
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use super::*;
    use crate::sync::atomic::Ordering;

    /// Makes copies of many lengths, with or without a helper that polls all the time. Returns the number of its
    /// pieces.
    fn copies(with_help: bool) -> u32 {
        let (coop, over) = (SmCoopCopy::default(), AtomicBool::new(false));
        let mut helped = 0;
        thread::scope(|scope| {
            if with_help {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        coop.help();
                    }
                });
            }
            let (rounds, lengths): (u32, &[usize]) = if cfg!(miri) {
                (2, &[1, 8193])
            } else {
                (200, &[1, 8191, 8192, 8193, 40_001, 131_071, 131_072, 300_007])
            };
            for round in 0..rounds {
                let len = lengths[round as usize % lengths.len()];
                let from: Vec<u8> = (0..len as u32).map(|i| (i.wrapping_mul(7) + round) as u8).collect();
                let mut to = vec![0; len];
                let (src, dst) = (from.as_ptr().expose_provenance(), to.as_mut_ptr().expose_provenance());
                // SAFETY: both are `len` bytes that stay until the call returns; nobody else copies.
                helped += unsafe { coop.copy(src, dst, len, || ()) };
                assert!(to == from, "{len} bytes in round {round}");
            }
            over.store(true, Ordering::Relaxed);
        });
        helped
    }

    #[test]
    fn all_bytes_are_copied_without_help() {
        assert_eq!(copies(false), 0);
    }

    #[test]
    fn all_bytes_are_copied_with_help() {
        let tries = (0..20).find(|_| copies(true) > 0);
        assert!(tries.is_some(), "a helper that polls all the time has never found a piece");
    }
}
