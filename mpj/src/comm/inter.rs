//! [`Intercomm`]: its creation and its groups.

use super::{Communicator, Inter, Intracomm};
use crate::address::number;
use crate::error::Result;
use crate::group::Group;

/// An intercommunicator: messages between two disjoint groups of ranks. [`rank`](Communicator::rank) and
/// [`size`](Communicator::size) are those of this rank's group, and messages name ranks of the remote group.
///
/// ```
/// # mpj::threads(5, |world| {
/// // Ranks 0 and 1 serve ranks 2, 3 and 4.
/// let is_server = world.rank() < 2;
/// let group = world.split(Some(is_server as u32), 0)?.expect("every rank has a color");
/// // Rank 0 of each group is its leader; the leaders are ranks 0 and 2 of the world.
/// let inter = group.create_intercomm(0, &world, if is_server { 2 } else { 0 }, 0)?;
/// assert_eq!((inter.size(), inter.remote_size()), if is_server { (2, 3) } else { (3, 2) });
/// if is_server && inter.rank() == 0 {
///     let mut request = [0.0];
///     let client = inter.recv(&mut request, mpj::ANY_SOURCE, 0)?;
///     inter.send(&[request[0] * 2.0], client, 0)?;
/// } else if !is_server && inter.rank() == 1 {
///     let mut answer = [0.0];
///     inter.sendrecv(&[4.5], 0, 0, &mut answer, 0, 0)?;
///     assert_eq!(answer, [9.0]);
/// }
/// // One communicator of all five, the servers first.
/// let all = inter.merge(!is_server)?;
/// assert_eq!((all.rank(), all.size()), (world.rank(), 5));
/// # Ok::<(), mpj::Error>(()) }).unwrap();
/// ```
///
/// A function for communicators of one group does not accept it:
/// ```compile_fail,E0308
/// fn rings(comm: &mpj::Intracomm) {}
///
/// fn call(inter: &mpj::Intercomm) {
///     rings(inter);
/// }
/// ```
pub type Intercomm = Communicator<Inter>;

impl Intracomm {
    /// Creates an intercommunicator of the ranks of this communicator and those of another one (MPI_Intercomm_create).
    /// Collective over both communicators.
    ///
    /// The ranks `leader` of the two communicators exchange internal messages with `tag` in a third communicator, the
    /// bridge, in which the other leader has rank `remote_leader`. Other ranks may pass any bridge, remote leader and tag.
    /// Threads can connect communicators concurrently if their tags differ.
    ///
    /// # Errors
    /// As [`barrier`](Self::barrier), for both communicators; a rank or the tag is invalid, the bridge was freed, a rank
    /// has too many communicators, or a rank is in both groups. The ranks of the other group fail, too, unless a leader
    /// passes an invalid remote leader, tag or bridge, the ranks of a group pass different leaders or an invalid one, or
    /// the communicator of a group was freed. In these cases, the leader of the other group waits until its remote
    /// leader exits.
    pub fn create_intercomm<K>(
        &self,
        leader: usize,
        bridge: &Communicator<K>,
        remote_leader: usize,
        tag: i32,
    ) -> Result<Intercomm> {
        let (leader, remote_leader) = (number(leader), number(remote_leader));
        self.as_raw()
            .create_intercomm(leader, Some(bridge.as_raw()), remote_leader, tag)
            .map(Communicator::new)
    }
}

impl Intercomm {
    /// Returns the number of ranks of the remote group (MPI_Comm_remote_size).
    pub fn remote_size(&self) -> usize {
        self.as_raw().remote_size().unwrap_or(0) as usize
    }

    /// Returns the remote group, in order of rank (MPI_Comm_remote_group).
    pub fn remote_group(&self) -> Group {
        let raw = self.as_raw();
        raw.remote_group().map_or_else(Group::empty, |group| Group::new(group.clone(), raw.me()))
    }

    /// Creates a communicator of both groups (MPI_Intercomm_merge). Collective over both groups. The ranks of a group that
    /// passes `false` come before those of a group that passes `true`. If both pass the same value, the group whose rank 0
    /// has the lower rank in the world comes first. Both must have the same [rules](Intracomm::dup_with_rules).
    ///
    /// # Errors
    /// As [`dup`](Self::dup); [`ErrorClass::Arg`](crate::ErrorClass::Arg) if the ranks of one group pass different
    /// values.
    pub fn merge(&self, high: bool) -> Result<Intracomm> {
        self.as_raw().merge(high).map(Communicator::new)
    }
}
