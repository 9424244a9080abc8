//! Non-blocking and persistent collectives (MPI 4.1 §6.12, §6.13).
//!
//! A [`Collective`] is a collective call as a value: [`start`] starts it, [`collective_init`] makes it persistent.
//! Every rank must start the collectives of a communicator, including blocking ones, in the same order, and can wait
//! for them in any order. Calls that wait or test make progress for all of them; a rank that only computes makes none.

use std::sync::Arc;

use mpj_collectives::BufIndex;
use mpj_devices::{Buf, KeepAlive};

use super::coll_bufs::BlockLayout;
use super::comm::Comm;
use super::persistent::PersistentOperation;
use super::plans;
use super::request::Request;
use crate::collective::plan::{EMPTY_BUF, Plan};
use crate::collective::task::CollectiveTask;
use crate::error::Result;
use crate::op::Op;

/// A collective and its arguments, which are those of the blocking call of the same name.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "documented at the calls of the same names")]
pub enum Collective<'a> {
    /// As [`barrier`](super::barrier).
    Barrier,
    /// As [`bcast`](super::bcast).
    Bcast { items: &'a Buf, root: i32 },
    /// As [`reduce`](super::reduce).
    Reduce { send: &'a Buf, recv: &'a Buf, op: &'a Op, root: i32 },
    /// As [`allreduce`](super::allreduce).
    Allreduce { send: &'a Buf, recv: &'a Buf, op: &'a Op },
    /// As [`reduce_scatter`](super::reduce_scatter).
    ReduceScatter { send: &'a Buf, recv: &'a Buf, counts: &'a [usize], op: &'a Op },
    /// As [`scan`](super::scan).
    Scan { send: &'a Buf, recv: &'a Buf, op: &'a Op },
    /// As [`gather`](super::gather).
    Gather { send: &'a Buf, recv: &'a Buf, layout: BlockLayout<'a>, root: i32 },
    /// As [`scatter`](super::scatter).
    Scatter { send: &'a Buf, layout: BlockLayout<'a>, recv: &'a Buf, root: i32 },
    /// As [`allgather`](super::allgather).
    Allgather { send: &'a Buf, recv: &'a Buf, layout: BlockLayout<'a> },
    /// As [`alltoall`](super::alltoall).
    Alltoall { send: &'a Buf, layout: BlockLayout<'a>, recv: &'a Buf, back: BlockLayout<'a> },
}

impl<'a> Collective<'a> {
    /// Returns the names of the non-blocking and of the `*_init` call.
    fn names(&self) -> (&'static str, &'static str) {
        match self {
            Collective::Barrier => ("ibarrier", "barrier_init"),
            Collective::Bcast { .. } => ("ibcast", "bcast_init"),
            Collective::Reduce { .. } => ("ireduce", "reduce_init"),
            Collective::Allreduce { .. } => ("iallreduce", "allreduce_init"),
            Collective::ReduceScatter { .. } => ("ireduce_scatter", "reduce_scatter_init"),
            Collective::Scan { .. } => ("iscan", "scan_init"),
            Collective::Gather { layout, .. } => {
                (layout.name("igather", "igatherv"), layout.name("gather_init", "gatherv_init"))
            }
            Collective::Scatter { layout, .. } => {
                (layout.name("iscatter", "iscatterv"), layout.name("scatter_init", "scatterv_init"))
            }
            Collective::Allgather { layout, .. } => {
                (layout.name("iallgather", "iallgatherv"), layout.name("allgather_init", "allgatherv_init"))
            }
            Collective::Alltoall { back, .. } => {
                (back.name("ialltoall", "ialltoallv"), back.name("alltoall_init", "alltoallv_init"))
            }
        }
    }

    fn bufs(&self) -> (&'a Buf, &'a Buf) {
        match self {
            Collective::Barrier => (EMPTY_BUF, EMPTY_BUF),
            Collective::Bcast { items, .. } => (items, items),
            Collective::Reduce { send, recv, .. }
            | Collective::Allreduce { send, recv, .. }
            | Collective::ReduceScatter { send, recv, .. }
            | Collective::Scan { send, recv, .. }
            | Collective::Gather { send, recv, .. }
            | Collective::Scatter { send, recv, .. }
            | Collective::Allgather { send, recv, .. }
            | Collective::Alltoall { send, recv, .. } => (send, recv),
        }
    }

    fn plan(self, comm: &Comm, call: &'static str) -> Result<Plan<'a>> {
        match self {
            Collective::Barrier => plans::barrier(comm, call),
            Collective::Bcast { items, root } => plans::bcast(comm, call, items, root),
            Collective::Reduce { send, recv, op, root } => plans::reduce(comm, call, send, recv, op, root),
            Collective::Allreduce { send, recv, op } => plans::allreduce(comm, call, send, recv, op),
            Collective::ReduceScatter { send, recv, counts, op } => {
                plans::reduce_scatter(comm, call, send, recv, counts, op)
            }
            Collective::Scan { send, recv, op } => plans::scan(comm, call, send, recv, op),
            Collective::Gather { send, recv, layout, root } => {
                plans::gather(comm, call, send, recv, layout, root)
            }
            Collective::Scatter { send, layout, recv, root } => {
                plans::scatter(comm, call, send, layout, recv, root)
            }
            Collective::Allgather { send, recv, layout } => plans::allgather(comm, call, send, recv, layout),
            Collective::Alltoall { send, layout, recv, back } => {
                plans::alltoall(comm, call, send, layout, recv, back)
            }
        }
    }
}

/// Starts a collective; the status of its request is empty. The operation owns `keep` until it has completed.
///
/// If the request is dropped, the collective continues, because the other ranks depend on this one. If a user function
/// panics, the call fails with an error.
///
/// # Errors
/// The communicator was freed, collectives are disabled, memory is exhausted, or the arguments are rejected as by the
/// blocking call. The other ranks are notified of the last two. The request reports later errors.
///
/// # Safety
/// The contract of the blocking call, until the operation has completed.
pub unsafe fn start(comm: &Comm, collective: Collective<'_>, keep: Option<KeepAlive>) -> Result<Request> {
    let (call, _) = collective.names();
    comm.check_not_freed(call)?;
    // SAFETY: the caller's contract.
    let task =
        unsafe { CollectiveTask::start(comm.collectives(), call, || collective.plan(comm, call), keep) }?;
    Ok(Request::collective(task))
}

/// A persistent collective. Its steps are computed once, and it can be started any number of times.
#[derive(Debug)]
pub(super) struct PersistentCollective {
    comm: Comm,
    task: Arc<CollectiveTask>,
    /// The roles of the buffers with the first two indices.
    roles: [Role; 2],
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    Send,
    Recv,
    /// The call has no such buffer.
    None,
}

/// Creates a persistent collective. All ranks must make this call, in the same order among their collectives. `keep` is
/// dropped with the persistent collective, or after its last call if that is later.
///
/// # Errors
/// As [`start`]; another rank has failed, or the ranks have called different collectives.
pub fn collective_init(
    comm: &Comm,
    collective: Collective<'_>,
    keep: Option<KeepAlive>,
) -> Result<PersistentOperation> {
    let (_, call) = collective.names();
    comm.collective(call, |blocking| {
        let (send, recv) = collective.bufs();
        let plan = collective.plan(comm, call)?;
        let digest = plan.digest;
        let role = |buf: Option<&Buf>| match buf {
            Some(buf) if std::ptr::eq(buf, recv) => Role::Recv,
            Some(buf) if std::ptr::eq(buf, send) => Role::Send,
            _ => Role::None,
        };
        let roles = [BufIndex::SEND, BufIndex::RECV].map(|index| role(plan.user_buf(index)));
        let task = CollectiveTask::prepare(comm.collectives(), call, blocking.seq(), plan, keep)?;
        // Running a plan, even without steps, checks for failure notices of other ranks.
        // SAFETY: the steps access no memory.
        unsafe { blocking.run(Plan::new(digest, Vec::new(), EMPTY_BUF, EMPTY_BUF)) }?;
        Ok(PersistentCollective { comm: comm.clone(), task, roles }.into())
    })
}

impl PersistentCollective {
    /// Starts the collective, with new buffers for this and later calls if `bufs` has them.
    ///
    /// # Errors
    /// As [`PersistentOperation::start_with`].
    ///
    /// # Safety
    /// The contract of the blocking call, until the operation has completed.
    pub(super) unsafe fn start(&mut self, bufs: Option<(&Buf, &Buf)>) -> Result<()> {
        self.comm.check_not_freed(self.task.name())?;
        let bufs = self.roles.map(|role| match role {
            Role::Send => bufs.map(|(send, _)| send),
            Role::Recv => bufs.map(|(_, recv)| recv),
            Role::None => None,
        });
        // SAFETY: the caller's contract; `restart` checks that the buffers have the old layout, so the spans of the
        // steps lie in them.
        unsafe { self.task.restart(bufs) }
    }

    pub(super) fn task(&self) -> &Arc<CollectiveTask> {
        &self.task
    }
}
