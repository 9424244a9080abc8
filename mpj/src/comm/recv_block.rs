//! Receives into a block of the library, or by reading the message in the sender's memory.

use std::fmt;
use std::mem::{MaybeUninit, align_of};
use std::ops::{Deref, DerefMut};

use mpj_buffer::{Buffer, Reading};
use mpj_datatypes::{Primitive, Receivable, Signature};
use mpj_devices::{ANY_TAG, DataPath, Envelope, MatchedMessage};
use mpj_pool::{DefaultBlock, RawBuffer, ReadBlock};

use super::buffer_p2p::alloc_for;
use super::{Intracomm, Message};
use crate::address::{IntoSource, PROC_NULL_NUMBER, Source, Tag};
use crate::error::{Error, ErrorClass, Result};
use crate::raw::{self, Buf};
use crate::status::Status;

const CALL: &str = "recv_block";

impl Intracomm {
    /// Receives a message of any length without a copy into user memory. The message is read in the sender's memory if:
    /// * it was sent by ownership ([`isend`](Self::isend), [`issend`](Self::issend)), and by rendezvous, like every
    ///   message above the eager limit, and every pool block of 16 KiB or more;
    /// * it is contiguous in one shared block of the sender's [`World::pool`](crate::World::pool), or anywhere if both
    ///   ranks are threads of one process; and
    /// * `smdev` or `shmdev` connects the ranks, and neither uses [`DataPath::Buffered`] for the message.
    ///
    /// Otherwise it is in a block of the global pool.
    ///
    /// If the message is read in the sender's memory, the sender's request completes when the [`ReceivedBlock`] is
    /// dropped, and then returns its buffer. Until then its wait blocks; the wait fails if this rank exits first.
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
    /// As [`recv`](Self::recv); [`ErrorClass::NoMem`] if the pool cannot allocate a block for the message.
    pub fn recv_block(
        &self,
        source: impl IntoSource,
        tag: impl Into<Tag>,
    ) -> Result<(ReceivedBlock, Status)> {
        let (comm, source) = (self.as_raw(), source.into_source());
        if source == Source::Null {
            return comm.check_not_freed(CALL).map(|()| (ReceivedBlock::from_proc_null(), Status::empty()));
        }
        let message = raw::mprobe_as(comm, CALL, source.number(), tag.into().number())?;
        receive(comm, message)
    }
}

impl Message {
    /// Receives the message as [`Intracomm::recv_block`] does, with the same errors.
    pub fn recv_block(self) -> Result<(ReceivedBlock, Status)> {
        let (comm, message) = self.into_parts(CALL)?;
        receive(comm.as_raw(), message)
    }
}

fn receive(comm: &raw::Comm, message: MatchedMessage) -> Result<(ReceivedBlock, Status)> {
    let envelope = *message.envelope();
    let status = Status::of(&envelope);
    let received = |location| (ReceivedBlock { envelope, location }, status);
    if envelope.bytes == 0 {
        // SAFETY: there is nothing to write.
        unsafe { raw::mrecv(comm, Buf::empty(), message) }.map_err(|error| error.with_call(CALL))?;
        return Ok(received(Location::Empty));
    }
    let message = match comm.path().unwrap_or(comm.engine().path()) {
        DataPath::Buffered => message,
        DataPath::Auto | DataPath::ZeroCopy => match comm.engine().recv_view(message) {
            Ok(viewed) => return Ok(received(Location::AtSender(viewed))),
            Err(message) => message,
        },
    };
    let message = match comm.engine().recv_block(message) {
        Ok(block) => return Ok(received(Location::Local(block))),
        Err(message) => message,
    };
    let block = match alloc_for(CALL, mpj_pool::global(), usize::MAX, envelope.source, envelope.bytes) {
        Ok(block) => block,
        // The sender might wait for the match.
        Err(error) => {
            raw::discard(comm, message);
            return Err(error);
        }
    };
    let buf = Buf::in_block(&block, 0, envelope.bytes, Primitive::Packed);
    // SAFETY: the block is ours, has at least `envelope.bytes` bytes, and no other code accesses it until the call
    // returns.
    unsafe { raw::mrecv(comm, buf, message) }.map_err(|error| error.with_call(CALL))?;
    Ok(received(Location::Local(block)))
}

/// A message received by [`Intracomm::recv_block`].
///
/// It derefs to the packed bytes. It can be sent to other threads, and can outlive the communicator.
pub struct ReceivedBlock {
    envelope: Envelope,
    location: Location,
}

/// # Invariants
/// 1. The block of `Local` was filled with the message.
#[derive(Debug)]
enum Location {
    /// The message has no bytes.
    Empty,
    Local(DefaultBlock),
    AtSender(mpj_devices::ViewedMessage),
}

impl ReceivedBlock {
    fn from_proc_null() -> Self {
        let (source, signature) = (PROC_NULL_NUMBER.cast_unsigned(), Signature::EMPTY);
        ReceivedBlock {
            envelope: Envelope { source, tag: ANY_TAG, immediate: 0, code: 0, signature, bytes: 0 },
            location: Location::Empty,
        }
    }

    /// Returns whether the message is read in its sender's memory.
    pub fn is_zero_copy(&self) -> bool {
        matches!(self.location, Location::AtSender(_))
    }

    /// Returns the items of the message.
    ///
    /// # Errors
    /// [`ErrorClass::Type`] if the message does not consist of whole `T`s, or if `T` has padding or needs validation
    /// (`bool`, `char`): use [`recv`](Intracomm::recv) for these. [`ErrorClass::Buffer`] if the items are not aligned.
    pub fn try_as_slice<T: Receivable>(&self) -> Result<&[T]> {
        const CALL: &str = "try_as_slice";
        let datatype = T::datatype();
        let count = self.envelope.items_of(&datatype).map_err(|fault| Error::from_fault(CALL, fault))?;
        if datatype.needs_validation() || !datatype.is_contiguous() || datatype.size() != size_of::<T>() {
            let why = format!(
                "{} has padding or values that need validation; receive it with recv",
                std::any::type_name::<T>()
            );
            return Err(Error::new(ErrorClass::Type, CALL, why));
        }
        if count == 0 {
            return Ok(&[]);
        }
        let items = self.as_ptr().cast::<T>();
        if !items.is_aligned() {
            let why =
                format!("data at {items:p} is not aligned to {}; receive it with recv", align_of::<T>());
            return Err(Error::new(ErrorClass::Buffer, CALL, why));
        }
        // SAFETY: `count` items do not exceed the bytes, which are initialised and aligned; any bytes are valid values.
        Ok(unsafe { std::slice::from_raw_parts(items, count) })
    }

    /// Returns the message as a [`Buffer`](crate::buffer::Buffer). A message with a dynamic part is sent from several
    /// blocks, so it was copied into one.
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
            return Err(Error::new(
                ErrorClass::Buffer,
                "try_into_buffer",
                "no message: the source was PROC_NULL",
            ));
        }
        // SAFETY: all bytes of the message are initialised.
        let buffer =
            unsafe { super::buffer_p2p::parse("try_into_buffer", ReadOnlyBlock(self), source, len) }?;
        Ok(ReceivedBuffer(buffer))
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

impl fmt::Debug for ReceivedBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "ReceivedBlock({} B, {})",
            self.len(),
            if self.is_zero_copy() { "zero copy" } else { "local" }
        )
    }
}

/// A read-only [`Buffer`](crate::buffer::Buffer) in the block of a received message; see
/// [`ReceivedBlock::try_into_buffer`].
pub struct ReceivedBuffer(Buffer<ReadOnlyBlock, Reading>);

impl Deref for ReceivedBuffer {
    type Target = Buffer<ReadOnlyBlock, Reading>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for ReceivedBuffer {
    /// Reading advances the buffer's position.
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl fmt::Debug for ReceivedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReceivedBuffer({:?})", self.0)
    }
}

/// The bytes of a received message. They might be in the sender's memory, so this type cannot write them.
///
/// ```compile_fail,E0599
/// use mpj::ReadOnlyBlock;
/// use mpj::buffer::{Buffer, Reading};
///
/// fn overwrite(message: Buffer<ReadOnlyBlock, Reading>) {
///     message.clear(); // a buffer for writing
/// }
/// ```
#[derive(Debug)]
pub struct ReadOnlyBlock(ReceivedBlock);

// SAFETY: while the message exists, its bytes neither move nor change, and no field changes. `region_of_bytes` returns
// `None`.
unsafe impl ReadBlock for ReadOnlyBlock {
    fn bytes(&self) -> &[MaybeUninit<u8>] {
        let bytes: &[u8] = &self.0;
        // SAFETY: any byte is a `MaybeUninit<u8>`, and the result is only read.
        unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len()) }
    }
}
