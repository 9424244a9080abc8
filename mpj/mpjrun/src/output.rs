//! What the ranks print, line by line, on a thread of its own: a reader of ours that is slow holds up the ranks that
//! print, and nothing else.

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::Child;
use std::sync::mpsc::{self, Receiver};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::Signal;

/// One pipe from a process.
#[derive(Debug)]
struct Stream {
    from: OwnedFd,
    to: Target,
    label: String,
    /// The start of a line whose end has not come yet.
    line: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Target {
    Out,
    Err,
}

/// What became of the output.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct OutputStatus {
    /// Some of it could not be written.
    pub(crate) write_failed: bool,
    /// The reader has closed its end.
    pub(crate) reader_closed: bool,
}

/// The longest line that is kept together; what is longer is passed on in pieces, as it comes.
const LONGEST: usize = 1 << 20;

/// How long something outside the job that holds a pipe open may keep silent before it is left alone.
const SILENCE: Duration = Duration::from_millis(200);

/// The pipes of a job, until they are read.
#[derive(Debug, Default)]
pub(crate) struct Output {
    streams: Vec<Stream>,
}

/// The thread that reads them.
#[derive(Debug)]
pub(crate) struct Reader {
    thread: JoinHandle<()>,
    done: Receiver<OutputStatus>,
    /// Closed when no process of the job is left.
    over: OwnedFd,
}

impl Output {
    /// Takes a process's pipes. With `label`, each line begins with its ranks.
    pub(crate) fn add(&mut self, child: &mut Child, ranks: &Range<u32>, label: bool) {
        let label = match ranks.len() {
            _ if !label => String::new(),
            1 => format!("[{}] ", ranks.start),
            _ => format!("[{}-{}] ", ranks.start, ranks.end - 1),
        };
        let pipes = [
            child.stdout.take().map(|pipe| (OwnedFd::from(pipe), Target::Out)),
            child.stderr.take().map(|pipe| (OwnedFd::from(pipe), Target::Err)),
        ];
        for (from, to) in pipes.into_iter().flatten() {
            self.streams.push(Stream { from, to, label: label.clone(), line: Vec::new() });
        }
    }

    /// Starts to read.
    pub(crate) fn start(self) -> std::io::Result<Reader> {
        let (watched, over) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let (tell, done) = mpsc::channel();
        let body = move || {
            let written = read_all(self.streams, watched);
            // The receiver may have stopped waiting.
            let _ = tell.send(written);
        };
        let thread = std::thread::Builder::new().name("output".into()).spawn(body)?;
        Ok(Reader { thread, done, over })
    }
}

impl Reader {
    /// Waits until all that was printed has been passed on, or for `limit`.
    pub(crate) fn finish(self, limit: Option<Duration>) -> OutputStatus {
        drop(self.over);
        let written = match limit {
            Some(limit) => self.done.recv_timeout(limit).ok(),
            None => self.done.recv().ok(),
        };
        if written.is_some() {
            // It has come to its end.
            let _ = self.thread.join();
        }
        written.unwrap_or_default()
    }
}

fn read_all(mut streams: Vec<Stream>, watched: OwnedFd) -> OutputStatus {
    let mut bytes = vec![0; 64 << 10];
    let mut over = None;
    let mut outlet = Outlet::default();
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
        // Nobody reads there any more: the ranks learn it from their pipes. What they print to standard output is read until
        // they have been ended: a rank that finds its pipe closed may call that a failure of its own.
        streams.retain(|stream| stream.to == Target::Out || !outlet.shut[stream.to as usize]);
    }
    streams.iter_mut().for_each(|stream| stream.end(&mut outlet));
    OutputStatus { write_failed: outlet.lost.contains(&true), reader_closed: outlet.shut.contains(&true) }
}

/// Returns of each stream, and then of `watched`, whether it has something.
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
    /// Passes whole lines on, and keeps the start of the next.
    fn take(&mut self, bytes: &[u8], outlet: &mut Outlet) {
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

    /// Passes on the last line, which had no end.
    fn end(&mut self, outlet: &mut Outlet) {
        if !self.line.is_empty() {
            self.line.push(b'\n');
            let line = std::mem::take(&mut self.line);
            self.write(&line, outlet);
        }
    }

    fn write(&self, lines: &[u8], outlet: &mut Outlet) {
        if self.label.is_empty() {
            return outlet.write(self.to, lines);
        }
        let lines = lines.split_inclusive(|byte| *byte == b'\n');
        let labelled: Vec<u8> = lines.flat_map(|line| [self.label.as_bytes(), line].concat()).collect();
        outlet.write(self.to, &labelled);
    }
}

/// Our own standard output and error.
#[derive(Debug, Default)]
struct Outlet {
    /// Whether something could not be written there; this is said once, and the job goes on.
    lost: [bool; 2],
    /// Whether the reader has gone.
    shut: [bool; 2],
}

impl Outlet {
    fn write(&mut self, to: Target, bytes: &[u8]) {
        if self.shut[to as usize] {
            return;
        }
        let (fd, name) = match to {
            Target::Out => (rustix::stdio::stdout(), "standard output"),
            Target::Err => (rustix::stdio::stderr(), "standard error"),
        };
        match write_all(fd, bytes) {
            Ok(()) => {}
            Err(Errno::PIPE) => {
                if !std::mem::replace(&mut self.shut[to as usize], true) && to == Target::Out {
                    // The job ends by it, as by a signal of anybody else's.
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
            // Somebody has made it non-blocking.
            Err(Errno::AGAIN) => {
                let _ = rustix::event::poll(&mut [PollFd::from_borrowed_fd(to, PollFlags::OUT)], None);
            }
            Err(e) => return Err(e),
        }
    }
    Ok(())
}
