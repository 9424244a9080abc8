//! The trace of a job: each rank writes its own file, and `mpjrun` merges them when all ranks have exited.

use std::ffi::OsString;
use std::path::Path;

use mpj::config::PREFIX;
use mpj_devices::trace::{TRACE, TraceFiles};

use crate::environment::Variable;
use crate::print_line;

/// Begins the trace of a job. If that fails, prints the error and returns `None`.
pub(crate) fn begin(path: &Path, size: u32) -> Option<TraceFiles> {
    TraceFiles::begin(path, size).inspect_err(|why| print_line(why)).ok()
}

/// Returns the variable with the path of the trace, which is empty if the job is not traced.
pub(crate) fn variable(traces: Option<&TraceFiles>) -> Variable {
    let path = traces.map_or(OsString::new(), |traces| traces.path().into());
    (format!("{PREFIX}{}", TRACE.name), path)
}

/// Merges the files of the ranks. Returns a summary of their waits, or prints the error.
pub(crate) fn end(traces: TraceFiles) -> Option<String> {
    let path = traces.path().display().to_string();
    match traces.join() {
        Ok(summary) => Some(format!("{path}: {summary}")),
        Err(why) => {
            print_line(&why);
            None
        }
    }
}
