//! Messages received in the block in which they lie.

use std::fmt;
use std::mem::align_of;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use mpj_buffer::{Buffer, Reading};
use mpj_datatypes::{Primitive, Receivable, Signature};
use mpj_devices::{ANY_TAG, DataPath, Envelope, MatchedMessage};
use mpj_pool::{DefaultBlock, RawBuffer};

use super::buffer_p2p::alloc_for;
use super::{Intracomm, Message};
use crate::address::{IntoSource, PROC_NULL_NUMBER, Source, Tag};
use crate::error::{Error, ErrorClass, Result};
use crate::raw::{self, Buf};
use crate::status::Status;

/// How errors name the call.
const CALL: &str = "recv_block";

impl Intracomm {
    /// Receives a message of any length in the block in which it lies. There is no copy if the message is longer than
    /// the device sends eagerly, lies in one block of its sender's [`World::pool`](crate::World::pool), and was sent by
    /// ownership ([`isend`](Self::isend)). Otherwise it is in a block of the global pool, often the one in which it
    /// arrived. Between threads any contiguous memory will do; between hosts a message is always copied.
    ///
    /// The sender's request completes, and returns its block, when the [`ReceivedBlock`] is dropped. If it is never
    /// dropped, it keeps the block until this rank exits. Only a thread that waits for that request is blocked; the
    /// wait fails if this rank exits first.
    ///
    /// ```
    /// # mpj::threads(2, |world| {
    /// if world.rank() == 0 {
    ///     let mut samples = world.alloc_slice(0.0, 100_000)?;
    ///     for step in 0..3 {
    ///         samples.fill(step as f64);
    ///         (samples, _) = world.isend(samples, 1, step)?.wait()?;
    ///     }
    /// } else {
    ///     for step in 0..3 {
    ///         let (samples, status) = world.recv_block(0, step)?;
    ///         assert_eq!(status.bytes(), 800_000);
    ///         assert!(samples.try_as_slice::<f64>()?.iter().all(|sample| *sample == step as f64));
    ///     }
    /// }
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`recv`](Self::recv); [`ErrorClass::NoMem`] if the pool has no block for it.
    pub fn recv_block(
        &self,
        source: impl IntoSource,
        tag: impl Into<Tag>,
    ) -> Result<(ReceivedBlock, Status)> {
        let (comm, source) = (self.as_raw(), source.into_source());
        if source == Source::Null {
            return comm.check_not_freed(CALL).map(|()| (ReceivedBlock::of_nobody(), Status::empty()));
        }
        let message = raw::mprobe_as(comm, CALL, source.number(), tag.into().number())?;
        receive(comm, message)
    }
}

impl Message {
    /// Receives it as [`Intracomm::recv_block`] does.
    ///
    /// # Errors
    /// As there.
    pub fn recv_block(self) -> Result<(ReceivedBlock, Status)> {
        let (comm, message) = self.into_parts(CALL)?;
        receive(comm.as_raw(), message)
    }
}

/// Receives a message that was taken.
fn receive(comm: &raw::Comm, message: MatchedMessage) -> Result<(ReceivedBlock, Status)> {
    let envelope = *message.envelope();
    let status = Status::of(&envelope);
    let lent = |lying| (ReceivedBlock { envelope, lying }, status);
    if envelope.bytes == 0 {
        // SAFETY: there is nothing to write.
        unsafe { raw::mrecv(comm, Buf::empty(), message) }.map_err(|error| error.with_call(CALL))?;
        return Ok(lent(Location::Empty));
    }
    let message = match comm.path().unwrap_or(comm.engine().path()) {
        DataPath::Buffered => message,
        DataPath::Auto | DataPath::ZeroCopy => match comm.engine().recv_view(message) {
            Ok(there) => return Ok(lent(Location::AtSender(there))),
            Err(message) => message,
        },
    };
    let message = match comm.engine().recv_block(message) {
        Ok(block) => return Ok(lent(Location::Local(block))),
        Err(message) => message,
    };
    let block = match alloc_for(CALL, mpj_pool::global(), usize::MAX, envelope.source, envelope.bytes) {
        Ok(block) => block,
        // The sender may be waiting for the match.
        Err(error) => {
            raw::discard(comm, message);
            return Err(error);
        }
    };
    let buf = Buf::in_block(&block, 0, envelope.bytes, Primitive::Packed);
    // SAFETY: the block is ours, holds at least that many bytes, and no other code accesses it until the call returns.
    unsafe { raw::mrecv(comm, buf, message) }.map_err(|error| error.with_call(CALL))?;
    Ok(lent(Location::Local(block)))
}

/// A received message in the block in which it lies; see [`Intracomm::recv_block`].
///
/// It derefs to the packed bytes. It can be sent to other threads, and outlives the communicator.
pub struct ReceivedBlock {
    envelope: Envelope,
    lying: Location,
}

/// The location of a message.
///
/// # Invariants
/// 1. A block here has been filled with the message.
#[derive(Debug)]
enum Location {
    /// It has no bytes.
    Empty,
    Local(DefaultBlock),
    AtSender(mpj_devices::ViewedMessage),
}

impl ReceivedBlock {
    /// Returns the result of a receive from `PROC_NULL`.
    fn of_nobody() -> Self {
        let (source, signature) = (PROC_NULL_NUMBER.cast_unsigned(), Signature::EMPTY);
        ReceivedBlock {
            envelope: Envelope { source, tag: ANY_TAG, code: 0, signature, bytes: 0 },
            lying: Location::Empty,
        }
    }

    /// Returns whether the message is read in its sender's memory, so that it was not copied.
    pub fn is_zero_copy(&self) -> bool {
        matches!(self.lying, Location::AtSender(_))
    }

    /// Returns the items, as which they were sent.
    ///
    /// # Errors
    /// [`ErrorClass::Type`] if the elements have another type, or a type whose values have padding or must be checked
    /// (`bool`, `char`): use [`recv`](Intracomm::recv) for these. [`ErrorClass::Buffer`] if the elements are not
    /// aligned; they are if they were sent from the start of a block.
    pub fn try_as_slice<T: Receivable>(&self) -> Result<&[T]> {
        const CALL: &str = "view";
        let datatype = T::datatype();
        let count = self.envelope.items_of(&datatype).map_err(|fault| Error::from_fault(CALL, fault))?;
        if datatype.needs_validation() || !datatype.is_contiguous() || datatype.size() != size_of::<T>() {
            let why = format!(
                "items of {} have gaps, or would have to be checked: receive them by recv",
                std::any::type_name::<T>()
            );
            return Err(Error::new(ErrorClass::Type, CALL, why));
        }
        if count == 0 {
            return Ok(&[]);
        }
        let items = self.as_ptr().cast::<T>();
        if !items.is_aligned() {
            let why = format!(
                "the items lie at {items:p}, which is no multiple of {}: receive them by recv",
                align_of::<T>()
            );
            return Err(Error::new(ErrorClass::Buffer, CALL, why));
        }
        // SAFETY: `count` items are no more than all bytes, which are initialised, aligned, and any bytes are values.
        Ok(unsafe { std::slice::from_raw_parts(items, count) })
    }

    /// Returns the message as one of `mpj::buffer`. A message with a dynamic part lies in several blocks, so it was
    /// copied into one.
    ///
    /// ```
    /// use mpj::buffer::Buffer;
    /// use mpj::pool::Pool;
    ///
    /// # mpj::threads(2, |world| {
    /// if world.rank() == 0 {
    ///     let mut message = Buffer::new(world.pool().alloc(1 << 20)?)?;
    ///     message.write(&vec![0.5; 100_000])?;
    ///     message.write(b"and a word")?;
    ///     world.isend(message.commit(), 1, 0)?.wait()?;
    /// } else {
    ///     let mut message = world.recv_block(0, 0)?.0.try_into_buffer()?;
    ///     assert_eq!(message.view::<f64>()?.len(), 100_000);
    ///     assert_eq!(message.view::<u8>()?, b"and a word");
    /// }
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`ErrorClass::Buffer`] if the message is not a buffer, comes from `PROC_NULL`, or has a newer format.
    pub fn try_into_buffer(self) -> Result<ReceivedBuffer> {
        let (source, len) = (self.envelope.source, self.len());
        if source == PROC_NULL_NUMBER.cast_unsigned() {
            return Err(Error::new(ErrorClass::Buffer, "into_buffer", "nobody (PROC_NULL) has sent it"));
        }
        // SAFETY: all bytes of the message are initialised.
        let buffer = unsafe { super::buffer_p2p::parse("into_buffer", ReadOnlyBlock(self), source, len) }?;
        Ok(ReceivedBuffer(buffer))
    }
}

impl Deref for ReceivedBlock {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.lying {
            Location::Empty => &[],
            // SAFETY: invariant 1 of `Location`.
            Location::Local(block) => unsafe { block.as_uninit()[..self.envelope.bytes].assume_init_ref() },
            Location::AtSender(lent) => lent.bytes(),
        }
    }
}

impl fmt::Debug for ReceivedBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lent({} B, {})", self.len(), if self.is_zero_copy() { "there" } else { "here" })
    }
}

/// A message of `mpj::buffer` in the block in which it lies; see [`ReceivedBlock::try_into_buffer`]. It is a read-only
/// [`Buffer`](crate::buffer::Buffer).
pub struct ReceivedBuffer(Buffer<ReadOnlyBlock, Reading>);

impl Deref for ReceivedBuffer {
    type Target = Buffer<ReadOnlyBlock, Reading>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for ReceivedBuffer {
    /// Reading advances the buffer's position. A buffer of such a block exists only behind this reference, so it cannot
    /// be turned into one for writing.
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl fmt::Debug for ReceivedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LentBuffer({:?})", self.0)
    }
}

/// The block of a received message, which is read and never written.
#[derive(Debug)]
pub struct ReadOnlyBlock(ReceivedBlock);

// SAFETY: 1: the bytes of a message neither move nor are freed while it lives. They are readable. No code writes them,
// because `ReceivedBuffer` has no headroom and never hands out its block. 2: as before, no code writes them. 3: no
// field changes.
unsafe impl RawBuffer for ReadOnlyBlock {
    fn as_ptr(&self) -> NonNull<u8> {
        NonNull::from(&*self.0).cast()
    }

    fn capacity(&self) -> usize {
        self.0.len()
    }
}
