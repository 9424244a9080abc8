//! Starts processes that are killed when `mpjrun` exits.

use std::ffi::OsStr;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use mpj::boot::wire::CONTROL_VAR;
use mpj_devices::cores::Cores;
use mpj_devices::trace::TraceFiles;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::{Errno, FdFlags};
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, Signal, WaitId, WaitIdOptions};

use crate::signals::SignalMask;
use crate::spec::JobSpec;
use crate::trace_files;
use crate::verdict::LaunchError;

/// A started process. It is reaped when the job is over, so that its id is not reused earlier.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) child: Child,
    pub(crate) ranks: Range<u32>,
    pid: Pid,
    pidfd: OwnedFd,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ExitStatus {
    Code(i32),
    Signal(i32),
}

pub(crate) struct Spawner<'a> {
    spec: &'a JobSpec,
    traces: Option<&'a TraceFiles>,
    original_mask: SignalMask,
    /// The limit of file descriptors for the processes, if it was raised for `mpjrun`.
    original_limit: Option<Rlimit>,
    pipe_stdin: bool,
}

/// The number of descriptors that `mpjrun` needs in addition to four for each process.
const OWN_DESCRIPTORS: u64 = 20;

impl<'a> Spawner<'a> {
    /// Raises the limit of file descriptors if necessary. With `pipe_stdin`, rank 0 gets a pipe as its standard input.
    pub(crate) fn new(
        spec: &'a JobSpec,
        traces: Option<&'a TraceFiles>,
        original_mask: SignalMask,
        pipe_stdin: bool,
    ) -> Result<Self, LaunchError> {
        let processes = spec.process_ranks.len() as u64;
        let needed = OWN_DESCRIPTORS + 4 * processes;
        let now = rustix::process::getrlimit(Resource::Nofile);
        let mut original_limit = None;
        if now.current.is_some_and(|current| current < needed) {
            if now.maximum.is_some_and(|maximum| maximum < needed) {
                return Err(LaunchError::new(format!(
                    "{processes} processes need {needed} file descriptors, but the limit is {}: raise it (ulimit -Hn) or \
                     use --ranks-per-process",
                    now.maximum.unwrap_or(0)
                )));
            }
            let raised = Rlimit { current: Some(needed), maximum: now.maximum };
            rustix::process::setrlimit(Resource::Nofile, raised).map_err(|e| {
                LaunchError::new(format!("cannot raise the limit of file descriptors to {needed}: {e}"))
            })?;
            original_limit = Some(now);
        }
        Ok(Spawner { spec, traces, original_mask, original_limit, pipe_stdin })
    }

    /// Starts the process of these ranks. Returns the process, and the end of its control socket for `mpjrun`.
    pub(crate) fn start(&self, ranks: Range<u32>, piped: bool) -> Result<(Process, UnixStream), LaunchError> {
        self.try_start(&ranks, piped).map_err(|e| spawn_error(&self.spec.program, &ranks, &e))
    }

    fn try_start(&self, ranks: &Range<u32>, piped: bool) -> io::Result<(Process, UnixStream)> {
        let (ours, theirs) = UnixStream::pair()?;
        let inode = rustix::fs::fstat(&theirs)?.st_ino;
        let mut command = Command::new(&self.spec.program);
        command.args(&self.spec.args).process_group(0);
        self.spec.environment.withheld().for_each(|name| {
            command.env_remove(name);
        });
        command.envs(self.spec.environment.for_process(ranks.start, self.spec.size));
        command.envs(self.spec.trace.is_some().then(|| trace_files::variable(self.traces)));
        command.env(CONTROL_VAR, format!("{}:{inode}", theirs.as_raw_fd()));
        command.stdin(match (ranks.start, self.pipe_stdin) {
            (0, true) => Stdio::piped(),
            (0, false) => Stdio::inherit(),
            _ => Stdio::null(),
        });
        if piped {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        let launcher = rustix::process::getpid();
        let (mask, limit) = (self.original_mask, self.original_limit);
        let of_process = |cores: &Vec<Cores>| Cores::joined(&cores[ranks.start as usize..ranks.end as usize]);
        let cores = self.spec.cores.as_ref().map(of_process);
        let before_exec = move || {
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            // If `mpjrun` exited before the call above, this process gets no signal.
            if rustix::process::getppid() != Some(launcher) {
                return Err(Errno::SRCH.into());
            }
            if let Some(limit) = limit {
                rustix::process::setrlimit(Resource::Nofile, limit)?;
            }
            if let Some(cores) = &cores {
                // If binding is not permitted, the rank runs unbound.
                let _ = cores.bind();
            }
            rustix::io::fcntl_setfd(&theirs, FdFlags::empty())?;
            mask.set().map(|_| ())
        };
        // SAFETY: between fork and exec the closure only makes system calls; it neither allocates nor takes a lock.
        unsafe { command.pre_exec(before_exec) };
        let child = command.spawn()?;
        let pid = Pid::from_child(&child);
        let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty()).inspect_err(|_| {
            // `Job` does not contain the process yet, so kill it here.
            let _ = rustix::process::kill_process_group(pid, Signal::KILL);
        })?;
        Ok((Process { child, ranks: ranks.clone(), pid, pidfd }, ours))
    }
}

fn spawn_error(program: &OsStr, ranks: &Range<u32>, e: &io::Error) -> LaunchError {
    let (path, shown) = (Path::new(program), program.display());
    // A name without a slash is searched in PATH.
    let is_path = program.as_bytes().contains(&b'/');
    match (e.kind(), e.raw_os_error().map(Errno::from_raw_os_error)) {
        (io::ErrorKind::NotFound, _) if is_path && path.exists() => LaunchError {
            why: format!("'{shown}' exists, but its interpreter (#!) or dynamic loader was not found"),
            code: 127,
        },
        (io::ErrorKind::NotFound, _) if !is_path && path.is_file() => LaunchError {
            why: format!("program '{shown}' not found in PATH: did you mean ./{shown}?"),
            code: 127,
        },
        (io::ErrorKind::NotFound, _) => {
            LaunchError { why: format!("program '{shown}' not found"), code: 127 }
        }
        (io::ErrorKind::PermissionDenied, _) if is_path && path.is_dir() => {
            LaunchError { why: format!("'{shown}' is a directory"), code: 126 }
        }
        (io::ErrorKind::PermissionDenied, _) => {
            LaunchError { why: format!("cannot execute '{shown}': {e} (chmod +x?)"), code: 126 }
        }
        (_, Some(Errno::NOEXEC)) => LaunchError {
            why: format!("'{shown}' is neither a program for this machine nor a script that begins with #!"),
            code: 126,
        },
        (_, Some(Errno::AGAIN)) => LaunchError::new(format!(
            "out of processes at rank {}: raise the limit (ulimit -u, or pids.max of the cgroup) or use \
             --ranks-per-process",
            ranks.start
        )),
        (_, Some(Errno::MFILE | Errno::NFILE)) => LaunchError::new(format!(
            "out of file descriptors at rank {}: raise the limit (ulimit -n) or use --ranks-per-process",
            ranks.start
        )),
        _ => LaunchError { why: format!("cannot start rank {} from '{shown}': {e}", ranks.start), code: 126 },
    }
}

impl Process {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn pidfd(&self) -> impl AsFd {
        &self.pidfd
    }

    pub(crate) fn status(&self) -> Option<ExitStatus> {
        let how = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = rustix::process::waitid(WaitId::PidFd(self.pidfd.as_fd()), how).ok().flatten()?;
        let code = status.exit_status().map(ExitStatus::Code);
        code.or_else(|| status.terminating_signal().map(ExitStatus::Signal))
    }

    /// Waits until the process has exited, but at most for `limit`.
    pub(crate) fn wait_for_exit(&self, limit: Duration) {
        let limit = Timespec { tv_sec: 0, tv_nsec: limit.subsec_nanos().into() };
        // After an error, the status is not known yet.
        let _ = rustix::event::poll(&mut [PollFd::new(&self.pidfd, PollFlags::IN)], Some(&limit));
    }

    /// Sends a signal to the process group, or only to the process if it has left its group.
    pub(crate) fn signal(&self, signal: Signal) {
        if rustix::process::kill_process_group(self.pid, signal).is_err() {
            // If the process has exited, this fails, too, and the signal is not needed.
            let _ = rustix::process::pidfd_send_signal(&self.pidfd, signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spawn_errors_say_what_to_do() {
        for (error, program, code, why) in [
            (Errno::AGAIN, "p", 1, "out of processes at rank 3: raise the limit (ulimit -u"),
            (Errno::MFILE, "p", 1, "out of file descriptors at rank 3: raise the limit (ulimit -n)"),
            (Errno::NOENT, "./none", 127, "program './none' not found"),
            (Errno::NOENT, "none", 127, "program 'none' not found"),
            (Errno::NOENT, "Cargo.toml", 127, "in PATH: did you mean ./Cargo.toml?"),
            (Errno::NOENT, "./Cargo.toml", 127, "its interpreter (#!) or dynamic loader was not found"),
            (Errno::ACCESS, "./src", 126, "'./src' is a directory"),
            (Errno::ACCESS, "./Cargo.toml", 126, "(chmod +x?)"),
            (Errno::NOEXEC, "./Cargo.toml", 126, "neither a program for this machine nor a script"),
            (Errno::IO, "p", 126, "cannot start rank 3 from 'p'"),
        ] {
            let said = spawn_error(OsStr::new(program), &(3..4), &error.into());
            assert!(said.why.contains(why) && said.code == code, "{error} {program}: {said:?}");
        }
    }
}
