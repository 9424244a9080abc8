//! Messages in blocks of a rank's pool. Devices that can export memory let the receiver view them in place; all devices
//! can copy them.

use std::sync::Arc;
use std::time::Duration;

use mpj_datatypes::Datatype;
use mpj_pool::{FilledBlock, Pool, RawBuffer};

use super::Member;
use super::owned::{Layout, bytes, keep_for_ever};
use crate::engine::MatchedMessage;
use crate::{
    ANY_TAG, Buf, Channel, Coalesce, Completion, DataPath, Engine, Fault, KeepAlive, Mode, Pattern, RankPool,
    Sent, ShmDriver, Source, ViewedMessage,
};

const RANK_0_LEFT: Fault = Fault::Left { rank: Some(0) };

#[derive(Debug)]
struct ExportedSend {
    data: Arc<FilledBlock<<RankPool as Pool>::Block>>,
    sent: Sent,
}

/// An owner of a block. Its drop sends one byte.
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
        let mut byte = unsafe { Source::new(Buf::slice(&[9u8][..]), None) }.unwrap();
        let tag = self.tag.into();
        drop(self.engine.send_from(&self.world, self.to, tag, &mut byte, Mode::Standard, Coalesce::No));
    }
}

impl ExportedSend {
    fn start(m: &Member, to: u32, tag: i32, data: &[u8]) -> Self {
        Self::start_as(m, to, tag, data, |data| data)
    }

    /// Starts the send of a block that the result of `owner` keeps alive.
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
        ExportedSend { data, sent: m.start_source(to, tag, source, Mode::Standard).unwrap() }
    }

    fn completion(&self) -> &Completion {
        match &self.sent {
            Sent::Pending(completion) => completion,
            _ => panic!("a long send completed before its receive"),
        }
    }

    fn has_ended(&self) -> bool {
        self.completion().outcome().is_some()
    }

    /// Waits for the completion; returns the outcome, and the block if it is not viewed.
    fn wait(self, m: &Member) -> (Result<(), Fault>, Option<FilledBlock<<RankPool as Pool>::Block>>) {
        let outcome = m.wait_sent(self.sent);
        (outcome, Arc::into_inner(self.data))
    }
}

fn message(m: &Member, from: u32, tag: i32) -> MatchedMessage {
    m.engine.mprobe(&m.world, Pattern { source: from.cast_signed(), tag }, "mprobe").unwrap()
}

/// Returns whether this rank and rank `to` of the channel can view each other's memory.
fn can_view(m: &Member, to: u32) -> bool {
    // On this path, messages are packed into a bounce buffer, which `shmdev` does not export.
    if m.engine.path == DataPath::Buffered
        && m.engine.devices.iter().any(|device| device.name() == ShmDriver::NAME)
    {
        return false;
    }
    let peer = m.engine.peers.get(m.world.peer(to).unwrap());
    peer.and_then(|peer| m.engine.device_of(peer)).is_some_and(|device| device.caps().export_min.is_some())
}

/// Receives a message as a view and checks it. If it cannot be viewed, discards the message and returns `None`.
fn recv_viewed(m: &Member, from: u32, tag: i32, data: &[u8]) -> Option<ViewedMessage> {
    match message(m, from, tag).view(false) {
        Ok(viewed) => {
            assert!(viewed.bytes() == data, "tag {tag}");
            Some(viewed)
        }
        Err(message) => {
            assert!(!can_view(m, from), "{message:?} cannot be viewed");
            // SAFETY: the target has no bytes, so nothing is written.
            #[expect(unsafe_code, reason = "the engine takes raw memory")]
            let nothing = unsafe { crate::Target::new(Buf::empty(), None) }.unwrap();
            let refused = message.recv(crate::Receive::new(nothing)).started();
            assert!(matches!(refused.and_then(|it| m.engine.wait(it)), Err(Fault::Truncated { .. })));
            None
        }
    }
}

/// A send completes when the receiver has dropped the view. Views can be dropped in any order.
pub(super) fn blocks_are_viewed_in_place(m: &Member) {
    const BLOCKS: u64 = 6;
    let len = |i: u64| m.rendezvous_len() + 7 * i as usize;
    for round in 0..3 {
        let data = |rank: u32, i: u64| bytes(u64::from(rank) * 100 + round * 10 + i, len(i));
        let sends: Vec<_> =
            (0..BLOCKS).map(|i| ExportedSend::start(m, m.next(), i as i32, &data(m.rank, i))).collect();
        let viewed: Vec<_> =
            (0..BLOCKS).map(|i| recv_viewed(m, m.previous(), i as i32, &data(m.previous(), i))).collect();
        m.barrier();
        if can_view(m, m.next()) {
            assert!(!sends.iter().any(ExportedSend::has_ended), "the receivers still view the blocks");
        }
        m.barrier();
        let mut viewed: Vec<_> = viewed.into_iter().collect();
        while !viewed.is_empty() {
            drop(viewed.remove(viewed.len() / 2));
        }
        for (i, send) in sends.into_iter().enumerate() {
            let (outcome, block) = send.wait(m);
            outcome.unwrap();
            let block = block.expect("the view was dropped");
            assert!(block.as_ref() == data(m.rank, i as u64));
        }
    }
}

/// A message in a block can be received into memory of another layout, and can be rejected.
pub(super) fn blocks_are_copied_into_other_memory(m: &Member) {
    let len = (m.rendezvous_len() + 4) & !3;
    let data = |rank: u32| bytes(u64::from(rank) + 1, len);
    let sends: Vec<_> = (0..4).map(|tag| ExportedSend::start(m, m.next(), tag, &data(m.rank))).collect();
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
    for send in sends {
        let (outcome, block) = send.wait(m);
        outcome.unwrap();
        assert!(block.is_some());
    }
    m.barrier();
}

pub(super) fn close_does_not_wait_for_viewed_blocks(m: &Member) {
    if m.rank == 0 {
        let sends: Vec<_> =
            m.others().map(|to| ExportedSend::start(m, to, 0, &bytes(3, m.rendezvous_len()))).collect();
        m.barrier();
        m.engine.close();
        for send in sends {
            assert!(send.has_ended(), "close completes all sends");
            drop(send);
            let mut block = m.engine.pool().alloc(m.rendezvous_len()).unwrap();
            block.as_uninit_mut().fill(std::mem::MaybeUninit::new(0xee));
        }
        return;
    }
    let viewed = recv_viewed(m, 0, 0, &bytes(3, m.rendezvous_len()));
    m.barrier();
    assert_eq!(m.irecv::<u8>(0, ANY_TAG, 8).wait(m).0, Err(RANK_0_LEFT));
    std::thread::sleep(Duration::from_millis(20));
    assert!(viewed.is_none_or(|viewed| viewed.bytes() == bytes(3, m.rendezvous_len())));
}

/// The owner does not reuse a block while its receiver, which has exited, still views it.
pub(super) fn receiver_exits_with_a_viewed_block(m: &Member) {
    if m.rank == 0 {
        let viewed = recv_viewed(m, 1, 0, &bytes(5, m.rendezvous_len()));
        m.barrier();
        m.engine.close();
        std::thread::sleep(Duration::from_millis(30));
        assert!(viewed.as_ref().is_none_or(|viewed| viewed.bytes() == bytes(5, m.rendezvous_len())));
        return drop(viewed);
    }
    if m.rank > 1 {
        return m.barrier();
    }
    let send = ExportedSend::start(m, 0, 0, &bytes(5, m.rendezvous_len()));
    m.barrier();
    let (outcome, block) = send.wait(m);
    if can_view(m, 0) {
        assert_eq!(outcome.unwrap_err(), RANK_0_LEFT);
        // A process may learn of its receiver's exit so late that the block has been returned.
        assert!(block.is_none_or(|block| block.as_ref() == bytes(5, m.rendezvous_len())));
    }
    // The viewed block must not be among newly allocated ones.
    for _ in 0..4 {
        let mut block = m.engine.pool().alloc(m.rendezvous_len()).unwrap();
        block.as_uninit_mut().fill(std::mem::MaybeUninit::new(0xee));
        keep_for_ever(block);
    }
}

pub(super) fn blocks_viewed_by_a_dead_rank_are_not_reused(m: &Member) {
    if m.rank == 0 {
        let viewed: Vec<_> =
            m.others().map(|from| recv_viewed(m, from, 0, &bytes(8, m.rendezvous_len()))).collect();
        // The other ranks are past the barrier when all of them have sent.
        m.barrier();
        m.others().for_each(|from| drop(m.recv::<u8>(from.cast_signed(), 1, 1)));
        m.report_dead();
        std::thread::sleep(Duration::from_millis(30));
        assert!(viewed.iter().flatten().all(|viewed| viewed.bytes() == bytes(8, m.rendezvous_len())));
        // A rank that has not seen the death yet would complete its send when the view is dropped.
        keep_for_ever(viewed);
        return;
    }
    let send = ExportedSend::start(m, 0, 0, &bytes(8, m.rendezvous_len()));
    m.barrier();
    m.send(0, 1, &[0u8]);
    let can_view = can_view(m, 0);
    let (outcome, block) = send.wait(m);
    if can_view {
        assert!(matches!(outcome, Err(Fault::Dead { rank: 0, .. })), "{outcome:?}");
    }
    // Write to the returned block, if any, and to a newly allocated one: rank 0 must not view them.
    for mut block in [block.map(FilledBlock::into_block), m.engine.pool().alloc(m.rendezvous_len()).ok()]
        .into_iter()
        .flatten()
    {
        block.as_uninit_mut().fill(std::mem::MaybeUninit::new(0xee));
        keep_for_ever(block);
    }
}

/// The owner sends in its `drop`, even if its rank tried to cancel the send while the receiver viewed the block.
pub(super) fn owner_of_a_block_sends_when_dropped(m: &Member) {
    let data = bytes(4, m.rendezvous_len());
    match m.rank {
        0 => {
            let viewed = recv_viewed(m, 1, 0, &data);
            m.send(1, 1, &[0u8]);
            m.recv::<u8>(1, 2, 1);
            drop(viewed);
            m.send(1, 3, &[0u8]);
            drop(recv_viewed(m, 1, 4, &data));
            assert_eq!(m.recv::<u8>(1, 5, 1).1, [9]);
        }
        1 => {
            let (engine, world) = (Arc::clone(&m.engine), Arc::clone(&m.world));
            let owner = |_data| -> KeepAlive { Arc::new(Owner { _data, engine, world, to: 0, tag: 5 }) };
            let send = ExportedSend::start_as(m, 0, 0, &data, owner);
            m.recv::<u8>(0, 1, 1);
            let was_pending = m.engine.cancel(&m.world, send.completion());
            assert!(!was_pending || send.wait(m).0 == Err(Fault::Cancelled));
            m.send(0, 2, &[0u8]);
            m.recv::<u8>(0, 3, 1);
            // A new send makes the engine search for returned blocks.
            ExportedSend::start(m, 0, 4, &data).wait(m).0.unwrap();
        }
        _ => (),
    }
    m.barrier();
}

pub(super) fn cancelled_block_cannot_be_viewed(m: &Member) {
    if m.rank == 0 {
        for to in m.others() {
            let send = ExportedSend::start(m, to, 0, &bytes(2, m.rendezvous_len()));
            // The receiver is still in the barrier, so it has not matched the message.
            assert!(m.engine.cancel(&m.world, send.completion()));
            let (outcome, block) = send.wait(m);
            assert_eq!(outcome.unwrap_err(), Fault::Cancelled);
            assert!(block.is_some());
        }
        m.barrier();
        return m.barrier();
    }
    m.barrier();
    let early = m.engine.improbe(&m.world, Pattern { source: 0, tag: 0 }).unwrap();
    // The RTS might not have arrived yet.
    if let Some(message) = early {
        let message = message.view(false).expect_err("the send was cancelled");
        drop(message);
    }
    m.barrier();
}

pub(super) fn viewed_block_cannot_be_cancelled(m: &Member) {
    let data = bytes(6, m.rendezvous_len());
    match m.rank {
        0 => {
            let viewed = recv_viewed(m, 1, 0, &data);
            m.barrier();
            m.barrier();
            assert!(viewed.is_none_or(|viewed| viewed.bytes() == data));
        }
        1 => {
            let send = ExportedSend::start(m, 0, 0, &data);
            m.barrier();
            if can_view(m, 0) {
                assert!(!m.engine.cancel(&m.world, send.completion()));
                send.wait(m).0.unwrap();
            }
            // A newly allocated block must not be the viewed one.
            let mut block = m.engine.pool().alloc(m.rendezvous_len()).unwrap();
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
