//! Single copies that two processes make together. The receiver has the kernel read pieces of the sender's memory, from
//! the front. The sender, while it polls, has the kernel write pieces to the receiver's memory, from the back.
//!
//! ```text
//!   receiver                                          sender
//!   exposes the destination under a number
//!   opens the pieces, notifies the sender ──────────► claims the last pieces
//!   reads the first pieces                            checks its own number and the receiver's, and writes the pieces
//!   spins for a moment, or completes later ◄───────── counts them
//! ```
//! A piece that the sender has claimed may be written to the receiver's memory until the sender has counted it, or is
//! gone. A receiver that has polled for the count in vain leaves the copy to `debts`.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::cma::{CmaKey, ExposedTable, PeerMemory};
use super::pending_writes::{PendingWrite, PendingWrites};
use crate::device::{MemoryPart, OpStatus, OpToken, PostError, RemoteKey};
use crate::ring::{Ring, SharedCopy, Side};
use crate::sync::{Mutex, lock};

/// Bytes from which on the sender may help with a copy.
const FROM: usize = 16 << 10;

/// Bytes of a piece.
const PIECE: usize = 4 << 10;

/// The most pieces that are copied in one call.
const AT_ONCE: u32 = 16;

/// How often the receiver polls for the sender's pieces before it leaves the copy to be completed later.
const LOOKS: u32 = 2_000;

/// Returns how many of the `left` pieces to claim at once. The number is large because each system call has its price.
/// It is smaller near the end, where the two ranks wait for each other.
fn pieces_per_claim(left: u32) -> u32 {
    (left / 2).clamp(AT_ONCE / 2, AT_ONCE)
}

/// The state of cooperative copies that the endpoints and the inlet of one rank share.
#[derive(Debug)]
pub(super) struct CoopCopy {
    shown: Arc<ExposedTable>,
    /// The memory of the ranks that this rank sends to, by index.
    windows: Mutex<Vec<Option<PeerMemory>>>,
    debts: PendingWrites,
    /// Whether senders are asked to help. They are asked only if each rank has a core, so that no sender is descheduled
    /// in the middle of a piece while the receiver waits for it.
    wants_help: bool,
}

/// The cooperative copies out of one peer's memory.
#[derive(Debug)]
pub(super) struct PeerCopies {
    /// The ring to that peer, which holds the shared state of the copies.
    pub(super) ring: Arc<Ring>,
    /// The index of the peer.
    pub(super) index: u32,
    /// Whether one of them waits for the peer.
    pub(super) has_pending: AtomicBool,
    /// Whether the peer failed to copy a piece: it is not asked again.
    pub(super) help_failed: AtomicBool,
}

impl PeerCopies {
    pub(super) fn new(ring: Arc<Ring>, index: u32) -> Arc<Self> {
        Arc::new(PeerCopies {
            ring,
            index,
            has_pending: AtomicBool::new(false),
            help_failed: AtomicBool::new(false),
        })
    }
}

impl CoopCopy {
    pub(super) fn new(shown: &Arc<ExposedTable>, ranks: u32, asks: bool) -> Arc<Self> {
        Arc::new(CoopCopy {
            shown: Arc::clone(shown),
            windows: Mutex::new(vec![None; ranks as usize]),
            debts: PendingWrites::default(),
            wants_help: asks,
        })
    }

    /// Returns the copies that wait for their senders.
    pub(super) fn pending_writes(&self) -> &PendingWrites {
        &self.debts
    }

    /// Records the memory of a rank that this one sends to.
    pub(super) fn set_peer_memory(&self, index: u32, window: Option<PeerMemory>) {
        if let Some(known) = lock(&self.windows).get_mut(index as usize) {
            *known = window;
        }
    }

    /// Copies bytes that a peer exposes; `call` notifies the peer that it may help.
    ///
    /// # Safety
    /// `to` is writable, and nobody else uses it until this returns or, if it returns `InProgress`, until `op` is
    /// completed.
    pub(super) unsafe fn copy(
        &self,
        window: PeerMemory,
        copies: &Arc<PeerCopies>,
        (key, at): (&RemoteKey, u64),
        to: MemoryPart<'_>,
        op: OpToken,
        call: impl FnOnce(),
    ) -> Result<OpStatus, PostError> {
        let alone = !self.wants_help
            || to.bidirectional
            || to.len < FROM
            || copies.has_pending.load(Ordering::Acquire)
            || copies.help_failed.load(Ordering::Relaxed);
        let shown = if alone { None } else { self.shown.expose(to.memory) };
        let (Some(showing), Some(run)) = (shown, to.contiguous()) else {
            // SAFETY: the caller's promise.
            return unsafe { window.copy(key, at, to) };
        };
        let CmaKey { number, address } = CmaKey::read(key)?;
        let from = address.checked_add(at).ok_or_else(|| CmaKey::garbage(key))?;
        let all = to.len.div_ceil(PIECE) as u32;
        let pieces = copies.ring.pieces();
        let what = [number, from, run.expose_provenance() as u64, to.len as u64];
        pieces.open(all, showing.publish_checksum(what));
        call();
        let (mut mine, mut outcome, mut is_void) = (0, Ok(OpStatus::Done), false);
        while let Some(taken) = pieces.claim(Side::Front, pieces_per_claim) {
            if taken.start != mine || taken.end > all {
                // The word was overwritten.
                pieces.close();
                is_void = true;
                break;
            }
            mine = taken.end;
            if outcome.is_ok() {
                let (begin, end) = (taken.start as usize * PIECE, to.len.min(taken.end as usize * PIECE));
                let part = MemoryPart { at: to.at + begin, len: end - begin, ..to };
                // SAFETY: the caller's promise; the pieces are ours.
                outcome = unsafe { window.copy(key, at + begin as u64, part) };
            }
        }
        let theirs = all - mine;
        for _ in 0..if is_void { 0 } else { LOOKS } {
            match pieces.all_copied(theirs) {
                Some(true) => return outcome,
                Some(false) => {
                    // A sender that still exposes the memory cannot write at all: do not ask it again.
                    copies.help_failed.store(outcome.is_ok() && window.peer_exposes(key), Ordering::Relaxed);
                    return outcome.and(Err(PostError::Unsupported));
                }
                None => std::hint::spin_loop(),
            }
        }
        let outcome = outcome.map(drop).map_err(|error| format!("{error:?}"));
        let (copies, process) = (Arc::clone(copies), window.process());
        self.debts.defer(PendingWrite {
            copies,
            pieces: theirs,
            op,
            outcome,
            must_fail: is_void,
            is_old: false,
            window,
            showing,
            process,
        })
    }

    /// Copies some of the pieces of a copy that a peer makes out of this rank's memory. Returns whether that succeeded,
    /// or `None` if no piece is left.
    #[cold]
    pub(super) fn help(&self, index: u32, pieces: &SharedCopy) -> Option<bool> {
        let taken = pieces.claim(Side::Back, pieces_per_claim)?;
        let are_copied = self.write(index, &taken, pieces.words()).is_some();
        pieces.finish(&taken, are_copied);
        Some(are_copied)
    }

    /// Writes pieces to the memory of the receiver. Returns `None` if that is impossible, or if one of the two has
    /// revoked its memory.
    fn write(&self, index: u32, pieces: &Range<u32>, words: [u64; 5]) -> Option<()> {
        let [number, from, to, len, theirs] = words;
        let window = (*lock(&self.windows).get(index as usize)?)?;
        let at = PIECE as u64 * u64::from(pieces.start);
        let len = len.min(PIECE as u64 * u64::from(pieces.end)).checked_sub(at)? as usize;
        let (to, from) = (to.checked_add(at)?, from.checked_add(at)?);
        self.shown.with_hazard(theirs, || {
            // These checks fail for words that were overwritten, for memory that was revoked, and for another process
            // that has the id of one that has died.
            if !self.shown.is_exposed(number) || !window.checksum_matches(words) {
                return None;
            }
            // SAFETY: the receiver has exposed that memory for this, and waits while this rank announces that it
            // writes.
            unsafe { window.write(to, from, len) }?;
            self.shown.is_exposed(number).then_some(())
        })
    }
}

#[cfg(all(test, target_os = "linux", not(mpj_portable), not(miri), not(loom)))]
pub(super) mod tests {
    use mpj_datatypes::Primitive;

    use super::*;
    use crate::device::{Landing, MemoryDesc, PeerId, Registration, Sink};

    /// The completed operations that a sink was told of.
    #[derive(Default)]
    pub(in super::super) struct Told(pub(in super::super) Vec<(OpToken, bool)>);

    // SAFETY: it gives no memory to the device.
    unsafe impl Sink for Told {
        fn frame(&mut self, _: PeerId, _: &[u8], _: &[u8]) {}
        fn begin(&mut self, _: PeerId, _: &[u8], _: usize) -> Landing {
            Landing::Pieces
        }
        fn piece(&mut self, _: PeerId, _: &[u8]) {}
        fn landed(&mut self, _: PeerId) {}
        fn peer_lost(&mut self, _: PeerId, _: &str) {}
        fn completed(&mut self, op: OpToken, outcome: Result<(), String>) {
            self.0.push((op, outcome.is_ok()));
        }
        fn quiesced(&mut self, _: OpToken) {}
    }

    const OP: OpToken = OpToken(5);

    /// Rank 0 receives from rank 1, which exposes `source`; both are of this process.
    struct Pair {
        receiver: Arc<CoopCopy>,
        sender: Arc<CoopCopy>,
        window: PeerMemory,
        ring: Arc<Ring>,
        copies: Arc<PeerCopies>,
        source: Vec<u8>,
    }

    fn memory(bytes: &mut [u8]) -> MemoryDesc {
        MemoryDesc::new(bytes.as_mut_ptr(), bytes.len(), Primitive::Byte.into()).unwrap()
    }

    impl Pair {
        fn new(len: usize) -> Self {
            let (mine, theirs) = (ExposedTable::new(), ExposedTable::new());
            let (receiver, sender) = (CoopCopy::new(&mine, 2, true), CoopCopy::new(&theirs, 2, true));
            sender.set_peer_memory(0, Some(PeerMemory::own(&mine)));
            let ring = Arc::new(Ring::new(4));
            let copies = PeerCopies::new(Arc::clone(&ring), 1);
            let source = (0..len).map(|i| (i * 7 + i / 251) as u8).collect();
            Pair { receiver, sender, window: PeerMemory::own(&theirs), ring, copies, source }
        }

        fn expose(&mut self) -> (Registration, RemoteKey) {
            let showing = self.sender.shown.expose(&memory(&mut self.source)).unwrap();
            let key = showing.key(0, self.source.len()).unwrap();
            (showing.register(), key)
        }

        /// Copies all of `source` to `to`; `call` is called when the sender may help.
        fn copy(&self, key: &RemoteKey, to: &mut [u8], call: impl FnOnce()) -> Result<OpStatus, PostError> {
            let memory = memory(to);
            let part = memory.part(0, memory.bytes(), None);
            // SAFETY: the memory stays, and nobody else uses it, until the tests have seen the end of a copy.
            unsafe { self.receiver.copy(self.window, &self.copies, (key, 0), part, OP, call) }
        }

        fn help(&self) -> bool {
            self.sender.help(0, self.ring.pieces()).is_some()
        }

        /// Claims pieces as the sender would, without copying them.
        fn take(&self) -> Range<u32> {
            self.ring.pieces().claim(Side::Back, |_| 2).unwrap()
        }

        fn reap(&self) -> Vec<(OpToken, bool)> {
            let mut told = Told::default();
            self.receiver.debts.reap(&mut told);
            told.0
        }
    }

    #[test]
    fn a_copy_is_whole_whether_the_sender_helps_or_not() {
        for len in [1, FROM, FROM + 1, 100_001, 1 << 20] {
            for helps in [0, 1, 3, 1000] {
                let mut pair = Pair::new(len);
                let (_shown, key) = pair.expose();
                let mut to = vec![0; len];
                let mut helped = 0;
                let moved = pair.copy(&key, &mut to, || helped = (0..helps).filter(|_| pair.help()).count());
                assert_eq!(moved, Ok(OpStatus::Done), "{len} bytes, {helps} helps");
                assert!(to == pair.source && (helped > 0) == (helps > 0 && len >= FROM), "{len} bytes");
                assert!(!pair.help(), "nothing is left");
            }
        }
    }

    #[test]
    fn a_copy_ends_later_if_the_sender_has_yet_to_copy_its_pieces() {
        let mut pair = Pair::new(100_001);
        let (_shown, key) = pair.expose();
        let (mut to, mut next) = (vec![0; 100_001], vec![0; 100_001]);
        let mut taken = 0..0;
        assert_eq!(pair.copy(&key, &mut to, || taken = pair.take()), Ok(OpStatus::InProgress));
        assert_eq!(pair.reap(), []);
        // Meanwhile other copies are made without help.
        assert_eq!(pair.copy(&key, &mut next, || panic!("nobody is called")), Ok(OpStatus::Done));
        assert!(next == pair.source);
        assert!(pair.sender.write(0, &taken, pair.ring.pieces().words()).is_some());
        pair.ring.pieces().finish(&taken, true);
        assert_eq!(pair.reap(), [(OP, true)]);
        assert!(to == pair.source);
        assert_eq!(pair.reap(), []);
        assert_eq!(pair.copy(&key, &mut next, || assert!(pair.help())), Ok(OpStatus::Done));
    }

    #[test]
    fn a_sender_that_cannot_write_is_not_asked_again() {
        let mut pair = Pair::new(100_001);
        let (_shown, key) = pair.expose();
        pair.sender.set_peer_memory(0, None);
        let mut to = vec![0; 100_001];
        assert_eq!(pair.copy(&key, &mut to, || assert!(pair.help())), Err(PostError::Unsupported));
        assert_eq!(pair.copy(&key, &mut to, || panic!("nobody is called")), Ok(OpStatus::Done));
        assert!(to == pair.source);
    }

    #[test]
    fn a_message_that_was_taken_back_is_not_copied_by_either() {
        let mut pair = Pair::new(100_001);
        let (shown, key) = pair.expose();
        drop(shown);
        let mut to = vec![0; 100_001];
        for helps in [false, true] {
            let help = || {
                if helps {
                    assert!(pair.help());
                }
            };
            assert!(pair.copy(&key, &mut to, help).is_err());
        }
    }

    #[test]
    fn words_that_nobody_vouches_for_are_not_followed() {
        let mut pair = Pair::new(100_001);
        let (_shown, key) = pair.expose();
        for wrong in 0..5 {
            let mut to = vec![0; 100_001];
            let mut words = [0; 5];
            let pieces = pair.ring.pieces();
            let moved = pair.copy(&key, &mut to, || {
                words = pieces.words();
                words[wrong] += 4096;
                let taken = pair.take();
                assert_eq!(pair.sender.write(0, &taken, words), None);
                pieces.finish(&taken, false);
            });
            assert_eq!(moved, Err(PostError::Unsupported), "word {wrong}");
            pair.copies.help_failed.store(false, Ordering::Relaxed);
            // The copy has ended: its checksum is not published any more.
            words[wrong] -= 4096;
            assert_eq!(pair.sender.write(0, &(0..1), words), None);
        }
    }

    #[test]
    fn what_a_peer_owes_is_given_up_when_it_has_died_and_does_not_write() {
        // Whether its death is known before the copy is pending, or after; and whether it writes then.
        for (early, writes) in [(false, false), (false, true), (true, false), (true, true)] {
            let mut pair = Pair::new(100_001);
            let (_shown, key) = pair.expose();
            let mut to = vec![0; 100_001];
            let mut words = [0; 5];
            let copy = |words: &mut [u64; 5], to: &mut [u8]| {
                pair.copy(&key, to, || {
                    pair.take();
                    *words = pair.ring.pieces().words();
                    pair.sender.shown.writing().store(if writes { words[4] } else { 0 }, Ordering::SeqCst);
                    if early {
                        pair.receiver.debts.peer_gone(1);
                    }
                })
            };
            let moved = copy(&mut words, &mut to);
            if early && !writes {
                assert_eq!(moved, Err(PostError::Unsupported));
                continue;
            }
            assert_eq!(moved, Ok(OpStatus::InProgress));
            pair.receiver.debts.peer_gone(1);
            if writes {
                assert_eq!(pair.reap(), [], "it may write yet");
                pair.sender.shown.writing().store(0, Ordering::SeqCst);
            }
            assert_eq!(pair.reap(), [(OP, false)]);
            assert_eq!(pair.sender.write(0, &(0..1), words), None, "nothing is written any more");
        }
    }

    #[test]
    fn who_closes_waits_for_what_is_being_written() {
        let mut pair = Pair::new(100_001);
        let (_shown, key) = pair.expose();
        let mut to = vec![0; 100_001];
        let mut number = 0;
        let call = || {
            pair.take();
            number = pair.ring.pieces().words()[4];
        };
        assert_eq!(pair.copy(&key, &mut to, call), Ok(OpStatus::InProgress));
        let has_written = AtomicBool::new(false);
        pair.sender.shown.writing().store(number, Ordering::SeqCst);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(std::time::Duration::from_millis(20));
                has_written.store(true, Ordering::Release);
                pair.sender.shown.writing().store(0, Ordering::SeqCst);
            });
            pair.receiver.debts.close();
            assert!(has_written.load(Ordering::Acquire));
        });
    }

    #[test]
    fn pieces_that_make_no_sense_are_not_followed() {
        for (taken, written) in [(2, 25), (0, 1000)] {
            let mut pair = Pair::new(100_001);
            let (_shown, key) = pair.expose();
            let mut to = vec![0; 100_001];
            let pieces = pair.ring.pieces();
            let moved = pair.copy(&key, &mut to, || {
                pieces.close();
                pieces.open(written, pieces.words());
                let _ = pieces.claim(Side::Front, |_| taken.max(1)).filter(|_| taken > 0);
            });
            assert_eq!(moved, Err(PostError::Unsupported));
            assert!(!pair.help());
            assert_eq!(pair.copy(&key, &mut to, || panic!("nobody is called")), Ok(OpStatus::Done));
        }
    }
}
