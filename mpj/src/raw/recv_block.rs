//! Receives into a block of the library, or by reading the message in the sender's memory.

use std::fmt;
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::sync::Arc;

use mpj_datatypes::{Primitive, Signature};
use mpj_devices::{
    ANY_TAG, BlockSlot, Buf, DataPath, Envelope, Matched, MatchedMessage, Receive, Target, ViewedMessage,
};
use mpj_pool::{DefaultBlock, Pool, RawBuffer, ReadBlock, Region, RegionKey};

use super::PROC_NULL;
use super::comm::Comm;
use super::p2p::pattern;
use super::probe::{check_matched_here, mdiscard, mrecv};
use super::request::{OpInfo, Request};
use crate::error::{Error, ErrorClass, Result};
use crate::status::Status;

const CALL: &str = "recv_block";

/// Which messages a receive into a block reads in the sender's memory, if the [data path](Comm::with_path) is not
/// [`Buffered`](DataPath::Buffered) and the sender has exported the message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadInPlace {
    /// Messages in blocks of the sender's [`World::pool`](crate::World::pool) in shared memory. Between threads of one
    /// process, `smdev` copies them.
    SharedPool,
    /// All exported messages. Between threads of one process, a send that owns its buffer can export any memory.
    All,
}

/// Waits for a message of any length, and receives it in one block: in the sender's memory (`in_place`), in the block in
/// which it has arrived, or in a new block of the global pool.
///
/// If the message is read in the sender's memory, its send completes when the block is dropped. If two ranks hold such
/// blocks of each other and each waits for its own send, they deadlock: drop the block before you wait for the send.
///
/// ```
/// use mpj::raw::{self, ReadInPlace};
///
/// # mpj::threads(2, |world| {
/// if world.rank() == 0 {
///     world.send(&[7u8; 100], 1, 0)?;
/// } else {
///     let (block, status) = raw::recv_block(world.as_raw(), raw::ANY_SOURCE, 0, ReadInPlace::All)?;
///     assert_eq!((status.source_rank(), &block[..]), (0, &[7; 100][..]));
/// }
/// # Ok::<(), mpj::Error>(()) }).unwrap();
/// ```
///
/// # Errors
/// As [`recv`](super::recv), but a block is never too short; [`ErrorClass::NoMem`] if the pool cannot allocate a block.
/// In the last case, the message is consumed.
pub fn recv_block(
    comm: &Comm,
    source: i32,
    tag: i32,
    in_place: ReadInPlace,
) -> Result<(ReceivedBlock, Status)> {
    if source == PROC_NULL {
        let nothing = ReceivedBlock { envelope: no_envelope(0), location: Location::Empty };
        return comm.check_not_freed(CALL).map(|()| (nothing, Status::empty()));
    }
    recv_block_as(comm, CALL, source, tag, in_place).map(with_status)
}

/// As [`recv_block`], with the name of the call for errors. [`PROC_NULL`] is rejected.
#[inline]
pub(crate) fn recv_block_as(
    comm: &Comm,
    call: &'static str,
    source: i32,
    tag: i32,
    in_place: ReadInPlace,
) -> Result<ReceivedBlock> {
    let pattern = pattern(comm, call, source, tag)?;
    let matched = comm.engine().mprobe_or_recv(comm.p2p(), pattern, call);
    match matched.map_err(|fault| comm.fault(call, fault))? {
        Matched::Block(envelope, block) => Ok(ReceivedBlock { envelope, location: Location::Local(block) }),
        Matched::Message(message) => fetch(comm, call, message, in_place),
    }
}

/// As [`recv_block`], for a message that [`mprobe`](super::mprobe) or [`improbe`](super::improbe) has extracted.
///
/// ```
/// use mpj::raw::{self, ReadInPlace};
///
/// # mpj::threads(2, |world| {
/// let comm = world.as_raw();
/// if world.rank() == 0 {
///     world.send(&[7u8; 100], 1, 0)?;
/// } else {
///     let (block, _) = raw::mrecv_block(comm, raw::mprobe(comm, 0, 0)?, ReadInPlace::All)?;
///     assert_eq!(block[..], [7; 100]);
/// }
/// # Ok::<(), mpj::Error>(()) }).unwrap();
/// ```
///
/// # Errors
/// As [`recv_block`]; [`ErrorClass::Comm`] if another rank has extracted the message, which is then discarded.
pub fn mrecv_block(
    comm: &Comm,
    message: MatchedMessage,
    in_place: ReadInPlace,
) -> Result<(ReceivedBlock, Status)> {
    mrecv_block_as(comm, "mrecv_block", message, in_place)
}

/// As [`mrecv_block`], with the name of the call for errors.
pub(crate) fn mrecv_block_as(
    comm: &Comm,
    call: &'static str,
    message: MatchedMessage,
    in_place: ReadInPlace,
) -> Result<(ReceivedBlock, Status)> {
    let message = check_matched_here(comm, call, message)?;
    let envelope = *message.envelope();
    let received = match message.into_block() {
        Ok(block) => Ok(ReceivedBlock { envelope, location: Location::Local(block) }),
        Err(message) => fetch(comm, call, message, in_place),
    };
    received.map(with_status)
}

fn no_envelope(bytes: usize) -> Envelope {
    let (source, signature) = (PROC_NULL.cast_unsigned(), Signature::EMPTY);
    Envelope { source, tag: ANY_TAG, immediate: 0, code: 0, signature, bytes }
}

fn with_status(block: ReceivedBlock) -> (ReceivedBlock, Status) {
    let status = Status::of(&block.envelope);
    (block, status)
}

/// Receives a message whose body is not in a block of this rank.
#[cold]
fn fetch(
    comm: &Comm,
    call: &'static str,
    message: MatchedMessage,
    in_place: ReadInPlace,
) -> Result<ReceivedBlock> {
    let envelope = *message.envelope();
    let message = match comm.path().unwrap_or(comm.engine().path()) {
        DataPath::Buffered => message,
        DataPath::Auto | DataPath::ZeroCopy => match message.view(in_place == ReadInPlace::SharedPool) {
            Ok(viewed) => {
                let location = Location::AtSender(Box::new(viewed));
                return Ok(ReceivedBlock { envelope, location });
            }
            Err(message) => message,
        },
    };
    let (block, _) = mrecv_in(comm, call, message, mpj_pool::global(), usize::MAX)?;
    Ok(ReceivedBlock { envelope, location: Location::Local(block) })
}

/// Starts a receive of a message of any length into a block, which is in the returned slot afterwards.
pub(crate) fn irecv_any_length(
    comm: &Comm,
    call: &'static str,
    source: i32,
    tag: i32,
) -> Result<(Request, Arc<BlockSlot>)> {
    let pattern = pattern(comm, call, source, tag)?;
    let slot = Arc::<BlockSlot>::default();
    let target = Target::of_any_length(Arc::clone(&slot)).with_path(comm.path());
    let completion = comm.engine().post(comm.p2p(), pattern, Receive::new(target));
    let completion = completion.map_err(|fault| comm.fault(call, *fault))?;
    Ok((Request::pending(OpInfo::recv(call, source, tag), comm, completion), slot))
}

/// Receives an extracted message of at most `limit` bytes into a new block of `pool`, from the first byte on.
pub(crate) fn mrecv_in<P: Pool>(
    comm: &Comm,
    call: &'static str,
    message: MatchedMessage,
    pool: &P,
    limit: usize,
) -> Result<(P::Block, Status)> {
    let Envelope { source, bytes, .. } = *message.envelope();
    let block = match alloc_for(call, pool, limit, source, bytes) {
        Ok(block) => block,
        Err(error) => {
            mdiscard(message);
            return Err(error);
        }
    };
    let buf = Buf::in_block(&block, 0, bytes, Primitive::Packed);
    // SAFETY: the block is ours, has at least `bytes` bytes, and no other code accesses it until the call returns.
    let status = unsafe { mrecv(comm, buf, message) }.map_err(|error| error.with_call(call))?;
    Ok((block, status))
}

/// Allocates a block for `bytes` bytes from communicator rank `source`, unless they exceed `limit`.
pub(crate) fn alloc_for<P: Pool>(
    call: &'static str,
    pool: &P,
    limit: usize,
    source: u32,
    bytes: usize,
) -> Result<P::Block> {
    if bytes > limit {
        let why = format!("message of {bytes} bytes from rank {source} exceeds the limit of {limit}");
        return Err(Error::new(ErrorClass::Truncate, call, why));
    }
    let block = pool.alloc(bytes).map_err(|e| Error::new(ErrorClass::NoMem, call, e.to_string()))?;
    match block.capacity() {
        // Other crates can implement pools.
        capacity if capacity < bytes => {
            let why = format!(
                "the pool returned a block of {capacity} bytes for a message of {bytes} (a bug in the pool)"
            );
            Err(Error::new(ErrorClass::NoMem, call, why))
        }
        _ => Ok(block),
    }
}

/// A message received in one block ([`recv_block`], [`mrecv_block`],
/// [`Intracomm::recv_buffer`](crate::Intracomm::recv_buffer)).
///
/// It derefs to the packed bytes. It can be sent to other threads, and can outlive the communicator.
pub struct ReceivedBlock {
    envelope: Envelope,
    location: Location,
}

/// # Invariants
/// 1. The first `envelope.bytes` bytes of the block of `Local` are initialised.
#[derive(Debug)]
enum Location {
    /// The source was `PROC_NULL`.
    Empty,
    Local(DefaultBlock),
    /// Boxed, so that local blocks are cheap to move.
    AtSender(Box<ViewedMessage>),
}

impl ReceivedBlock {
    /// Makes a block that was not received.
    ///
    /// # Safety
    /// The first `bytes` bytes of the block are initialised.
    pub(crate) unsafe fn not_received(block: DefaultBlock, bytes: usize) -> Self {
        ReceivedBlock { envelope: no_envelope(bytes), location: Location::Local(block) }
    }

    /// Returns whether the message is read in its sender's memory.
    pub fn is_zero_copy(&self) -> bool {
        matches!(self.location, Location::AtSender(_))
    }

    pub(crate) fn envelope(&self) -> &Envelope {
        &self.envelope
    }

    fn local(&self) -> Option<&DefaultBlock> {
        match &self.location {
            Location::Local(block) => Some(block),
            Location::Empty | Location::AtSender(_) => None,
        }
    }
}

impl Deref for ReceivedBlock {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.location {
            Location::Empty => &[],
            // SAFETY: invariant 1 of `Location`.
            Location::Local(block) => unsafe { block.as_uninit()[..self.envelope.bytes].assume_init_ref() },
            Location::AtSender(viewed) => viewed.bytes(),
        }
    }
}

// SAFETY: while the message exists, its bytes neither move nor change, and no field changes. The region is that of the
// block.
unsafe impl ReadBlock for ReceivedBlock {
    #[inline]
    fn bytes(&self) -> &[MaybeUninit<u8>] {
        let bytes: &[u8] = self;
        // SAFETY: any byte is a `MaybeUninit<u8>`, and the result is only read.
        unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len()) }
    }

    #[inline]
    fn is_shared(&self) -> bool {
        matches!(&self.location, Location::AtSender(viewed) if viewed.is_shared())
    }

    fn region_offset_of_bytes(&self) -> Option<(RegionKey, usize)> {
        self.local()?.region_offset()
    }

    fn region_of_bytes(&self) -> Option<&Region> {
        self.local()?.region()
    }
}

impl fmt::Debug for ReceivedBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.is_zero_copy() { "zero copy" } else { "local" };
        write!(f, "ReceivedBlock({} B, {place})", self.len())
    }
}
