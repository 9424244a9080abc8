//! Single copies that two processes make together. For the receiver, the kernel reads pieces of the sender's memory,
//! from the front. For a sender that polls, the kernel writes pieces to the receiver's memory, from the back.
//!
//! ```text
//!   receiver                                          sender
//!   exposes the destination under a number
//!   opens the pieces, notifies the sender ──────────► claims the last pieces
//!   reads the first pieces                            checks its number and the receiver's checksum; writes the pieces
//!   spins for a moment, or completes later ◄───────── counts them
//! ```
//! A piece that the sender has claimed may be written to the receiver's memory until the sender has counted it, or has
//! exited. If the count does not come while the receiver spins, `pending_writes` completes the copy.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::cma::{CmaKey, PeerMemory, ShmExposedTable};
use super::pending_writes::{PendingWrite, PendingWrites};
use crate::device::{MemoryPart, OpStatus, OpToken, PostError, RemoteKey};
use crate::ring::{Ring, SharedCopy, Side};
use crate::sync::{Mutex, lock};

/// Bytes of the shortest copy with which the sender helps, and of a piece; most pieces that are claimed at once.
const MIN_COOP: usize = 16 << 10;
const PIECE: usize = 4 << 10;
const MAX_CLAIM: u32 = 16;

/// How often the receiver polls for the sender's pieces before it leaves the copy to be completed later.
const SPINS: u32 = 2_000;

/// Returns how many of the `left` pieces to claim at once: many, because each system call has a cost, and fewer near
/// the end, where the two ranks wait for each other.
fn pieces_per_claim(left: u32) -> u32 {
    (left / 2).clamp(MAX_CLAIM / 2, MAX_CLAIM)
}

/// The state of cooperative copies that the endpoints and the inlet of one rank share.
#[derive(Debug)]
pub(super) struct ShmCoopCopy {
    exposed: Arc<ShmExposedTable>,
    /// The memory of this rank's peers, by index.
    peers_memory: Mutex<Vec<Option<PeerMemory>>>,
    pending_writes: PendingWrites,
    /// Whether senders are notified of copies, to help: whether there is a core for each rank. Otherwise a sender might
    /// be descheduled in the middle of a piece while the receiver waits for it.
    wants_help: bool,
}

/// The cooperative copies out of one peer's memory.
#[derive(Debug)]
pub(super) struct PeerCopies {
    /// The ring to that peer, which holds the shared state of the copies.
    pub(super) ring: Arc<Ring>,
    pub(super) index: u32,
    /// Whether one of them is pending.
    pub(super) has_pending: AtomicBool,
    /// Whether a cooperative copy has failed at the peer or was overwritten: the peer gets no further notifications.
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

impl ShmCoopCopy {
    pub(super) fn new(exposed: &Arc<ShmExposedTable>, ranks: u32, wants_help: bool) -> Arc<Self> {
        Arc::new(ShmCoopCopy {
            exposed: Arc::clone(exposed),
            peers_memory: Mutex::new(vec![None; ranks as usize]),
            pending_writes: PendingWrites::default(),
            wants_help,
        })
    }

    pub(super) fn pending_writes(&self) -> &PendingWrites {
        &self.pending_writes
    }

    pub(super) fn set_peer_memory(&self, index: u32, peer_memory: Option<PeerMemory>) {
        if let Some(known) = lock(&self.peers_memory).get_mut(index as usize) {
            *known = peer_memory;
        }
    }

    /// Copies bytes that a peer exposes; `notify` notifies the peer that it may help.
    ///
    /// # Safety
    /// `to` is writable, and nobody else uses it until this returns or, if it returns `InProgress`, until `op` is
    /// completed.
    pub(super) unsafe fn copy(
        &self,
        peer_memory: PeerMemory,
        copies: &Arc<PeerCopies>,
        (key, at): (&RemoteKey, u64),
        to: MemoryPart<'_>,
        op: OpToken,
        notify: impl FnOnce(),
    ) -> Result<OpStatus, PostError> {
        let no_help = !self.wants_help
            || to.bidirectional
            || to.len < MIN_COOP
            || copies.has_pending.load(Ordering::Acquire)
            || copies.help_failed.load(Ordering::Relaxed);
        let exposed = if no_help { None } else { self.exposed.expose(to.memory) };
        let (Some(exposure), Some(run)) = (exposed, to.contiguous()) else {
            // SAFETY: the caller's promise.
            return unsafe { peer_memory.copy(key, at, to) };
        };
        let CmaKey { number, address } = CmaKey::read(key)?;
        let from = address.checked_add(at).ok_or_else(|| CmaKey::garbage(key))?;
        let all = to.len.div_ceil(PIECE) as u32;
        let pieces = copies.ring.shared_copy();
        let what = [number, from, run.expose_provenance() as u64, to.len as u64];
        pieces.open(all, exposure.publish_checksum(what));
        notify();
        let (mut mine, mut outcome, mut must_fail) = (0, Ok(OpStatus::Done), false);
        while let Some(taken) = pieces.claim(Side::Front, pieces_per_claim) {
            if taken.start != mine || taken.end > all {
                // The word of the unclaimed pieces was overwritten.
                pieces.close();
                must_fail = true;
                break;
            }
            mine = taken.end;
            if outcome.is_ok() {
                let (begin, end) = (taken.start as usize * PIECE, to.len.min(taken.end as usize * PIECE));
                let part = MemoryPart { at: to.at + begin, len: end - begin, ..to };
                // SAFETY: the caller's promise; this side has claimed the pieces.
                outcome = unsafe { peer_memory.copy(key, at + begin as u64, part) };
            }
        }
        let theirs = all - mine;
        for _ in 0..if must_fail { 0 } else { SPINS } {
            match pieces.all_copied(theirs) {
                Some(true) => return outcome,
                Some(false) => {
                    // If the sender still exposes the memory, it cannot write at all: do not notify it of further
                    // copies.
                    copies
                        .help_failed
                        .store(outcome.is_ok() && peer_memory.peer_exposes(key), Ordering::Relaxed);
                    return outcome.and(Err(PostError::Unsupported));
                }
                None => std::hint::spin_loop(),
            }
        }
        let outcome = outcome.map(drop).map_err(|error| format!("{error:?}"));
        let (copies, process) = (Arc::clone(copies), peer_memory.process());
        self.pending_writes.defer(PendingWrite {
            copies,
            pieces: theirs,
            op,
            outcome,
            must_fail,
            is_old: false,
            peer_memory,
            exposure,
            process,
        })
    }

    /// Copies some of the pieces of a copy that a peer makes out of this rank's memory. Returns whether that succeeded,
    /// or `None` if no piece is left.
    #[cold]
    pub(super) fn help(&self, index: u32, pieces: &SharedCopy) -> Option<bool> {
        let taken = pieces.claim(Side::Back, pieces_per_claim)?;
        let are_copied = self.write(index, &taken, pieces.words()).is_some();
        pieces.count_finished(&taken, are_copied);
        Some(are_copied)
    }

    /// Writes pieces to the memory of the receiver. Returns `None` if that is impossible, or if one of the two has
    /// revoked its memory.
    fn write(&self, index: u32, pieces: &Range<u32>, words: [u64; 5]) -> Option<()> {
        let [number, from, to, len, theirs] = words;
        let peer_memory = (*lock(&self.peers_memory).get(index as usize)?)?;
        let at = PIECE as u64 * u64::from(pieces.start);
        let len = len.min(PIECE as u64 * u64::from(pieces.end)).checked_sub(at)? as usize;
        let (to, from) = (to.checked_add(at)?, from.checked_add(at)?);
        self.exposed.with_hazard(theirs, || {
            // These checks fail for words that were overwritten, for memory that was revoked, and for another process
            // that has got the id of a dead process.
            if !self.exposed.is_exposed(number) || !peer_memory.checksum_matches(words) {
                return None;
            }
            // SAFETY: the receiver has exposed that memory for this, and does not reuse it while this rank announces
            // that it writes.
            unsafe { peer_memory.write(to, from, len) }?;
            self.exposed.is_exposed(number).then_some(())
        })
    }
}

#[cfg(all(test, target_os = "linux", not(mpj_portable), not(miri), not(loom)))]
pub(super) mod tests {
    use mpj_datatypes::Primitive;

    use super::*;
    use crate::device::{Landing, MemoryDesc, PeerId, Registration, Sink};

    /// The operations that were completed, and whether they succeeded.
    #[derive(Default)]
    pub(in super::super) struct RecordingSink(pub(in super::super) Vec<(OpToken, bool)>);

    // SAFETY: it gives no memory to the device.
    unsafe impl Sink for RecordingSink {
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

    /// Rank 0 receives from rank 1, which exposes `source`; both are in this process.
    struct Pair {
        receiver: Arc<ShmCoopCopy>,
        sender: Arc<ShmCoopCopy>,
        peer_memory: PeerMemory,
        ring: Arc<Ring>,
        copies: Arc<PeerCopies>,
        source: Vec<u8>,
    }

    fn memory(bytes: &mut [u8]) -> MemoryDesc {
        MemoryDesc::new(bytes.as_mut_ptr(), bytes.len(), Primitive::Byte.into()).unwrap()
    }

    impl Pair {
        fn new(len: usize) -> Self {
            let (mine, theirs) = (ShmExposedTable::new(), ShmExposedTable::new());
            let (receiver, sender) = (ShmCoopCopy::new(&mine, 2, true), ShmCoopCopy::new(&theirs, 2, true));
            sender.set_peer_memory(0, Some(PeerMemory::own(&mine)));
            let ring = Arc::new(Ring::new(4));
            let copies = PeerCopies::new(Arc::clone(&ring), 1);
            let source = (0..len).map(|i| (i * 7 + i / 251) as u8).collect();
            Pair { receiver, sender, peer_memory: PeerMemory::own(&theirs), ring, copies, source }
        }

        fn expose(&mut self) -> (Registration, RemoteKey) {
            let exposure = self.sender.exposed.expose(&memory(&mut self.source)).unwrap();
            let key = exposure.key(0, self.source.len()).unwrap();
            (exposure.register(), key)
        }

        /// Copies all of `source` to `to`; `notify` is called when the sender may help.
        fn copy(&self, key: &RemoteKey, to: &mut [u8], notify: impl FnOnce()) -> Result<OpStatus, PostError> {
            let memory = memory(to);
            let part = memory.part(0, memory.bytes(), None);
            // SAFETY: the memory stays, and nobody else uses it, until the copy has ended.
            unsafe { self.receiver.copy(self.peer_memory, &self.copies, (key, 0), part, OP, notify) }
        }

        fn help(&self) -> bool {
            self.sender.help(0, self.ring.shared_copy()).is_some()
        }

        fn claim(&self) -> Range<u32> {
            self.ring.shared_copy().claim(Side::Back, |_| 2).unwrap()
        }

        fn reap(&self) -> Vec<(OpToken, bool)> {
            let mut sink = RecordingSink::default();
            self.receiver.pending_writes.reap(&mut sink);
            sink.0
        }
    }

    #[test]
    fn copy_is_complete_with_and_without_help() {
        for len in [1, MIN_COOP, MIN_COOP + 1, 100_001, 1 << 20] {
            for helps in [0, 1, 3, 1000] {
                let mut pair = Pair::new(len);
                let (_exposed, key) = pair.expose();
                let mut to = vec![0; len];
                let mut helped = 0;
                let moved = pair.copy(&key, &mut to, || helped = (0..helps).filter(|_| pair.help()).count());
                assert_eq!(moved, Ok(OpStatus::Done), "{len} bytes, {helps} helps");
                assert!(to == pair.source && (helped > 0) == (helps > 0 && len >= MIN_COOP), "{len} bytes");
                assert!(!pair.help(), "nothing is left");
            }
        }
    }

    #[test]
    fn copy_completes_later_if_the_sender_has_yet_to_write_its_pieces() {
        let mut pair = Pair::new(100_001);
        let (_exposed, key) = pair.expose();
        let (mut to, mut next) = (vec![0; 100_001], vec![0; 100_001]);
        let mut taken = 0..0;
        assert_eq!(pair.copy(&key, &mut to, || taken = pair.claim()), Ok(OpStatus::InProgress));
        assert_eq!(pair.reap(), []);
        // Meanwhile other copies are made without help.
        assert_eq!(pair.copy(&key, &mut next, || panic!("the sender is not notified")), Ok(OpStatus::Done));
        assert!(next == pair.source);
        assert!(pair.sender.write(0, &taken, pair.ring.shared_copy().words()).is_some());
        pair.ring.shared_copy().count_finished(&taken, true);
        assert_eq!(pair.reap(), [(OP, true)]);
        assert!(to == pair.source);
        assert_eq!(pair.reap(), []);
        assert_eq!(pair.copy(&key, &mut next, || assert!(pair.help())), Ok(OpStatus::Done));
    }

    #[test]
    fn sender_that_cannot_write_is_not_notified_again() {
        let mut pair = Pair::new(100_001);
        let (_exposed, key) = pair.expose();
        pair.sender.set_peer_memory(0, None);
        let mut to = vec![0; 100_001];
        assert_eq!(pair.copy(&key, &mut to, || assert!(pair.help())), Err(PostError::Unsupported));
        assert_eq!(pair.copy(&key, &mut to, || panic!("the sender is not notified")), Ok(OpStatus::Done));
        assert!(to == pair.source);
    }

    #[test]
    fn revoked_message_is_copied_by_neither_side() {
        let mut pair = Pair::new(100_001);
        let (exposed, key) = pair.expose();
        drop(exposed);
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
    fn words_without_their_checksum_are_refused() {
        let mut pair = Pair::new(100_001);
        let (_exposed, key) = pair.expose();
        for wrong in 0..5 {
            let mut to = vec![0; 100_001];
            let mut words = [0; 5];
            let pieces = pair.ring.shared_copy();
            let moved = pair.copy(&key, &mut to, || {
                words = pieces.words();
                words[wrong] += 4096;
                let taken = pair.claim();
                assert_eq!(pair.sender.write(0, &taken, words), None);
                pieces.count_finished(&taken, false);
            });
            assert_eq!(moved, Err(PostError::Unsupported), "word {wrong}");
            pair.copies.help_failed.store(false, Ordering::Relaxed);
            // The copy has ended: its checksum is not published any more.
            words[wrong] -= 4096;
            assert_eq!(pair.sender.write(0, &(0..1), words), None);
        }
    }

    #[test]
    fn pending_write_fails_when_its_peer_has_died_and_is_not_writing() {
        // Whether the death is known before the copy is pending, and whether the sender writes at that time.
        for (is_gone_before, writes) in [(false, false), (false, true), (true, false), (true, true)] {
            let mut pair = Pair::new(100_001);
            let (_exposed, key) = pair.expose();
            let mut to = vec![0; 100_001];
            let mut words = [0; 5];
            let copy = |words: &mut [u64; 5], to: &mut [u8]| {
                pair.copy(&key, to, || {
                    pair.claim();
                    *words = pair.ring.shared_copy().words();
                    pair.sender.exposed.writing().store(if writes { words[4] } else { 0 }, Ordering::SeqCst);
                    if is_gone_before {
                        pair.receiver.pending_writes.peer_gone(1);
                    }
                })
            };
            let moved = copy(&mut words, &mut to);
            if is_gone_before && !writes {
                assert_eq!(moved, Err(PostError::Unsupported));
                continue;
            }
            assert_eq!(moved, Ok(OpStatus::InProgress));
            pair.receiver.pending_writes.peer_gone(1);
            if writes {
                assert_eq!(pair.reap(), [], "the sender might still write");
                pair.sender.exposed.writing().store(0, Ordering::SeqCst);
            }
            assert_eq!(pair.reap(), [(OP, false)]);
            assert_eq!(pair.sender.write(0, &(0..1), words), None, "nothing is written any more");
        }
    }

    #[test]
    fn close_waits_for_a_write_in_progress() {
        let mut pair = Pair::new(100_001);
        let (_exposed, key) = pair.expose();
        let mut to = vec![0; 100_001];
        let mut number = 0;
        let call = || {
            pair.claim();
            number = pair.ring.shared_copy().words()[4];
        };
        assert_eq!(pair.copy(&key, &mut to, call), Ok(OpStatus::InProgress));
        let has_written = AtomicBool::new(false);
        pair.sender.exposed.writing().store(number, Ordering::SeqCst);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(std::time::Duration::from_millis(20));
                has_written.store(true, Ordering::Release);
                pair.sender.exposed.writing().store(0, Ordering::SeqCst);
            });
            pair.receiver.pending_writes.close();
            assert!(has_written.load(Ordering::Acquire));
        });
    }

    #[test]
    fn overwritten_piece_counts_are_refused() {
        for (taken, written) in [(2, 25), (0, 1000)] {
            let mut pair = Pair::new(100_001);
            let (_exposed, key) = pair.expose();
            let mut to = vec![0; 100_001];
            let pieces = pair.ring.shared_copy();
            let moved = pair.copy(&key, &mut to, || {
                pieces.close();
                pieces.open(written, pieces.words());
                let _ = pieces.claim(Side::Front, |_| taken.max(1)).filter(|_| taken > 0);
            });
            assert_eq!(moved, Err(PostError::Unsupported));
            assert!(!pair.help());
            assert_eq!(pair.copy(&key, &mut to, || panic!("the sender is not notified")), Ok(OpStatus::Done));
        }
    }
}
