//! The trace of a job whose ranks this process hosts all, with no launcher that would join their parts.

use std::path::Path;
use std::sync::Arc;

use mpj_devices::trace::{Parts, TRACE};

use super::tell;
use crate::boot::Boot;
use crate::config::Config;

/// The file of a job that is traced, or nothing. It lives as long as the job.
#[derive(Debug)]
pub(crate) struct Traced(Option<Parts>);

impl Traced {
    /// Begins the trace, if the user wants one and this process hosts all ranks of the job. If there can be none that is
    /// said, and the job is not traced.
    pub(crate) fn begin(faces: &[Arc<dyn Boot>], config: &mut Config) -> Self {
        let path = config.text(&TRACE);
        let is_ours = |face: &Arc<dyn Boot>| face.size() as usize == faces.len() && !face.has_launcher();
        if path.is_empty() || !faces.first().is_some_and(is_ours) {
            return Traced(None);
        }
        match Parts::begin(Path::new(path), faces.len() as u32) {
            Ok(parts) => {
                if let Some(path) = parts.path().to_str() {
                    // Every file name is one.
                    let _ = config.read(&TRACE, path);
                }
                Traced(Some(parts))
            }
            Err(why) => {
                tell(&why);
                config.reset(&TRACE);
                Traced(None)
            }
        }
    }
}

impl Drop for Traced {
    /// Joins what the ranks have written, as all have ended.
    fn drop(&mut self) {
        if let Some(Err(why)) = self.0.take().map(Parts::join) {
            tell(&why);
        }
    }
}
