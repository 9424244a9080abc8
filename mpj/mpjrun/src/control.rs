//! Our end of one process's control socket: never blocks, whatever the process does.

use std::collections::VecDeque;
use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;

use mpj::boot::wire::{FrameDecoder, ToLauncher, ToProcess, encode_frame};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

/// How many bytes are received at one look: more than a socket holds, so that the last words of a process are heard
/// whole, and not so many that the others wait.
const LOOK: usize = 4 << 20;

/// The most bytes that are kept for a process: far more than a stopped one is told of the others.
const UNREAD: usize = 64 << 20;

/// One control socket.
#[derive(Debug)]
pub(crate) struct Control {
    socket: UnixStream,
    frames: FrameDecoder,
    heard: VecDeque<ToLauncher>,
    /// What the process has not taken yet; it may be stopped.
    waiting: VecDeque<Frame>,
    /// The bytes of that.
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
            heard: VecDeque::new(),
            waiting: VecDeque::new(),
            unread: 0,
            closed: false,
        })
    }

    /// Receives the messages that have come, but no more than a look's worth: there is more if the process talks
    /// without end.
    ///
    /// # Errors
    /// What the process sent is no message.
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
                // A process that ended with answers unread resets the socket.
                Err(_) => self.closed = true,
            }
            while let Some(message) = self.frames.next().map_err(|e| e.to_string())? {
                self.heard.push_back(message);
            }
        }
        Ok(())
    }

    /// Returns an error if the process does not read what it is answered; what is sent to it since then is lost.
    pub(crate) fn is_read(&self) -> Result<(), String> {
        match self.unread > UNREAD {
            true => Err(format!("it left more than {} MiB of answers unread", UNREAD >> 20)),
            false => Ok(()),
        }
    }

    /// Takes the next message that was received.
    pub(crate) fn next(&mut self) -> Option<ToLauncher> {
        self.heard.pop_front()
    }

    /// Whether the process has closed its end.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Returns where the connection ended, in words, if it did so in the middle of a message.
    pub(crate) fn torn(&self) -> Option<String> {
        self.closed.then(|| self.frames.torn()).flatten()
    }

    /// Gives up the socket's other end for lost.
    pub(crate) fn close(&mut self) {
        self.closed = true;
        self.heard.clear();
        self.waiting.clear();
        self.unread = 0;
    }

    /// Adds a message to what will be sent.
    pub(crate) fn send(&mut self, message: &ToProcess, fd: Option<Rc<OwnedFd>>) {
        // An answer holds what came in a frame, which was short enough: it fits.
        if let Ok(bytes) = encode_frame(message) {
            self.send_frame(&bytes, fd);
        }
    }

    /// Adds a message that is a frame already.
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

    /// Sends what the process takes; returns whether something is left.
    pub(crate) fn flush(&mut self) -> bool {
        while let Some(next) = self.waiting.front_mut() {
            match transmit(&self.socket, next) {
                Ok(sent) => {
                    next.sent += sent;
                    self.unread -= sent;
                }
                Err(Errno::INTR) => continue,
                // No room there; or too many descriptors are under way to processes that have not joined.
                Err(Errno::AGAIN | Errno::TOOMANYREFS) => return true,
                Err(_) => {
                    self.waiting.clear();
                    self.unread = 0;
                    return false;
                }
            }
            // The descriptor has gone with the first byte.
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
