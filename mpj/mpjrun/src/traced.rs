//! The file of a job that is traced: the ranks write their parts beside it, which are joined when all have ended.

use std::ffi::OsString;
use std::path::Path;

use mpj::config::PREFIX;
use mpj_devices::trace::{TRACE, TraceFiles};

use crate::environment::Variable;
use crate::print_line;

/// Begins the trace of a job. If there can be none, that is said, and the job runs without.
pub(crate) fn begin(path: &Path, size: u32) -> Option<TraceFiles> {
    TraceFiles::begin(path, size).inspect_err(|why| print_line(why)).ok()
}

/// Returns what tells the ranks where they are traced, or that they are not.
pub(crate) fn variable(parts: Option<&TraceFiles>) -> Variable {
    let path = parts.map_or(OsString::new(), |parts| parts.path().into());
    (format!("{PREFIX}{}", TRACE.name), path)
}

/// Joins what the ranks have written; returns what it says of waits.
pub(crate) fn end(parts: TraceFiles) -> Option<String> {
    let path = parts.path().display().to_string();
    match parts.join() {
        Ok(summary) => Some(format!("{path}: {summary}")),
        Err(why) => {
            print_line(&why);
            None
        }
    }
}
