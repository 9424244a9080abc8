//! The duplication of a communicator as a request.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mpj_collectives::{Arguments, Operation};
use mpj_datatypes::Primitive;
use mpj_devices::{Buf, KeepAlive};

use super::extras::Inherited;
use super::{Comm, Definition};
use crate::collective::call_id::CallDigest;
use crate::collective::plan::Plan;
use crate::collective::task::CollectiveTask;
use crate::error::Result;
use crate::info::Info;
use crate::raw::Request;
use crate::raw::collective_parts::steps_of;

/// A duplication in progress; see [`Comm::idup`]. If it is dropped, this rank does not join the duplicate.
#[derive(Debug)]
pub struct PendingDup {
    request: Request,
    original: Comm,
    definition: Definition,
    inherited: Inherited,
    /// The context id, which the request receives.
    id: Arc<AtomicU64>,
}

impl Comm {
    /// Starts the duplication of this communicator (MPI_Comm_idup, MPI_Comm_idup_with_info with `info`). Its request
    /// returns the duplicate. The duplicate gets the topology and the attributes that this one has now.
    ///
    /// # Errors
    /// As [`start`](crate::raw::start); a rank has too many communicators.
    pub fn idup(&self, info: Option<&Info>) -> Result<PendingDup> {
        const CALL: &str = "idup";
        self.check_not_freed(CALL)?;
        let definition = self.duplicate(CALL, Arc::clone(self.collectives().rules()));
        let inherited = Inherited::of(self, info.cloned());
        let id = Arc::new(AtomicU64::new(0));
        let keep = Arc::clone(&id) as KeepAlive;
        let items = Buf::new(id.as_ptr().cast(), 1, Primitive::U64);
        let plan = || {
            self.check_channel_limit(CALL)?;
            let context = self.collectives();
            if context.rank() == 0 {
                id.store(self.new_context_id(), Ordering::Relaxed);
            }
            let call = Arguments { count: 1, ..Arguments::new(context.rank(), context.size()) };
            let steps = steps_of((Operation::Bcast, "binomial"), &call);
            Ok(Plan::new(CallDigest::new(Operation::Dup, 0), steps, &items, &items))
        };
        // SAFETY: the operation keeps the word alive, which is initialised and may be written through a shared
        // reference. No other code accesses it before the operation has completed.
        let task = unsafe { CollectiveTask::start(self.collectives(), CALL, plan, Some(keep)) }?;
        Ok(PendingDup {
            request: Request::collective(task),
            original: self.clone(),
            definition,
            inherited,
            id,
        })
    }
}

impl PendingDup {
    /// Waits for the other ranks, and returns the duplicate.
    ///
    /// # Errors
    /// As [`dup`](Comm::dup).
    pub fn wait(self) -> Result<Comm> {
        let PendingDup { request, original, definition, inherited, id } = self;
        request.wait()?;
        let comm = original.child(Definition { id: id.load(Ordering::Relaxed), ..definition })?;
        inherited.pass_to("idup", &original, comm)
    }

    /// Returns the request, for example to test it. [`wait`](Self::wait) returns at once if it is complete.
    pub fn request(&self) -> &Request {
        &self.request
    }
}
