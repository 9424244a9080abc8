//! The messages that a process gets from its launcher.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use mpj_devices::{Exit, ExitEvent};

use super::requests::PendingRequest;
use super::{PROTOCOL_ERROR, ProcessState};
use crate::boot::control_reader::ControlReader;
use crate::boot::wire::{ToLauncher, ToProcess};
use crate::report::RankWaits;

impl ProcessState {
    /// Handles the messages of the launcher until the connection breaks, a message is invalid, or the failed job ends.
    /// Then, unless this process has left, reports the remaining ranks elsewhere dead and fails the pending requests.
    pub(super) fn read_loop(&self, mut reader: ControlReader) {
        let why = loop {
            let outcome = reader
                .next(self.broadcaster.writer.socket())
                .and_then(|(message, _)| self.on_message(message));
            if let Err(why) = outcome {
                break why;
            }
        };
        if self.has_left.load(Ordering::Relaxed) {
            return;
        }
        // The first rank of this host runs the agent, if there is one. So it is the first death that calls name.
        let ranks = self.host_ranks.iter().chain(0..self.hosts.size());
        let elsewhere = ranks.filter(|rank| !self.broadcaster.local_ranks.contains(rank));
        let waiting = {
            let mut requests = self.pending();
            requests.disconnect_reason = Some(why.clone());
            std::mem::take(&mut requests.waiting)
        };
        self.roster.learn_deaths(elsewhere, &why);
        waiting.into_values().for_each(|pending| pending.fail(why.clone()));
    }

    fn report_blocked(&self, job_ends: bool) -> Result<(), String> {
        let engines = self.engines.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for rank in self.broadcaster.local_ranks.clone() {
            let engine = engines.iter().find(|(of, _)| *of == rank).and_then(|(_, engine)| engine.upgrade());
            if let Some(engine) = engine.as_ref().filter(|_| job_ends) {
                engine.trace_open_waits();
            }
            let waits = engine.map(|engine| RankWaits::of(&engine));
            self.broadcaster.writer.post(&ToLauncher::BlockedReport { rank, waits })?;
        }
        Ok(())
    }

    fn on_message(&self, message: ToProcess) -> Result<(), String> {
        let (ToProcess::Value { id, .. } | ToProcess::FenceDone { id, .. }) = message else {
            match message {
                ToProcess::Died(groups) => {
                    for group in groups {
                        // The group may include ranks of this process that other ranks have lost.
                        self.roster.learn_deaths(group.ranks(self.hosts.size()), &group.cause);
                    }
                }
                ToProcess::OrderlyExits(runs) => {
                    for run in runs {
                        let elsewhere =
                            run.ranks().filter(|rank| !self.broadcaster.local_ranks.contains(rank));
                        let exit = Exit::from(run.exit);
                        for rank in elsewhere.take_while(|rank| *rank < self.hosts.size()) {
                            self.roster.learn(ExitEvent { rank, exit: exit.clone() });
                        }
                    }
                    self.broadcaster.exit_query_pending.store(false, Ordering::Relaxed);
                }
                ToProcess::QueryBlocked { job_ends } => self.report_blocked(job_ends)?,
                ToProcess::JobEnds { code } => {
                    let _ = self.job_code.set(code);
                    return Err(format!("the job has failed and ends with code {code}"));
                }
                _ => {}
            }
            return Ok(());
        };
        let pending = self.pending().waiting.remove(&id);
        match (pending, message) {
            (Some(PendingRequest::Value(then)), ToProcess::Value { value: Ok(value), .. }) => then(Ok(value)),
            (Some(pending @ PendingRequest::Value(..)), ToProcess::Value { value: Err(why), .. }) => {
                pending.fail(why)
            }
            (Some(PendingRequest::Fence(then)), ToProcess::FenceDone { result, .. }) => then(result),
            _ => return Err(PROTOCOL_ERROR.into()),
        }
        Ok(())
    }
}
