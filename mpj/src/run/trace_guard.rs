//! The trace of a job all of whose ranks this process hosts, without a launcher that would join their parts.

use std::path::Path;
use std::sync::Arc;

use mpj_devices::trace::{TRACE, TraceFiles};

use super::print_error;
use crate::boot::Boot;
use crate::config::Config;

/// The file of a job that is traced, or nothing. It lives as long as the job.
#[derive(Debug)]
pub(crate) struct TraceGuard(Option<TraceFiles>);

impl TraceGuard {
    /// Begins the trace, if the user wants one and this process hosts all ranks of the job. If the trace cannot be
    /// started, this prints the reason, and the job is not traced.
    pub(crate) fn begin(faces: &[Arc<dyn Boot>], config: &mut Config) -> Self {
        let path = config.text(&TRACE);
        let is_ours = |face: &Arc<dyn Boot>| face.size() as usize == faces.len() && !face.has_launcher();
        if path.is_empty() || !faces.first().is_some_and(is_ours) {
            return TraceGuard(None);
        }
        match TraceFiles::begin(Path::new(path), faces.len() as u32) {
            Ok(parts) => {
                if let Some(path) = parts.path().to_str() {
                    // Every file name is one.
                    let _ = config.read(&TRACE, path);
                }
                TraceGuard(Some(parts))
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
    /// Joins the parts that the ranks have written, since all have exited.
    fn drop(&mut self) {
        if let Some(Err(why)) = self.0.take().map(TraceFiles::join) {
            print_error(&why);
        }
    }
}
