//! Single copies that two processes make together: who receives has the kernel read pieces of the sender's memory, from the
//! front on, and the sender, while it looks for news, has it write pieces to the receiver's, from the end.
//!
//! ```text
//!   who receives                                      who sends
//!   shows where it all goes, under a number
//!   opens the pieces, tells the sender    ──────────► takes the last piece
//!   reads the first pieces                            finds its own number and the receiver's: writes the piece
//!   waits a moment, or is told later      ◄────────── counts it
//! ```
//! A piece that the sender has taken may reach the receiver's memory until the sender has counted it, or is gone. So that memory
//! stays lent until then: the copy is *owed*, and its end comes through the inlet.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::segment::Segment;
use super::single::{Key, Showing, Shown, Window};
use crate::device::{Moved, Part, PostError, RemoteKey, Sink, Token};
use crate::ring::{End, Pieces, Ring};
use crate::sync::{Mutex, lock, pause};

/// Bytes from which on a copy is made together.
const FROM: usize = 16 << 10;

/// Bytes of a piece.
const PIECE: usize = 4 << 10;

/// The most pieces that are copied at once.
const AT_ONCE: u32 = 16;

/// How often who receives looks whether the sender has copied its piece, before it does something else.
const LOOKS: u32 = 2_000;

/// How many pieces one of the two takes of those that are left: many, as each call of the system has its price, and fewer at the
/// end, where they wait for each other.
fn share(left: u32) -> u32 {
    (left / 2).clamp(AT_ONCE / 2, AT_ONCE)
}

/// What the ends of one rank's links share.
#[derive(Debug)]
pub(super) struct Together {
    shown: Arc<Shown>,
    /// The memory of those that this rank sends to, by index.
    windows: Mutex<Vec<Option<Window>>>,
    owed: Mutex<Vec<Owed>>,
    /// How many there are.
    is_owed: AtomicUsize,
    /// Whether senders are asked: each has a core, and so does not keep us waiting in the middle of a piece.
    asks: bool,
}

/// A copy of which the sender has taken pieces that it has yet to copy.
#[derive(Debug)]
struct Owed {
    copies: Arc<Copies>,
    pieces: u32,
    op: Token,
    outcome: Result<(), String>,
    /// The sender need not be asked for any more.
    is_buried: bool,
    _showing: Showing,
}

/// The copies out of one peer's memory.
#[derive(Debug)]
pub(super) struct Copies {
    /// The ring to that peer, which has the words.
    ring: Arc<Ring>,
    /// The peer.
    index: u32,
    /// Whether one of them is owed.
    is_owed: AtomicBool,
    /// Whether the peer could not copy a piece: it is not asked again.
    is_refused: AtomicBool,
}

impl Copies {
    pub(super) fn new(ring: Arc<Ring>, index: u32) -> Arc<Self> {
        Arc::new(Copies { ring, index, is_owed: AtomicBool::new(false), is_refused: AtomicBool::new(false) })
    }

    /// Once pieces that the peer has taken were dealt with: whether all have been copied.
    fn are_copied(&self, pieces: u32) -> Option<Result<(), String>> {
        let are_copied = self.ring.pieces().are_copied(pieces)?;
        Some(are_copied.then_some(()).ok_or_else(|| "the sender could not write its part".into()))
    }
}

impl Together {
    pub(super) fn new(shown: &Arc<Shown>, ranks: u32, asks: bool) -> Arc<Self> {
        Arc::new(Together {
            shown: Arc::clone(shown),
            windows: Mutex::new(vec![None; ranks as usize]),
            owed: Mutex::new(Vec::new()),
            is_owed: AtomicUsize::new(0),
            asks,
        })
    }

    /// Takes note where the memory of a rank is that this one sends to.
    pub(super) fn meet(&self, index: u32, window: Option<Window>) {
        if let Some(known) = lock(&self.windows).get_mut(index as usize) {
            *known = window;
        }
    }

    /// Copies bytes that a peer shows; `call` tells it that it may help.
    ///
    /// # Safety
    /// `to` is writable, and nobody else uses it: until this returns, or, if the copy is started, until `op` has ended.
    pub(super) unsafe fn copy(
        &self,
        window: Window,
        copies: &Arc<Copies>,
        (key, at): (&RemoteKey, u64),
        to: Part<'_>,
        op: Token,
        call: impl FnOnce(),
    ) -> Result<Moved, PostError> {
        let alone = !self.asks
            || to.crossing
            || to.len < FROM
            || copies.is_owed.load(Ordering::Acquire)
            || copies.is_refused.load(Ordering::Relaxed);
        let shown = if alone { None } else { self.shown.show(to.memory) };
        let (Some(showing), Some(run)) = (shown, to.run()) else {
            // SAFETY: the caller's promise.
            return unsafe { window.copy(key, at, to) };
        };
        let Key { number, address } = Key::read(key)?;
        let from = address.checked_add(at).ok_or_else(|| Key::garbage(key))?;
        let all = to.len.div_ceil(PIECE) as u32;
        let pieces = copies.ring.pieces();
        let what = [number, from, run.expose_provenance() as u64, to.len as u64];
        pieces.open(all, showing.vouch_for(what));
        call();
        let (mut mine, mut outcome) = (0, Ok(Moved::Done));
        while let Some(taken) = pieces.take(End::First, share) {
            if taken.start != mine || taken.end > all {
                pieces.close();
                return Err(PostError::Broken("it wrote pieces of a copy that make no sense".into()));
            }
            mine = taken.end;
            if outcome.is_ok() {
                let (begin, end) = (taken.start as usize * PIECE, to.len.min(taken.end as usize * PIECE));
                let part = Part { at: to.at + begin, len: end - begin, ..to };
                // SAFETY: the caller's promise; the pieces are ours.
                outcome = unsafe { window.copy(key, at + begin as u64, part) };
            }
        }
        let theirs = all - mine;
        for _ in 0..LOOKS {
            if let Some(theirs) = copies.are_copied(theirs) {
                // Who has not taken it back cannot write at all.
                copies.is_refused.store(theirs.is_err() && outcome.is_ok(), Ordering::Relaxed);
                return theirs.map_err(|_| PostError::Unsupported).and(outcome);
            }
            std::hint::spin_loop();
        }
        copies.is_owed.store(true, Ordering::Relaxed);
        let outcome = outcome.map(drop).map_err(|error| format!("{error:?}"));
        let copies = Arc::clone(copies);
        let mut owed = lock(&self.owed);
        owed.push(Owed { copies, pieces: theirs, op, outcome, is_buried: false, _showing: showing });
        self.is_owed.store(owed.len(), Ordering::Release);
        Ok(Moved::Started)
    }

    /// Ends the copies that are owed no more; returns how many.
    #[inline]
    pub(super) fn settle(&self, segment: &Arc<Segment>, sink: &mut dyn Sink) -> usize {
        match self.is_owed.load(Ordering::Acquire) {
            0 => 0,
            _ => self.settle_some(segment, sink),
        }
    }

    #[cold]
    fn settle_some(&self, segment: &Arc<Segment>, sink: &mut dyn Sink) -> usize {
        let ended = self.take_ended(segment);
        let count = ended.len();
        for (op, outcome) in ended {
            sink.moved(op, outcome);
        }
        count
    }

    fn take_ended(&self, segment: &Arc<Segment>) -> Vec<(Token, Result<(), String>)> {
        let mut ended = Vec::new();
        let mut owed = lock(&self.owed);
        owed.retain(|Owed { copies, pieces, op, outcome, is_buried, .. }| {
            let theirs = copies.are_copied(*pieces).or_else(|| {
                let is_gone = *is_buried && !segment.is_there(copies.index);
                is_gone.then(|| Err("the sender is gone".into()))
            });
            let Some(theirs) = theirs else { return true };
            ended.push((*op, outcome.clone().and(theirs)));
            copies.is_owed.store(false, Ordering::Release);
            false
        });
        self.is_owed.store(owed.len(), Ordering::Release);
        ended
    }

    /// Takes note that a peer has died: what it owes is given up when its process is gone, too.
    pub(super) fn bury(&self, index: u32) {
        for owed in lock(&self.owed).iter_mut().filter(|owed| owed.copies.index == index) {
            owed.is_buried = true;
        }
    }

    /// Waits until nobody writes to this rank's memory any more.
    pub(super) fn close(&self, segment: &Arc<Segment>) {
        for owed in lock(&self.owed).iter_mut() {
            owed.is_buried = true;
        }
        let mut round = 0;
        while self.is_owed.load(Ordering::Acquire) > 0 {
            self.take_ended(segment);
            pause(round);
            round = round.saturating_add(1);
        }
    }

    /// Copies a piece of what a peer copies out of this rank's memory, if one is left; returns whether there was one.
    #[cold]
    pub(super) fn help(&self, index: u32, pieces: &Pieces, vouched: &mut [u64; 5]) -> bool {
        let Some(taken) = pieces.take(End::Last, share) else { return false };
        let are_copied = self.write(index, &taken, pieces.words(), vouched);
        pieces.count(&taken, are_copied.is_some());
        true
    }

    /// Writes pieces to the memory of the rank that receives, which has vouched for the words `vouched`; `None` if that cannot
    /// be, or one of the two has taken its memory back.
    fn write(&self, index: u32, pieces: &Range<u32>, words: [u64; 5], vouched: &mut [u64; 5]) -> Option<()> {
        let [number, from, to, len, _] = words;
        let window = (*lock(&self.windows).get(index as usize)?)?;
        let at = PIECE as u64 * u64::from(pieces.start);
        let len = len.min(PIECE as u64 * u64::from(pieces.end)).checked_sub(at)? as usize;
        // What was overwritten nobody vouches for, and neither does another process in the place of one that died.
        if !self.shown.stands(number) || (*vouched != words && !window.vouches_for(words)) {
            return None;
        }
        *vouched = words;
        // SAFETY: the rank that receives waits until the piece is counted, as it has shown that memory for.
        unsafe { window.write(to.checked_add(at)?, from.checked_add(at)?, len) }?;
        self.shown.stands(number).then_some(())
    }
}

#[cfg(all(test, target_os = "linux", not(mpj_portable), not(miri), not(loom)))]
mod tests {
    use mpj_datatypes::Primitive;

    use super::*;
    use crate::config::Config;
    use crate::device::{Landing, Memory, PeerId, Registration};

    /// What was told of moves that have ended.
    #[derive(Default)]
    struct Told(Vec<(Token, bool)>);

    // SAFETY: nothing is asked where a body goes.
    unsafe impl Sink for Told {
        fn frame(&mut self, _: PeerId, _: &[u8], _: &[u8]) {}
        fn begin(&mut self, _: PeerId, _: &[u8], _: usize) -> Landing {
            Landing::Pieces
        }
        fn piece(&mut self, _: PeerId, _: &[u8]) {}
        fn landed(&mut self, _: PeerId) {}
        fn lost(&mut self, _: PeerId, _: &str) {}
        fn moved(&mut self, op: Token, outcome: Result<(), String>) {
            self.0.push((op, outcome.is_ok()));
        }
        fn quiet(&mut self, _: Token) {}
    }

    const OP: Token = Token(5);

    /// Rank 0 receives from rank 1, which shows `source`; both are of this process.
    struct Pair {
        segment: Arc<Segment>,
        receiver: Arc<Together>,
        sender: Arc<Together>,
        window: Window,
        ring: Arc<Ring>,
        copies: Arc<Copies>,
        source: Vec<u8>,
    }

    fn memory(bytes: &mut [u8]) -> Memory {
        Memory::new(bytes.as_mut_ptr(), bytes.len(), Primitive::Byte.into()).unwrap()
    }

    impl Pair {
        fn new(len: usize) -> Self {
            let (mine, theirs) = (Shown::new(), Shown::new());
            let (receiver, sender) = (Together::new(&mine, 2, true), Together::new(&theirs, 2, true));
            sender.meet(0, Some(Window::own(&mine)));
            let ring = Arc::new(Ring::new(4));
            let copies = Copies::new(Arc::clone(&ring), 1);
            let source = (0..len).map(|i| (i * 7 + i / 251) as u8).collect();
            let segment = Arc::new(Segment::create(2, &Config::default()).unwrap());
            Pair { segment, receiver, sender, window: Window::own(&theirs), ring, copies, source }
        }

        fn show(&mut self) -> (Registration, RemoteKey) {
            let showing = self.sender.shown.show(&memory(&mut self.source)).unwrap();
            let key = showing.key(0, self.source.len()).unwrap();
            (showing.register(), key)
        }

        /// Copies all of it to `to`; `call` is called when the sender might help.
        fn copy(&self, key: &RemoteKey, to: &mut [u8], call: impl FnOnce()) -> Result<Moved, PostError> {
            let memory = memory(to);
            let part = memory.part(0, memory.bytes(), None);
            // SAFETY: the memory stays, and nobody else uses it, until the tests have seen the end of a copy.
            unsafe { self.receiver.copy(self.window, &self.copies, (key, 0), part, OP, call) }
        }

        fn help(&self) -> bool {
            self.sender.help(0, self.ring.pieces(), &mut [0; 5])
        }

        /// Takes pieces as the sender would, without copying them.
        fn take(&self) -> Range<u32> {
            self.ring.pieces().take(End::Last, |_| 2).unwrap()
        }

        fn settle(&self) -> Vec<(Token, bool)> {
            let mut told = Told::default();
            self.receiver.settle(&self.segment, &mut told);
            told.0
        }
    }

    #[test]
    fn a_copy_is_whole_whether_the_sender_helps_or_not() {
        for len in [1, FROM, FROM + 1, 100_001, 1 << 20] {
            for helps in [0, 1, 3, 1000] {
                let mut pair = Pair::new(len);
                let (_shown, key) = pair.show();
                let mut to = vec![0; len];
                let mut helped = 0;
                let moved = pair.copy(&key, &mut to, || helped = (0..helps).filter(|_| pair.help()).count());
                assert_eq!(moved, Ok(Moved::Done), "{len} bytes, {helps} helps");
                assert!(to == pair.source && (helped > 0) == (helps > 0 && len >= FROM), "{len} bytes");
                assert!(!pair.help(), "nothing is left");
            }
        }
    }

    #[test]
    fn a_copy_ends_later_if_the_sender_has_yet_to_copy_its_pieces() {
        let mut pair = Pair::new(100_001);
        let (_shown, key) = pair.show();
        let (mut to, mut next) = (vec![0; 100_001], vec![0; 100_001]);
        let mut taken = 0..0;
        assert_eq!(pair.copy(&key, &mut to, || taken = pair.take()), Ok(Moved::Started));
        assert_eq!(pair.settle(), []);
        // Meanwhile others are made without help.
        assert_eq!(pair.copy(&key, &mut next, || panic!("nobody is called")), Ok(Moved::Done));
        assert!(next == pair.source);
        assert!(pair.sender.write(0, &taken, pair.ring.pieces().words(), &mut [0; 5]).is_some());
        pair.ring.pieces().count(&taken, true);
        assert_eq!(pair.settle(), [(OP, true)]);
        assert!(to == pair.source);
        assert_eq!(pair.settle(), []);
        assert_eq!(pair.copy(&key, &mut next, || assert!(pair.help())), Ok(Moved::Done));
    }

    #[test]
    fn a_sender_that_cannot_write_is_not_asked_again() {
        let mut pair = Pair::new(100_001);
        let (_shown, key) = pair.show();
        pair.sender.meet(0, None);
        let mut to = vec![0; 100_001];
        assert_eq!(pair.copy(&key, &mut to, || assert!(pair.help())), Err(PostError::Unsupported));
        assert_eq!(pair.copy(&key, &mut to, || panic!("nobody is called")), Ok(Moved::Done));
        assert!(to == pair.source);
    }

    #[test]
    fn a_message_that_was_taken_back_is_not_copied_by_either() {
        let mut pair = Pair::new(100_001);
        let (shown, key) = pair.show();
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
        let (_shown, key) = pair.show();
        for wrong in 0..5 {
            let mut to = vec![0; 100_001];
            let mut words = [0; 5];
            let pieces = pair.ring.pieces();
            let moved = pair.copy(&key, &mut to, || {
                words = pieces.words();
                words[wrong] += 4096;
                let taken = pair.take();
                assert_eq!(pair.sender.write(0, &taken, words, &mut [0; 5]), None);
                pieces.count(&taken, false);
            });
            assert_eq!(moved, Err(PostError::Unsupported), "word {wrong}");
            pair.copies.is_refused.store(false, Ordering::Relaxed);
            // The copy has ended: nobody vouches for it any more.
            words[wrong] -= 4096;
            assert_eq!(pair.sender.write(0, &(0..1), words, &mut [0; 5]), None);
        }
    }

    #[test]
    fn pieces_that_make_no_sense_end_the_peer() {
        for (taken, written) in [(2, 25), (0, 1000)] {
            let mut pair = Pair::new(100_001);
            let (_shown, key) = pair.show();
            let mut to = vec![0; 100_001];
            let pieces = pair.ring.pieces();
            let moved = pair.copy(&key, &mut to, || {
                pieces.close();
                pieces.open(written, pieces.words());
                let _ = pieces.take(End::First, |_| taken.max(1)).filter(|_| taken > 0);
            });
            assert!(matches!(moved, Err(PostError::Broken(_))), "{moved:?}");
            assert!(!pair.help());
        }
    }
}
