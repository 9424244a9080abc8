//! Forwards the output of the ranks by whole lines, on a separate thread. So a slow reader of the output delays only
//! ranks that print.

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::Child;
use std::sync::mpsc::{self, Receiver};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::Signal;

#[derive(Debug)]
struct Stream {
    from: OwnedFd,
    to: StdStream,
    label: String,
    /// The start of a line that is not complete yet.
    line: Vec<u8>,
    /// The number of bytes that the pipe held at the end of the job and that have not been read since then.
    left_by_job: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum StdStream {
    Out,
    Err,
}

/// How the forwarding of the output ended.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct OutputStatus {
    /// Whether a write failed although the reader had not closed its end.
    pub(crate) write_failed: bool,
    /// Whether a reader of the output has closed its end, as in `mpjrun … | head`.
    pub(crate) reader_closed: bool,
}

/// The maximum length in bytes of a line that is kept together. A longer line is forwarded in parts.
const MAX_LINE: usize = 1 << 20;

/// After all processes of the job have exited, other processes might still have their pipes open. The pipes are read
/// until none has had output for this time.
const QUIET_TIME: Duration = Duration::from_millis(200);

/// The time after which [`read_all`] reads no more output of such processes. It still forwards what the pipes held at
/// the end of the job, because a slow reader must get all output of the ranks.
const MAX_WAIT_AFTER_JOB: Duration = Duration::from_secs(2);

/// The output pipes of a job, until a thread reads them.
#[derive(Debug, Default)]
pub(crate) struct Output {
    streams: Vec<Stream>,
}

#[derive(Debug)]
pub(crate) struct OutputThread {
    thread: JoinHandle<()>,
    done: Receiver<OutputStatus>,
    /// Closed after the last process of the job has exited.
    job_ended_pipe: OwnedFd,
}

impl Output {
    /// Adds the pipes of a process. With `label`, each line begins with the ranks of the process.
    pub(crate) fn add(&mut self, child: &mut Child, ranks: &Range<u32>, label: bool) {
        let label = match ranks.len() {
            _ if !label => String::new(),
            1 => format!("[{}] ", ranks.start),
            _ => format!("[{}-{}] ", ranks.start, ranks.end - 1),
        };
        let pipes = [
            child.stdout.take().map(|pipe| (OwnedFd::from(pipe), StdStream::Out)),
            child.stderr.take().map(|pipe| (OwnedFd::from(pipe), StdStream::Err)),
        ];
        for (from, to) in pipes.into_iter().flatten() {
            self.streams.push(Stream { from, to, label: label.clone(), line: Vec::new(), left_by_job: 0 });
        }
    }

    pub(crate) fn start(self) -> std::io::Result<OutputThread> {
        let (job_ended, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let (sender, done) = mpsc::channel();
        let body = move || {
            let status = read_all(self.streams, job_ended);
            let _ = sender.send(status);
        };
        let thread = std::thread::Builder::new().name("output".into()).spawn(body)?;
        Ok(OutputThread { thread, done, job_ended_pipe: writer })
    }
}

impl OutputThread {
    /// Waits, at most for `limit`, until all output has been forwarded.
    pub(crate) fn drain(self, limit: Option<Duration>) -> OutputStatus {
        drop(self.job_ended_pipe);
        let status = match limit {
            Some(limit) => self.done.recv_timeout(limit).ok(),
            None => self.done.recv().ok(),
        };
        if status.is_some() {
            let _ = self.thread.join();
        }
        status.unwrap_or_default()
    }
}

fn read_all(mut streams: Vec<Stream>, job_ended: OwnedFd) -> OutputStatus {
    let mut bytes = vec![0; 64 << 10];
    // Set at the end of the job.
    let mut deadline: Option<Instant> = None;
    let mut out = StdStreams::default();
    while !streams.is_empty() {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let ready =
            wait(&streams, left.is_none().then_some(&job_ended), left.map(|left| left.min(QUIET_TIME)));
        if !ready.contains(&true) {
            break;
        }
        if ready.len() > streams.len() && ready[streams.len()] {
            deadline = Some(Instant::now() + MAX_WAIT_AFTER_JOB);
            for stream in &mut streams {
                let held = rustix::io::ioctl_fionread(&stream.from).unwrap_or(0);
                stream.left_by_job = held.try_into().unwrap_or(usize::MAX);
            }
        }
        let mut ready = ready.into_iter();
        streams.retain_mut(|stream| {
            let is_ready = ready.next() == Some(true);
            if stream.left_by_job == 0 && deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                stream.end(&mut out);
                return false;
            }
            if !is_ready {
                return true;
            }
            match rustix::io::read(&stream.from, &mut bytes[..]) {
                Err(Errno::INTR | Errno::AGAIN) => true,
                Ok(got) if got > 0 => {
                    stream.left_by_job = stream.left_by_job.saturating_sub(got);
                    stream.push(&bytes[..got], &mut out);
                    true
                }
                _ => {
                    stream.end(&mut out);
                    false
                }
            }
        });
        // If the reader of standard error has exited, close the pipes for it, so that writes of the ranks also fail.
        // Keep reading standard output until the ranks are terminated, because a rank might report a failed write as
        // its own failure.
        streams.retain(|stream| stream.to == StdStream::Out || !out.reader_closed[stream.to as usize]);
    }
    streams.iter_mut().for_each(|stream| stream.end(&mut out));
    OutputStatus {
        write_failed: out.write_failed.contains(&true),
        reader_closed: out.reader_closed.contains(&true),
    }
}

/// Waits for input. Returns for each stream, and then for `job_ended`, whether it is readable.
fn wait(streams: &[Stream], job_ended: Option<&OwnedFd>, limit: Option<Duration>) -> Vec<bool> {
    let fds = streams.iter().map(|stream| stream.from.as_fd()).chain(job_ended.map(AsFd::as_fd));
    let mut fds: Vec<PollFd<'_>> = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
    let limit = limit.map(|limit| Timespec { tv_sec: 0, tv_nsec: limit.subsec_nanos().into() });
    loop {
        match rustix::event::poll(&mut fds, limit.as_ref()) {
            Err(Errno::INTR) => {}
            Err(_) => return Vec::new(),
            Ok(_) => break,
        }
    }
    fds.iter().map(|fd| !fd.revents().is_empty()).collect()
}

impl Stream {
    /// Forwards complete lines, and the start of a line of more than `MAX_LINE` bytes. Stores the rest.
    fn push(&mut self, bytes: &[u8], out: &mut StdStreams) {
        let complete = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        if complete == 0 && self.line.len() + bytes.len() <= MAX_LINE {
            self.line.extend_from_slice(bytes);
            return;
        }
        let mut lines = std::mem::take(&mut self.line);
        if complete == 0 {
            lines.extend_from_slice(bytes);
        } else {
            lines.extend_from_slice(&bytes[..complete]);
            self.line.extend_from_slice(&bytes[complete..]);
        }
        self.write(&lines, out);
    }

    /// Forwards the last line if it has no line feed, and adds one.
    fn end(&mut self, out: &mut StdStreams) {
        if !self.line.is_empty() {
            self.line.push(b'\n');
            let line = std::mem::take(&mut self.line);
            self.write(&line, out);
        }
    }

    fn write(&self, lines: &[u8], out: &mut StdStreams) {
        if self.label.is_empty() {
            return out.write(self.to, lines);
        }
        let lines = lines.split_inclusive(|byte| *byte == b'\n');
        let labelled: Vec<u8> = lines.flat_map(|line| [self.label.as_bytes(), line].concat()).collect();
        out.write(self.to, &labelled);
    }
}

/// The standard output and error of `mpjrun`.
#[derive(Debug, Default)]
struct StdStreams {
    /// Whether a write to each stream failed. The failure is printed, and the job continues without this output.
    write_failed: [bool; 2],
    reader_closed: [bool; 2],
}

impl StdStreams {
    fn write(&mut self, to: StdStream, bytes: &[u8]) {
        if self.reader_closed[to as usize] || self.write_failed[to as usize] {
            return;
        }
        let (fd, name) = match to {
            StdStream::Out => (rustix::stdio::stdout(), "standard output"),
            StdStream::Err => (rustix::stdio::stderr(), "standard error"),
        };
        match write_all(fd, bytes) {
            Ok(()) => {}
            Err(Errno::PIPE) => {
                if !std::mem::replace(&mut self.reader_closed[to as usize], true) && to == StdStream::Out {
                    // `Job::forward_signals` then ends the job.
                    let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::PIPE);
                }
            }
            Err(e) => {
                self.write_failed[to as usize] = true;
                crate::print_line(&format!("cannot write to {name}: {e}; further output is discarded"));
            }
        }
    }
}

fn write_all(to: BorrowedFd<'_>, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::write(to, bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR) => {}
            // Another process might have made the descriptor non-blocking.
            Err(Errno::AGAIN) => {
                let _ = rustix::event::poll(&mut [PollFd::from_borrowed_fd(to, PollFlags::OUT)], None);
            }
            Err(e) => return Err(e),
        }
    }
    Ok(())
}
