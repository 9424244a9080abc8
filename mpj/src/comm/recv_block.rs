//! Receives into a block of the library, or by reading the message in the sender's memory.

use mpj_buffer::{Buffer, Reading};
use mpj_datatypes::Receivable;

use super::buffer_p2p::to_buffer;
use super::{Communicator, Message};
use crate::address::{IntoSource, PROC_NULL_NUMBER, Tag};
use crate::error::{Error, ErrorClass, Result};
use crate::raw::{self, ReadInPlace, ReceivedBlock};
use crate::status::Status;

impl<K> Communicator<K> {
    /// Receives a message of any length without a copy into user memory. The message is read in the sender's memory if:
    /// * it was sent by ownership ([`isend`](Self::isend), [`issend`](Self::issend)), and by rendezvous, like every
    ///   message above the eager limit, and every pool block of 16 KiB or more;
    /// * it is contiguous in one shared block of the sender's [`World::pool`](crate::World::pool), or anywhere if both
    ///   ranks are threads of one process; and
    /// * `smdev` or `shmdev` connects the ranks, and neither uses [`DataPath::Buffered`](crate::DataPath::Buffered) for
    ///   the message.
    ///
    /// Otherwise it is in a block of the global pool.
    ///
    /// If the message is read in the sender's memory, the sender's request completes when the [`ReceivedBlock`] is
    /// dropped, and then returns its buffer. Until then its wait blocks; the wait fails if the receiver exits first.
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
        raw::recv_block(self.as_raw(), source.into_source().number(), tag.into().number(), ReadInPlace::All)
    }
}

impl Message {
    /// Receives the message as [`Communicator::recv_block`] does, with the same errors.
    pub fn recv_block(self) -> Result<(ReceivedBlock, Status)> {
        const CALL: &str = "recv_block";
        let (comm, message) = self.into_parts(CALL)?;
        raw::mrecv_block_as(&comm, CALL, message, ReadInPlace::All)
    }
}

impl ReceivedBlock {
    /// Returns the items of the message.
    ///
    /// # Errors
    /// [`ErrorClass::Type`] if the message does not consist of whole `T`s, or if `T` has padding or needs validation
    /// (`bool`, `char`): use [`recv`](Communicator::recv) for these. [`ErrorClass::Buffer`] if the items are not aligned.
    pub fn try_as_slice<T: Receivable>(&self) -> Result<&[T]> {
        const CALL: &str = "try_as_slice";
        let datatype = T::datatype();
        let count = self.envelope().items_of(&datatype).map_err(|fault| Error::from_fault(CALL, fault))?;
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

    /// Returns the message as a [`Buffer`]. A message with a dynamic part is sent from several blocks, so it was copied
    /// into one.
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
        const CALL: &str = "try_into_buffer";
        if self.envelope().source == PROC_NULL_NUMBER.cast_unsigned() {
            let why = "no message: the source was PROC_NULL";
            return Err(Error::new(ErrorClass::Buffer, CALL, why));
        }
        to_buffer(CALL, self)
    }
}

/// A [`Buffer`] in the block of a received message. The block might be in the sender's memory, so the buffer is
/// read-only:
///
/// ```compile_fail,E0599
/// fn overwrite(message: mpj::ReceivedBuffer) {
///     message.clear(); // a buffer for writing
/// }
/// ```
///
/// If another process can write the memory, [`view`](Buffer::view) of `bool` and `char` and
/// [`view_object_with`](Buffer::view_object_with) are errors: use the methods that copy.
pub type ReceivedBuffer = Buffer<ReceivedBlock, Reading>;
