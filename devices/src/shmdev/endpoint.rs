//! The sending side: the ring of the pair, the peer's exported blocks, and copies out of the peer's memory.

use std::sync::Arc;

use super::cma::PeerMemory;
use super::coop_copy::{PeerCopies, ShmCoopCopy};
use super::imports::PeerBlocks;
use super::notify::ShmNotifier;
use super::segment_layout::RingLocation;
use crate::device::{Body, Endpoint, MemoryPart, OpStatus, OpToken, PostError, RemoteKey, View};
use crate::ring::RingEndpoint;

#[derive(Debug)]
pub(super) struct ShmEndpoint {
    pub(super) ring: RingEndpoint<ShmNotifier>,
    /// The peer's memory, if the system lets this process read it.
    pub(super) peer_memory: Option<PeerMemory>,
    pub(super) peer_blocks: PeerBlocks,
    pub(super) coop_copy: Arc<ShmCoopCopy>,
    pub(super) copies: Arc<PeerCopies>,
    pub(super) location: RingLocation,
}

impl Endpoint for ShmEndpoint {
    #[inline]
    fn post(&mut self, head: &[u8], body: Body<'_>) -> Result<(), PostError> {
        self.ring.post(head, body)
    }

    fn flush(&mut self) -> Result<bool, PostError> {
        self.ring.flush()
    }

    #[inline]
    fn has_unflushed(&self) -> bool {
        self.ring.has_unflushed()
    }

    fn verify(&mut self) -> Result<(), PostError> {
        self.peer_blocks
            .segment
            .verify_location(self.peer_blocks.reader.index, self.peer_blocks.index, self.location)
            .map_err(PostError::Broken)?;
        self.ring.verify()
    }

    fn peer_gone(&mut self) {
        self.ring.peer_gone();
        self.coop_copy.pending_writes().peer_gone(self.copies.index);
    }

    fn is_drained(&mut self) -> bool {
        self.ring.is_drained()
    }

    #[expect(unsafe_code, reason = "the trait's contract is passed on")]
    unsafe fn get(
        &mut self,
        key: &RemoteKey,
        at: u64,
        to: MemoryPart<'_>,
        op: OpToken,
    ) -> Result<OpStatus, PostError> {
        if PeerBlocks::is_block_key(key) {
            let run = to.contiguous().ok_or(PostError::Unsupported)?;
            // SAFETY: the caller's promise; `run` has all `to.len` bytes of `to`.
            return unsafe { self.peer_blocks.copy(key, at, run, to.len) };
        }
        let peer_memory = self.peer_memory.ok_or(PostError::Unsupported)?;
        let ShmEndpoint { ring, coop_copy, copies, .. } = self;
        // SAFETY: the caller's promise.
        unsafe { coop_copy.copy(peer_memory, copies, (key, at), to, op, || ring.notify_receiver()) }
    }

    fn view(&mut self, key: &RemoteKey, len: usize) -> Result<View, PostError> {
        match PeerBlocks::is_block_key(key) {
            true => self.peer_blocks.view(key, len),
            false => Err(PostError::Unsupported),
        }
    }
}

#[cfg(all(test, target_os = "linux", not(mpj_portable), not(miri), not(loom)))]
mod tests {
    use std::io::Write;
    use std::sync::atomic::{AtomicBool, Ordering};

    use mpj_datatypes::Primitive;
    use mpj_pool::Access;

    use super::super::coop_copy::tests::RecordingSink;
    use super::super::{Segment, ShmDriver};
    use super::*;
    use crate::config::Config;
    use crate::device::{Driver, MemoryDesc, Opened, PeerId};
    use crate::doorbell::Doorbell;
    use crate::hosts::{HostId, Hosts};
    use crate::ring::Side;
    use crate::site::Site;

    #[test]
    fn pending_write_of_a_peer_that_has_left_fails() {
        if crate::cores::is_oversubscribed(&Config::default(), 2) {
            drop(writeln!(
                std::io::stderr(),
                "SKIPPED: a sender helps with copies only if there is a core for each rank"
            ));
            return;
        }
        const OP: OpToken = OpToken(7);
        let config = Config::default();
        let segment = Arc::new(Segment::create(2, &config).unwrap());
        let ranks = Hosts::single_host(2).ranks_of(HostId(0));
        let [receiver, sender] = [0, 1].map(|rank| {
            let site = Site::new(rank, 2, Arc::new(Doorbell::new().unwrap()));
            ShmDriver::new(Arc::clone(&segment), ranks.clone()).open(&site, &config).unwrap()
        });
        let Opened { device, mut inlet } = receiver;
        let mut endpoint = device.connect(PeerId(1), &sender.device.address()).unwrap();
        let (mut from, mut to) = (vec![1u8; 1 << 20], vec![0u8; 1 << 20]);
        let [from, to] = [&mut from, &mut to]
            .map(|it| MemoryDesc::new(it.as_mut_ptr(), it.len(), Primitive::Byte.into()).unwrap());
        // SAFETY: the memory stays until the test ends.
        let exposed = unsafe { sender.device.register(&from, None, Access::READ) }.unwrap();
        let key = sender.device.pack_key(&exposed, 0, from.bytes()).unwrap();
        let ring = segment.find_ring(0, 1).unwrap().unwrap();
        // The sender claims a piece and stops.
        let is_taken = AtomicBool::new(false);
        let moved = std::thread::scope(|scope| {
            scope.spawn(|| {
                while ring.shared_copy().claim(Side::Back, |_| 1).is_none() {
                    std::hint::spin_loop();
                }
                is_taken.store(true, Ordering::Release);
            });
            loop {
                // SAFETY: `to` stays until the test ends, and nobody else writes there.
                let moved = unsafe { endpoint.get(&key, 0, to.part(0, to.bytes(), None), OP) };
                if moved == Ok(OpStatus::InProgress) || is_taken.load(Ordering::Acquire) {
                    break moved;
                }
            }
        });
        assert_eq!(moved, Ok(OpStatus::InProgress));
        let mut sink = RecordingSink::default();
        inlet.progress(&mut sink);
        assert_eq!(sink.0, [], "the sender might still write");
        endpoint.peer_gone();
        inlet.progress(&mut sink);
        assert_eq!(sink.0, [(OP, false)]);
    }
}
