//! [`Intracomm`]: its hosts, and the calls that create new ones from it.

use std::sync::Arc;

use mpj_collectives::Rules;
use mpj_devices::HostId;

use super::{Communicator, Intra};
use crate::error::Result;

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
pub type Intracomm = Communicator<Intra>;

impl Intracomm {
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
        self.as_raw().host_of(u32::try_from(rank).ok()?).map(|HostId(host)| host as usize)
    }

    /// Returns the number of hosts on which the communicator has ranks.
    pub fn host_count(&self) -> usize {
        self.as_raw().host_count() as usize
    }

    /// Duplicates the communicator as [`dup`](Self::dup) does, with other rules for the algorithms of the duplicate's
    /// collectives. All ranks must pass the same rules. `MPJ_COLL_<OPERATION>` sets the rules of the world.
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
        self.as_raw().dup_with_rules(Arc::new(rules)).map(Intracomm::new)
    }
}
