//! Non-blocking and persistent collectives (MPI 4.1 §6.12, §6.13).
//!
//! A [`Collective`] is a collective call as a value: [`start`] starts it, [`collective_init`] makes it persistent.
//! Every rank must start the collectives of a communicator, including blocking ones, in the same order, and can wait
//! for them in any order. Calls that wait or test make progress for all of them. Without a progress thread, a rank that
//! only computes makes none.

use std::sync::Arc;

use mpj_collectives::BufIndex;
use mpj_devices::{Buf, KeepAlive};

use super::collective_call::Collective;
use super::comm::Comm;
use super::persistent::PersistentOperation;
use super::request::Request;
use crate::collective::plan::{EMPTY_BUF, Plan, PlanBuffers};
use crate::collective::task::CollectiveTask;
use crate::error::{Error, ErrorClass, Result};

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
    roles: Roles,
}

/// The meaning of the buffers of a call.
#[derive(Clone, Copy, Debug)]
enum Roles {
    /// The roles of the buffers with the first two indices.
    Pair([Role; 2]),
    /// The call has a buffer for each rank. The lists keep their lengths, so no step writes to a send buffer.
    Lists { send: usize, recv: usize },
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
        let roles = match plan.user {
            PlanBuffers::Pair(..) => {
                Roles::Pair([BufIndex::SEND, BufIndex::RECV].map(|index| role(plan.user_buf(index))))
            }
            PlanBuffers::List { .. } => {
                Roles::Lists { send: sent(collective.send).count(), recv: collective.recv.len() }
            }
        };
        let task = CollectiveTask::prepare(comm.collectives(), call, blocking.seq(), plan, keep)?;
        // Running a plan, even without steps, checks for failure notices of other ranks.
        // SAFETY: the steps access no memory.
        unsafe { blocking.run(Plan::new(digest, Vec::new(), EMPTY_BUF, EMPTY_BUF)) }?;
        Ok(PersistentCollective { comm: comm.clone(), task, roles }.into())
    })
}

/// Returns the buffers that a call sends from; an in-place call has none.
fn sent(send: &[Buf]) -> impl Iterator<Item = &Buf> {
    send.iter().filter(|send| !send.is_in_place())
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
        let (bufs, expected, found): (&[Option<&Buf>], _, _) = match self.roles {
            Roles::Pair(roles) => {
                pair = roles.map(of_role);
                (&pair, (1, 1), (send.len(), recv.len()))
            }
            Roles::Lists { send: sends, recv: recvs } => {
                all = sent(send).chain(recv).map(Some).collect();
                (&all, (sends, recvs), (sent(send).count(), recv.len()))
            }
        };
        let bufs = if found == expected { Ok(bufs) } else { Err(self.wrong_numbers(expected, found)) };
        // SAFETY: the caller's contract; `restart` checks that the buffers have the old layout, so the spans of the steps
        // lie in them.
        unsafe { self.task.restart(Some(bufs)) }
    }

    #[cold]
    fn wrong_numbers(&self, expected: (usize, usize), found: (usize, usize)) -> Error {
        let why = format!(
            "expected {} send and {} receive buffers as in the prepared call, found {} and {}",
            expected.0, expected.1, found.0, found.1
        );
        Error::new(ErrorClass::Buffer, self.task.name(), why)
    }

    pub(super) fn task(&self) -> &Arc<CollectiveTask> {
        &self.task
    }
}
