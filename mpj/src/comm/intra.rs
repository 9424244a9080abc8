//! [`Intracomm`], and the calls that create new ones from it.

use std::sync::Arc;

use mpj_collectives::Rules;
use mpj_devices::{DataPath, HostId};

use crate::error::Result;
use crate::raw;

/// A communicator: a group of ranks, with messages that no other communicator receives.
///
/// Handles are cheap to clone and can be used by many threads at once (`MPI_THREAD_MULTIPLE`).
///
/// ```
/// # mpj::threads(4, |world| {
/// // Two halves, each with its own ranks and messages.
/// let half = world.split(Some((world.rank() / 2) as u32), 0)?.expect("every rank has a color");
/// assert_eq!(half.size(), 2);
/// let mut sum = [0usize];
/// half.allreduce(&[world.rank()], &mut sum, mpj::Op::Sum)?;
/// assert_eq!(sum[0], if world.rank() < 2 { 1 } else { 5 });
/// # Ok::<(), mpj::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Intracomm {
    raw: raw::Comm,
}

impl Intracomm {
    pub(crate) fn new(raw: raw::Comm) -> Self {
        Intracomm { raw }
    }

    /// Returns the untyped communicator.
    pub fn as_raw(&self) -> &raw::Comm {
        &self.raw
    }

    /// Returns a handle of the same communicator whose point-to-point messages use `path` on this rank. The path does
    /// not change the received data. Collectives, and handles without a path, use that of `MPJ_DATA_PATH`. A zero-copy
    /// send completes when its receiver has the message: see [`DataPath`].
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
    pub fn with_path(&self, path: DataPath) -> Intracomm {
        Intracomm::new(self.raw.by_path(path))
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

    /// Returns the number of the host of a rank, or `None` if there is no such rank. Hosts are numbered from 0 in the
    /// order of their first ranks in the world.
    ///
    /// ```
    /// # mpj::threads(4, |world| {
    /// assert_eq!((world.host_of(world.rank()), world.host_count()), (Some(0), 1));
    /// assert_eq!(world.host_of(4), None);
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    pub fn host_of(&self, rank: usize) -> Option<usize> {
        self.raw.host_of(u32::try_from(rank).ok()?).map(|HostId(host)| host as usize)
    }

    /// Returns the number of hosts on which the communicator has ranks.
    pub fn host_count(&self) -> usize {
        self.raw.host_count() as usize
    }

    /// Creates a communicator of the same ranks with its own messages (MPI_Comm_dup). Collective.
    ///
    /// After a failed collective, `dup` fails: use an earlier duplicate, or duplicate the parent communicator. The
    /// duplicate gets the attributes that their keys copy ([`Key`](crate::Key)).
    ///
    /// # Errors
    /// As [`barrier`](Self::barrier); a rank has too many communicators. If a copy hook panics, this rank gets an error,
    /// collectives of the duplicate fail on the other ranks, and this communicator stays usable.
    pub fn dup(&self) -> Result<Intracomm> {
        self.raw.dup().map(Intracomm::new)
    }

    /// As [`dup`](Self::dup), with other rules for the algorithms of the new communicator's collectives. All ranks must
    /// pass the same rules. `MPJ_COLL_<OPERATION>` sets the rules of the world.
    ///
    /// ```
    /// use mpj::coll::{Operation, Rules};
    ///
    /// # mpj::threads(3, |world| {
    /// let mut rules = Rules::default();
    /// rules.set(Operation::Allreduce, "recursive_doubling").expect("valid rules");
    /// let comm = world.dup_with_rules(rules)?;
    /// let mut sum = [0];
    /// comm.allreduce(&[1], &mut sum, mpj::Op::Sum)?;
    /// assert_eq!(sum, [3]);
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`dup`](Self::dup).
    pub fn dup_with_rules(&self, rules: Rules) -> Result<Intracomm> {
        self.raw.dup_with_rules(Arc::new(rules)).map(Intracomm::new)
    }

    /// Creates one communicator for each color, with its ranks in order of key and then of old rank (MPI_Comm_split).
    /// Collective. A rank without a color gets `None`.
    ///
    /// # Errors
    /// As [`dup`](Self::dup); the color is above 2,147,483,647.
    pub fn split(&self, color: Option<u32>, key: i32) -> Result<Option<Intracomm>> {
        Ok(self.raw.split_opt(color.map(i64::from), key)?.map(Intracomm::new))
    }

    /// Frees the communicator on this rank: later sends, receives, probes and collectives on any of its handles fail.
    /// Dropping the last handle frees it, too; a pending request is such a handle.
    ///
    /// Pending operations complete, as MPI requires: a posted receive still gets its message, sent messages can still
    /// be received, and collectives complete. A message without a posted receive is refused: if its sender waits for
    /// the match, it fails with [`Fault::Refused`](crate::Fault::Refused).
    ///
    /// # Errors
    /// It was freed before, or it is the world or the communicator of this rank alone.
    pub fn free(&self) -> Result<()> {
        self.raw.free()
    }
}
