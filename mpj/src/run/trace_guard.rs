//! The trace of a job whose ranks are all in this process, without a launcher that merges the trace files.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use mpj_devices::trace::{TRACE, TraceFiles};

use super::print_error;
use crate::boot::Boot;
use crate::config::Config;

/// When dropped, merges the trace files, if there are any, unless a [`TraceHandle`] has merged them.
#[derive(Debug)]
pub(crate) struct TraceGuard(TraceHandle);

/// Merges the trace files for a process that exits before its [`TraceGuard`] is dropped.
#[derive(Clone, Default, Debug)]
pub(crate) struct TraceHandle(Arc<Mutex<Option<TraceFiles>>>);

impl TraceGuard {
    /// Begins the trace if `MPJ_TRACE` is set, this process has no launcher, and it hosts all ranks of the job. On an
    /// error it prints the reason, and the job is not traced.
    pub(crate) fn begin(boots: &[Arc<dyn Boot>], config: &mut Config) -> Self {
        TraceGuard(TraceHandle(Arc::new(Mutex::new(begin(boots, config)))))
    }

    pub(super) fn handle(&self) -> TraceHandle {
        self.0.clone()
    }
}

impl TraceHandle {
    /// Merges the files, unless that was done already. If that fails, prints the error.
    pub(super) fn join(&self) {
        let files = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Err(why)) = files.map(TraceFiles::join) {
            print_error(&why);
        }
    }
}

impl Drop for TraceGuard {
    fn drop(&mut self) {
        self.0.join();
    }
}

fn begin(boots: &[Arc<dyn Boot>], config: &mut Config) -> Option<TraceFiles> {
    let path = config.text(&TRACE);
    let has_all_ranks = |boot: &Arc<dyn Boot>| boot.size() as usize == boots.len() && !boot.has_launcher();
    if path.is_empty() || !boots.first().is_some_and(has_all_ranks) {
        return None;
    }
    match TraceFiles::begin(Path::new(path), boots.len() as u32) {
        Ok(files) => {
            if let Some(path) = files.path().to_str() {
                // The ranks need the absolute path, because the process can change its directory. `TRACE` accepts every
                // text.
                let _ = config.set_text(&TRACE, path);
            }
            Some(files)
        }
        Err(why) => {
            print_error(&why);
            config.reset(&TRACE);
            None
        }
    }
}
