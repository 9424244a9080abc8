//! The process sets of a job: named groups.

use mpj_devices::Group;

use super::Comm;
use crate::error::{Error, ErrorClass, Result};

impl Comm {
    /// The names of the process sets of a [`Session`](crate::Session).
    pub const PSETS: [&'static str; 3] = ["mpi://WORLD", "mpi://SELF", "mpj://host"];

    /// Returns the processes of a process set, in order of world rank (MPI_Group_from_session_pset). It does not depend
    /// on the communicator.
    ///
    /// # Errors
    /// [`ErrorClass::Arg`] if no set has this name.
    pub fn group_from_pset(&self, name: &str) -> Result<Group> {
        let (site, me) = (self.engine().site(), self.me());
        match Comm::PSETS.iter().position(|pset| *pset == name) {
            Some(0) => Ok(Group::Range { first: 0, len: site.size }),
            Some(1) => Ok(Group::Range { first: me.0, len: 1 }),
            Some(_) => Ok(self.my_host()),
            None => {
                let why = format!("unknown process set {name:?}; known: {}", Comm::PSETS.join(", "));
                Err(Error::new(ErrorClass::Arg, "group_from_pset", why))
            }
        }
    }

    /// Returns the job's processes on this host, in order of world rank.
    fn my_host(&self) -> Group {
        let hosts = &self.inner.common.hosts;
        let host = hosts.host_of(self.me().0);
        host.into_iter().flat_map(|host| hosts.ranks_of(host).iter().collect::<Vec<_>>()).collect()
    }
}
