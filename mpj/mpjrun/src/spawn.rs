//! Starts processes that end when `mpjrun` does.

use std::ffi::OsStr;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use mpj::boot::wire::CONTROL;
use mpj_devices::config::PARAMETERS;
use rustix::io::{Errno, FdFlags};
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, Signal, WaitId, WaitIdOptions};

use crate::plan::Plan;
use crate::report::Refused;
use crate::signals::Mask;

/// A process that was started. It is reaped only when the job is over, so that its id stays its own.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) child: Child,
    pub(crate) ranks: Range<u32>,
    pid: Pid,
    pidfd: OwnedFd,
}

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Status {
    Code(i32),
    Signal(i32),
}

/// Starts the processes of one plan.
pub(crate) struct Spawner<'a> {
    plan: &'a Plan,
    mask: Mask,
    limit: Option<Rlimit>,
    input: bool,
}

/// Descriptors that are needed whatever the number of processes.
const DESCRIPTORS: u64 = 20;

impl<'a> Spawner<'a> {
    /// Sees to it that there are descriptors enough. With `input`, rank 0 gets a pipe as its standard input.
    pub(crate) fn new(plan: &'a Plan, mask: Mask, input: bool) -> Result<Self, Refused> {
        let processes = plan.processes().count() as u64;
        let bells = if plan.segment() { u64::from(plan.size) } else { 0 };
        let needed = DESCRIPTORS + 4 * processes + bells;
        let now = rustix::process::getrlimit(Resource::Nofile);
        let mut limit = None;
        if now.current.is_some_and(|current| current < needed) {
            if now.maximum.is_some_and(|maximum| maximum < needed) {
                return Err(Refused::new(format!(
                    "{processes} processes need {needed} descriptors, and the limit is {}: raise it (ulimit -Hn), or \
                     use --ranks-per-process",
                    now.maximum.unwrap_or(0)
                )));
            }
            let raised = Rlimit { current: Some(needed), maximum: now.maximum };
            rustix::process::setrlimit(Resource::Nofile, raised).map_err(|e| {
                Refused::new(format!("the limit of descriptors could not be raised to {needed}: {e}"))
            })?;
            limit = Some(now);
        }
        Ok(Spawner { plan, mask, limit, input })
    }

    /// Starts the process of these ranks; returns it and our end of its control socket.
    pub(crate) fn start(&self, ranks: Range<u32>, piped: bool) -> Result<(Process, UnixStream), Refused> {
        self.try_start(&ranks, piped).map_err(|e| self.refused(&ranks, &e))
    }

    fn try_start(&self, ranks: &Range<u32>, piped: bool) -> io::Result<(Process, UnixStream)> {
        let (ours, theirs) = UnixStream::pair()?;
        let inode = rustix::fs::fstat(&theirs)?.st_ino;
        let mut command = Command::new(&self.plan.program);
        command.args(&self.plan.args).process_group(0);
        std::env::vars_os().filter(|(name, _)| is_start_up(name)).for_each(|(name, _)| {
            command.env_remove(name);
        });
        command.envs(self.plan.set.iter().map(|(name, value)| (name, value)));
        // For scripts around a rank.
        command.env("MPJ_RANK", ranks.start.to_string()).env("MPJ_SIZE", self.plan.size.to_string());
        command.env(CONTROL, format!("{}:{inode}", theirs.as_raw_fd()));
        command.stdin(match (ranks.start, self.input) {
            (0, true) => Stdio::piped(),
            (0, false) => Stdio::inherit(),
            _ => Stdio::null(),
        });
        if piped {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        let launcher = rustix::process::getpid();
        let (mask, limit) = (self.mask, self.limit);
        let before_exec = move || {
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            // If mpjrun ended before the line above, the signal has been missed.
            if rustix::process::getppid() != Some(launcher) {
                return Err(Errno::SRCH.into());
            }
            if let Some(limit) = limit {
                rustix::process::setrlimit(Resource::Nofile, limit)?;
            }
            rustix::io::fcntl_setfd(&theirs, FdFlags::empty())?;
            mask.set().map(|_| ())
        };
        // SAFETY: between fork and exec the closure makes system calls only, on copies and a descriptor made before;
        // it neither allocates nor takes a lock.
        unsafe { command.pre_exec(before_exec) };
        let child = command.spawn()?;
        let pid = Pid::from_child(&child);
        let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty()).inspect_err(|_| {
            // The process is unknown to the job: it must not outlive this call.
            let _ = rustix::process::kill_process_group(pid, Signal::KILL);
        })?;
        Ok((Process { child, ranks: ranks.clone(), pid, pidfd }, ours))
    }

    fn refused(&self, ranks: &Range<u32>, e: &io::Error) -> Refused {
        let program = self.plan.program.display();
        match e.kind() {
            io::ErrorKind::NotFound => {
                Refused { why: format!("no program '{program}' was found"), code: 127 }
            }
            io::ErrorKind::PermissionDenied => {
                Refused { why: format!("'{program}' may not be run: {e}"), code: 126 }
            }
            _ => Refused {
                why: format!("rank {} could not be started from '{program}': {e}", ranks.start),
                code: 126,
            },
        }
    }
}

/// Whether a variable is one that a launcher tells a process its place by. Parameters are not.
fn is_start_up(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    let parameter = |ours: &str| PARAMETERS.iter().any(|parameter| parameter.name == ours);
    name.starts_with("PMI_")
        || name.starts_with("PMIX_")
        || name.strip_prefix("MPJ_").is_some_and(|ours| !parameter(ours))
}

impl Process {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns what becomes readable when it ends.
    pub(crate) fn pidfd(&self) -> impl AsFd {
        &self.pidfd
    }

    /// Returns how it ended, if it has.
    pub(crate) fn status(&self) -> Option<Status> {
        let how = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = rustix::process::waitid(WaitId::PidFd(self.pidfd.as_fd()), how).ok().flatten()?;
        let code = status.exit_status().map(Status::Code);
        code.or_else(|| status.terminating_signal().map(Status::Signal))
    }

    /// Sends a signal to the process and what it has started.
    pub(crate) fn signal(&self, signal: Signal) {
        if rustix::process::kill_process_group(self.pid, signal).is_err() {
            // It has left its group. That it has just ended is no news either.
            let _ = rustix::process::pidfd_send_signal(&self.pidfd, signal);
        }
    }
}
