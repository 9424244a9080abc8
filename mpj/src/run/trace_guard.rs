//! The trace of a job whose ranks are all in this process, so that no launcher merges the trace files.

use std::path::Path;
use std::sync::Arc;

use mpj_devices::trace::{TRACE, TraceFiles};

use super::print_error;
use crate::boot::Boot;
use crate::config::Config;

/// Merges the trace files when it is dropped; `None` if the job is not traced here.
#[derive(Debug)]
pub(crate) struct TraceGuard(Option<TraceFiles>);

impl TraceGuard {
    /// Begins the trace if `MPJ_TRACE` is set and this process hosts all ranks of the job. On an error it prints the
    /// reason, and the job is not traced.
    pub(crate) fn begin(boots: &[Arc<dyn Boot>], config: &mut Config) -> Self {
        let path = config.text(&TRACE);
        let has_all_ranks =
            |boot: &Arc<dyn Boot>| boot.size() as usize == boots.len() && !boot.has_launcher();
        if path.is_empty() || !boots.first().is_some_and(has_all_ranks) {
            return TraceGuard(None);
        }
        match TraceFiles::begin(Path::new(path), boots.len() as u32) {
            Ok(files) => {
                if let Some(path) = files.path().to_str() {
                    // `TRACE` accepts every text.
                    let _ = config.set_text(&TRACE, path);
                }
                TraceGuard(Some(files))
            }
            Err(why) => {
                print_error(&why);
                config.reset(&TRACE);
                TraceGuard(None)
            }
        }
    }
}

impl Drop for TraceGuard {
    fn drop(&mut self) {
        if let Some(Err(why)) = self.0.take().map(TraceFiles::join) {
            print_error(&why);
        }
    }
}
