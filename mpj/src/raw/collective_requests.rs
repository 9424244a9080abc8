//! Non-blocking and persistent collectives (MPI 4.1 §6.12, §6.13).
//!
//! A [`Collective`] is a collective call as a value: [`start`] starts it, [`collective_init`] makes it persistent.
//! Every rank must start the collectives of a communicator, including blocking ones, in the same order, and can wait
//! for them in any order. Calls that wait or test make progress for all of them; a rank that only computes makes none.

use std::sync::Arc;

use mpj_collectives::BufIndex;
use mpj_devices::{Buf, KeepAlive};

use super::collective_call::Collective;
use super::comm::Comm;
use super::persistent::PersistentOperation;
use super::request::Request;
use crate::collective::plan::{EMPTY_BUF, Plan, UserBuffers};
use crate::collective::task::CollectiveTask;
use crate::error::Result;

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
    let call = collective.call.started;
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
    /// The roles of the buffers with the first two indices; `None` if the call has a buffer for each rank.
    roles: Option<[Role; 2]>,
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
    let call = collective.call.init;
    comm.collective_of_any(call, |blocking| {
        let (send, recv) = (collective.send(), collective.recv());
        let plan = collective.plan(comm, call)?;
        let digest = plan.digest;
        let role = |buf: Option<&Buf>| match buf {
            Some(buf) if std::ptr::eq(buf, recv) => Role::Recv,
            Some(buf) if std::ptr::eq(buf, send) => Role::Send,
            _ => Role::None,
        };
        let pair = || [BufIndex::SEND, BufIndex::RECV].map(|index| role(plan.user_buf(index)));
        let roles = matches!(plan.user, UserBuffers::Pair(..)).then(pair);
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
    pub(super) unsafe fn start(&mut self, bufs: Option<(&[Buf], &[Buf])>) -> Result<()> {
        self.comm.check_not_freed(self.task.name())?;
        let Some((send, recv)) = bufs else {
            // SAFETY: the caller's contract.
            return unsafe { self.task.restart(None) };
        };
        let of_role = |role| match role {
            Role::Send => send.first(),
            Role::Recv => recv.first(),
            Role::None => None,
        };
        let pair;
        let all: Vec<_>;
        let bufs: &[Option<&Buf>] = match self.roles {
            Some(roles) if (send.len(), recv.len()) == (1, 1) => {
                pair = roles.map(of_role);
                &pair
            }
            // The number of buffers is wrong, which `restart` detects.
            Some(_) => &[],
            None => {
                let sent = send.iter().filter(|send| !send.is_in_place());
                all = sent.chain(recv).map(Some).collect();
                &all
            }
        };
        // SAFETY: the caller's contract; `restart` checks that the buffers have the old layout, so the spans of the steps
        // lie in them.
        unsafe { self.task.restart(Some(bufs)) }
    }

    pub(super) fn task(&self) -> &Arc<CollectiveTask> {
        &self.task
    }
}
