//! Forwards the output of the ranks, line by line, on a separate thread. If the reader of this output is slow, only
//! ranks that print must wait.

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::Child;
use std::sync::mpsc::{self, Receiver};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::Signal;

/// One output pipe of a process.
#[derive(Debug)]
struct Stream {
    from: OwnedFd,
    to: StdStream,
    label: String,
    /// The start of an incomplete line.
    line: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum StdStream {
    Out,
    Err,
}

/// Whether all output was written.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct OutputStatus {
    /// Some output could not be written.
    pub(crate) write_failed: bool,
    /// The reader of the output has closed its end.
    pub(crate) reader_closed: bool,
}

/// Longest line that is kept together, in bytes. The parts of a longer line are forwarded as they arrive.
const LONGEST: usize = 1 << 20;

/// How long mpjrun reads a pipe that another process still holds open, without any output, after all processes of the
/// job have exited.
const SILENCE: Duration = Duration::from_millis(200);

/// The output pipes of a job, until a thread reads them.
#[derive(Debug, Default)]
pub(crate) struct Output {
    streams: Vec<Stream>,
}

/// The thread that reads the pipes.
#[derive(Debug)]
pub(crate) struct OutputThread {
    thread: JoinHandle<()>,
    done: Receiver<OutputStatus>,
    /// Closed after the last process of the job has exited.
    job_ended_pipe: OwnedFd,
}

impl Output {
    /// Adds a process's pipes. With `label`, each line begins with the process's ranks.
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
            self.streams.push(Stream { from, to, label: label.clone(), line: Vec::new() });
        }
    }

    /// Starts the thread that reads the pipes.
    pub(crate) fn start(self) -> std::io::Result<OutputThread> {
        let (watched, over) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let (tell, done) = mpsc::channel();
        let body = move || {
            let written = read_all(self.streams, watched);
            // The receiver may have stopped waiting.
            let _ = tell.send(written);
        };
        let thread = std::thread::Builder::new().name("output".into()).spawn(body)?;
        Ok(OutputThread { thread, done, job_ended_pipe: over })
    }
}

impl OutputThread {
    /// Waits until all output has been forwarded, or for `limit`.
    pub(crate) fn finish(self, limit: Option<Duration>) -> OutputStatus {
        drop(self.job_ended_pipe);
        let written = match limit {
            Some(limit) => self.done.recv_timeout(limit).ok(),
            None => self.done.recv().ok(),
        };
        if written.is_some() {
            // The thread is about to exit.
            let _ = self.thread.join();
        }
        written.unwrap_or_default()
    }
}

fn read_all(mut streams: Vec<Stream>, watched: OwnedFd) -> OutputStatus {
    let mut bytes = vec![0; 64 << 10];
    let mut over = None;
    let mut outlet = StdStreams::default();
    while !streams.is_empty() {
        let ready = wait(&streams, over.is_none().then_some(&watched), over);
        if !ready.contains(&true) {
            break;
        }
        if ready.len() > streams.len() && ready[streams.len()] {
            over = Some(SILENCE);
        }
        let mut ready = ready.into_iter();
        streams.retain_mut(|stream| {
            if ready.next() != Some(true) {
                return true;
            }
            match rustix::io::read(&stream.from, &mut bytes[..]) {
                Err(Errno::INTR | Errno::AGAIN) => true,
                Ok(got) if got > 0 => {
                    stream.take(&bytes[..got], &mut outlet);
                    true
                }
                _ => {
                    stream.end(&mut outlet);
                    false
                }
            }
        });
        // If the reader of standard error has exited, close the ranks' pipes, so that their writes fail, too. Standard
        // output is read until the ranks have been terminated, because a rank whose write fails may report that as a
        // failure of its own.
        streams.retain(|stream| stream.to == StdStream::Out || !outlet.shut[stream.to as usize]);
    }
    streams.iter_mut().for_each(|stream| stream.end(&mut outlet));
    OutputStatus { write_failed: outlet.lost.contains(&true), reader_closed: outlet.shut.contains(&true) }
}

/// Waits for input; returns for each stream, and then for `watched`, whether it is readable.
fn wait(streams: &[Stream], watched: Option<&OwnedFd>, limit: Option<Duration>) -> Vec<bool> {
    let fds = streams.iter().map(|stream| stream.from.as_fd()).chain(watched.map(AsFd::as_fd));
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
    /// Forwards complete lines, and stores the start of the next line.
    fn take(&mut self, bytes: &[u8], outlet: &mut StdStreams) {
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        if whole == 0 && self.line.len() + bytes.len() <= LONGEST {
            self.line.extend_from_slice(bytes);
            return;
        }
        let mut out = std::mem::take(&mut self.line);
        if whole == 0 {
            out.extend_from_slice(bytes);
        } else {
            out.extend_from_slice(&bytes[..whole]);
            self.line.extend_from_slice(&bytes[whole..]);
        }
        self.write(&out, outlet);
    }

    /// Forwards the last line, which has no line feed.
    fn end(&mut self, outlet: &mut StdStreams) {
        if !self.line.is_empty() {
            self.line.push(b'\n');
            let line = std::mem::take(&mut self.line);
            self.write(&line, outlet);
        }
    }

    fn write(&self, lines: &[u8], outlet: &mut StdStreams) {
        if self.label.is_empty() {
            return outlet.write(self.to, lines);
        }
        let lines = lines.split_inclusive(|byte| *byte == b'\n');
        let labelled: Vec<u8> = lines.flat_map(|line| [self.label.as_bytes(), line].concat()).collect();
        outlet.write(self.to, &labelled);
    }
}

/// The standard output and error of `mpjrun`.
#[derive(Debug, Default)]
struct StdStreams {
    /// By target: whether a write failed. The first failure is reported, and the job continues.
    lost: [bool; 2],
    /// By target: whether the reader has closed its end.
    shut: [bool; 2],
}

impl StdStreams {
    fn write(&mut self, to: StdStream, bytes: &[u8]) {
        if self.shut[to as usize] {
            return;
        }
        let (fd, name) = match to {
            StdStream::Out => (rustix::stdio::stdout(), "standard output"),
            StdStream::Err => (rustix::stdio::stderr(), "standard error"),
        };
        match write_all(fd, bytes) {
            Ok(()) => {}
            Err(Errno::PIPE) => {
                if !std::mem::replace(&mut self.shut[to as usize], true) && to == StdStream::Out {
                    // End the job as if another process had sent the signal.
                    let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::PIPE);
                }
            }
            Err(e) => {
                if !std::mem::replace(&mut self.lost[to as usize], true) {
                    crate::print_line(&format!(
                        "{name} could not be written: {e}; the job goes on, and loses what it prints"
                    ));
                }
            }
        }
    }
}

fn write_all(to: BorrowedFd<'_>, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::write(to, bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR) => {}
            // Another process has made the descriptor non-blocking.
            Err(Errno::AGAIN) => {
                let _ = rustix::event::poll(&mut [PollFd::from_borrowed_fd(to, PollFlags::OUT)], None);
            }
            Err(e) => return Err(e),
        }
    }
    Ok(())
}
