//! The `mpjrun` end of one process's control socket. It never blocks, whatever the process does.

use std::collections::VecDeque;
use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;

use mpj::boot::wire::{FrameDecoder, ToLauncher, ToProcess, encode_frame};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

/// The number of bytes after which `receive` returns, so that one process does not delay the others. A socket buffer
/// holds less by default, so all messages of an exited process are read.
const MAX_READ_PER_POLL: usize = 4 << 20;

/// If more bytes than this are queued, the process is considered to violate the protocol, because it does not read its
/// socket. The queue of a stopped process is usually far shorter.
const MAX_BACKLOG: usize = 64 << 20;

#[derive(Debug)]
pub(crate) struct Control {
    socket: UnixStream,
    frames: FrameDecoder,
    received: VecDeque<ToLauncher>,
    /// Frames with unsent bytes.
    send_queue: VecDeque<QueueEntry>,
    backlog: usize,
    /// Whether `backlog` has exceeded `MAX_BACKLOG`, so that messages were dropped.
    overflowed: bool,
    closed: bool,
}

/// One or more encoded messages, and a descriptor that is sent with the first byte.
#[derive(Debug)]
struct QueueEntry {
    bytes: Vec<u8>,
    sent: usize,
    fd: Option<Rc<OwnedFd>>,
}

impl Control {
    pub(crate) fn new(socket: UnixStream) -> std::io::Result<Control> {
        socket.set_nonblocking(true)?;
        Ok(Control {
            socket,
            frames: FrameDecoder::default(),
            received: VecDeque::new(),
            send_queue: VecDeque::new(),
            backlog: 0,
            overflowed: false,
            closed: false,
        })
    }

    /// Receives pending messages. After `MAX_READ_PER_POLL` bytes, the rest stays in the socket.
    ///
    /// # Errors
    /// The process sent bytes that are not a valid message.
    pub(crate) fn receive(&mut self) -> Result<(), String> {
        let mut bytes = [0; 16 << 10];
        let mut total = 0;
        while !self.closed && total < MAX_READ_PER_POLL {
            match (&self.socket).read(&mut bytes) {
                Ok(0) => self.closed = true,
                Ok(got) => {
                    total += got;
                    self.frames.push(&bytes[..got]);
                }
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                // For example, the socket is reset if the process exits before it has read all messages.
                Err(_) => self.closed = true,
            }
            while let Some(message) = self.frames.next().map_err(|e| e.to_string())? {
                self.received.push_back(message);
            }
        }
        Ok(())
    }

    /// Returns an error if more than `MAX_BACKLOG` bytes were ever queued; `send` then drops further messages.
    pub(crate) fn check_backlog(&self) -> Result<(), String> {
        match self.overflowed {
            true => Err(format!(
                "it does not read its control socket (more than {} MiB pending)",
                MAX_BACKLOG >> 20
            )),
            false => Ok(()),
        }
    }

    pub(crate) fn next(&mut self) -> Option<ToLauncher> {
        self.received.pop_front()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// If the connection was closed in the middle of a message, returns a description of the position.
    pub(crate) fn incomplete_frame(&self) -> Option<String> {
        self.closed.then(|| self.frames.incomplete_frame()).flatten()
    }

    /// Ends the use of the connection: nothing more is received or sent, and a process that waits for a message gets the
    /// end of the stream.
    pub(crate) fn close(&mut self) {
        self.closed = true;
        // Fails only if the process has closed its end.
        let _ = self.socket.shutdown(Shutdown::Both);
        self.received.clear();
        self.send_queue.clear();
        self.backlog = 0;
    }

    pub(crate) fn send(&mut self, message: &ToProcess, fd: Option<Rc<OwnedFd>>) {
        match encode_frame(message) {
            Ok(bytes) => self.send_frame(&bytes, fd),
            // The message exceeds the limit, which should not happen. The process gets no further messages.
            Err(_) => self.close(),
        }
    }

    pub(crate) fn send_frame(&mut self, frame: &[u8], fd: Option<Rc<OwnedFd>>) {
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

    /// Sends queued frames until the socket would block; returns whether frames remain.
    pub(crate) fn flush(&mut self) -> bool {
        while let Some(next) = self.send_queue.front_mut() {
            match transmit(&self.socket, next) {
                Ok(sent) => {
                    next.sent += sent;
                    self.backlog -= sent;
                }
                Err(Errno::INTR) => continue,
                // The socket buffer is full, or too many sent descriptors have not been received yet.
                Err(Errno::AGAIN | Errno::TOOMANYREFS) => return true,
                Err(_) => {
                    self.send_queue.clear();
                    self.backlog = 0;
                    return false;
                }
            }
            next.fd = None;
            if next.sent == next.bytes.len() {
                self.send_queue.pop_front();
            }
        }
        false
    }
}

fn transmit(socket: &UnixStream, frame: &QueueEntry) -> Result<usize, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fds = frame.fd.as_ref().map(|fd| [fd.as_fd()]);
    if let Some(fds) = &fds {
        ancillary.push(SendAncillaryMessage::ScmRights(fds));
    }
    let bytes = [IoSlice::new(&frame.bytes[frame.sent..])];
    rustix::net::sendmsg(socket, &bytes, &mut ancillary, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use mpj::boot::wire::MAX_MESSAGE;

    use super::*;

    #[test]
    fn message_above_the_limit_ends_the_connection() {
        let (socket, mut process) = UnixStream::pair().unwrap();
        let mut control = Control::new(socket).unwrap();
        control.send(&ToProcess::Value { id: 0, value: Ok(vec![0; MAX_MESSAGE]) }, None);
        assert!(control.is_closed() && !control.flush());
        process.set_nonblocking(true).unwrap();
        assert_eq!(process.read(&mut [0; 8]).unwrap(), 0, "the end of the stream");
    }
}
