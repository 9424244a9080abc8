//! How a process leaves or ends the job of a process manager.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::ProcessManager;
use crate::boot::agent::AgentHandle;
use crate::boot::control_plane::GRACE;
use crate::run::print_last_error;

/// The time between the message about a failure and the request to kill the job: Hydra discards output that it has not
/// forwarded by then.
pub(in crate::boot) const OUTPUT_TIME: Duration = Duration::from_millis(200);

/// The time that the process manager has to kill this process after a request to end the job.
pub(in crate::boot) const KILL_WAIT: Duration = Duration::from_secs(5);

/// The time after which a process of a failed job exits if the process manager has not killed it.
const KILL_LIMIT: Duration = GRACE.saturating_add(KILL_WAIT);

/// The connection to the process manager, or the agent that has it.
#[derive(Debug)]
pub(in crate::boot) struct ManagedSession {
    part: Mutex<Option<Part>>,
    has_own_exit_code: bool,
}

#[derive(Debug)]
enum Part {
    Member(Box<dyn ProcessManager>),
    Agent(AgentHandle),
}

/// Ends the job because this process cannot join it, and the other ranks would wait for it. If the process manager
/// kills processes, prints why and requests that. Otherwise, only reports the failure. Returns the reason.
pub(super) fn end_job(mut manager: Box<dyn ProcessManager>, why: String) -> String {
    if !manager.kills_processes() {
        manager.failed(&why);
        return why;
    }
    print_last_error(format!("rank {} could not join the job: {why}", manager.rank()));
    std::thread::sleep(OUTPUT_TIME);
    if manager.abort(1).is_ok() {
        std::thread::sleep(KILL_WAIT);
    }
    why
}

impl ManagedSession {
    pub(super) fn member(manager: Box<dyn ProcessManager>) -> ManagedSession {
        let has_own_exit_code = !manager.kills_processes();
        ManagedSession { part: Mutex::new(Some(Part::Member(manager))), has_own_exit_code }
    }

    pub(super) fn agent(agent: AgentHandle, has_own_exit_code: bool) -> ManagedSession {
        ManagedSession { part: Mutex::new(Some(Part::Agent(agent))), has_own_exit_code }
    }

    /// Leaves the job in order, after the rank has left and the connection to the agent was ended. The process of an
    /// agent waits for the processes that need the agent. Later calls return at once.
    pub(in crate::boot) fn leave(&self) {
        match self.take() {
            // If this fails, the process manager reports that this process exits too early.
            Some(Part::Member(mut manager)) => drop(manager.finalize()),
            Some(Part::Agent(agent)) => agent.wait(),
            None => {}
        }
    }

    /// Waits, in a failed job, until the process manager kills this process. If the process exited earlier, the
    /// process manager would kill the other processes before they have reported what failed.
    ///
    /// `abort_code` is the exit code if this process has aborted the job. If the agent does not end the job, because
    /// its process is stopped, this process does.
    pub(in crate::boot) fn wait_for_kill(&self, abort_code: Option<u8>) {
        match self.take() {
            Some(Part::Member(mut manager)) if manager.kills_processes() => {
                std::thread::sleep(KILL_LIMIT);
                if let Some(code) = abort_code {
                    let rank = manager.rank();
                    print_last_error(format!(
                        "rank {rank} aborted the job with code {code} (the first process of its host does not respond)"
                    ));
                    std::thread::sleep(OUTPUT_TIME);
                    let _ = manager.abort(code);
                    std::thread::sleep(KILL_WAIT);
                }
            }
            Some(Part::Agent(agent)) => {
                agent.wait();
                // The agent also ends if the process manager has killed the processes of rank 0's host first.
                if !self.has_own_exit_code {
                    std::thread::sleep(KILL_WAIT);
                }
            }
            Some(Part::Member(_)) | None => {}
        }
    }

    /// Reports that this process has connected to the agent of its host.
    pub(super) fn joined(&self) {
        if let Some(Part::Member(manager)) = &mut *self.part.lock().unwrap_or_else(PoisonError::into_inner) {
            manager.joined();
        }
    }

    /// Returns whether a failed job ends without the process manager, so that each process has an exit code of its own.
    pub(in crate::boot) fn has_own_exit_code(&self) -> bool {
        self.has_own_exit_code
    }

    /// Ends the job because this process could not join it, as [`end_job`] does. Returns the reason.
    pub(super) fn fail(&self, why: String) -> String {
        match self.take() {
            Some(Part::Member(manager)) => end_job(manager, why),
            // When this process exits, the agent ends as well, and the process manager kills the job.
            Some(Part::Agent(_)) | None => why,
        }
    }

    fn take(&self) -> Option<Part> {
        self.part.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
