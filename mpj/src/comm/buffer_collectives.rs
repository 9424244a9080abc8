//! Collectives of [`Buffer`]s, whose lengths can differ between ranks: the lengths are sent first.

use mpj_buffer::{Buffer, Reading};
use mpj_collectives::Operation;
use mpj_datatypes::Primitive;
use mpj_pool::{DefaultBlock, ReadBlock};

use super::Intracomm;
use super::buffer_p2p::parse;
use crate::address::number;
use crate::collective::blocking::BlockingCall;
use crate::collective::call_id::CallDigest;
use crate::error::{Error, ErrorClass, Result};
use crate::raw::{Buf, ChainSegment, Comm, alloc_for};
use crate::types::SendBuf;

impl Intracomm {
    /// Broadcasts the message of `root`. On the other ranks, a copy in a block of the global pool replaces `buffer`.
    ///
    /// ```
    /// use mpj::buffer::Buffer;
    ///
    /// # mpj::threads(3, |world| {
    /// let mut message = Buffer::with_capacity(256)?;
    /// if world.rank() == 1 {
    ///     message.write(&[1.5, 2.5])?;
    ///     message.write_object(&("two", "words"))?;
    /// }
    /// let mut message = message.commit();
    /// world.bcast_buffer(&mut message, 1)?;
    /// assert_eq!(message.view::<f64>()?, [1.5, 2.5]);
    /// assert_eq!(message.read_object::<(String, String)>()?.1, "words");
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(()) }).unwrap();
    /// ```
    ///
    /// The message is copied to every rank, even from a block of [`World::pool`](crate::World::pool), because the call
    /// only borrows it. To let the ranks of a host read one block in place, send a shared block to each of them:
    /// ```
    /// use std::sync::Arc;
    ///
    /// # mpj::threads(3, |world| {
    /// if world.rank() == 0 {
    ///     let table = Arc::new(world.alloc_slice(7u32, 100_000)?);
    ///     let others = 1..world.size();
    ///     let sends = others.map(|to| world.isend(Arc::clone(&table), to, 0)).collect::<mpj::Result<Vec<_>>>()?;
    ///     for send in sends {
    ///         send.wait()?;
    ///     }
    /// } else {
    ///     let (table, _) = world.recv_block(0, 0)?;
    ///     assert!(table.is_zero_copy() && table.try_as_slice::<u32>()?.iter().all(|word| *word == 7));
    /// }
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`bcast`](Self::bcast); [`ErrorClass::NoMem`] on all ranks if one cannot allocate a block for the message;
    /// ranks that have already completed this call get the error at a later one. [`ErrorClass::Buffer`] if the message
    /// has a newer format. After an error, the buffer is unchanged.
    pub fn bcast_buffer(&self, buffer: &mut Buffer<DefaultBlock, Reading>, root: usize) -> Result<()> {
        let received = bcast(self.as_raw(), "bcast_buffer", Operation::BcastBuffer, root, || Ok(&*buffer))?;
        if let Some(received) = received {
            *buffer = received;
        }
        Ok(())
    }

    /// Gathers copies of the messages of all ranks at `root`, in order of rank, in blocks of the global pool. On other
    /// ranks the result is empty.
    ///
    /// ```
    /// use mpj::buffer::Buffer;
    ///
    /// # mpj::threads(3, |world| {
    /// let mut mine = Buffer::with_capacity(256)?;
    /// mine.write_object(&vec!["x"; world.rank()])?;
    /// let all = world.gather_buffers(&mine.commit(), 0)?;
    /// assert_eq!(all.len(), if world.rank() == 0 { 3 } else { 0 });
    /// for (rank, mut message) in all.into_iter().enumerate() {
    ///     assert_eq!(message.read_object::<Vec<String>>()?.len(), rank);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`bcast_buffer`](Self::bcast_buffer).
    pub fn gather_buffers<R: ReadBlock>(
        &self,
        buffer: &Buffer<R, Reading>,
        root: usize,
    ) -> Result<Vec<Buffer<DefaultBlock, Reading>>> {
        const CALL: &str = "gather_buffers";
        let received = self.as_raw().collective(CALL, |blocking| {
            let root = self.as_raw().check_rank(CALL, ErrorClass::Root, number(root))?;
            let digest = CallDigest::new(Operation::GatherBuffers, root.into());
            gather(blocking, digest, CALL, Some(buffer), root)
        })?;
        received.into_iter().map(|received| received.parse(CALL)).collect()
    }

    /// Scatters messages: rank `r` receives a copy of the root's `buffers[r]`, in a block of the global pool. `buffers`
    /// is used only at the root.
    ///
    /// ```
    /// use mpj::buffer::Buffer;
    ///
    /// # mpj::threads(3, |world| {
    /// let mut parts = Vec::new();
    /// for rank in 0..if world.rank() == 2 { 3 } else { 0 } {
    ///     let mut part = Buffer::with_capacity(4096)?;
    ///     part.write(&vec![rank as u32; 100 * rank])?;
    ///     parts.push(part.commit());
    /// }
    /// let mut mine = world.scatter_buffers(&parts, 2)?;
    /// assert_eq!(mine.view::<u32>()?.len(), 100 * world.rank());
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`bcast_buffer`](Self::bcast_buffer); [`ErrorClass::Count`] on all ranks if the number of the root's buffers
    /// is not the number of ranks.
    pub fn scatter_buffers<R: ReadBlock>(
        &self,
        buffers: &[Buffer<R, Reading>],
        root: usize,
    ) -> Result<Buffer<DefaultBlock, Reading>> {
        const CALL: &str = "scatter_buffers";
        let received = self.as_raw().collective(CALL, |blocking| {
            let (rank, size) = (blocking.rank(), blocking.size());
            let root = self.as_raw().check_rank(CALL, ErrorClass::Root, number(root))?;
            let buffers = if rank == root { buffers } else { &[] };
            if rank == root && buffers.len() != size as usize {
                let why = format!("{} buffers for {size} ranks", buffers.len());
                return Err(Error::new(ErrorClass::Count, CALL, why));
            }
            let digest = CallDigest::new(Operation::ScatterBuffers, root.into());
            scatter(blocking, digest, CALL, buffers, root)
        })?;
        received.parse(CALL)
    }
}

/// A message that a collective has received. It is parsed after the collective has completed, because an invalid
/// message is an error of this rank alone.
pub(super) struct ReceivedMessage {
    block: DefaultBlock,
    source: u32,
    bytes: usize,
}

impl ReceivedMessage {
    pub(super) fn alloc(call: &'static str, source: u32, bytes: u64) -> Result<(Self, Buf)> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let block = alloc_for(call, mpj_pool::global(), usize::MAX, source, bytes)?;
        let buf = Buf::in_block(&block, 0, bytes, Primitive::Packed);
        Ok((ReceivedMessage { block, source, bytes }, buf))
    }

    pub(super) fn source(&self) -> usize {
        self.source as usize
    }

    pub(super) fn parse(self, call: &'static str) -> Result<Buffer<DefaultBlock, Reading>> {
        // SAFETY: the collective has filled `bytes` bytes of the block; a message of another length is an error.
        unsafe { parse(call, self.block, self.source, self.bytes) }
    }
}

pub(super) fn bytes(call: &'static str, buf: &Buf) -> Result<u64> {
    buf.bytes().map(|bytes| bytes as u64).map_err(|error| Error::buf(call, error))
}

/// Sends the message of `root`, which `mine` creates, to every rank; returns the received message on other ranks.
pub(super) fn bcast<B: SendBuf>(
    comm: &Comm,
    call: &'static str,
    operation: Operation,
    root: usize,
    mine: impl FnOnce() -> Result<B>,
) -> Result<Option<Buffer<DefaultBlock, Reading>>> {
    let received = comm.collective(call, |blocking| {
        let root = comm.check_rank(call, ErrorClass::Root, number(root))?;
        let digest = CallDigest::new(operation, root.into());
        let mine = if blocking.rank() == root { Some(mine()?) } else { None };
        bcast_message(blocking, digest, call, mine.as_ref(), root)
    })?;
    received.map(|received| received.parse(call)).transpose()
}

/// The part of a call that sends the message of `root`, the only rank that has one, to every rank.
pub(super) fn bcast_message<B: SendBuf>(
    blocking: &mut BlockingCall<'_>,
    digest: CallDigest,
    call: &'static str,
    mine: Option<&B>,
    root: u32,
) -> Result<Option<ReceivedMessage>> {
    let sent = mine.map(SendBuf::send_buf);
    let mut len = [sent.as_ref().map_or(Ok(0), |sent| bytes(call, sent))?];
    blocking.bcast_words(digest, &mut len, root)?;
    let (received, items) = match sent {
        Some(sent) => (None, sent),
        None => {
            ReceivedMessage::alloc(call, root, len[0]).map(|(received, items)| (Some(received), items))?
        }
    };
    // SAFETY: the root only reads its message, which is borrowed until the call returns; the block is ours, and has the
    // length of the message.
    unsafe { blocking.bcast(digest, &items, root) }?;
    Ok(received)
}

/// The part of a call that sends the messages of all ranks to `root`. A rank without a message sends an empty one.
pub(super) fn gather<B: SendBuf>(
    blocking: &mut BlockingCall<'_>,
    digest: CallDigest,
    call: &'static str,
    mine: Option<&B>,
    root: u32,
) -> Result<Vec<ReceivedMessage>> {
    let mine = mine.map_or_else(Buf::empty, SendBuf::send_buf);
    let (rank, size) = (blocking.rank(), blocking.size());
    let (len, mut lens) = ([bytes(call, &mine)?], vec![0u64; if rank == root { size as usize } else { 0 }]);
    let words = (Buf::slice(&len), Buf::slice_mut(&mut lens));
    // SAFETY: this function owns the words until the call returns; the root has one for each rank.
    unsafe { blocking.gather(digest, &words.0, &words.1, &|rank| (rank as usize, 1), root) }?;
    let mut all = Vec::with_capacity(lens.len());
    let mut bufs = Vec::with_capacity(1 + lens.len());
    bufs.push(mine);
    for (source, len) in (0..size).zip(lens) {
        let (received, into) = ReceivedMessage::alloc(call, source, len)?;
        all.push(received);
        bufs.push(into);
    }
    // SAFETY: the caller's message lives until the call returns; the blocks are ours, and have the lengths of the
    // messages.
    unsafe { blocking.gather_into_bufs(digest, &bufs, root) }?;
    Ok(all)
}

pub(super) fn scatter<R: ReadBlock>(
    blocking: &mut BlockingCall<'_>,
    digest: CallDigest,
    call: &'static str,
    buffers: &[Buffer<R, Reading>],
    root: u32,
) -> Result<ReceivedMessage> {
    let lens: Vec<u64> = buffers.iter().map(|buffer| buffer.len() as u64).collect();
    let mut len = [0u64];
    let words = (Buf::slice(&lens), Buf::slice_mut(&mut len));
    // SAFETY: this function owns the words until the call returns; the root has one for each rank.
    unsafe { blocking.scatter(digest, &words.0, &|rank| (rank as usize, 1), &words.1, root) }?;
    let (received, into) = ReceivedMessage::alloc(call, root, len[0])?;
    // A chain joins all messages without a copy, so that one scatter sends them.
    let all =
        Buf::chain(buffers.iter().flat_map(Buffer::segments).map(ChainSegment::from), Primitive::Packed);
    let ends = buffers.iter().scan(0, |end, buffer| {
        *end += buffer.len();
        Some(*end)
    });
    let ends: Vec<usize> = ends.collect();
    let block_of = |rank: u32| {
        let len = buffers[rank as usize].len();
        (ends[rank as usize] - len, len)
    };
    // SAFETY: the caller's messages live until the call returns; the block is ours, and has the length of the message.
    unsafe { blocking.scatter(digest, &all, &block_of, &into, root) }?;
    Ok(received)
}
