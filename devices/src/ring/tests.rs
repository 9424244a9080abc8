//! Tests of rings and fragments: both ends are in this process, in most tests on one thread.

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

/// A notifier for a rank that is always awake.
#[derive(Debug)]
struct Awake;

impl PeerNotifier for Awake {
    fn notify_receiver(&mut self) {}

    fn wake_sender(&mut self) {}
}

type TestEndpoint = super::RingEndpoint<Awake>;

fn pool(count: u32) -> Arc<FragmentPool> {
    Arc::new(FragmentPool::new(Arc::new(FragmentMemory::new(count, FRAGMENT).unwrap()), &Bias::new()))
}

/// Makes a ring to a new peer of the owner of `pool`.
fn peer(pool: &Arc<FragmentPool>) -> (TestEndpoint, Consumer, Arc<Ring>) {
    peer_with_exit_check(pool, ExitCheck::never())
}

fn peer_with_exit_check(pool: &Arc<FragmentPool>, exit: ExitCheck) -> (TestEndpoint, Consumer, Arc<Ring>) {
    let ring = Arc::new(Ring::new(CELLS));
    let consumer = Consumer::new(Arc::clone(&ring), Arc::clone(pool.memory()));
    (TestEndpoint::new(Arc::clone(&ring), Arc::clone(pool), Awake, exit), consumer, ring)
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
fn post(endpoint: &mut TestEndpoint, i: u32, len: usize) -> Result<(), PostError> {
    endpoint.post(&u64::from(i).to_le_bytes(), Body::Bytes(&body(i, len)))
}

/// Receives all frames that have arrived, and checks that they are the messages from `next` on. Returns the number of
/// the message after them.
fn receive_all(consumer: &mut Consumer, mut next: u32) -> u32 {
    let check = |next: u32, head: &[u8], received: &[u8]| {
        assert_eq!(head, u64::from(next).to_le_bytes());
        assert!(received == body(next, received.len()), "message {next} of {} bytes", received.len());
    };
    loop {
        let mut frames = 0;
        let moved = consumer.receive(&mut |head: &[u8], received: &[u8]| {
            check(next, head, received);
            frames = 1;
        });
        if !moved.unwrap() {
            return next;
        }
        next += frames;
    }
}

#[test]
fn inline_fragment_and_split_frames_keep_order_and_content_across_threads() {
    // Another peer holds the only fragment for the first half of the frames, so the long bodies there are split.
    let pool = pool(1);
    let (mut endpoint, mut consumer, _) = peer(&pool);
    let (mut other, mut idle, _) = peer(&pool);
    post(&mut other, 0, 100).unwrap();
    let frames = 20_000u32;
    let sender = std::thread::spawn(move || {
        let mut splits = 0;
        for i in 0..frames {
            if i == frames / 2 {
                assert_eq!(receive_all(&mut idle, 0), 1);
            }
            let len = if i % 7 == 0 { 49 + i as usize % 4000 } else { i as usize % 49 };
            while post(&mut endpoint, i, len) == Err(PostError::Again) {
                std::thread::yield_now();
            }
            splits += u32::from(endpoint.has_unflushed());
        }
        while endpoint.flush().unwrap() {
            std::thread::yield_now();
        }
        assert!(splits > 0);
    });
    let mut next = 0;
    while next < frames {
        next = receive_all(&mut consumer, next);
        std::thread::yield_now();
    }
    sender.join().unwrap();
}

#[test]
fn full_ring_has_room_after_the_receiver_publishes_its_position() {
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
    assert!(rx.sender_waits(), "the sender has requested a wake-up");
    assert!(!rx.sender_waits(), "the request is reported once");
    assert_eq!(tx.has_room(), Ok(true));
}

#[test]
fn impossible_count_of_returned_fragments_breaks_a_waiting_sender() {
    let pool = Arc::new(FragmentPool::new(Arc::new(FragmentMemory::new(4, LONG).unwrap()), &Bias::new()));
    let (mut liar, _consumer, ring) = peer(&pool);
    let (mut other, _other_consumer, _) = peer(&pool);
    post(&mut liar, 0, 300).unwrap();
    while post(&mut other, 0, 300).is_ok() {}
    assert_eq!(post(&mut liar, 0, 300), Err(PostError::Again));
    ring.returned().store(99, Ordering::Relaxed);
    assert!(matches!(post(&mut liar, 0, 300), Err(PostError::Broken(_))));
}

#[test]
fn peer_that_does_not_poll_cannot_take_the_reserved_fragments() {
    let pool = pool(16);
    let (mut endpoint, mut consumer, _) = peer(&pool);
    let sent = (0..).take_while(|i| post(&mut endpoint, *i, 300).is_ok()).count();
    assert_eq!(sent, 14, "all but the last eighth");
    // Each of two other peers gets a fragment again whenever it has returned the last one.
    let mut others = [peer(&pool), peer(&pool)];
    for round in 0..20 {
        for (endpoint, consumer, _) in &mut others {
            post(endpoint, round, 100).unwrap();
            assert!(!endpoint.has_unflushed());
            assert_eq!(receive_all(consumer, round), round + 1);
        }
    }
    assert_eq!(post(&mut endpoint, 14, 300), Err(PostError::Again));
    assert_eq!(receive_all(&mut consumer, 0), 14);
    assert!(consumer.sender_waits(), "the sender waits for its fragments");
    post(&mut endpoint, 14, 300).unwrap();
    assert_eq!(receive_all(&mut consumer, 14), 15);
}

#[test]
fn short_frames_do_not_wait_for_fragments() {
    let pool = pool(2);
    let (mut endpoint, mut consumer, _) = peer(&pool);
    // Two go in fragments; each further one takes three cells, until the ring is full.
    let sent = (0..).take_while(|i| post(&mut endpoint, *i, 100).is_ok()).count() as u32;
    assert_eq!(sent, 2 + (CELLS - 2) / 3 + 1, "the last one is sent in part");
    assert!(endpoint.has_unflushed());
    assert_eq!(receive_all(&mut consumer, 0), sent - 1);
    assert!(!endpoint.flush().unwrap());
    assert_eq!(receive_all(&mut consumer, sent - 1), sent);
}

#[test]
fn frame_is_split_over_cells_if_no_fragment_is_free() {
    let pool = pool(2);
    let (mut hog, _held, _) = peer(&pool);
    assert_eq!((0..).take_while(|i| post(&mut hog, *i, 300).is_ok()).count(), 2);
    // For each of 500 peers, a frame that is longer than its ring.
    for _ in 0..500 {
        let (mut endpoint, mut consumer, _) = peer(&pool);
        post(&mut endpoint, 0, FRAGMENT as usize).unwrap();
        assert!(endpoint.has_unflushed());
        assert_eq!(post(&mut endpoint, 1, 8), Err(PostError::Again), "frames keep their order");
        while endpoint.flush().unwrap() {
            assert_eq!(receive_all(&mut consumer, 0), 0);
            assert!(consumer.sender_waits());
        }
        assert_eq!(receive_all(&mut consumer, 0), 1);
        post(&mut endpoint, 1, 8).unwrap();
        assert_eq!(receive_all(&mut consumer, 1), 2);
    }
}

/// Sends to a peer until no more fragments are granted for it, calls `end`, and returns how many fragments another peer
/// then gets.
fn fragments_for_another_after(
    has_exited: bool,
    end: impl FnOnce(&mut TestEndpoint, Consumer) -> Option<Consumer>,
) -> usize {
    let pool = pool(16);
    let (mut endpoint, consumer, _) = peer_with_exit_check(&pool, ExitCheck::new(move || has_exited));
    while post(&mut endpoint, 0, 300).is_ok() {}
    let _held = end(&mut endpoint, consumer);
    let (mut other, _consumer, _) = peer(&pool);
    (0..).take_while(|i| post(&mut other, *i, 300).is_ok()).count()
}

#[test]
fn fragments_come_back_when_the_peer_cannot_read_any_more() {
    for has_exited in [false, true] {
        assert_eq!(
            fragments_for_another_after(has_exited, |_, consumer| Some(consumer)),
            1,
            "it holds all but two"
        );
        assert_eq!(
            fragments_for_another_after(has_exited, |_, _gone| None),
            14,
            "its receiving side was dropped"
        );
    }
    let peer_gone = |endpoint: &mut TestEndpoint, consumer| {
        endpoint.peer_gone();
        Some(consumer)
    };
    assert_eq!(fragments_for_another_after(true, peer_gone), 14, "a process that has exited reads nothing");
    assert_eq!(
        fragments_for_another_after(false, peer_gone),
        1,
        "a peer that was falsely reported dead might still read"
    );
}

#[test]
fn fragments_of_a_dead_peer_come_back_when_its_process_exits_later() {
    let has_exited = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let exit = Arc::clone(&has_exited);
    let pool = pool(16);
    let (mut endpoint, _consumer, _) =
        peer_with_exit_check(&pool, ExitCheck::new(move || exit.load(Ordering::Relaxed)));
    while post(&mut endpoint, 0, 300).is_ok() {}
    endpoint.peer_gone();
    let (mut other, _other_consumer, _) = peer(&pool);
    assert_eq!((0..).take_while(|i| post(&mut other, *i, 300).is_ok()).count(), 1);
    has_exited.store(true, Ordering::Relaxed);
    assert_eq!((1..).take_while(|i| post(&mut other, *i, 300).is_ok()).count(), 13);
}

#[test]
fn closed_peer_is_not_reported_as_malformed() {
    for has_exited in [false, true] {
        let pool = pool(8);
        let exit = ExitCheck::new(move || has_exited);
        let ((mut endpoint, consumer, _), (mut other, _other_consumer, _)) =
            (peer_with_exit_check(&pool, exit), peer(&pool));
        while post(&mut endpoint, 0, 300).is_ok() {}
        drop(consumer);
        // The fragments come back for another peer before this rank learns that the first has left.
        (0..2).for_each(|i| post(&mut other, i, 300).unwrap());
        for i in 0..CELLS {
            let posted = post(&mut endpoint, i, 300);
            assert!(matches!(posted, Ok(()) | Err(PostError::Again)), "{posted:?}");
        }
    }
}

#[test]
fn released_peer_that_lives_on_returns_no_fragment_of_another_peer() {
    let pool = pool(8);
    // `ExitCheck` wrongly reports an exit, as if the name of the peer's socket was overwritten.
    let (mut endpoint, mut accused, _) = peer_with_exit_check(&pool, ExitCheck::new(|| true));
    while post(&mut endpoint, 0, 300).is_ok() {}
    endpoint.peer_gone();
    // All of its fragments go to another peer.
    let (mut other, mut consumer, _) = peer(&pool);
    let sent = (0..).take_while(|i| post(&mut other, *i, 300).is_ok()).count();
    assert_eq!(sent, 7);
    // The accused peer continues, and returns the fragments that it held before.
    while accused.receive(&mut |_: &[u8], _: &[u8]| ()).unwrap() {}
    assert_eq!(post(&mut other, 7, 300), Err(PostError::Again), "the other peer keeps its fragments");
    assert_eq!(receive_all(&mut consumer, 0), 7);
}

/// Sends one inline frame and one in a fragment, calls `change` to overwrite cell `at`, and returns the result of
/// receiving that cell.
fn receive_overwritten(at: u64, change: impl FnOnce(&CacheLine)) -> Result<bool, Malformed> {
    let pool = pool(8);
    let (mut endpoint, mut consumer, ring) = peer(&pool);
    post(&mut endpoint, 0, 8).unwrap();
    post(&mut endpoint, 1, 100).unwrap();
    for _ in 0..at {
        consumer.receive(&mut |_: &[u8], _: &[u8]| ()).unwrap();
    }
    let cell = ring.cell(at);
    let header = header(cell);
    // In shared memory every byte has a value, and a wrong header may extend over all of them.
    for unwritten in usize::from(header.head) + usize::from(header.length)..INLINE {
        // SAFETY: within the cell, which nobody else uses.
        cell.bytes.with_mut(|bytes| unsafe { bytes.cast::<u8>().wrapping_add(unwritten).write(0) });
    }
    change(cell);
    consumer.receive(&mut |_: &[u8], _: &[u8]| panic!("a frame that nobody sent"))
}

fn header(cell: &CacheLine) -> CellHeader {
    CellHeader::from_word(cell.word.load(Ordering::Relaxed))
}

/// Returns the error for a cell whose header was changed by a peer that also updates the checksum.
fn error_of_changed_header(at: u64, change: impl FnOnce(CellHeader) -> CellHeader) -> String {
    let change = |cell: &CacheLine| {
        let header = change(header(cell));
        // SAFETY: nobody else uses the cell, and every byte of it was written.
        let bytes = cell.bytes.with(|bytes| unsafe { bytes.cast::<[u8; INLINE]>().read() });
        let end = usize::from(header.head) + usize::from(header.length);
        let (head, rest) = bytes[..end.min(INLINE)].split_at(usize::from(header.head).min(INLINE));
        let is_body = [CellKind::Inline as u8, CellKind::SplitData as u8].contains(&header.kind);
        let header = header.with_checksum(head, if is_body { &[] } else { rest });
        cell.word.store(header.word(), Ordering::Relaxed);
    };
    receive_overwritten(at, change).unwrap_err().to_string()
}

#[test]
fn malformed_cell_is_an_error() {
    assert_eq!(
        error_of_changed_header(0, |header| CellHeader { head: 57, ..header }),
        "it wrote a malformed cell: a head of 57 bytes and 8 more"
    );
    assert_eq!(
        error_of_changed_header(0, |header| CellHeader { length: 63, ..header }),
        "it wrote a malformed cell: a head of 8 bytes and 63 more"
    );
    assert_eq!(
        error_of_changed_header(0, |header| CellHeader { kind: 9, ..header }),
        "it wrote a malformed cell: unknown cell kind 9"
    );
    assert_eq!(
        error_of_changed_header(0, |header| CellHeader { seq: 77, ..header }),
        "it wrote a malformed cell: sequence number 77 instead of 1"
    );
    assert_eq!(
        error_of_changed_header(0, |header| CellHeader { kind: CellKind::SplitData as u8, ..header }),
        "it wrote a malformed cell: cell kind 3 with 0 bytes of a body missing"
    );
    assert_eq!(
        error_of_changed_header(1, |header| CellHeader { length: 7, ..header }),
        "it wrote a malformed cell: cell kind 1 with a head of 8 bytes and 7 more"
    );
}

/// Flips, one at a time, the bits that the receiver acts on: the header except for the sequence number, the head, and
/// the numbers of the fragment.
#[test]
fn a_changed_bit_of_a_cell_is_an_error() {
    let check = |at, change: &dyn Fn(&CacheLine)| {
        let error = receive_overwritten(at, change).unwrap_err();
        let is_found = matches!(error, Malformed::Checksum { .. } | Malformed::TooLong { .. });
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
fn each_side_detects_that_its_words_were_overwritten() {
    let pool = pool(2);
    let (mut endpoint, mut consumer, ring) = peer(&pool);
    for len in [8, 300, 8, 9000] {
        post(&mut endpoint, 0, len.min(FRAGMENT as usize)).unwrap();
        consumer.receive(&mut |_: &[u8], _: &[u8]| ()).unwrap();
    }
    (0..CELLS).for_each(|_| {
        post(&mut endpoint, 0, 8).unwrap();
        consumer.receive(&mut |_: &[u8], _: &[u8]| ()).unwrap();
    });
    assert_eq!((endpoint.verify(), consumer.verify()), (Ok(()), Ok(())));
    for (what, word) in [
        ("count of cells taken", ring.consumed()),
        ("count of fragments returned", ring.returned()),
        ("flag that the receiver has closed", ring.receiver_closed()),
    ] {
        let written = word.fetch_add(1, Ordering::Relaxed);
        let found = consumer.verify().unwrap_err();
        assert_eq!(found, Malformed::Overwritten { what, found: written + 1, written });
        word.store(written, Ordering::Relaxed);
    }
    for position in 0..u64::from(CELLS) {
        let word = &ring.cell(position).word;
        // Set the sequence number back, as if the cell had not been written in this round.
        let written = word.fetch_sub(u64::from(CELLS), Ordering::Relaxed);
        let Err(PostError::Broken(why)) = endpoint.verify() else { panic!("cell {position}") };
        assert!(why.contains("was overwritten: the sequence number of a cell"), "{why}");
        word.store(written, Ordering::Relaxed);
    }
    assert_eq!((endpoint.verify(), consumer.verify()), (Ok(()), Ok(())));
}

#[test]
fn fragment_out_of_range_is_an_error() {
    let (mut tx, mut rx) = pair();
    tx.send_fragment(&[1; 8], 70_000, 100);
    let error = rx.receive(&mut |_: &[u8], _: &[u8]| panic!("no such fragment")).unwrap_err();
    assert_eq!(error.to_string(), "it wrote a malformed cell: fragment index 70000 of 2");
    let (mut tx, mut rx) = pair();
    tx.send_fragment(&[1; 8], 1, FRAGMENT + 1);
    let error = rx.receive(&mut |_: &[u8], _: &[u8]| panic!("no such bytes")).unwrap_err();
    assert_eq!(error.to_string(), "it wrote a malformed cell: a body of 4097 bytes (allowed: 1 to 4096)");
}

#[test]
fn malformed_split_body_is_an_error() {
    for len in [0, FRAGMENT + 1, u32::MAX] {
        let (mut tx, mut rx) = pair();
        tx.send_split_head(&[1; 8], len);
        let error = rx.receive(&mut |_: &[u8], _: &[u8]| ()).unwrap_err();
        assert_eq!(error, Malformed::BodySize { len, written: None, fragment: FRAGMENT as usize });
    }
    let (mut tx, mut rx) = pair();
    tx.send_split_head(&[1; 8], 60);
    tx.send_split_data(&[MaybeUninit::new(2); 56]);
    tx.send_split_data(&[MaybeUninit::new(2); 5]);
    assert_eq!(rx.receive(&mut |_: &[u8], _: &[u8]| ()), Ok(true));
    assert_eq!(rx.receive(&mut |_: &[u8], _: &[u8]| ()), Ok(true));
    assert!(
        matches!(rx.receive(&mut |_: &[u8], _: &[u8]| ()), Err(Malformed::LengthsForKind { .. })),
        "one byte too many"
    );
    let (mut tx, mut rx) = pair();
    tx.send_split_head(&[1; 8], 60);
    tx.send_inline(&[1; 8], 0, |_| ());
    assert_eq!(rx.receive(&mut |_: &[u8], _: &[u8]| ()), Ok(true));
    let error = rx.receive(&mut |_: &[u8], _: &[u8]| panic!("out of order")).unwrap_err();
    assert_eq!(error.to_string(), "it wrote a malformed cell: cell kind 0 with 60 bytes of a body missing");
}

/// Collects frames; receives streamed bodies alternately in pieces and directly into memory.
#[derive(Default)]
struct FrameCollector {
    frames: Vec<(Vec<u8>, Vec<u8>)>,
    open: Option<(Vec<u8>, Vec<u8>)>,
    begun: usize,
}

impl FrameHandler for FrameCollector {
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

/// The size in bytes of fragments that are longer than one chunk of a streamed body.
const LONG: u32 = 1 << 16;

#[test]
fn streamed_bodies_arrive_complete_and_in_order() {
    let pool = Arc::new(FragmentPool::new(Arc::new(FragmentMemory::new(4, LONG).unwrap()), &Bias::new()));
    let (mut endpoint, mut consumer, _) = peer(&pool);
    let lengths = [LONG as usize, 100, 8193, 0, 8192, 40_000, 16_384, 65_535];
    let bodies: Vec<Vec<u8>> = (0..200u32).map(|i| body(i, lengths[i as usize % lengths.len()])).collect();
    let mut collector = FrameCollector::default();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for (i, body) in (0u64..).zip(&bodies) {
                while endpoint.post(&i.to_le_bytes(), Body::Bytes(body)) == Err(PostError::Again) {
                    std::thread::yield_now();
                }
            }
        });
        while collector.frames.len() < bodies.len() {
            if !consumer.receive(&mut collector).unwrap() {
                std::thread::yield_now();
            }
        }
    });
    assert!(collector.begun > 50, "{} bodies were streamed", collector.begun);
    for (i, ((head, received), sent)) in (0u64..).zip(collector.frames.iter().zip(&bodies)) {
        assert_eq!(head, &i.to_le_bytes());
        assert!(received == sent, "message {i} of {} bytes", sent.len());
    }
}

#[derive(Default)]
struct RecordingSink(Vec<String>);

// SAFETY: it gives no memory to the device.
unsafe impl Sink for RecordingSink {
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
fn abort_body_reports_a_peer_that_died_within_a_body() {
    let (mut tx, rx) = pair();
    let (mut log, mut receiver) = (RecordingSink::default(), RingReceiver::new(PeerId(3), rx, Awake));
    let mut drain = |receiver: &mut RingReceiver<Awake>| {
        receiver.drain(&mut log);
        std::mem::take(&mut log.0)
    };
    tx.send_inline(&[1; 8], 5, |room| room.fill(MaybeUninit::new(0)));
    tx.send_stream_head(&[1; 8], 1, 100, 50);
    assert_eq!(drain(&mut receiver), ["P3: 5 bytes", "P3: begins 100 bytes"]);
    let mut others = RecordingSink::default();
    receiver.abort_body(PeerId(2), &mut others);
    assert!(others.0.is_empty(), "rank 2 is not the sender of this ring");
    receiver.abort_body(PeerId(3), &mut others);
    receiver.abort_body(PeerId(3), &mut others);
    assert_eq!(others.0, ["P3: it died in the middle of a message"]);
    tx.send_stream_data(50);
    assert!(drain(&mut receiver).is_empty(), "nothing is read any more");
}

/// Streamed bodies that name a fragment out of range, are longer than a fragment, begin with no bytes or all of them,
/// or continue with no bytes, too many bytes or another cell; and a continuation without a beginning.
#[test]
fn malformed_streamed_body_is_an_error() {
    let error_of = |write: &dyn Fn(&mut Producer)| {
        let (mut tx, mut rx) = pair();
        write(&mut tx);
        let mut collector = FrameCollector::default();
        loop {
            match rx.receive(&mut collector) {
                Ok(true) => assert!(collector.frames.is_empty(), "a frame that nobody sent"),
                Ok(false) => panic!("the cells were accepted"),
                Err(why) => return why.to_string(),
            }
        }
    };
    let cell = |what: &str| format!("it wrote a malformed cell: {what}");
    assert_eq!(error_of(&|tx| tx.send_stream_head(&[1; 8], 2, 100, 50)), cell("fragment index 2 of 2"));
    for (len, written) in [(FRAGMENT + 1, 1), (u32::MAX, 1), (100, 100), (100, 0), (0, 0), (100, u32::MAX)] {
        let why = error_of(&|tx| tx.send_stream_head(&[1; 8], 1, len, written));
        let text = format!("a body of {len} bytes (allowed: 1 to 4096), {written} of them written");
        assert_eq!(why, cell(&text));
    }
    for more in [0, 51, u32::MAX] {
        let why = error_of(&|tx| {
            tx.send_stream_head(&[1; 8], 1, 100, 50);
            tx.send_stream_data(more);
        });
        assert_eq!(why, cell("cell kind 5 with 50 bytes of a body missing"));
    }
    assert_eq!(error_of(&|tx| tx.send_stream_data(1)), cell("cell kind 5 with 0 bytes of a body missing"));
    for other in [
        (|tx: &mut Producer| tx.send_inline(&[1; 8], 0, |_| ())) as fn(&mut Producer),
        |tx| tx.send_fragment(&[1; 8], 0, 10),
        |tx| tx.send_stream_head(&[1; 8], 0, 10, 5),
        |tx| tx.send_split_head(&[1; 8], 10),
    ] {
        let why = error_of(&|tx| {
            tx.send_stream_head(&[1; 8], 1, 100, 50);
            other(tx);
        });
        assert!(why.ends_with("with 50 bytes of a body missing"), "{why}");
    }
}

#[test]
fn impossible_counts_break_the_endpoint() {
    let pool = pool(8);
    for (what, found, most) in
        [("cells taken", 65, 64), ("cells taken", u64::MAX, 64), ("cells taken", 3, 64)]
    {
        let (mut endpoint, mut consumer, ring) = peer(&pool);
        if found == 3 {
            // The count is smaller than one that was stored before.
            (0..CELLS).for_each(|i| post(&mut endpoint, i, 8).unwrap());
            assert_eq!(receive_all(&mut consumer, 0), CELLS);
            post(&mut endpoint, CELLS, 8).unwrap();
            ring.consumed().store(3, Ordering::Relaxed);
            (1..CELLS).for_each(|i| post(&mut endpoint, CELLS + i, 8).unwrap());
            let error = post(&mut endpoint, 0, 8).unwrap_err();
            assert_eq!(
                error,
                PostError::Broken("it wrote a malformed count of cells taken: 3, not 64 to 128".into())
            );
            continue;
        }
        (0..CELLS).for_each(|i| post(&mut endpoint, i, 8).unwrap());
        ring.consumed().store(found, Ordering::Relaxed);
        let error = post(&mut endpoint, 0, 8).unwrap_err();
        let text = format!("it wrote a malformed count of {what}: {found}, not 0 to {most}");
        assert_eq!(error, PostError::Broken(text));
    }
    let (mut endpoint, _consumer, ring) = peer(&pool);
    while post(&mut endpoint, 0, 300).is_ok() {}
    ring.returned().store(8, Ordering::Relaxed);
    let error = post(&mut endpoint, 0, 300).unwrap_err();
    assert_eq!(
        error,
        PostError::Broken("it wrote a malformed count of fragments returned: 8, not 0 to 7".into())
    );
}
