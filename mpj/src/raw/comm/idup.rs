//! The duplication of a communicator as a request.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use mpj_collectives::{Arguments, Operation};
use mpj_datatypes::Primitive;
use mpj_devices::{Buf, KeepAlive, drop_deferred};

use super::extras::Inherited;
use super::{Comm, Definition, PARTS};
use crate::collective::call_id::CallDigest;
use crate::collective::plan::Plan;
use crate::collective::task::CollectiveTask;
use crate::error::{Error, ErrorClass, Result};
use crate::info::Info;
use crate::raw::Request;
use crate::raw::collective_parts::steps_of;

/// A duplication in progress; see [`Comm::idup`]. If it is dropped, this rank does not use the duplicate: collectives of the
/// duplicate fail on the other ranks, and messages to this rank are refused.
#[derive(Debug)]
pub struct PendingDup {
    request: Request,
    duplicate: Duplicate,
}

/// A duplicate that this rank has not joined. After it was dropped, the last owner of the id drops an [`Unwanted`].
#[derive(Debug)]
struct Duplicate {
    original: Comm,
    definition: Option<Definition>,
    inherited: Option<Inherited>,
    id: Arc<SharedId>,
}

/// The id of a duplicate, which the request receives, and what to do if the duplicate was dropped.
#[derive(Debug, Default)]
struct SharedId {
    id: AtomicU64,
    unwanted: Mutex<Option<(Comm, Definition)>>,
}

impl Drop for Duplicate {
    fn drop(&mut self) {
        if let Some(definition) = self.definition.take() {
            let unwanted = Some((self.original.clone(), definition));
            *self.id.unwanted.lock().unwrap_or_else(PoisonError::into_inner) = unwanted;
        }
    }
}

impl Drop for SharedId {
    fn drop(&mut self) {
        let id = *self.id.get_mut();
        let unwanted = self.unwanted.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((original, definition)) = unwanted.filter(|_| id != 0) {
            // This thread might hold locks of the engine.
            drop_deferred(Unwanted(Some((original, Definition { id, ..definition }))));
        }
    }
}

/// Its drop joins the duplicate, fails the collectives of the duplicate on all ranks, and frees it.
struct Unwanted(Option<(Comm, Definition)>);

impl Drop for Unwanted {
    fn drop(&mut self) {
        let Some((original, definition)) = self.0.take() else { return };
        let Ok(comm) = original.join_duplicate(definition) else { return };
        let why = format!("rank {} has dropped the request for this duplicate", comm.rank());
        let _ = comm.collective_of_any(CALL, |_| Err::<(), _>(Error::new(ErrorClass::Request, CALL, why)));
    }
}

const CALL: &str = "idup";

impl Comm {
    /// Starts the duplication of this communicator (MPI_Comm_idup, MPI_Comm_idup_with_info with `info`). [`PendingDup::wait`]
    /// returns the duplicate. The duplicate gets the topology and the attributes that this one has now.
    ///
    /// # Errors
    /// As [`start`](crate::raw::start); a rank has too many communicators.
    pub fn idup(&self, info: Option<&Info>) -> Result<PendingDup> {
        self.check_not_freed(CALL)?;
        let definition = self.duplicate(CALL, Arc::clone(self.collectives().rules()));
        let inherited = Inherited::of(self, info.cloned());
        let id = Arc::<SharedId>::default();
        let keep = Arc::clone(&id) as KeepAlive;
        let items = Buf::new(id.id.as_ptr().cast(), 1, Primitive::U64);
        let plan = || {
            self.check_channel_limit(CALL)?;
            let context = self.collectives();
            if context.rank() == 0 {
                id.id.store(self.new_context_id(), Ordering::Relaxed);
            }
            let call = Arguments { count: 1, ..Arguments::new(context.rank(), context.size()) };
            // As in `dup`, no rank creates a duplicate that another one has refused.
            let mut steps = steps_of((Operation::Barrier, "dissemination"), &call);
            steps.extend(steps_of((Operation::Bcast, "binomial"), &call));
            Ok(Plan::new(CallDigest::new(Operation::Dup, 0), steps, &items, &items))
        };
        // SAFETY: the operation keeps the word alive, which is initialised and may be written through a shared
        // reference. No other code accesses it before the operation has completed.
        let task = unsafe { CollectiveTask::start(self.collectives(), CALL, plan, Some(keep)) }?;
        let (definition, inherited) = (Some(definition), Some(inherited));
        let duplicate = Duplicate { original: self.clone(), definition, inherited, id };
        Ok(PendingDup { request: Request::collective(task), duplicate })
    }

    /// Joins a duplicate. If that fails, refuses its messages.
    fn join_duplicate(&self, definition: Definition) -> Result<Self> {
        let id = definition.id;
        self.child(definition).inspect_err(|_| {
            (0..=PARTS).for_each(|bits| self.engine().refuse(id << 2 | bits));
        })
    }
}

impl PendingDup {
    /// Waits for the other ranks, and returns the duplicate.
    ///
    /// # Errors
    /// As [`dup`](Comm::dup).
    pub fn wait(self) -> Result<Comm> {
        let PendingDup { request, mut duplicate } = self;
        request.wait()?;
        let (definition, inherited) = (duplicate.definition.take(), duplicate.inherited.take());
        let (definition, inherited) = definition.zip(inherited).expect("taken only here");
        let (original, id) = (&duplicate.original, duplicate.id.id.load(Ordering::Relaxed));
        let comm = original.join_duplicate(Definition { id, ..definition })?;
        inherited.pass_to(CALL, original, comm)
    }

    /// Returns the request, for example to test it. [`wait`](Self::wait) returns at once if it is complete.
    pub fn request(&self) -> &Request {
        &self.request
    }
}
