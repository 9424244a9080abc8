//! Pool blocks: a device registers their region once, and the region is deregistered when the pool is dropped.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use mpj_devices::{Buf, Coalesce, Completion, KeepAlive, Mode, Pattern, Source, Started, Target};
use mpj_pool::{Growth, Heap, Magazine, Pool, RawBuffer, Unpooled};

use super::device::{EAGER_LIMIT, Gets, KEY, PIECE, Step, fetched, lock};
use super::fixture::{Fixture, WORLD};
use super::head_encoding::*;

const LEN: usize = EAGER_LIMIT + 100;

fn fixture() -> Fixture {
    let fixture = Fixture::with(Gets::Start);
    fixture.play([Step::Frame(1, bind(0, WORLD, 1), vec![])]);
    fixture
}

fn regions(fixture: &Fixture) -> usize {
    fixture.wire.regions.load(Ordering::Relaxed)
}

fn registered(fixture: &Fixture) -> (u64, u64) {
    let stats = fixture.engine.stats();
    stats.devices.iter().fold((0, 0), |(number, bytes), (_, traffic)| {
        (number + traffic.registered.number, bytes + traffic.registered.bytes)
    })
}

fn filled<B: RawBuffer + Sync + 'static>(mut block: B) -> Arc<B> {
    block.as_uninit_mut().fill(std::mem::MaybeUninit::new(3));
    Arc::new(block)
}

/// Starts a rendezvous send; returns its completion, its operation number, and the key that the RTS carries.
fn send_rts(fixture: &Fixture, buf: Buf, keep: KeepAlive) -> (Completion, u64, Vec<u8>) {
    // SAFETY: `keep` keeps the bytes and their region, and nothing writes to them.
    #[expect(unsafe_code, reason = "see above")]
    let source = unsafe { Source::new(buf, Some(keep)) }.unwrap();
    let started =
        fixture.engine.send(&fixture.world, 1, 1, source, Mode::Standard, Coalesce::Allowed).unwrap();
    let Started::Pending(completion) = started else { panic!("a rendezvous message") };
    let sent = fixture.sent();
    let (_, head, key) = sent.iter().find(|sent| sent.1[0] == RTS).unwrap();
    (completion, word(head, 28), key.clone())
}

#[test]
fn region_is_registered_once_per_device() {
    let pool = Magazine::growing(Growth::default(), Heap::create);
    let blocks: Vec<_> = (0..3).map(|_| filled(pool.alloc(LEN).unwrap())).collect();
    let benches = [fixture(), fixture()];
    for fixture in &benches {
        for (nth, block) in blocks.iter().enumerate() {
            let region = block.region().unwrap();
            let at = block.as_ptr().addr().get() + nth - region.base.addr().get();
            let buf = Buf::in_block(&**block, nth, LEN - nth, BYTES);
            let (send, op, key) = send_rts(fixture, buf, Arc::clone(block) as KeepAlive);
            assert_eq!(key, at.to_le_bytes(), "the key of the region, and the place in it");
            fixture.play([Step::Frame(1, reply(FIN, 0, op, 0), vec![])]);
            assert!(send.outcome().is_some_and(Result::is_ok));
            assert_eq!(regions(fixture), 1, "after message {nth}");
            assert_eq!(registered(fixture), (1, region.len as u64), "after message {nth}");
        }
    }
    drop(blocks);
    assert_eq!(benches.each_ref().map(regions), [1, 1], "as long as the pool has it");
    drop(pool);
    assert_eq!(benches.each_ref().map(regions), [0, 0]);
}

#[test]
fn receives_and_zcopy_sends_share_the_registration() {
    let pool = Magazine::growing(Growth::default(), Heap::create);
    let fixture = fixture();
    let into = filled(pool.alloc(PIECE).unwrap());
    let buf = Buf::in_block(&*into, 0, PIECE, BYTES);
    // SAFETY: the block is kept, and nothing accesses it before the receive has completed.
    #[expect(unsafe_code, reason = "see above")]
    let target = unsafe { Target::new(buf, Some(Arc::clone(&into) as KeepAlive)) }.unwrap();
    let pattern = Pattern { source: 1, tag: 1 };
    let Ok(Started::Pending(recv)) = fixture.engine.recv(&fixture.world, pattern, target) else {
        panic!("nothing has arrived")
    };
    fixture.play([Step::Frame(1, rts(0, 5, PIECE as u64), vec![1])]);
    assert_eq!(regions(&fixture), 1);
    let token = lock(&fixture.wire.ops)[0].token;
    fixture.play([Step::Completed(token, true)]);
    assert!(recv.outcome().is_some_and(Result::is_ok));
    // SAFETY: the block was filled, and then received into.
    #[expect(unsafe_code, reason = "see above")]
    let received = unsafe { into.as_uninit()[..PIECE].assume_init_ref() };
    assert!(received.iter().enumerate().all(|(at, byte)| *byte == fetched(at)));
    let (_, op, _) = send_rts(&fixture, Buf::in_block(&*into, 0, LEN, BYTES), Arc::clone(&into) as KeepAlive);
    fixture.play([Step::Frame(1, reply(CTS, 0, op, 9), vec![])]);
    assert!(!lock(&fixture.wire.ops).is_empty(), "the body is sent zero-copy");
    assert_eq!(regions(&fixture), 1);
    assert_eq!(registered(&fixture), (1, into.region().unwrap().len as u64));
}

#[test]
fn memory_outside_of_a_region_is_registered_alone() {
    let fixture = fixture();
    let block = filled(Unpooled::new(usize::MAX, Heap::create).alloc(LEN).unwrap());
    let elsewhere = Arc::new(vec![3u8; LEN]);
    let buf = Buf::slice(&elsewhere[..]).in_region(block.region());
    let (_, _, key) = send_rts(&fixture, buf, Arc::new((Arc::clone(&block), Arc::clone(&elsewhere))));
    assert_eq!((regions(&fixture), &key[..]), (0, &KEY[..]));
    assert_eq!(registered(&fixture), (1, LEN as u64));
    // An unpooled block is a region of its own, even after it was moved.
    let (send, op, key) =
        send_rts(&fixture, Buf::in_block(&*block, 0, LEN, BYTES), Arc::clone(&block) as KeepAlive);
    assert_eq!((regions(&fixture), &key[..]), (1, &[0; 8][..]));
    fixture.play([Step::Frame(1, reply(FIN, 0, op, 0), vec![])]);
    assert!(send.outcome().is_some_and(Result::is_ok));
}
