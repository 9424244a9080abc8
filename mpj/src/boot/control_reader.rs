//! The receiving side of a process's control socket.

use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags};

use super::wire::{FrameDecoder, ToProcess};

/// The reason why an announced descriptor may be missing.
pub(super) const NO_DESCRIPTOR: &str = "no descriptor left in this process (ulimit -n)";

/// Reads messages, and pairs them with the descriptors that came with them.
#[derive(Debug, Default)]
pub(super) struct ControlReader {
    frames: FrameDecoder,
    /// In order of arrival; `None` stands for a descriptor that the kernel could not install in this process.
    fds: VecDeque<Option<OwnedFd>>,
}

impl ControlReader {
    /// Waits for the next message. If it announces a descriptor, returns that as well, unless it was lost.
    ///
    /// # Errors
    /// The launcher is gone, or sent an invalid message.
    pub(super) fn next(&mut self, socket: &UnixStream) -> Result<(ToProcess, Option<OwnedFd>), String> {
        loop {
            if let Some(message) = self.frames.next().map_err(|e| format!("the launcher sent {e}"))? {
                let announced = matches!(&message, ToProcess::Welcome(welcome) if welcome.segment);
                let fd = if announced { self.fds.pop_front().flatten() } else { None };
                return Ok((message, fd));
            }
            self.receive(socket)?;
        }
    }

    /// Receives bytes and descriptors once. One call never returns bytes of two messages that both carry descriptors,
    /// so a lost descriptor belongs to exactly one message.
    fn receive(&mut self, socket: &UnixStream) -> Result<(), String> {
        let mut bytes = [0; 4096];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        let mut into = [IoSliceMut::new(&mut bytes)];
        let got = loop {
            match rustix::net::recvmsg(socket, &mut into, &mut beside, RecvFlags::CMSG_CLOEXEC) {
                Err(Errno::INTR) => {}
                Err(e) => return Err(format!("the launcher is gone: {e}")),
                Ok(got) if got.bytes == 0 => return Err("the launcher is gone".into()),
                Ok(got) => break got,
            }
        };
        if got.flags.contains(ReturnFlags::CTRUNC) {
            self.fds.push_back(None);
        }
        for message in beside.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                self.fds.extend(fds.map(Some));
            }
        }
        self.frames.push(&bytes[..got.bytes]);
        Ok(())
    }
}
