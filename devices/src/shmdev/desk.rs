//! The words by which the other ranks of a host reach one rank.
//!
//! # How a rank is told of news
//! A sender writes its news, and then looks at the *state* of the receiver: one load, of a line that seldom changes. If the
//! state is 0 that is all. Two things can be in it:
//!
//! * [`ASLEEP`]: the sender takes it away, and then wakes the rank. Whoever finds it gone wakes nobody: it is enough that one
//!   does, and so no more datagrams lie in a socket than its owner went to sleep.
//! * [`CALLS`]: the receiver has more rings than it wants to poll. The sender sets its bit among the *calls*, by a locked
//!   instruction, before it looks whether the receiver sleeps. The receiver takes all bits at once, and what was written
//!   before a bit was set is there for who takes it.
//!
//! The bits are used for what is rare, too, in any state: that there is a new ring, and that a card is there which was asked
//! for.
//!
//! Neither side misses the other, by the pattern that `ring/README.md` tells: the sender writes its news (or its bit), makes a
//! light fence, and looks at the state; the receiver changes its state, makes a heavy fence, and looks at everything once more.

use std::fmt;
use std::ptr::NonNull;

use super::plan::LINE;
use crate::fence::Light;
use crate::ring::Owner;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// The owner sleeps, or is about to.
const ASLEEP: u32 = 1;
/// The owner was woken while it was awake: it must not sleep next time.
const RUNG: u32 = 2;
/// The owner looks only at rings whose senders have set their bit.
const CALLS: u32 = 4;

/// Words of the longest card.
const CARD: usize = 62;
/// Its length if the card is longer, and has to be had by another way.
const ELSEWHERE: u32 = u32::MAX;

/// The word that all senders look at, on a line of its own.
#[repr(C, align(64))]
struct State(AtomicU32);

#[repr(C, align(64))]
struct Words {
    state: State,
    /// Whether the rank has opened the device.
    is_taken: AtomicU32,
    /// Bytes of the card, once it is there.
    card_len: AtomicU32,
    /// The name of what the rank sleeps on.
    bell: AtomicU64,
    card: [AtomicU64; CARD],
}
#[cfg(not(loom))]
const _: () = assert!(size_of::<Words>() == 9 * LINE);

/// A card, as it lies in a desk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Card {
    /// These bytes.
    Inline(Vec<u8>),
    /// It has no room here.
    TooLong,
}

/// The words of one rank.
///
/// # Invariants
/// 1. `words` points to what was zero at first, `calls` and `askers` to words of which that is true, one bit a rank. They live
///    as long as `_owner`, and everybody uses them by atomic operations alone.
pub(super) struct ControlBlock {
    words: NonNull<Words>,
    ready: NonNull<[AtomicU64]>,
    askers: NonNull<[AtomicU64]>,
    _owner: Owner,
}

// SAFETY: invariant 1: atomics, which the owner keeps.
unsafe impl Send for ControlBlock {}
// SAFETY: as above.
unsafe impl Sync for ControlBlock {}

impl fmt::Debug for ControlBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Desk({:p})", self.words)
    }
}

/// Words of one bit a rank.
fn words(ranks: u32) -> usize {
    ranks.div_ceil(u64::BITS) as usize
}

fn place(of: u32) -> (usize, u64) {
    ((of / u64::BITS) as usize, 1 << (of % u64::BITS))
}

impl ControlBlock {
    fn bits(ranks: u32) -> usize {
        (words(ranks) * 8).next_multiple_of(LINE)
    }

    /// Returns the bytes of a desk among so many ranks.
    pub(super) fn bytes(ranks: u32) -> usize {
        size_of::<Words>() + 2 * Self::bits(ranks)
    }

    /// Makes a desk over memory.
    ///
    /// # Safety
    /// `base` is aligned to a line and points to [`bytes`](Self::bytes) bytes for which invariant 1 holds.
    pub(super) unsafe fn at(base: NonNull<u8>, ranks: u32, owner: Owner) -> Self {
        let bits = |offset: usize| {
            // SAFETY: the caller's promise: the bits lie inside, one array behind the other.
            let start = unsafe { base.add(size_of::<Words>() + offset) };
            NonNull::slice_from_raw_parts(start.cast::<AtomicU64>(), words(ranks))
        };
        ControlBlock { words: base.cast(), ready: bits(0), askers: bits(Self::bits(ranks)), _owner: owner }
    }

    /// Makes a desk for a model.
    #[cfg(all(test, loom))]
    pub(super) fn alone(ranks: u32) -> Self {
        type Bits = Box<[AtomicU64]>;
        struct Own(Words, Bits, Bits);
        let zeros = |count: usize| (0..count).map(|_| AtomicU64::new(0)).collect::<Bits>();
        let [is_taken, card_len, state] = std::array::from_fn(|_| AtomicU32::new(0));
        let card = std::array::from_fn(|_| AtomicU64::new(0));
        let words_ = Words { state: State(state), is_taken, card_len, bell: AtomicU64::new(0), card };
        let own = std::sync::Arc::new(Own(words_, zeros(words(ranks)), zeros(words(ranks))));
        let Own(at, calls, askers) = &*own;
        let (at, calls, askers) = (NonNull::from(at), NonNull::from(&**calls), NonNull::from(&**askers));
        ControlBlock { words: at, ready: calls, askers, _owner: own }
    }

    #[inline]
    fn words(&self) -> &Words {
        // SAFETY: invariant 1.
        unsafe { self.words.as_ref() }
    }

    #[inline]
    fn state(&self) -> &AtomicU32 {
        &self.words().state.0
    }

    /// Takes the desk, once for the life of the job: its rank's rings have one end each. Returns whether it was free.
    pub(super) fn claim(&self, bell: u64) -> bool {
        let is_free = self.words().is_taken.swap(1, Ordering::Relaxed) == 0;
        if is_free {
            self.set_bell(bell);
        }
        is_free
    }

    /// Says by which name the rank is woken.
    pub(super) fn set_bell(&self, bell: u64) {
        self.words().bell.store(bell, Ordering::Relaxed);
    }

    /// Returns the name of what the rank sleeps on; 0 if it has not come.
    pub(super) fn bell(&self) -> u64 {
        self.words().bell.load(Ordering::Relaxed)
    }

    /// Tells the owner of what `from` has written before; returns whether it must be woken.
    #[inline]
    pub(super) fn notify(&self, from: u32, light: Light) -> bool {
        light.fence();
        // SYNC desk-state (the fences order it)
        let state = self.state().load(Ordering::Relaxed);
        state & (ASLEEP | CALLS) != 0 && self.tell_more(state, from, light)
    }

    #[inline(never)]
    fn tell_more(&self, state: u32, from: u32, light: Light) -> bool {
        if state & CALLS != 0 { self.set_ready(from, light) } else { self.take_sleep() }
    }

    /// Sets the bit of `from`, and returns whether the owner must be woken.
    pub(super) fn set_ready(&self, from: u32, light: Light) -> bool {
        let (word, bit) = place(from);
        // SAFETY: invariant 1.
        if let Some(word) = unsafe { self.ready.as_ref() }.get(word) {
            // SYNC desk-call (release)
            word.fetch_or(bit, Ordering::Release);
        }
        light.fence();
        self.state().load(Ordering::Relaxed) & ASLEEP != 0 && self.take_sleep()
    }

    /// Takes the owner's sleep away, and returns whether this is who has to wake it.
    fn take_sleep(&self) -> bool {
        self.state().fetch_and(!ASLEEP, Ordering::Relaxed) & ASLEEP != 0
    }

    /// Ends the owner's present sleep or, if it is awake, its next one; returns whether it must be woken.
    pub(super) fn force_wake(&self) -> bool {
        let next = |state| Some(if state & ASLEEP == 0 { state | RUNG } else { state & !ASLEEP });
        self.state()
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next)
            .is_ok_and(|old| old & ASLEEP != 0)
    }

    /// Says that the owner is about to sleep, after which it makes a heavy fence and looks for news once more. Returns
    /// whether it was roused and must not.
    pub(super) fn prepare_sleep(&self) -> bool {
        let next = |state| Some(state & CALLS | ASLEEP);
        self.state().fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok_and(|old| old & RUNG != 0)
    }

    /// Says that the owner is awake.
    pub(super) fn clear_asleep(&self) {
        self.take_sleep();
    }

    /// Has senders set their bits from now on. The owner makes a heavy fence and looks for news once more.
    pub(super) fn enable_bitmap(&self) {
        self.state().fetch_or(CALLS, Ordering::Relaxed);
    }

    /// Returns whether any bit is set.
    #[inline]
    pub(super) fn is_called(&self) -> bool {
        // SAFETY: invariant 1.
        unsafe { self.ready.as_ref() }.iter().any(|word| word.load(Ordering::Relaxed) != 0)
    }

    /// Takes the bits of the ranks from `64 × word` on.
    #[inline]
    pub(super) fn take_calls(&self, word: usize) -> u64 {
        // SAFETY: invariant 1.
        match unsafe { self.ready.as_ref() }.get(word) {
            // SYNC desk-call (acquire)
            Some(word) if word.load(Ordering::Relaxed) != 0 => word.swap(0, Ordering::Acquire),
            _ => 0,
        }
    }

    /// Whether a card is short enough to lie in a desk.
    pub(super) fn has_room_for(card: &[u8]) -> bool {
        card.len() <= 8 * CARD
    }

    /// Puts the owner's card down; returns those who have asked for it.
    pub(super) fn put_card(&self, card: &[u8]) -> Vec<u32> {
        let words = self.words();
        let len = if Self::has_room_for(card) { card.len() as u32 } else { ELSEWHERE };
        for (word, bytes) in words.card.iter().zip(card.chunks(8)) {
            let mut padded = [0; 8];
            padded[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_ne_bytes(padded), Ordering::Relaxed);
        }
        // SYNC desk-card (release). An empty card is as good as none.
        words.card_len.store(len, Ordering::Release);
        fence(Ordering::SeqCst);
        // SAFETY: invariant 1.
        let askers = unsafe { self.askers.as_ref() };
        // SYNC desk-asker (acquire)
        let bits = askers.iter().map(|word| word.swap(0, Ordering::Acquire));
        (0u32..).zip(bits).flat_map(|(word, bits)| set(bits).map(move |bit| word * u64::BITS + bit)).collect()
    }

    /// Returns the owner's card, if it is there.
    pub(super) fn card(&self) -> Option<Card> {
        let words = self.words();
        // SYNC desk-card (acquire)
        match words.card_len.load(Ordering::Acquire) {
            0 => None,
            len if len as usize <= 8 * CARD => {
                let bytes = words.card.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes());
                Some(Card::Inline(bytes.take(len as usize).collect()))
            }
            _ => Some(Card::TooLong),
        }
    }

    /// Has the owner call `asker` when its card is there; the asker then looks for it once more.
    pub(super) fn ask_for_card(&self, asker: u32) {
        let (word, bit) = place(asker);
        // SAFETY: invariant 1.
        if let Some(word) = unsafe { self.askers.as_ref() }.get(word) {
            // SYNC desk-asker (release)
            word.fetch_or(bit, Ordering::Release);
        }
        fence(Ordering::SeqCst);
    }
}

/// Returns which bits are set.
#[inline]
pub(super) fn set(mut bits: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let bit = (bits != 0).then(|| bits.trailing_zeros())?;
        bits &= bits - 1;
        Some(bit)
    })
}
