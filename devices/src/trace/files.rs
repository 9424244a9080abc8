//! The files of a trace. Each rank writes its own part; the parts are joined when all ranks have ended.
//!
//! A part is a JSON array with an event on each line. If its rank was killed, the end of the array is missing, and
//! perhaps the end of the last line. [`TraceFiles::join`] and Perfetto accept such a part.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{BufRead, BufReader, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use super::Names;
use super::event::{TraceEvent, name_rank};
use super::summary::Summary;

fn rank_path(path: &Path, rank: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".rank{rank}"));
    name.into()
}

pub(super) struct RankFile {
    path: PathBuf,
    file: Option<File>,
    /// The first error, if the part is incomplete.
    failure: Option<String>,
    text: String,
}

impl RankFile {
    pub(super) fn open(path: &str, rank: u32) -> Self {
        let path = rank_path(path.as_ref(), rank);
        let mut rank_file = RankFile { path, file: None, failure: None, text: "[\n".into() };
        match File::create(&rank_file.path) {
            Ok(file) => rank_file.file = Some(file),
            Err(error) => rank_file.fail(&error),
        }
        name_rank(rank, "", &mut rank_file.text);
        rank_file
    }

    fn fail(&mut self, error: &std::io::Error) {
        let why = format!("its trace is incomplete: {}: {error}", self.path.display());
        self.failure.get_or_insert(why);
        self.file = None;
    }

    pub(super) fn write(&mut self, rank: u32, events: &[TraceEvent], names: &Names) {
        let Some(file) = &mut self.file else { return };
        events.iter().for_each(|event| event.write(rank, names, &mut self.text));
        if let Err(error) = file.write_all(self.text.as_bytes()) {
            self.fail(&error);
        }
        self.text.clear();
    }

    /// Ends the array. The first call returns the error that made the part incomplete, if any.
    pub(super) fn close(&mut self, rank: u32) -> Result<(), String> {
        if self.file.is_some() {
            // The last element has no comma.
            name_rank(rank, "", &mut self.text);
            self.text.truncate(self.text.len() - ",\n".len());
            self.text.push_str("\n]\n");
            self.write(rank, &[], &Names::new());
            self.file = None;
        }
        self.failure.take().map_or(Ok(()), Err)
    }
}

/// The file of a whole job, into which its ranks' parts are joined when all have ended. While this value exists,
/// [`begin`](Self::begin) fails for other jobs with the same file.
#[derive(Debug)]
pub struct TraceFiles {
    path: PathBuf,
    file: File,
    size: u32,
}

impl TraceFiles {
    /// Creates the file of a job of `size` ranks, and removes old parts. Call it before any rank starts.
    ///
    /// # Errors
    /// A sentence that explains why the job is not traced.
    pub fn begin(path: &Path, size: u32) -> Result<Self, String> {
        // A rank may start in another directory, and this process may change its directory. A parameter is UTF-8, so
        // keep the relative path if the absolute one is not.
        let path =
            std::path::absolute(path).ok().filter(|path| path.to_str().is_some()).unwrap_or(path.into());
        let refuse =
            |why: &dyn std::fmt::Display| format!("the job is not traced: {}: {why}", path.display());
        // The file is emptied only after it is locked.
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(|e| refuse(&e))?;
        file.try_lock().map_err(|e| refuse(&lock_error_text(e)))?;
        // A file that cannot be truncated, such as a pipe, has no old contents.
        let _ = file.set_len(0);
        for rank in 0..size {
            match std::fs::remove_file(rank_path(&path, rank)) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(refuse(&error)),
                _ => (),
            }
        }
        Ok(TraceFiles { path, file, size })
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Joins the parts and removes them; returns the waiting times of the ranks.
    ///
    /// # Errors
    /// A sentence that explains why the trace is incomplete; the parts are kept then.
    pub fn join(self) -> Result<Summary, String> {
        let mut summary = Summary::default();
        self.copy(&mut summary).map_err(|error| {
            let path = self.path.display();
            format!("the trace is incomplete: {path}: {error}; the parts are in {path}.rank*")
        })?;
        for rank in 0..self.size {
            // A rank might not have created its part. A part that remains is harmless.
            let _ = std::fs::remove_file(rank_path(&self.path, rank));
        }
        Ok(summary)
    }

    fn copy(&self, summary: &mut Summary) -> std::io::Result<()> {
        let mut out = BufWriter::new(&self.file);
        out.write_all(b"[")?;
        let mut separator: &[u8] = b"\n";
        for rank in 0..self.size {
            let lines = match File::open(rank_path(&self.path, rank)) {
                Ok(file) => BufReader::new(file),
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    let mut text = String::new();
                    name_rank(rank, " (no trace)", &mut text);
                    copy_events(&mut text.as_bytes(), &mut separator, &mut out, summary)?;
                    continue;
                }
                Err(error) => return Err(error),
            };
            copy_events(lines, &mut separator, &mut out, summary)?;
        }
        out.write_all(b"\n]\n")?;
        out.flush()
    }
}

fn lock_error_text(error: TryLockError) -> String {
    match error {
        TryLockError::WouldBlock => "another job is traced there".into(),
        TryLockError::Error(error) => format!("cannot tell whether another job is traced there: {error}"),
    }
}

/// Copies the complete lines that contain events, each after `separator`.
fn copy_events(
    mut lines: impl BufRead,
    separator: &mut &[u8],
    out: &mut impl Write,
    summary: &mut Summary,
) -> std::io::Result<()> {
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line)? > 0 {
        if let Some(event) = line.strip_suffix(b"\n").filter(|event| event.starts_with(b"{")) {
            summary.add(event);
            out.write_all(separator)?;
            out.write_all(event.strip_suffix(b",").unwrap_or(event))?;
            *separator = b",\n";
        }
        line.clear();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_error_is_not_reported_as_another_job() {
        let why = lock_error_text(TryLockError::Error(ErrorKind::Unsupported.into()));
        assert_eq!(why, "cannot tell whether another job is traced there: unsupported");
        assert_eq!(lock_error_text(TryLockError::WouldBlock), "another job is traced there");
    }
}
