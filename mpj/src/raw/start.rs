//! Collectives that do not block, and such as are prepared once and started many times (MPI 4.1 §6.12, §6.13).
//!
//! Any collective, as a value: [`start`] starts one, [`prepare`] keeps what this rank does in it. They count among the calls
//! that every rank makes in one order, when they are started; they may be waited for in any. Every call of this rank that
//! waits or tests, for whatever, drives them: nobody has to wait for them, but who computes alone does not drive them.

use std::sync::Arc;

use mpj_devices::{Buf, KeepAlive};

use super::comm::Comm;
use super::items::BlockLayout;
use super::plans::{self, Planned, plan};
use super::request::Request;
use crate::collective::plan::NOTHING;
use crate::collective::step::BufIndex;
use crate::collective::task::CollectiveTask;
use crate::error::Result;
use crate::op::Op;

/// A collective and its arguments, which are those of the blocking call of the same name.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the arguments of the calls of the same names, which say what they are")]
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
    /// Returns the names of the calls that start it, and that prepare it.
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

    /// Returns the buffers to send and to receive, which are one for some.
    fn bufs(&self) -> (&'a Buf, &'a Buf) {
        match self {
            Collective::Barrier => (NOTHING, NOTHING),
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

    fn plan(self, comm: &Comm, call: &'static str) -> Planned<'a> {
        match self {
            Collective::Barrier => Ok(plans::barrier(comm)),
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

/// Starts a collective; waiting for the request gives a status that says nothing. With `keep` the operation holds the memory.
///
/// A request that is dropped leaves the collective to its end, as that of a send: the others count on this rank. A rank that
/// leaves the job ends what it has not completed; the others are told that it has left. A function of the user's that
/// panics ends the call with an error, as nobody may be waiting for it.
///
/// # Errors
/// Arguments that are refused, as by the blocking call, and told to the others like there; what fails later is the request's.
///
/// # Safety
/// The contract of the blocking call, until the operation has ended.
pub unsafe fn start(comm: &Comm, collective: Collective<'_>, keep: Option<KeepAlive>) -> Result<Request> {
    let (call, _) = collective.names();
    comm.check_not_freed(call)?;
    // SAFETY: the caller's contract.
    let task =
        unsafe { CollectiveTask::start(comm.collectives(), call, || collective.plan(comm, call), keep) }?;
    Ok(Request::collective(task))
}

/// A collective that can be started any number of times, with the same buffers: its steps are made once.
///
/// Dropped while it is under way, it goes to its end.
#[derive(Debug)]
pub struct PersistentCollective {
    comm: Comm,
    task: Arc<CollectiveTask>,
    /// Which buffers of the call its steps work on.
    lent: [Role; 2],
}

/// A buffer of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    Send,
    Recv,
    /// There are no items.
    None,
}

/// Prepares a collective. It is itself a call that all ranks make; `keep` is held until the last use of the memory.
///
/// # Errors
/// As [`start`]; there is no memory.
pub fn collective_init(
    comm: &Comm,
    collective: Collective<'_>,
    keep: Option<KeepAlive>,
) -> Result<PersistentCollective> {
    let (_, call) = collective.names();
    comm.collective(call, |turn| {
        let (send, recv) = collective.bufs();
        let (label, kept) = collective.plan(comm, call)?;
        let role = |lent: Option<&Buf>| match lent {
            Some(lent) if std::ptr::eq(lent, recv) => Role::Recv,
            Some(lent) if std::ptr::eq(lent, send) => Role::Send,
            _ => Role::None,
        };
        let lent = [BufIndex::SEND, BufIndex::RECV].map(|area| role(kept.lent(area)));
        let task = CollectiveTask::prepare(comm.collectives(), turn.part(), (label, kept), keep)?;
        // It sends nothing, and has a number like any call.
        // SAFETY: no memory is named.
        unsafe { turn.run(label, plan(Vec::new(), None, NOTHING)) }?;
        Ok(PersistentCollective { comm: comm.clone(), task, lent })
    })
}

impl PersistentCollective {
    /// Starts it.
    ///
    /// # Errors
    /// It is under way, or was not waited for; a freed communicator, ranks that are out of step.
    ///
    /// # Safety
    /// The contract of the blocking call, until the operation has ended.
    pub unsafe fn start(&mut self) -> Result<()> {
        self.comm.check_not_freed(self.task.name())?;
        // SAFETY: the caller's contract.
        unsafe { self.task.restart([None; 2]) }
    }

    /// Starts it with these buffers, now and until others are given: as many items as it was prepared for, which lie alike.
    /// A call that has one buffer looks at `recv` alone.
    ///
    /// # Errors
    /// As [`start`](Self::start), and for other items, which the other ranks are told.
    ///
    /// # Safety
    /// The contract of the blocking call, until the operation has ended.
    pub unsafe fn start_with(&mut self, send: &Buf, recv: &Buf) -> Result<()> {
        self.comm.check_not_freed(self.task.name())?;
        let bufs = self.lent.map(|role| match role {
            Role::Send => Some(send),
            Role::Recv => Some(recv),
            Role::None => None,
        });
        // SAFETY: the caller's contract; of buffers that lie alike the steps name the same items.
        unsafe { self.task.restart(bufs) }
    }

    /// Waits until it has ended; one that was not started has.
    ///
    /// # Errors
    /// What it failed with.
    pub fn wait(&mut self) -> Result<()> {
        self.task.wait()
    }

    /// What makes progress for it and holds its outcome.
    pub(crate) fn task(&self) -> &Arc<CollectiveTask> {
        &self.task
    }

    /// Looks for news once and tells whether it has ended.
    ///
    /// # Errors
    /// What it failed with.
    pub fn test(&mut self) -> Result<bool> {
        if self.task.outcome().is_none() {
            self.comm.engine().progress();
        }
        match self.task.outcome() {
            None => Ok(false),
            Some(_) => self.task.take_outcome().map(|()| true),
        }
    }
}
