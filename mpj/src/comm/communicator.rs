//! [`Communicator`]: the methods of both kinds of communicators.

use std::fmt;
use std::marker::PhantomData;

use mpj_devices::DataPath;

use crate::error::Result;
use crate::raw;

/// A communicator: an [`Intracomm`](crate::Intracomm) if `K` is [`Intra`](crate::Intra), an
/// [`Intercomm`](crate::Intercomm) if it is [`Inter`](crate::Inter). Both have messages, and most collectives.
///
/// Messages of an intercommunicator go to the ranks of the remote group, and come from them: a rank that is given to, or
/// returned by, a method for messages is one of the remote group.
///
/// ```
/// use mpj::Communicator;
///
/// /// Works with both kinds.
/// fn send_greeting<K>(comm: &Communicator<K>, to: usize) -> mpj::Result<()> {
///     comm.send(&[comm.rank()], to, 0)
/// }
/// # mpj::threads(2, |world| {
/// let other = 1 - world.rank();
/// send_greeting(&world, other)?;
/// let mut got = [9];
/// world.recv(&mut got, other, 0)?;
/// assert_eq!(got, [other]);
/// # Ok::<(), mpj::Error>(()) }).unwrap();
/// ```
pub struct Communicator<K> {
    raw: raw::Comm,
    kind: PhantomData<fn() -> K>,
}

impl<K> Clone for Communicator<K> {
    fn clone(&self) -> Self {
        Communicator::new(self.raw.clone())
    }
}

impl<K> fmt::Debug for Communicator<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.raw.is_inter() { "Intercomm" } else { "Intracomm" };
        f.debug_struct(name).field("raw", &self.raw).finish()
    }
}

impl<K> Communicator<K> {
    /// Makes a handle of the untyped communicator, which must be of kind `K`.
    pub(crate) fn new(raw: raw::Comm) -> Self {
        Communicator { raw, kind: PhantomData }
    }

    /// Returns the untyped communicator.
    #[inline]
    pub fn as_raw(&self) -> &raw::Comm {
        &self.raw
    }

    /// Returns a handle of the same communicator whose point-to-point messages use `path` on this rank. The path does
    /// not change the received data. Communicators made from the handle have its path too. Collectives, and handles
    /// without a path, use that of `MPJ_DATA_PATH`. A zero-copy send completes only after a receive has matched it: see
    /// [`DataPath`].
    ///
    /// ```
    /// use mpj::DataPath;
    /// # mpj::threads(2, |world| {
    /// if world.rank() == 0 {
    ///     world.with_path(DataPath::ZeroCopy).send(&[1.5; 1000], 1, 0)?;
    /// } else {
    ///     let mut numbers = [0.0; 1000];
    ///     world.with_path(DataPath::Buffered).recv(&mut numbers, 0, 0)?;
    ///     assert_eq!(numbers, [1.5; 1000]);
    /// }
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    #[must_use]
    pub fn with_path(&self, path: DataPath) -> Self {
        Communicator::new(self.raw.with_path(path))
    }

    /// Returns the number of this rank in the communicator, from 0.
    #[inline]
    pub fn rank(&self) -> usize {
        self.raw.rank() as usize
    }

    /// Returns the number of ranks.
    #[inline]
    pub fn size(&self) -> usize {
        self.raw.size() as usize
    }

    /// Creates a communicator of the same ranks with its own messages (MPI_Comm_dup). Collective.
    ///
    /// After a failed collective, `dup` fails: use an earlier duplicate, or duplicate the parent communicator. The
    /// duplicate gets the attributes that their keys copy ([`Key`](crate::Key)).
    ///
    /// # Errors
    /// As [`barrier`](Self::barrier); a rank has too many communicators. If a copy hook panics, this rank gets an error,
    /// collectives of the duplicate fail on the other ranks, and this communicator stays usable.
    pub fn dup(&self) -> Result<Self> {
        self.raw.dup().map(Communicator::new)
    }

    /// Frees the communicator on this rank: later sends, receives, probes and collectives on any of its handles fail.
    /// Dropping the last handle frees it, too; a pending request is such a handle.
    ///
    /// Pending operations complete, as MPI requires: a posted receive still gets its message, the messages that this
    /// rank has sent can still be received, and collectives complete. A message without a posted receive is refused:
    /// its sender fails with [`Fault::Refused`](crate::Fault::Refused) if it waits for the match.
    ///
    /// # Errors
    /// It was freed before, or it is the world or the communicator of this rank alone.
    pub fn free(&self) -> Result<()> {
        self.raw.free()
    }
}
