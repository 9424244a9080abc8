//! Sessions: communicators of named process sets.

use crate::comm::Intracomm;
use crate::error::Result;
use crate::group::Group;
use crate::raw;
use crate::world::World;

/// Access to the job's processes by named sets (MPI_Session), so that libraries need not share a communicator.
///
/// | process set | processes |
/// |---|---|
/// | `mpi://WORLD` | all |
/// | `mpi://SELF` | this one |
/// | `mpj://host` | those of this host |
///
/// ```
/// # mpj::threads(3, |world| {
/// let session = mpj::Session::new(&world);
/// let group = session.group_from_pset("mpi://WORLD")?;
/// let comm = session.comm_from_group(&group, "org.example.solver")?;
/// let mut sum = [0];
/// comm.allreduce(&[1], &mut sum, mpj::Op::Sum)?;
/// assert_eq!(sum, [3]);
/// # Ok::<(), mpj::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Session {
    world: raw::Comm,
}

impl Session {
    /// Opens a session of this rank's job (MPI_Session_init).
    pub fn new(world: &World) -> Self {
        Session { world: world.as_raw().clone() }
    }

    /// Returns the names of the process sets (MPI_Session_get_nth_pset).
    pub fn psets(&self) -> [&'static str; 3] {
        raw::Comm::PSETS
    }

    /// Returns the processes of a set, in order of world rank (MPI_Group_from_session_pset).
    ///
    /// # Errors
    /// [`ErrorClass::Arg`](crate::ErrorClass::Arg) if no set has this name.
    pub fn group_from_pset(&self, name: &str) -> Result<Group> {
        Ok(Group::new(self.world.group_from_pset(name)?, self.world.me()))
    }

    /// Creates a communicator of the processes of a group (MPI_Comm_create_from_group). Only its members call this
    /// function. Concurrent calls, even of different libraries, need different tags.
    ///
    /// # Errors
    /// As [`create_group`](Intracomm::create_group).
    pub fn comm_from_group(&self, group: &Group, tag: &str) -> Result<Intracomm> {
        self.world.create_from_group(group.as_raw(), tag).map(Intracomm::new)
    }
}
