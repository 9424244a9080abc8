//! A control connection that never blocks, whatever the other end does: that of `mpjrun` or an agent to a process, or
//! of one agent to another.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::boot::wire::{FrameDecoder, encode_frame};

/// The number of bytes after which `receive` returns, so that one sender does not delay the others. By default, a Unix
/// socket buffers less, so one call reads all messages of an exited process.
const MAX_READ_PER_POLL: usize = 4 << 20;

/// If more bytes than this are queued, the other end is considered to violate the protocol, because it does not read.
/// The queue of a stopped process is usually far shorter.
const MAX_BACKLOG: usize = 64 << 20;

/// One end of a control connection, which receives messages of type `M`.
#[derive(Debug)]
pub struct ControlConnection<M> {
    socket: OwnedFd,
    frames: FrameDecoder,
    received: VecDeque<M>,
    /// Frames with unsent bytes.
    send_queue: VecDeque<QueueEntry>,
    backlog: usize,
    /// Whether `backlog` has exceeded `MAX_BACKLOG`, so that further messages are dropped.
    overflowed: bool,
    closed: bool,
}

/// The rest of the queue after [`ControlConnection::flush`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unsent {
    Nothing,
    /// Frames that can be sent when the socket is writable.
    Frames,
    /// A descriptor, because too many sent ones have not been received yet. No event reports that this has changed.
    Descriptor,
}

/// One or more encoded messages, and a descriptor that is sent with the first byte.
#[derive(Debug)]
struct QueueEntry {
    bytes: Vec<u8>,
    sent: usize,
    fd: Option<Arc<OwnedFd>>,
}

impl<M: DeserializeOwned> ControlConnection<M> {
    /// Creates one end from a connected stream socket.
    pub fn new(socket: impl Into<OwnedFd>) -> ControlConnection<M> {
        ControlConnection {
            socket: socket.into(),
            frames: FrameDecoder::default(),
            received: VecDeque::new(),
            send_queue: VecDeque::new(),
            backlog: 0,
            overflowed: false,
            closed: false,
        }
    }

    /// Receives pending messages. After `MAX_READ_PER_POLL` bytes, the rest stays in the socket.
    ///
    /// # Errors
    /// The other end sent bytes that are not a valid message.
    pub fn receive(&mut self) -> Result<(), String> {
        let mut bytes = [0; 16 << 10];
        let mut total = 0;
        while !self.closed && total < MAX_READ_PER_POLL {
            match rustix::net::recv(&self.socket, &mut bytes, RecvFlags::DONTWAIT) {
                Ok((_, 0)) => self.closed = true,
                Ok((_, got)) => {
                    total += got;
                    self.frames.push(&bytes[..got]);
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                // For example, the socket is reset if the process exits before it has read all messages.
                Err(_) => self.closed = true,
            }
            while let Some(message) = self.frames.next().map_err(|e| e.to_string())? {
                self.received.push_back(message);
            }
        }
        Ok(())
    }

    /// Returns an error if more than `MAX_BACKLOG` bytes were ever queued at once; `send` then drops further messages.
    pub fn check_backlog(&self) -> Result<(), String> {
        match self.overflowed {
            true => Err(format!(
                "it does not read its control socket (more than {} MiB pending)",
                MAX_BACKLOG >> 20
            )),
            false => Ok(()),
        }
    }

    /// Takes the next received message.
    #[expect(clippy::should_implement_trait, reason = "more messages can arrive after `None`")]
    pub fn next(&mut self) -> Option<M> {
        self.received.pop_front()
    }

    /// Returns whether the other end has closed the connection, or [`close`](Self::close) was called.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Returns whether the other end is open now. This does not depend on what was read before.
    pub fn is_open(&self) -> bool {
        let mut ends = [PollFd::new(&self.socket, PollFlags::RDHUP)];
        // A signal handler interrupts even a poll that does not wait.
        retry_on_intr(|| poll(&mut ends, Some(&Timespec::default()))) == Ok(0)
    }

    /// If the connection was closed in the middle of a message, returns a description of the position.
    pub fn incomplete_frame(&self) -> Option<String> {
        self.closed.then(|| self.frames.incomplete_frame()).flatten()
    }

    /// Ends the use of the connection: nothing more is received or sent, and the other end gets the end of the stream.
    pub fn close(&mut self) {
        self.closed = true;
        // Fails only if the other end has closed the connection.
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
        self.received.clear();
        self.send_queue.clear();
        self.backlog = 0;
    }

    /// Ends the sending direction: the other end gets the end of the stream after the sent bytes, and can still send.
    pub fn finish_sending(&mut self) {
        // Fails only if the other end has closed the connection.
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Write);
    }

    /// Queues a message, and a descriptor that is sent with it. [`flush`](Self::flush) sends it.
    pub fn send(&mut self, message: &impl Serialize, fd: Option<Arc<OwnedFd>>) {
        match encode_frame(message) {
            Ok(bytes) => self.send_frame(&bytes, fd),
            // The message exceeds the limit, which should not happen. The other end gets no further messages.
            Err(_) => self.close(),
        }
    }

    /// Queues an encoded message.
    pub fn send_frame(&mut self, frame: &[u8], fd: Option<Arc<OwnedFd>>) {
        if self.closed || self.overflowed {
            return;
        }
        self.backlog += frame.len();
        self.overflowed = self.backlog > MAX_BACKLOG;
        match self.send_queue.back_mut().filter(|last| fd.is_none() && last.bytes.len() < 16 << 10) {
            Some(last) => last.bytes.extend_from_slice(frame),
            None => self.send_queue.push_back(QueueEntry { bytes: frame.to_vec(), sent: 0, fd }),
        }
    }

    /// Returns whether queued frames have unsent bytes.
    pub fn has_backlog(&self) -> bool {
        !self.send_queue.is_empty()
    }

    /// Sends queued frames until the socket would block.
    pub fn flush(&mut self) -> Unsent {
        while let Some(next) = self.send_queue.front_mut() {
            match transmit(&self.socket, next) {
                Ok(sent) => {
                    next.sent += sent;
                    self.backlog -= sent;
                }
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return Unsent::Frames,
                Err(Errno::TOOMANYREFS) => return Unsent::Descriptor,
                Err(_) => {
                    self.send_queue.clear();
                    self.backlog = 0;
                    return Unsent::Nothing;
                }
            }
            next.fd = None;
            if next.sent == next.bytes.len() {
                self.send_queue.pop_front();
            }
        }
        Unsent::Nothing
    }
}

fn transmit(socket: &OwnedFd, frame: &QueueEntry) -> Result<usize, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fds = frame.fd.as_ref().map(|fd| [fd.as_fd()]);
    if let Some(fds) = &fds {
        ancillary.push(SendAncillaryMessage::ScmRights(fds));
    }
    let bytes = [IoSlice::new(&frame.bytes[frame.sent..])];
    rustix::net::sendmsg(socket, &bytes, &mut ancillary, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
}

impl<M> AsFd for ControlConnection<M> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;
    use std::process::{Command, Stdio};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    use rustix::process::{Signal, getpid, kill_process};

    use super::*;
    use crate::boot::wire::{MAX_MESSAGE, ToLauncher, ToProcess};

    #[test]
    fn message_above_the_limit_ends_the_connection() {
        let (socket, mut process) = UnixStream::pair().unwrap();
        let mut control = ControlConnection::<ToLauncher>::new(socket);
        control.send(&ToProcess::Value { id: 0, value: Ok(vec![0; MAX_MESSAGE]) }, None);
        assert!(control.is_closed() && control.flush() == Unsent::Nothing);
        process.set_nonblocking(true).unwrap();
        assert_eq!(process.read(&mut [0; 8]).unwrap(), 0, "the end of the stream");
    }

    #[test]
    fn signals_do_not_close_the_connection() {
        const CHILD: &str = "MPJ_TEST_SIGNALLED";
        if std::env::var_os(CHILD).is_some() {
            return poll_during_signals();
        }
        // In a process of its own, in which the main thread runs the test and gets all signals.
        let name = "boot::control_plane::connection::tests::signals_do_not_close_the_connection";
        let mut again = Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", name, "--test-threads", "1"]).env(CHILD, "1").stdout(Stdio::null());
        assert!(again.status().unwrap().success());
    }

    fn poll_during_signals() {
        let handled = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(signal_hook::consts::SIGUSR1, Arc::clone(&handled)).unwrap();
        let (socket, _process) = UnixStream::pair().unwrap();
        let control = ControlConnection::<ToLauncher>::new(socket);
        let has_ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !has_ended.load(Ordering::Relaxed) {
                    kill_process(getpid(), Signal::USR1).unwrap();
                }
            });
            let (mut is_open, mut signals, start) = (true, 0, Instant::now());
            // About one of ten signals arrives during the system call.
            while is_open && signals < 300 && start.elapsed() < Duration::from_secs(5) {
                is_open = control.is_open();
                signals += u32::from(handled.swap(false, Ordering::Relaxed));
            }
            has_ended.store(true, Ordering::Relaxed);
            assert!(is_open && signals > 0);
        });
    }
}
