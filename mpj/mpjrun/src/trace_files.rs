//! The trace of a job: each rank writes its own file, and these files are merged when all ranks have exited.

use std::ffi::OsString;
use std::path::Path;

use mpj::config::PREFIX;
use mpj_devices::trace::{TRACE, TraceFiles};

use crate::environment::Variable;
use crate::print_line;

/// Begins the trace of a job. If it fails, prints the error; the job then runs without a trace.
pub(crate) fn begin(path: &Path, size: u32) -> Option<TraceFiles> {
    TraceFiles::begin(path, size).inspect_err(|why| print_line(why)).ok()
}

/// Returns the variable that tells the ranks the path of the trace, or that they are not traced.
pub(crate) fn variable(parts: Option<&TraceFiles>) -> Variable {
    let path = parts.map_or(OsString::new(), |parts| parts.path().into());
    (format!("{PREFIX}{}", TRACE.name), path)
}

/// Merges the files of the ranks; returns the summary of their waits.
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
