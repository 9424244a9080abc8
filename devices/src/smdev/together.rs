//! A long copy that two threads make together.
//!
//! One core has so many lines on their way and no more, and each line that the other core has just written comes from there.
//! Two cores have twice as many, and the sender finds what it has written in its own cache.

use crate::ring::{SharedCopy, Side};
use crate::sync::pause;

#[cfg(all(test, loom))]
mod model;

/// Bytes from which on a copy is made together.
pub(super) const FROM: usize = 16 << 10;

/// How many bytes the pieces have of a copy of `len`: both threads take them from one word, which goes back and forth between
/// them, and wait for each other's last one.
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
/// The words of the pieces are the addresses and the length of a copy that may be made while a piece of it is left, or was
/// taken and has yet to be copied.
#[derive(Debug, Default)]
pub(super) struct CoopCopy(SharedCopy);

impl CoopCopy {
    /// Copies `len` bytes; `call` tells the owner of `from` that it may help. Returns how many pieces it has helped with.
    ///
    /// # Safety
    /// `len` bytes at `from` may be read and do not change, as many at `to` may be written and nobody else uses them; the
    /// provenance of both is exposed. Nobody else copies by this `CoopCopy` at the same time.
    pub(super) unsafe fn copy(&self, from: usize, to: usize, len: usize, call: impl FnOnce()) -> u32 {
        let pieces = len.div_ceil(piece_of(len)) as u32;
        self.0.open(pieces, [from as u64, to as u64, len as u64, 0, 0]);
        call();
        let mut mine = 0;
        while let Some(piece) = self.0.take(Side::Front, |_| 1) {
            // SAFETY: the piece was taken by us; the invariant.
            unsafe { self.copy_piece(piece.start) };
            mine += 1;
        }
        let theirs = pieces - mine;
        let mut round = 0_u32;
        while self.0.are_copied(theirs).is_none() {
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
        let Some(piece) = self.0.take(Side::Back, |_| 1) else { return false };
        // SAFETY: the piece was taken by us; who called waits in `copy` until it is counted below.
        unsafe { self.copy_piece(piece.start) };
        self.0.count(&piece, true);
        true
    }

    /// # Safety
    /// The piece was taken by the caller, and is not yet counted as copied.
    unsafe fn copy_piece(&self, piece: u32) {
        let [from, to, all, ..] = self.0.words().map(|word| word as usize);
        let at = piece as usize * piece_of(all);
        let len = piece_of(all).min(all - at);
        let from = std::ptr::with_exposed_provenance::<u8>(from + at);
        let to = std::ptr::with_exposed_provenance_mut::<u8>(to + at);
        // SAFETY: the invariant: the bytes lie within a copy that may be made, and no other piece has any of them.
        unsafe { std::ptr::copy(from, to, len) };
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use super::*;
    use crate::sync::atomic::Ordering;

    /// Copies of many lengths, odd ones among them, with or without a helper that looks all the time.
    fn copies(with_help: bool) -> u32 {
        let (together, over) = (CoopCopy::default(), AtomicBool::new(false));
        let mut helped = 0;
        thread::scope(|scope| {
            if with_help {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        together.help();
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
