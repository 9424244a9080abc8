//! The receiving side of a process's control socket.

use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags};

use super::wire::{FrameDecoder, ToProcess};

pub(super) const DESCRIPTOR_LIMIT_REACHED: &str = "file descriptor limit reached (ulimit -n)";

/// Reads messages, and pairs them with the descriptors that came with them.
#[derive(Debug)]
pub(super) struct ControlReader {
    frames: FrameDecoder,
    /// Becomes readable when the launcher's process exits, even if a child of it still has its end of the socket.
    /// `None` if only the end of the connection shows the exit.
    launcher: Option<OwnedFd>,
    /// The error after the launcher has exited.
    gone: String,
    /// In order of arrival; `None` is a descriptor that the kernel could not install in this process.
    fds: VecDeque<Option<OwnedFd>>,
}

impl ControlReader {
    pub(super) fn new(launcher: Option<OwnedFd>) -> ControlReader {
        let gone = "the launcher has exited or closed the control socket".into();
        ControlReader { frames: FrameDecoder::default(), launcher, gone, fds: VecDeque::new() }
    }

    /// Sets the error after the launcher has exited.
    pub(super) fn set_gone(&mut self, gone: String) {
        self.gone = gone;
    }

    /// Waits for the next message. If the message announces a descriptor, returns it as well, unless it was lost.
    ///
    /// # Errors
    /// The connection is broken, or the launcher sent an invalid message.
    pub(super) fn next(&mut self, socket: &UnixStream) -> Result<(ToProcess, Option<OwnedFd>), String> {
        loop {
            if let Some(message) = self.frames.next().map_err(|e| format!("the launcher sent an {e}"))? {
                let announced = matches!(&message, ToProcess::Welcome(welcome) if welcome.has_segment);
                let fd = if announced { self.fds.pop_front().flatten() } else { None };
                return Ok((message, fd));
            }
            self.recv_once(socket)?;
        }
    }

    /// Waits for input or the exit of the launcher. Returns false if the launcher has exited and the socket has no
    /// input.
    fn wait(&self, socket: &UnixStream) -> bool {
        let Some(launcher) = &self.launcher else { return true };
        let mut fds = [PollFd::new(socket, PollFlags::IN), PollFd::new(launcher, PollFlags::IN)];
        while let Err(Errno::INTR) = poll(&mut fds, None) {}
        fds[1].revents().is_empty() || !fds[0].revents().is_empty()
    }

    /// Receives bytes and descriptors once. The kernel never returns the descriptors of two messages in one call, so a
    /// lost descriptor belongs to exactly one message.
    fn recv_once(&mut self, socket: &UnixStream) -> Result<(), String> {
        let mut bytes = [0; 4096];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        if !self.wait(socket) {
            return Err(self.gone.clone());
        }
        let mut into = [IoSliceMut::new(&mut bytes)];
        let received = loop {
            match rustix::net::recvmsg(socket, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Err(Errno::INTR) => {}
                Err(e) => return Err(format!("{}: {e}", self.gone)),
                Ok(received) if received.bytes == 0 => return Err(self.gone.clone()),
                Ok(received) => break received,
            }
        };
        if received.flags.contains(ReturnFlags::CTRUNC) {
            self.fds.push_back(None);
        }
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                self.fds.extend(fds.map(Some));
            }
        }
        self.frames.push(&bytes[..received.bytes]);
        Ok(())
    }
}
