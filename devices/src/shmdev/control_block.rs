//! The control block of a rank: the words by which the other ranks of the host notify it, and its card.
//!
//! # How a rank is notified
//! A sender writes a frame to its ring and then reads the *state* of the receiver: one load, of a line that rarely
//! changes. If neither of these two bits is set, the sender does nothing more:
//!
//! * [`ASLEEP`]: the sender clears the bit and then wakes the rank. A sender that finds the bit cleared does not wake
//!   it. So other ranks send at most one datagram for each sleep that the rank begins.
//! * [`USES_BITMAP`]: the receiver has many rings, and normally polls only those whose bits are set. The sender sets
//!   its bit in the *ready bits* before it checks whether the receiver sleeps. The receiver takes the bits of 64
//!   ranks at once, and then sees the frames that were written before a bit was set.
//!
//! In any state, the ready bits also announce rare events: a new ring, and a requested card that has been published.
//!
//! No wake-up is lost, by the pattern of `ring/README.md`. The sender writes its frame (or its bit), executes a light
//! fence, and reads the state. The receiver changes its state, executes a heavy fence, and polls once more.

use std::fmt;
use std::ptr::NonNull;

use crate::fence::LightFence;
use crate::ring::Owner;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

pub(super) const LINE: usize = 64;

/// The owner sleeps, or is about to.
const ASLEEP: u32 = 1;
/// The owner was woken while it was awake: it must not sleep the next time.
const WOKEN: u32 = 2;
/// Senders set their ready bits: the owner normally polls only the rings whose bits are set.
const USES_BITMAP: u32 = 4;

/// Words of the longest card that fits.
const CARD_WORDS: usize = 62;
/// The value of `card_len` if the card does not fit. Other ranks must obtain it in another way.
const TOO_LONG: u32 = u32::MAX;

/// All senders read it, so it is on a line of its own.
#[repr(C, align(64))]
struct State(AtomicU32);

#[repr(C, align(64))]
struct ControlWords {
    state: State,
    is_claimed: AtomicU32,
    /// The length of the card in bytes, or [`TOO_LONG`]; 0 before it is published.
    card_len: AtomicU32,
    /// The name of the socket that the rank sleeps on; 0 before it has opened the device.
    wakeup_name: AtomicU64,
    card: [AtomicU64; CARD_WORDS],
}
#[cfg(not(loom))]
const _: () = assert!(size_of::<ControlWords>() == 9 * LINE);

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum StoredCard {
    Inline(Vec<u8>),
    /// The card does not fit into the control block.
    TooLong,
}

/// The control words of one rank.
///
/// # Invariants
/// 1. `words`, `ready` and `card_waiters` point to memory that was zero at first. `ready` and `card_waiters` have one
///    bit for each rank. All three live as long as `_owner`, and all processes use them only by atomic operations.
pub(super) struct ControlBlock {
    words: NonNull<ControlWords>,
    ready: NonNull<[AtomicU64]>,
    card_waiters: NonNull<[AtomicU64]>,
    _owner: Owner,
}

// SAFETY: invariant 1: the words are atomics, which the owner keeps alive.
unsafe impl Send for ControlBlock {}
// SAFETY: as above.
unsafe impl Sync for ControlBlock {}

impl fmt::Debug for ControlBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ControlBlock({:p})", self.words)
    }
}

fn bitmap_words(ranks: u32) -> usize {
    ranks.div_ceil(u64::BITS) as usize
}

fn bit_of(of: u32) -> (usize, u64) {
    ((of / u64::BITS) as usize, 1 << (of % u64::BITS))
}

impl ControlBlock {
    fn bitmap_bytes(ranks: u32) -> usize {
        (bitmap_words(ranks) * 8).next_multiple_of(LINE)
    }

    /// Returns the size in bytes of a control block for `ranks` ranks.
    pub(super) fn bytes(ranks: u32) -> usize {
        size_of::<ControlWords>() + 2 * Self::bitmap_bytes(ranks)
    }

    /// # Safety
    /// `base` is aligned to a line and points to [`bytes`](Self::bytes) bytes for which invariant 1 holds.
    pub(super) unsafe fn at(base: NonNull<u8>, ranks: u32, owner: Owner) -> Self {
        let bitmap = |offset: usize| {
            // SAFETY: the caller's promise: the bits are inside, one array after the other.
            let start = unsafe { base.add(size_of::<ControlWords>() + offset) };
            NonNull::slice_from_raw_parts(start.cast::<AtomicU64>(), bitmap_words(ranks))
        };
        ControlBlock {
            words: base.cast(),
            ready: bitmap(0),
            card_waiters: bitmap(Self::bitmap_bytes(ranks)),
            _owner: owner,
        }
    }

    #[cfg(all(test, loom))]
    pub(super) fn for_model(ranks: u32) -> Self {
        type Bits = Box<[AtomicU64]>;
        struct Memory(ControlWords, Bits, Bits);
        let zeros = |count: usize| (0..count).map(|_| AtomicU64::new(0)).collect::<Bits>();
        let [is_claimed, card_len, state] = std::array::from_fn(|_| AtomicU32::new(0));
        let card = std::array::from_fn(|_| AtomicU64::new(0));
        let control_words =
            ControlWords { state: State(state), is_claimed, card_len, wakeup_name: AtomicU64::new(0), card };
        let count = bitmap_words(ranks);
        let memory = std::sync::Arc::new(Memory(control_words, zeros(count), zeros(count)));
        let Memory(at, ready, card_waiters) = &*memory;
        let (at, ready, card_waiters) =
            (NonNull::from(at), NonNull::from(&**ready), NonNull::from(&**card_waiters));
        ControlBlock { words: at, ready, card_waiters, _owner: memory }
    }

    #[inline]
    fn words(&self) -> &ControlWords {
        // SAFETY: invariant 1.
        unsafe { self.words.as_ref() }
    }

    #[inline]
    fn state(&self) -> &AtomicU32 {
        &self.words().state.0
    }

    /// Claims the control block, once in the life of the job, because each ring must have only one producer and one
    /// consumer. Returns whether the control block was free.
    pub(super) fn claim(&self, wakeup_name: u64) -> bool {
        let is_free = self.words().is_claimed.swap(1, Ordering::Relaxed) == 0;
        if is_free {
            self.set_wakeup_name(wakeup_name);
        }
        is_free
    }

    pub(super) fn set_wakeup_name(&self, wakeup_name: u64) {
        self.words().wakeup_name.store(wakeup_name, Ordering::Relaxed);
    }

    pub(super) fn wakeup_name(&self) -> u64 {
        self.words().wakeup_name.load(Ordering::Relaxed)
    }

    /// Notifies the owner of the frames that `from` wrote before; returns whether the caller must wake the owner.
    #[inline]
    pub(super) fn notify(&self, from: u32, light: LightFence) -> bool {
        light.fence();
        // SYNC control-state (the fences order it)
        let state = self.state().load(Ordering::Relaxed);
        state & (ASLEEP | USES_BITMAP) != 0 && self.notify_slow(state, from, light)
    }

    #[inline(never)]
    fn notify_slow(&self, state: u32, from: u32, light: LightFence) -> bool {
        if state & USES_BITMAP != 0 { self.set_ready(from, light) } else { self.claim_wakeup() }
    }

    /// Sets the ready bit of `from`, and returns whether the caller must wake the owner.
    pub(super) fn set_ready(&self, from: u32, light: LightFence) -> bool {
        let (word, bit) = bit_of(from);
        // SAFETY: invariant 1.
        if let Some(word) = unsafe { self.ready.as_ref() }.get(word) {
            // SYNC ready-bit (release)
            word.fetch_or(bit, Ordering::Release);
        }
        light.fence();
        self.state().load(Ordering::Relaxed) & ASLEEP != 0 && self.claim_wakeup()
    }

    /// Clears `ASLEEP`. Returns whether it was set; then the caller must wake the owner.
    fn claim_wakeup(&self) -> bool {
        self.state().fetch_and(!ASLEEP, Ordering::Relaxed) & ASLEEP != 0
    }

    /// Ends the owner's present sleep or, if it is awake, its next one. Returns whether the caller must wake the owner.
    pub(super) fn force_wake(&self) -> bool {
        let next = |state| Some(if state & ASLEEP == 0 { state | WOKEN } else { state & !ASLEEP });
        self.state()
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next)
            .is_ok_and(|old| old & ASLEEP != 0)
    }

    /// Announces that the owner is about to sleep. Afterwards the owner executes a heavy fence and polls once more.
    /// Returns whether the owner was woken while it was awake and must not sleep.
    pub(super) fn prepare_sleep(&self) -> bool {
        let next = |state| Some(state & USES_BITMAP | ASLEEP);
        self.state()
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next)
            .is_ok_and(|old| old & WOKEN != 0)
    }

    pub(super) fn clear_asleep(&self) {
        self.claim_wakeup();
    }

    /// Makes senders set their ready bits from now on. Afterwards the owner executes a heavy fence and polls once more.
    pub(super) fn enable_bitmap(&self) {
        self.state().fetch_or(USES_BITMAP, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn has_ready(&self) -> bool {
        // SAFETY: invariant 1.
        unsafe { self.ready.as_ref() }.iter().any(|word| word.load(Ordering::Relaxed) != 0)
    }

    /// Takes the ready bits of the 64 ranks from `64 × word` on.
    #[inline]
    pub(super) fn take_ready(&self, word: usize) -> u64 {
        // SAFETY: invariant 1.
        match unsafe { self.ready.as_ref() }.get(word) {
            // SYNC ready-bit (acquire)
            Some(word) if word.load(Ordering::Relaxed) != 0 => word.swap(0, Ordering::Acquire),
            _ => 0,
        }
    }

    pub(super) fn has_room_for(card: &[u8]) -> bool {
        card.len() <= 8 * CARD_WORDS
    }

    /// Publishes the owner's card; returns the ranks that have requested it.
    pub(super) fn put_card(&self, card: &[u8]) -> Vec<u32> {
        let words = self.words();
        let len = if Self::has_room_for(card) { card.len() as u32 } else { TOO_LONG };
        for (word, bytes) in words.card.iter().zip(card.chunks(8)) {
            let mut padded = [0; 8];
            padded[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_ne_bytes(padded), Ordering::Relaxed);
        }
        // SYNC stored-card (release). For an empty card `card` returns `None`.
        words.card_len.store(len, Ordering::Release);
        fence(Ordering::SeqCst);
        // SAFETY: invariant 1.
        let card_waiters = unsafe { self.card_waiters.as_ref() };
        // SYNC card-waiter (acquire)
        let bits = card_waiters.iter().map(|word| word.swap(0, Ordering::Acquire));
        (0u32..)
            .zip(bits)
            .flat_map(|(word, bits)| set_bits(bits).map(move |bit| word * u64::BITS + bit))
            .collect()
    }

    pub(super) fn card(&self) -> Option<StoredCard> {
        let words = self.words();
        // SYNC stored-card (acquire)
        match words.card_len.load(Ordering::Acquire) {
            0 => None,
            len if len as usize <= 8 * CARD_WORDS => {
                let bytes = words.card.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes());
                Some(StoredCard::Inline(bytes.take(len as usize).collect()))
            }
            _ => Some(StoredCard::TooLong),
        }
    }

    /// Requests that the owner notify `waiter` when the owner's card is published. Afterwards the waiter must check for
    /// the card once more.
    pub(super) fn add_card_waiter(&self, waiter: u32) {
        let (word, bit) = bit_of(waiter);
        // SAFETY: invariant 1.
        if let Some(word) = unsafe { self.card_waiters.as_ref() }.get(word) {
            // SYNC card-waiter (release)
            word.fetch_or(bit, Ordering::Release);
        }
        fence(Ordering::SeqCst);
    }
}

/// Returns the indices of the set bits.
#[inline]
pub(super) fn set_bits(mut bits: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let bit = (bits != 0).then(|| bits.trailing_zeros())?;
        bits &= bits - 1;
        Some(bit)
    })
}
