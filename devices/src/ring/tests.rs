//! Tests of a ring between two threads: order, content, every form of a cell, full and empty rings, the distribution of
//! fragments, and malformed values.

use std::mem::MaybeUninit;
use std::sync::Arc;

use super::consumer::FrameHandler;
use super::memory::{CacheLine, CellHeader, CellKind, INLINE};
use super::{
    Consumer, ExitCheck, FragmentMemory, FragmentPool, Malformed, PeerNotifier, Producer, Ring, RingReceiver,
};
use crate::biased::Bias;
use crate::device::{Body, Endpoint, Landing, OpToken, PeerId, PostError, Sink};
use crate::sync::atomic::Ordering;

const CELLS: u32 = 64;
const FRAGMENT: u32 = 4096;

/// A notifier for an end that is always awake.
#[derive(Debug)]
struct Awake;

impl PeerNotifier for Awake {
    fn notify_receiver(&mut self) {}

    fn wake_sender(&mut self) {}
}

type RingLink = super::RingEndpoint<Awake>;

fn area(count: u32) -> Arc<FragmentPool> {
    Arc::new(FragmentPool::new(Arc::new(FragmentMemory::new(count, FRAGMENT).unwrap()), &Bias::new()))
}

/// Makes a ring to a new peer of the owner of `area`.
fn peer(area: &Arc<FragmentPool>) -> (RingLink, Consumer, Arc<Ring>) {
    peer_until(area, ExitCheck::never())
}

/// Makes a ring to a new peer with the given exit.
fn peer_until(area: &Arc<FragmentPool>, exit: ExitCheck) -> (RingLink, Consumer, Arc<Ring>) {
    let ring = Arc::new(Ring::new(CELLS));
    let consumer = Consumer::new(Arc::clone(&ring), Arc::clone(area.memory()));
    (RingLink::new(Arc::clone(&ring), Arc::clone(area), Awake, exit), consumer, ring)
}

fn pair() -> (Producer, Consumer) {
    let ring = Arc::new(Ring::new(CELLS));
    let memory = Arc::new(FragmentMemory::new(2, FRAGMENT).unwrap());
    (Producer::new(Arc::clone(&ring)), Consumer::new(ring, memory))
}

fn body(seed: u32, len: usize) -> Vec<u8> {
    (0..len).map(|at| (seed as usize * 31 + at * 7) as u8).collect()
}

/// Posts message `i`, with its number as the head.
fn post(link: &mut RingLink, i: u32, len: usize) -> Result<(), PostError> {
    link.post(&u64::from(i).to_le_bytes(), Body::Bytes(&body(i, len)))
}

/// Receives all frames that are there, and checks that they are the messages from `next` on. Returns the number of the
/// message after them.
fn take(consumer: &mut Consumer, mut next: u32) -> u32 {
    let check = |next: u32, head: &[u8], got: &[u8]| {
        assert_eq!(head, u64::from(next).to_le_bytes());
        assert!(got == body(next, got.len()), "message {next} of {} bytes", got.len());
    };
    loop {
        let mut frames = 0;
        let moved = consumer.receive(&mut |head: &[u8], got: &[u8]| {
            check(next, head, got);
            frames = 1;
        });
        if !moved.unwrap() {
            return next;
        }
        next += frames;
    }
}

#[test]
fn frames_of_every_form_keep_order_and_content_across_threads() {
    // Another peer holds the only fragment half of the time, so half of the long bodies are split.
    let area = area(1);
    let (mut link, mut consumer, _) = peer(&area);
    let (mut other, mut idle, _) = peer(&area);
    post(&mut other, 0, 100).unwrap();
    let frames = 20_000u32;
    let sender = std::thread::spawn(move || {
        let mut cuts = 0;
        for i in 0..frames {
            if i == frames / 2 {
                assert_eq!(take(&mut idle, 0), 1);
            }
            let len = if i % 7 == 0 { 49 + i as usize % 4000 } else { i as usize % 49 };
            while post(&mut link, i, len) == Err(PostError::Again) {
                std::thread::yield_now();
            }
            cuts += u32::from(link.has_unflushed());
        }
        while link.flush().unwrap() {
            std::thread::yield_now();
        }
        assert!(cuts > 0);
    });
    let mut next = 0;
    while next < frames {
        next = take(&mut consumer, next);
        std::thread::yield_now();
    }
    sender.join().unwrap();
}

#[test]
fn a_full_ring_has_no_room_until_the_receiver_tells() {
    let (mut tx, mut rx) = pair();
    for _ in 0..CELLS {
        assert_eq!(tx.has_room(), Ok(true));
        tx.send_inline(&[1; 8], 0, |_| ());
    }
    assert_eq!(tx.has_room(), Ok(false));
    for _ in 0..CELLS / 4 {
        assert!(!rx.sender_waits());
        assert_eq!(rx.receive(&mut |_: &[u8], _: &[u8]| ()), Ok(true));
    }
    assert!(rx.sender_waits(), "the sender said that it starves");
    assert!(!rx.sender_waits(), "it was told");
    assert_eq!(tx.has_room(), Ok(true));
}

#[test]
fn a_count_that_makes_no_sense_is_found_by_who_waits_for_fragments() {
    let area = Arc::new(FragmentPool::new(Arc::new(FragmentMemory::new(4, LONG).unwrap()), &Bias::new()));
    let (mut liar, _reads, ring) = peer(&area);
    let (mut other, _reads_too, _) = peer(&area);
    post(&mut liar, 0, 300).unwrap();
    while post(&mut other, 0, 300).is_ok() {}
    assert_eq!(post(&mut liar, 0, 300), Err(PostError::Again));
    ring.returned().store(99, Ordering::Relaxed);
    assert!(matches!(post(&mut liar, 0, 300), Err(PostError::Broken(_))));
}

#[test]
fn a_peer_that_does_not_look_leaves_fragments_to_the_others() {
    let area = area(16);
    let (mut link, mut consumer, _) = peer(&area);
    let sent = (0..).take_while(|i| post(&mut link, *i, 300).is_ok()).count();
    assert_eq!(sent, 14, "all but the last eighth");
    // Each of two others gets one, as often as it returns it.
    let mut others = [peer(&area), peer(&area)];
    for round in 0..20 {
        for (link, consumer, _) in &mut others {
            post(link, round, 100).unwrap();
            assert!(!link.has_unflushed());
            assert_eq!(take(consumer, round), round + 1);
        }
    }
    assert_eq!(post(&mut link, 14, 300), Err(PostError::Again));
    assert_eq!(take(&mut consumer, 0), 14);
    assert!(consumer.sender_waits(), "the sender waits for its fragments");
    post(&mut link, 14, 300).unwrap();
    assert_eq!(take(&mut consumer, 14), 15);
}

#[test]
fn short_frames_do_not_wait_for_fragments() {
    let area = area(2);
    let (mut link, mut consumer, _) = peer(&area);
    // Two go in fragments; each further one takes three cells, until the ring is full.
    let sent = (0..).take_while(|i| post(&mut link, *i, 100).is_ok()).count() as u32;
    assert_eq!(sent, 2 + (CELLS - 2) / 3 + 1, "the last one is on its way");
    assert!(link.has_unflushed());
    assert_eq!(take(&mut consumer, 0), sent - 1);
    assert!(!link.flush().unwrap());
    assert_eq!(take(&mut consumer, sent - 1), sent);
}

#[test]
fn with_no_fragment_left_a_frame_goes_in_pieces() {
    let area = area(2);
    let (mut hog, _held, _) = peer(&area);
    assert_eq!((0..).take_while(|i| post(&mut hog, *i, 300).is_ok()).count(), 2);
    // For each of 500 peers, a frame that is longer than its ring.
    for _ in 0..500 {
        let (mut link, mut consumer, _) = peer(&area);
        post(&mut link, 0, FRAGMENT as usize).unwrap();
        assert!(link.has_unflushed());
        assert_eq!(post(&mut link, 1, 8), Err(PostError::Again), "frames keep their order");
        while link.flush().unwrap() {
            assert_eq!(take(&mut consumer, 0), 0);
            assert!(consumer.sender_waits());
        }
        assert_eq!(take(&mut consumer, 0), 1);
        post(&mut link, 1, 8).unwrap();
        assert_eq!(take(&mut consumer, 1), 2);
    }
}

/// Sends to a peer until it holds all the fragments it can get, calls `end`, and returns how many fragments another
/// peer then gets.
fn left_after(has_exited: bool, end: impl FnOnce(&mut RingLink, Consumer) -> Option<Consumer>) -> usize {
    let area = area(16);
    let (mut link, consumer, _) = peer_until(&area, ExitCheck::new(move || has_exited));
    while post(&mut link, 0, 300).is_ok() {}
    let _held = end(&mut link, consumer);
    let (mut other, _consumer, _) = peer(&area);
    (0..).take_while(|i| post(&mut other, *i, 300).is_ok()).count()
}

#[test]
fn what_a_peer_holds_comes_back_when_it_can_read_no_more() {
    for has_exited in [false, true] {
        assert_eq!(left_after(has_exited, |_, consumer| Some(consumer)), 1, "it holds all but two");
        assert_eq!(left_after(has_exited, |_, _gone| None), 14, "its end of the ring has gone");
    }
    let retire = |link: &mut RingLink, consumer| {
        link.peer_gone();
        Some(consumer)
    };
    assert_eq!(left_after(true, retire), 14, "a process that has exited reads nothing");
    assert_eq!(left_after(false, retire), 1, "a peer that was falsely reported dead may still read");
}

#[test]
fn fragments_of_a_dead_peer_come_back_when_its_process_exits_later() {
    let has_exited = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let exit = Arc::clone(&has_exited);
    let area = area(16);
    let (mut link, _consumer, _) = peer_until(&area, ExitCheck::new(move || exit.load(Ordering::Relaxed)));
    while post(&mut link, 0, 300).is_ok() {}
    link.peer_gone();
    let (mut other, _reads, _) = peer(&area);
    assert_eq!((0..).take_while(|i| post(&mut other, *i, 300).is_ok()).count(), 1);
    has_exited.store(true, Ordering::Relaxed);
    assert_eq!((1..).take_while(|i| post(&mut other, *i, 300).is_ok()).count(), 13);
}

#[test]
fn who_has_gone_is_not_said_to_write_nonsense() {
    for has_exited in [false, true] {
        let area = area(8);
        let exit = ExitCheck::new(move || has_exited);
        let ((mut link, consumer, _), (mut other, _reader, _)) = (peer_until(&area, exit), peer(&area));
        while post(&mut link, 0, 300).is_ok() {}
        drop(consumer);
        // The fragments come back for another peer before this rank learns that the first has left.
        (0..2).for_each(|i| post(&mut other, i, 300).unwrap());
        for i in 0..CELLS {
            let posted = post(&mut link, i, 300);
            assert!(matches!(posted, Ok(()) | Err(PostError::Again)), "{posted:?}");
        }
    }
}

#[test]
fn a_retired_peer_that_lives_on_gives_back_nothing_of_others() {
    let area = area(8);
    // The name by which the peer's process is found was overwritten, so `ExitCheck` is wrong.
    let (mut link, mut accused, _) = peer_until(&area, ExitCheck::new(|| true));
    while post(&mut link, 0, 300).is_ok() {}
    link.peer_gone();
    // All of its fragments go to another peer.
    let (mut other, mut consumer, _) = peer(&area);
    let sent = (0..).take_while(|i| post(&mut other, *i, 300).is_ok()).count();
    assert_eq!(sent, 7);
    // The accused peer goes on, and returns the fragments that it once held.
    while accused.receive(&mut |_: &[u8], _: &[u8]| ()).unwrap() {}
    assert_eq!(post(&mut other, 7, 300), Err(PostError::Again), "nothing was taken from under the other");
    assert_eq!(take(&mut consumer, 0), 7);
}

/// Sends one inline frame and one in a fragment, calls `change` to overwrite cell `at`, and returns what the receiver
/// says of that cell.
fn overwritten(at: u64, change: impl FnOnce(&CacheLine)) -> Result<bool, Malformed> {
    let area = area(8);
    let (mut link, mut consumer, ring) = peer(&area);
    post(&mut link, 0, 8).unwrap();
    post(&mut link, 1, 100).unwrap();
    for _ in 0..at {
        consumer.receive(&mut |_: &[u8], _: &[u8]| ()).unwrap();
    }
    let cell = ring.cell(at);
    let label = label(cell);
    // In shared memory every byte has a value, and a wrong header may extend over all of them.
    for unwritten in usize::from(label.head) + usize::from(label.length)..INLINE {
        // SAFETY: within the cell, which nobody else uses.
        cell.bytes.with_mut(|bytes| unsafe { bytes.cast::<u8>().wrapping_add(unwritten).write(0) });
    }
    change(cell);
    consumer.receive(&mut |_: &[u8], _: &[u8]| panic!("a frame that nobody sent"))
}

/// Returns the header of a cell.
fn label(cell: &CacheLine) -> CellHeader {
    CellHeader::of(cell.word.load(Ordering::Relaxed))
}

/// Returns the error for a cell whose header was changed by a peer that also updates the checksum.
fn mistaken(at: u64, change: impl FnOnce(CellHeader) -> CellHeader) -> String {
    let change = |cell: &CacheLine| {
        let label = change(label(cell));
        // SAFETY: nobody else uses the cell, and every byte of it was written.
        let bytes = cell.bytes.with(|bytes| unsafe { bytes.cast::<[u8; INLINE]>().read() });
        let end = usize::from(label.head) + usize::from(label.length);
        let (head, rest) = bytes[..end.min(INLINE)].split_at(usize::from(label.head).min(INLINE));
        let is_body = [CellKind::Inline as u8, CellKind::SplitData as u8].contains(&label.form);
        let label = label.sealed(head, if is_body { &[] } else { rest });
        cell.word.store(label.word(), Ordering::Relaxed);
    };
    overwritten(at, change).unwrap_err().to_string()
}

#[test]
fn a_cell_that_makes_no_sense_is_an_error() {
    assert_eq!(
        mistaken(0, |label| CellHeader { head: 57, ..label }),
        "it wrote a malformed cell: a head of 57 bytes and 8 more"
    );
    assert_eq!(
        mistaken(0, |label| CellHeader { length: 63, ..label }),
        "it wrote a malformed cell: a head of 8 bytes and 63 more"
    );
    assert_eq!(mistaken(0, |label| CellHeader { form: 9, ..label }), "it wrote a malformed cell: form 9");
    assert_eq!(
        mistaken(0, |label| CellHeader { seq: 77, ..label }),
        "it wrote a malformed cell: sequence number 77 where 1 comes next"
    );
    assert_eq!(
        mistaken(0, |label| CellHeader { form: CellKind::SplitData as u8, ..label }),
        "it wrote a malformed cell: form 3 with 0 bytes of a body missing"
    );
    assert_eq!(
        mistaken(1, |label| CellHeader { length: 7, ..label }),
        "it wrote a malformed cell: form 1 with a head of 8 bytes and 7 more"
    );
}

/// Flips every bit that the receiver acts on: the header except for the sequence number, the head, and the numbers of
/// the fragment.
#[test]
fn a_changed_bit_of_a_cell_is_an_error() {
    let check = |at, change: &dyn Fn(&CacheLine)| {
        let error = overwritten(at, change).unwrap_err();
        let is_found = matches!(error, Malformed::Check { .. } | Malformed::Length { .. });
        assert!(is_found, "{error}");
    };
    for bit in 32..u64::BITS {
        for at in [0, 1] {
            check(at, &|cell| {
                let word = cell.word.load(Ordering::Relaxed) ^ 1 << bit;
                cell.word.store(word, Ordering::Relaxed);
            });
        }
    }
    for (at, bits) in [(0, 64), (1, 128)] {
        for bit in 0..bits {
            check(at, &|cell| {
                cell.bytes.with_mut(|bytes| {
                    let byte = bytes.cast::<u8>().wrapping_add(bit / 8);
                    // SAFETY: nobody else uses the cell, whose head and numbers are written.
                    let old = unsafe { byte.read() };
                    // SAFETY: as above.
                    unsafe { byte.write(old ^ 1 << (bit % 8)) };
                });
            });
        }
    }
}

#[test]
fn each_end_finds_that_its_words_were_overwritten() {
    let area = area(2);
    let (mut link, mut consumer, ring) = peer(&area);
    for len in [8, 300, 8, 9000] {
        post(&mut link, 0, len.min(FRAGMENT as usize)).unwrap();
        consumer.receive(&mut |_: &[u8], _: &[u8]| ()).unwrap();
    }
    (0..CELLS).for_each(|_| {
        post(&mut link, 0, 8).unwrap();
        consumer.receive(&mut |_: &[u8], _: &[u8]| ()).unwrap();
    });
    assert_eq!((link.verify(), consumer.verify()), (Ok(()), Ok(())));
    for (what, word) in [
        ("count of cells taken", ring.consumed()),
        ("count of fragments returned", ring.returned()),
        ("word that says that the receiver has gone", ring.receiver_closed()),
    ] {
        let written = word.fetch_add(1, Ordering::Relaxed);
        let found = consumer.verify().unwrap_err();
        assert_eq!(found, Malformed::Overwritten { what, found: written + 1, written });
        word.store(written, Ordering::Relaxed);
    }
    for position in 0..u64::from(CELLS) {
        let word = &ring.cell(position).word;
        // Make the cell look as if it had not been written in this round.
        let written = word.fetch_sub(u64::from(CELLS), Ordering::Relaxed);
        let Err(PostError::Broken(why)) = link.verify() else { panic!("cell {position}") };
        assert!(why.contains("was overwritten: the sequence number of a cell"), "{why}");
        word.store(written, Ordering::Relaxed);
    }
    assert_eq!((link.verify(), consumer.verify()), (Ok(()), Ok(())));
}

/// A fragment whose index is out of range, or that is shorter than the body that should be in it.
#[test]
fn a_fragment_that_makes_no_sense_is_an_error() {
    let (mut tx, mut rx) = pair();
    tx.send_fragment(&[1; 8], 70_000, 100);
    let error = rx.receive(&mut |_: &[u8], _: &[u8]| panic!("no such fragment")).unwrap_err();
    assert_eq!(error.to_string(), "it wrote a malformed cell: fragment index 70000 of 2");
    let (mut tx, mut rx) = pair();
    tx.send_fragment(&[1; 8], 1, FRAGMENT + 1);
    let error = rx.receive(&mut |_: &[u8], _: &[u8]| panic!("no such bytes")).unwrap_err();
    assert_eq!(error.to_string(), "it wrote a malformed cell: 4097 bytes in a fragment of 4096");
}

/// Split bodies that are empty, too long, or not continued.
#[test]
fn pieces_that_make_no_sense_are_an_error() {
    for len in [0, FRAGMENT + 1, u32::MAX] {
        let (mut tx, mut rx) = pair();
        tx.send_cut(&[1; 8], len);
        let error = rx.receive(&mut |_: &[u8], _: &[u8]| ()).unwrap_err();
        assert_eq!(error, Malformed::Size { len, fragment: FRAGMENT as usize });
    }
    let (mut tx, mut rx) = pair();
    tx.send_cut(&[1; 8], 60);
    tx.send_piece(&[MaybeUninit::new(2); 56]);
    tx.send_piece(&[MaybeUninit::new(2); 5]);
    assert_eq!(rx.receive(&mut |_: &[u8], _: &[u8]| ()), Ok(true));
    assert_eq!(rx.receive(&mut |_: &[u8], _: &[u8]| ()), Ok(true));
    assert!(
        matches!(rx.receive(&mut |_: &[u8], _: &[u8]| ()), Err(Malformed::Body { .. })),
        "one byte too many"
    );
    let (mut tx, mut rx) = pair();
    tx.send_cut(&[1; 8], 60);
    tx.send_inline(&[1; 8], 0, |_| ());
    assert_eq!(rx.receive(&mut |_: &[u8], _: &[u8]| ()), Ok(true));
    let error = rx.receive(&mut |_: &[u8], _: &[u8]| panic!("out of order")).unwrap_err();
    assert_eq!(error.to_string(), "it wrote a malformed cell: form 0 with 60 bytes of a body missing");
}

/// Takes frames, and takes bodies that are still being written alternately in pieces and directly into memory.
#[derive(Default)]
struct Gather {
    frames: Vec<(Vec<u8>, Vec<u8>)>,
    open: Option<(Vec<u8>, Vec<u8>)>,
    begun: usize,
}

impl FrameHandler for Gather {
    fn frame(&mut self, head: &[u8], body: &[u8]) {
        assert!(self.open.is_none(), "a body is under way");
        self.frames.push((head.to_vec(), body.to_vec()));
    }

    fn begin(&mut self, head: &[u8], len: usize) -> Landing {
        assert!(self.open.is_none(), "a body is under way");
        self.begun += 1;
        let is_direct = self.begun % 2 == 1;
        let mut body = if is_direct { vec![0; len] } else { Vec::with_capacity(len) };
        let to = body.as_mut_ptr();
        self.open = Some((head.to_vec(), body));
        if is_direct { Landing::Into(to) } else { Landing::Pieces }
    }

    fn piece(&mut self, bytes: &[u8]) {
        self.open.as_mut().expect("a body under way").1.extend_from_slice(bytes);
    }

    fn landed(&mut self) {
        self.frames.extend(self.open.take());
    }
}

/// The size of fragments that are longer than one part of a streamed body.
const LONG: u32 = 1 << 16;

#[test]
fn long_bodies_are_read_while_they_are_written() {
    let area = Arc::new(FragmentPool::new(Arc::new(FragmentMemory::new(4, LONG).unwrap()), &Bias::new()));
    let (mut link, mut consumer, _) = peer(&area);
    let lengths = [LONG as usize, 100, 8193, 0, 8192, 40_000, 16_384, 65_535];
    let bodies: Vec<Vec<u8>> = (0..200u32).map(|i| body(i, lengths[i as usize % lengths.len()])).collect();
    let mut gather = Gather::default();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for (i, body) in (0u64..).zip(&bodies) {
                while link.post(&i.to_le_bytes(), Body::Bytes(body)) == Err(PostError::Again) {
                    std::thread::yield_now();
                }
            }
        });
        while gather.frames.len() < bodies.len() {
            if !consumer.receive(&mut gather).unwrap() {
                std::thread::yield_now();
            }
        }
    });
    assert!(gather.begun > 50, "{} bodies were read in parts", gather.begun);
    for (i, ((head, got), sent)) in (0u64..).zip(gather.frames.iter().zip(&bodies)) {
        assert_eq!(head, &i.to_le_bytes());
        assert!(got == sent, "message {i} of {} bytes", sent.len());
    }
}

/// The calls of a sink, as text.
#[derive(Default)]
struct Told(Vec<String>);

// SAFETY: it gives no memory to the device.
unsafe impl Sink for Told {
    fn frame(&mut self, from: PeerId, _: &[u8], body: &[u8]) {
        self.0.push(format!("{from:?}: {} bytes", body.len()));
    }

    fn begin(&mut self, from: PeerId, _: &[u8], len: usize) -> Landing {
        self.0.push(format!("{from:?}: begins {len} bytes"));
        Landing::Pieces
    }

    fn piece(&mut self, _: PeerId, _: &[u8]) {}

    fn landed(&mut self, from: PeerId) {
        self.0.push(format!("{from:?}: landed"));
    }

    fn peer_lost(&mut self, from: PeerId, why: &str) {
        self.0.push(format!("{from:?}: {why}"));
    }

    fn completed(&mut self, _: OpToken, _: Result<(), String>) {}

    fn quiesced(&mut self, _: OpToken) {}
}

#[test]
fn who_dies_in_the_middle_of_a_body_is_buried_with_it() {
    let (mut tx, rx) = pair();
    let (mut told, mut incoming) = (Told::default(), RingReceiver::new(PeerId(3), rx, Awake));
    let mut now = |incoming: &mut RingReceiver<Awake>| {
        incoming.drain(&mut told);
        std::mem::take(&mut told.0)
    };
    tx.send_inline(&[1; 8], 5, |room| room.fill(MaybeUninit::new(0)));
    tx.send_stream_head(&[1; 8], 1, 100, 50);
    assert_eq!(now(&mut incoming), ["P3: 5 bytes", "P3: begins 100 bytes"]);
    let mut others = Told::default();
    incoming.bury(PeerId(2), &mut others);
    assert!(others.0.is_empty(), "it is another's");
    incoming.bury(PeerId(3), &mut others);
    incoming.bury(PeerId(3), &mut others);
    assert_eq!(others.0, ["P3: it died in the middle of a message"]);
    tx.send_stream_data(50);
    assert!(now(&mut incoming).is_empty(), "nothing is read any more");
}

/// Streamed bodies whose fragment does not exist, that are longer than a fragment, that are complete at once, that
/// continue too far, or that do not continue.
#[test]
fn parts_that_make_no_sense_are_an_error() {
    let told = |write: &dyn Fn(&mut Producer)| {
        let (mut tx, mut rx) = pair();
        write(&mut tx);
        let mut gather = Gather::default();
        loop {
            match rx.receive(&mut gather) {
                Ok(true) => assert!(gather.frames.is_empty(), "a frame that nobody sent"),
                Ok(false) => panic!("it makes sense"),
                Err(why) => return why.to_string(),
            }
        }
    };
    let cell = |what: &str| format!("it wrote a malformed cell: {what}");
    assert_eq!(told(&|tx| tx.send_stream_head(&[1; 8], 2, 100, 50)), cell("fragment index 2 of 2"));
    for (len, there) in [(FRAGMENT + 1, 1), (u32::MAX, 1), (100, 100), (100, 0), (0, 0), (100, u32::MAX)] {
        let why = told(&|tx| tx.send_stream_head(&[1; 8], 1, len, there));
        assert_eq!(why, cell(&format!("{len} bytes in a fragment of 4096")), "{there} bytes");
    }
    for more in [0, 51, u32::MAX] {
        let why = told(&|tx| {
            tx.send_stream_head(&[1; 8], 1, 100, 50);
            tx.send_stream_data(more);
        });
        assert_eq!(why, cell("form 5 with 50 bytes of a body missing"));
    }
    assert_eq!(told(&|tx| tx.send_stream_data(1)), cell("form 5 with 0 bytes of a body missing"));
    for other in [
        (|tx: &mut Producer| tx.send_inline(&[1; 8], 0, |_| ())) as fn(&mut Producer),
        |tx| tx.send_fragment(&[1; 8], 0, 10),
        |tx| tx.send_stream_head(&[1; 8], 0, 10, 5),
        |tx| tx.send_cut(&[1; 8], 10),
    ] {
        let why = told(&|tx| {
            tx.send_stream_head(&[1; 8], 1, 100, 50);
            other(tx);
        });
        assert!(why.ends_with("with 50 bytes of a body missing"), "{why}");
    }
}

#[test]
fn counts_that_make_no_sense_break_the_link() {
    let area = area(8);
    for (what, found, most) in
        [("cells taken", 65, 64), ("cells taken", u64::MAX, 64), ("cells taken", 3, 64)]
    {
        let (mut link, mut consumer, ring) = peer(&area);
        if found == 3 {
            // The count is smaller than one that was stored before.
            (0..CELLS).for_each(|i| post(&mut link, i, 8).unwrap());
            assert_eq!(take(&mut consumer, 0), CELLS);
            post(&mut link, CELLS, 8).unwrap();
            ring.consumed().store(3, Ordering::Relaxed);
            (1..CELLS).for_each(|i| post(&mut link, CELLS + i, 8).unwrap());
            let error = post(&mut link, 0, 8).unwrap_err();
            assert_eq!(
                error,
                PostError::Broken("it wrote a malformed count of cells taken: 3, not 64 to 128".into())
            );
            continue;
        }
        (0..CELLS).for_each(|i| post(&mut link, i, 8).unwrap());
        ring.consumed().store(found, Ordering::Relaxed);
        let error = post(&mut link, 0, 8).unwrap_err();
        let text = format!("it wrote a malformed count of {what}: {found}, not 0 to {most}");
        assert_eq!(error, PostError::Broken(text));
    }
    let (mut link, _consumer, ring) = peer(&area);
    while post(&mut link, 0, 300).is_ok() {}
    ring.returned().store(8, Ordering::Relaxed);
    let error = post(&mut link, 0, 300).unwrap_err();
    assert_eq!(
        error,
        PostError::Broken("it wrote a malformed count of fragments returned: 8, not 0 to 7".into())
    );
}
