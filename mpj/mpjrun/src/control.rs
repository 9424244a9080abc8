//! The `mpjrun` end of one process's control socket. It never blocks, whatever the process does.

use std::collections::VecDeque;
use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;

use mpj::boot::wire::{FrameDecoder, ToLauncher, ToProcess, encode_frame};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

/// Maximum number of bytes that one call of `receive` reads. It is more than a socket buffer holds, so that the last
/// messages of an exited process are read completely, and small enough that the other processes are not delayed.
const LOOK: usize = 4 << 20;

/// Maximum number of bytes that are queued for a process: far more than all messages about other ranks that a stopped
/// process can miss.
const UNREAD: usize = 64 << 20;

/// One control socket.
#[derive(Debug)]
pub(crate) struct Control {
    socket: UnixStream,
    frames: FrameDecoder,
    received: VecDeque<ToLauncher>,
    /// Frames that are not sent yet; the process may be stopped.
    waiting: VecDeque<Frame>,
    /// Number of bytes in `waiting` that are not sent yet.
    unread: usize,
    closed: bool,
}

#[derive(Debug)]
struct Frame {
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
            waiting: VecDeque::new(),
            unread: 0,
            closed: false,
        })
    }

    /// Receives pending messages, until about `LOOK` bytes are read. More may remain in the socket.
    ///
    /// # Errors
    /// The process sent bytes that are not a valid message.
    pub(crate) fn receive(&mut self) -> Result<(), String> {
        let mut bytes = [0; 16 << 10];
        let mut taken = 0;
        while !self.closed && taken < LOOK {
            match (&self.socket).read(&mut bytes) {
                Ok(0) => self.closed = true,
                Ok(got) => {
                    taken += got;
                    self.frames.push(&bytes[..got]);
                }
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                // If a process exits before it has read all messages, the socket is reset.
                Err(_) => self.closed = true,
            }
            while let Some(message) = self.frames.next().map_err(|e| e.to_string())? {
                self.received.push_back(message);
            }
        }
        Ok(())
    }

    /// Returns an error if the process does not read the messages sent to it. Messages beyond the limit are dropped.
    pub(crate) fn check_backlog(&self) -> Result<(), String> {
        match self.unread > UNREAD {
            true => Err(format!("it left more than {} MiB of answers unread", UNREAD >> 20)),
            false => Ok(()),
        }
    }

    /// Removes and returns the next received message.
    pub(crate) fn next(&mut self) -> Option<ToLauncher> {
        self.received.pop_front()
    }

    /// Returns whether the connection is closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// If the connection ended in the middle of a message, returns a description of the position.
    pub(crate) fn torn(&self) -> Option<String> {
        self.closed.then(|| self.frames.torn()).flatten()
    }

    /// Closes the connection: nothing more is received or sent.
    pub(crate) fn close(&mut self) {
        self.closed = true;
        self.received.clear();
        self.waiting.clear();
        self.unread = 0;
    }

    /// Queues a message for sending.
    pub(crate) fn send(&mut self, message: &ToProcess, fd: Option<Rc<OwnedFd>>) {
        // A reply holds what came in a frame, so it is below the limit.
        if let Ok(bytes) = encode_frame(message) {
            self.send_frame(&bytes, fd);
        }
    }

    /// Queues an encoded message for sending.
    pub(crate) fn send_frame(&mut self, frame: &[u8], fd: Option<Rc<OwnedFd>>) {
        if self.closed || self.unread > UNREAD {
            return;
        }
        self.unread += frame.len();
        match self.waiting.back_mut().filter(|last| fd.is_none() && last.bytes.len() < 16 << 10) {
            Some(last) => last.bytes.extend_from_slice(frame),
            None => self.waiting.push_back(Frame { bytes: frame.to_vec(), sent: 0, fd }),
        }
    }

    /// Sends queued frames until the socket would block; returns whether frames remain.
    pub(crate) fn flush(&mut self) -> bool {
        while let Some(next) = self.waiting.front_mut() {
            match transmit(&self.socket, next) {
                Ok(sent) => {
                    next.sent += sent;
                    self.unread -= sent;
                }
                Err(Errno::INTR) => continue,
                // The socket buffer is full, or too many descriptors are in flight to processes that have not joined.
                Err(Errno::AGAIN | Errno::TOOMANYREFS) => return true,
                Err(_) => {
                    self.waiting.clear();
                    self.unread = 0;
                    return false;
                }
            }
            // The descriptor was sent with the first byte.
            next.fd = None;
            if next.sent == next.bytes.len() {
                self.waiting.pop_front();
            }
        }
        false
    }
}

fn transmit(socket: &UnixStream, frame: &Frame) -> Result<usize, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    let fds = frame.fd.as_ref().map(|fd| [fd.as_fd()]);
    if let Some(fds) = &fds {
        beside.push(SendAncillaryMessage::ScmRights(fds));
    }
    let bytes = [IoSlice::new(&frame.bytes[frame.sent..])];
    rustix::net::sendmsg(socket, &bytes, &mut beside, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
