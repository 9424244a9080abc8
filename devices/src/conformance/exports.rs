//! Messages in blocks of a rank's pool: devices that can export memory let the receiver view them in place, and all
//! devices can copy them.

use std::sync::Arc;
use std::time::Duration;

use mpj_datatypes::Datatype;
use mpj_pool::{FilledBlock, Pool, RawBuffer};

use super::Member;
use super::owned::{Layout, bytes, forget};
use crate::engine::MatchedMessage;
use crate::{
    ANY_TAG, Buf, Channel, Coalesce, Completion, DataPath, Engine, Envelope, Fault, KeepAlive, Mode, Pattern,
    RankPool, ShmDriver, Source, Started, ViewedMessage,
};

const LEFT: Fault = Fault::Left { rank: Some(0) };

/// The send of a block that the operation owns.
#[derive(Debug)]
struct Loan {
    data: Arc<FilledBlock<<RankPool as Pool>::Block>>,
    started: Started,
}

/// The owner of a block, which sends one byte when it is dropped.
#[derive(Debug)]
struct Owner {
    _data: KeepAlive,
    engine: Arc<Engine>,
    world: Arc<Channel>,
    to: u32,
    tag: i32,
}

impl Drop for Owner {
    fn drop(&mut self) {
        // SAFETY: the byte is static.
        #[expect(unsafe_code, reason = "the engine takes raw memory")]
        let word = unsafe { Source::new(Buf::slice(&[9u8][..]), None) }.unwrap();
        drop(self.engine.send(&self.world, self.to, self.tag, word, Mode::Standard, Coalesce::No));
    }
}

impl Loan {
    fn start(m: &Member, to: u32, tag: i32, data: &[u8]) -> Self {
        Self::start_as(m, to, tag, data, |data| data)
    }

    /// Starts the send of a block that the owner returned by `owner` keeps.
    fn start_as(
        m: &Member,
        to: u32,
        tag: i32,
        data: &[u8],
        owner: impl FnOnce(KeepAlive) -> KeepAlive,
    ) -> Self {
        let mut block = FilledBlock::new(m.engine.pool().alloc(data.len()).unwrap());
        block.extend_from_slice(data).unwrap();
        let block = Arc::new(block);
        let (data, keep) = (Arc::clone(&block), owner(Arc::clone(&block) as KeepAlive));
        let buf = Buf::slice((*block).as_ref()).in_region(block.region());
        // SAFETY: `keep` keeps the block, and there is no `&mut` to it while there are other copies.
        #[expect(unsafe_code, reason = "the engine takes raw memory")]
        let source = unsafe { Source::new(buf, Some(keep)) }.unwrap();
        let started = m.engine.send(&m.world, to, tag, source, Mode::Standard, Coalesce::Allowed).unwrap();
        Loan { data, started }
    }

    fn completion(&self) -> &Completion {
        match &self.started {
            Started::Pending(completion) => completion,
            Started::Done(_) => panic!("a long message does not end at once"),
        }
    }

    fn has_ended(&self) -> bool {
        self.completion().outcome().is_some()
    }

    /// Waits for the completion; returns the outcome, and the block if it is not viewed.
    fn wait(self, m: &Member) -> (Result<Envelope, Fault>, Option<FilledBlock<<RankPool as Pool>::Block>>) {
        let outcome = m.engine.wait(self.started);
        (outcome, Arc::into_inner(self.data))
    }
}

fn message(m: &Member, from: u32, tag: i32) -> MatchedMessage {
    m.engine.mprobe(&m.world, Pattern { source: from.cast_signed(), tag }, "mprobe").unwrap()
}

/// Returns whether the device for another rank of the channel lets that rank view memory of this one.
fn views(m: &Member, to: u32) -> bool {
    // With this path, messages are packed into another block first.
    if m.engine.path == DataPath::Buffered
        && m.engine.devices.iter().any(|device| device.name() == ShmDriver::NAME)
    {
        return false;
    }
    let peer = m.engine.peers.get(m.world.peer(to).unwrap());
    peer.and_then(|peer| m.engine.device_of(peer)).is_some_and(|device| device.caps().exports)
}

/// Receives a message as a view. If that is impossible, receives it otherwise and returns `None`.
fn look(m: &Member, from: u32, tag: i32, data: &[u8]) -> Option<ViewedMessage> {
    match m.engine.recv_view(message(m, from, tag)) {
        Ok(lent) => {
            assert!(lent.bytes() == data, "tag {tag}");
            Some(lent)
        }
        Err(message) => {
            assert!(!views(m, from), "{message:?} is not lent");
            // Discards the message.
            // SAFETY: the target has no bytes, so that nothing is written.
            #[expect(unsafe_code, reason = "the engine takes raw memory")]
            let nothing = unsafe { crate::Target::new(Buf::empty(), None) }.unwrap();
            let refused = m.engine.recv_message(message, crate::Receive::new(nothing)).started();
            assert!(matches!(refused.and_then(|it| m.engine.wait(it)), Err(Fault::Truncated { .. })));
            None
        }
    }
}

/// The sender gets a block back when its receiver has dropped the view, in whatever order that is.
pub(super) fn blocks_are_looked_at_where_they_lie(m: &Member) {
    const BLOCKS: u64 = 6;
    let len = |i: u64| m.long() + 7 * i as usize;
    for round in 0..3 {
        let data = |rank: u32, i: u64| bytes(u64::from(rank) * 100 + round * 10 + i, len(i));
        let loans: Vec<_> =
            (0..BLOCKS).map(|i| Loan::start(m, m.next(), i as i32, &data(m.rank, i))).collect();
        let lent: Vec<_> =
            (0..BLOCKS).map(|i| look(m, m.previous(), i as i32, &data(m.previous(), i))).collect();
        m.barrier();
        if views(m, m.next()) {
            assert!(!loans.iter().any(Loan::has_ended), "somebody looks at the blocks");
        }
        m.barrier();
        let mut lent: Vec<_> = lent.into_iter().collect();
        while !lent.is_empty() {
            drop(lent.remove(lent.len() / 2));
        }
        for (i, loan) in loans.into_iter().enumerate() {
            let (outcome, block) = loan.wait(m);
            assert_eq!(outcome.unwrap().bytes, len(i as u64));
            let block = block.expect("nobody looks at it any more");
            assert!(block.as_ref() == data(m.rank, i as u64));
        }
    }
}

/// A message in a block can be received like any other message, also into another layout, and be rejected.
pub(super) fn blocks_are_received_elsewhere(m: &Member) {
    let len = (m.long() + 4) & !3;
    let data = |rank: u32| bytes(u64::from(rank) + 1, len);
    let loans: Vec<_> = (0..4).map(|tag| Loan::start(m, m.next(), tag, &data(m.rank))).collect();
    let from = m.previous().cast_signed();
    let theirs = data(m.previous());
    assert!(m.recv::<u8>(from, 0, len + 1).1 == theirs);
    let odd = Datatype::of::<u8>().vector(len, 1, 2).unwrap();
    let spread = m.recv_into(from, 1, vec![9u8; 2 * len], Layout::typed(1, &odd));
    assert!(spread.iter().step_by(2).eq(&theirs) && spread.iter().skip(1).step_by(2).all(|gap| *gap == 9));
    let (short, memory) = m.irecv::<u8>(from, 2, len - 1).wait(m);
    assert!(matches!(short, Err(Fault::Truncated { .. })), "{short:?}");
    assert!(memory.iter().all(|byte| *byte == 0));
    let (other, memory) = m.irecv::<u32>(from, 3, len).wait(m);
    assert!(matches!(other, Err(Fault::TypeMismatch { .. })), "{other:?}");
    assert!(memory.iter().all(|number| *number == 0));
    for loan in loans {
        let (outcome, block) = loan.wait(m);
        outcome.unwrap();
        assert!(block.is_some());
    }
    m.barrier();
}

/// A closing rank does not wait for the blocks that others view, and these are not reused.
pub(super) fn a_leaver_does_not_wait_for_its_blocks(m: &Member) {
    if m.rank == 0 {
        let loans: Vec<_> = m.others().map(|to| Loan::start(m, to, 0, &bytes(3, m.long()))).collect();
        m.barrier();
        m.engine.close();
        for loan in loans {
            assert!(loan.has_ended(), "nothing is under way after close");
            drop(loan);
            let mut block = m.engine.pool().alloc(m.long()).unwrap();
            block.as_uninit_mut().fill(std::mem::MaybeUninit::new(0xee));
        }
        return;
    }
    let lent = look(m, 0, 0, &bytes(3, m.long()));
    m.barrier();
    assert_eq!(m.irecv::<u8>(0, ANY_TAG, 8).wait(m).0, Err(LEFT));
    std::thread::sleep(Duration::from_millis(20));
    assert!(lent.is_none_or(|lent| lent.bytes() == bytes(3, m.long())));
}

/// A block is not written to while its receiver, which has exited, still views it.
pub(super) fn a_receiver_leaves_with_a_block(m: &Member) {
    if m.rank == 0 {
        let lent = look(m, 1, 0, &bytes(5, m.long()));
        m.barrier();
        m.engine.close();
        std::thread::sleep(Duration::from_millis(30));
        assert!(lent.as_ref().is_none_or(|lent| lent.bytes() == bytes(5, m.long())));
        return drop(lent);
    }
    if m.rank > 1 {
        return m.barrier();
    }
    let loan = Loan::start(m, 0, 0, &bytes(5, m.long()));
    m.barrier();
    let (outcome, block) = loan.wait(m);
    if views(m, 0) {
        assert_eq!(outcome.unwrap_err(), LEFT);
        // A process may learn of its receiver's exit so late that the block has been returned.
        assert!(block.is_none_or(|block| block.as_ref() == bytes(5, m.long())));
    }
    // Allocations that reuse free blocks are written to.
    for _ in 0..4 {
        let mut block = m.engine.pool().alloc(m.long()).unwrap();
        block.as_uninit_mut().fill(std::mem::MaybeUninit::new(0xee));
        forget(block);
    }
}

/// A rank that is reported dead continues to view a block, and the block is not written to.
pub(super) fn the_dead_may_look_on(m: &Member) {
    if m.rank == 0 {
        let lent: Vec<_> = m.others().map(|from| look(m, from, 0, &bytes(8, m.long()))).collect();
        // The other ranks are past the barrier when all of them have sent.
        m.barrier();
        m.others().for_each(|from| drop(m.recv::<u8>(from.cast_signed(), 1, 1)));
        m.die();
        std::thread::sleep(Duration::from_millis(30));
        assert!(lent.iter().flatten().all(|lent| lent.bytes() == bytes(8, m.long())));
        return;
    }
    let loan = Loan::start(m, 0, 0, &bytes(8, m.long()));
    m.barrier();
    m.send(0, 1, &[0u8]);
    let views = views(m, 0);
    let (outcome, block) = loan.wait(m);
    if views {
        assert!(matches!(outcome, Err(Fault::Dead { rank: 0, .. })), "{outcome:?}");
    }
    // Write to every block that can be had.
    for mut block in
        [block.map(FilledBlock::into_block), m.engine.pool().alloc(m.long()).ok()].into_iter().flatten()
    {
        block.as_uninit_mut().fill(std::mem::MaybeUninit::new(0xee));
        forget(block);
    }
}

/// The owner of a block may send when it is dropped, even if the block was kept for a receiver after its send was
/// abandoned.
pub(super) fn an_owner_sends_when_it_goes(m: &Member) {
    let data = bytes(4, m.long());
    match m.rank {
        0 => {
            let lent = look(m, 1, 0, &data);
            m.send(1, 1, &[0u8]);
            m.recv::<u8>(1, 2, 1);
            drop(lent);
            m.send(1, 3, &[0u8]);
            drop(look(m, 1, 4, &data));
            assert_eq!(m.recv::<u8>(1, 5, 1).1, [9]);
        }
        1 => {
            let (engine, world) = (Arc::clone(&m.engine), Arc::clone(&m.world));
            let owner = |_data| -> KeepAlive { Arc::new(Owner { _data, engine, world, to: 0, tag: 5 }) };
            let loan = Loan::start_as(m, 0, 0, &data, owner);
            m.recv::<u8>(0, 1, 1);
            let was_pending = m.engine.cancel(&m.world, loan.completion());
            assert!(!was_pending || loan.wait(m).0 == Err(Fault::Cancelled));
            m.send(0, 2, &[0u8]);
            m.recv::<u8>(0, 3, 1);
            // A new send finds the blocks that were returned.
            Loan::start(m, 0, 4, &data).wait(m).0.unwrap();
        }
        _ => (),
    }
    m.barrier();
}

/// A block whose send was cancelled before the receive cannot be viewed.
pub(super) fn what_is_taken_back_is_not_looked_at(m: &Member) {
    if m.rank == 0 {
        for to in m.others() {
            let loan = Loan::start(m, to, 0, &bytes(2, m.long()));
            // In time: the other rank waits for the barrier.
            assert!(m.engine.cancel(&m.world, loan.completion()));
            let (outcome, block) = loan.wait(m);
            assert_eq!(outcome.unwrap_err(), Fault::Cancelled);
            assert!(block.is_some());
        }
        m.barrier();
        return m.barrier();
    }
    m.barrier();
    let early = m.engine.improbe(&m.world, Pattern { source: 0, tag: 0 }).unwrap();
    // A device that delays frames might not have sent the RTS yet.
    if let Some(message) = early {
        let message = m.engine.recv_view(message).expect_err("it was taken back");
        drop(message);
    }
    m.barrier();
}

/// A block that its receiver views counts as received: its send cannot be cancelled, and succeeds.
pub(super) fn a_viewed_block_is_not_taken_back(m: &Member) {
    let data = bytes(6, m.long());
    match m.rank {
        0 => {
            let lent = look(m, 1, 0, &data);
            m.barrier();
            m.barrier();
            assert!(lent.is_none_or(|lent| lent.bytes() == data));
        }
        1 => {
            let loan = Loan::start(m, 0, 0, &data);
            m.barrier();
            if views(m, 0) {
                assert!(!m.engine.cancel(&m.world, loan.completion()));
                assert_eq!(loan.wait(m).0.map(|message| message.bytes), Ok(data.len()));
            }
            // Allocations that reuse free blocks are written to.
            let mut block = m.engine.pool().alloc(m.long()).unwrap();
            block.as_uninit_mut().fill(std::mem::MaybeUninit::new(0xee));
            m.barrier();
        }
        _ => {
            m.barrier();
            m.barrier();
        }
    }
    m.barrier();
}
