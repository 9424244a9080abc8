//! The sending end: one system call a frame, and a bounded stage for what the socket does not take.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::sync::Arc;

use super::frame::{HEADER, Header, Kind};
use super::pipe::Pipe;
use crate::device::{Body, HEAD_MAX, Link, Pieces, PostError};
use crate::sys::{Errno, OwnedFd, socket};

/// Bodies up to this are copied next to their head, and wait on the stage when the socket is full: many small frames
/// then go out in one write.
const SMALL: usize = 4 << 10;

/// Frames are staged until this many bytes are.
const STAGE: usize = 64 << 10;

/// The most parts that go out in one call; a body of more pieces is packed first, as these are small.
const PARTS: usize = 64;

/// The sending end to one peer.
///
/// # Invariants
/// 1. The stage holds at most [`STAGE`] bytes and the rest of one frame.
#[derive(Debug)]
pub(super) struct TcpLink {
    pipe: Arc<Pipe>,
    staged: Vec<u8>,
    /// Bytes of `staged` that were written out.
    written: usize,
    /// Where a body is packed that is too large for the stage.
    packed: Vec<u8>,
    /// Whether the peer was asked to acknowledge all that was sent.
    asked: bool,
}

impl TcpLink {
    pub(super) fn new(pipe: Arc<Pipe>) -> Self {
        TcpLink { pipe, staged: Vec::new(), written: 0, packed: Vec::new(), asked: false }
    }

    /// Writes `parts`, and stages what the socket does not take; `Again` if it takes nothing and `must` is not set.
    #[inline]
    fn write(&mut self, parts: &[&[u8]], must: bool) -> Result<(), PostError> {
        let Some(stream) = self.pipe.stream() else { return Err(PostError::Again) };
        match send(stream, parts) {
            Ok(sent) if sent == parts.iter().map(|part| part.len()).sum() => Ok(()),
            Ok(sent) => {
                self.stage(parts, sent);
                Ok(())
            }
            Err(Errno::WOULDBLOCK | Errno::INTR | Errno::NOBUFS | Errno::NOMEM) if must => {
                self.stage(parts, 0);
                Ok(())
            }
            Err(Errno::WOULDBLOCK | Errno::INTR | Errno::NOBUFS | Errno::NOMEM) => {
                self.pipe.want_room(true);
                Err(PostError::Again)
            }
            Err(_) => {
                // The connection is broken. What came before may still hold a goodbye: the inlet says what it means.
                self.pipe.end();
                Ok(())
            }
        }
    }

    #[cold]
    fn stage(&mut self, parts: &[&[u8]], mut sent: usize) {
        for part in parts {
            let skip = sent.min(part.len());
            self.staged.extend_from_slice(&part[skip..]);
            sent -= skip;
        }
        self.pipe.want_room(true);
    }

    /// Writes a body that is packed first: `pack` initialises its room.
    fn write_packed(
        &mut self,
        front: &[u8],
        len: usize,
        pack: impl FnOnce(&mut [MaybeUninit<u8>]),
    ) -> Result<(), PostError> {
        let mut packed = std::mem::take(&mut self.packed);
        packed.clear();
        packed.reserve(len);
        pack(&mut packed.spare_capacity_mut()[..len]);
        // SAFETY: the `len` bytes are initialised, as `Fill` and `Pieces` promise.
        unsafe { packed.set_len(len) };
        let sent = self.write(&[front, &packed], true);
        self.packed = packed;
        sent
    }

    /// Writes out what is staged; returns whether any is left.
    fn write_out(&mut self) -> bool {
        while self.written < self.staged.len() {
            let Some(stream) = self.pipe.stream().filter(|_| !self.pipe.is_over()) else { break };
            match socket::send(stream, &self.staged[self.written..]) {
                Ok(sent) => self.written += sent,
                Err(Errno::INTR) => (),
                Err(Errno::WOULDBLOCK | Errno::NOBUFS | Errno::NOMEM) => {
                    self.pipe.want_room(true);
                    return true;
                }
                Err(_) => self.pipe.end(),
            }
        }
        self.staged.clear();
        self.written = 0;
        false
    }

    #[cold]
    fn is_staging(&mut self, frame: usize) -> Result<bool, PostError> {
        let full = self.staged.len() - self.written >= STAGE || frame > SMALL;
        if full && self.write_out() {
            return Err(PostError::Again);
        }
        Ok(!self.staged.is_empty())
    }
}

/// Sends as much of `parts` as the socket takes, in one call.
#[inline]
fn send(stream: &OwnedFd, parts: &[&[u8]]) -> Result<usize, Errno> {
    match parts {
        [one] => socket::send(stream, one),
        [one, two] => {
            let slices = [IoSlice::new(one), IoSlice::new(two)];
            socket::send_parts(stream, &slices)
        }
        _ => {
            let mut slices = [IoSlice::new(&[]); PARTS];
            for (slice, part) in slices.iter_mut().zip(parts) {
                *slice = IoSlice::new(part);
            }
            socket::send_parts(stream, &slices[..parts.len().min(PARTS)])
        }
    }
}

/// The front of a frame and the pieces of its body, and how many parts these are, if they are not too many for one call.
fn parts<'a>(front: &'a [u8], pieces: Pieces<'a>) -> Option<([&'a [u8]; PARTS], usize)> {
    let mut parts = [&[][..]; PARTS];
    let mut used = 0;
    for part in std::iter::once(front).chain(pieces) {
        *parts.get_mut(used)? = part;
        used += 1;
    }
    Some((parts, used))
}

impl Link for TcpLink {
    #[inline]
    fn post(&mut self, head: &[u8], body: Body<'_>) -> Result<(), PostError> {
        if self.pipe.is_over() || self.pipe.stream().is_none() {
            // It is not sent, or never will be: the inlet tells the end of a peer, and the roster ends what waits for it.
            return Err(PostError::Again);
        }
        let len = body.len();
        let staging = !self.staged.is_empty() && self.is_staging(len)?;
        self.asked = false;
        let mut small = [MaybeUninit::<u8>::uninit(); HEADER + HEAD_MAX + SMALL];
        let front = HEADER + head.len();
        small[..HEADER].write_copy_of_slice(&Header::data(head.len(), len).to_bytes());
        small[HEADER..front].write_copy_of_slice(head);
        let place = &mut small[front..];
        let (end, body) = match body {
            Body::Empty => (front, Body::Empty),
            Body::Bytes(bytes) if len <= SMALL => {
                place[..len].write_copy_of_slice(bytes);
                (front + len, Body::Empty)
            }
            Body::Chain(pieces) if len <= SMALL => {
                pieces.write(&mut place[..len]);
                (front + len, Body::Empty)
            }
            Body::Fill(fill) if len <= SMALL => {
                fill.write(&mut place[..len]);
                (front + len, Body::Empty)
            }
            long => (front, long),
        };
        // SAFETY: header and head were written above, and a body up to `end`: copied, or filled as `Fill` promises.
        let front = unsafe { small[..end].assume_init_ref() };
        match body {
            Body::Empty if staging => self.stage(&[front], 0),
            Body::Empty => self.write(&[front], true)?,
            Body::Bytes(bytes) => self.write(&[front, bytes], false)?,
            Body::Chain(pieces) => match parts(front, pieces.clone()) {
                Some((parts, used)) => self.write(&parts[..used], false)?,
                None => self.write_packed(front, len, |room| pieces.write(room))?,
            },
            Body::Fill(fill) => self.write_packed(front, len, |room| fill.write(room))?,
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<bool, PostError> {
        Ok(self.write_out())
    }

    fn is_staged(&self) -> bool {
        !self.staged.is_empty()
    }

    fn forget(&mut self) {
        if self.pipe.stream().is_none() {
            self.pipe.end();
        }
    }

    fn is_settled(&mut self) -> bool {
        if self.write_out() {
            return false;
        }
        if self.pipe.is_over() || self.pipe.stream().is_none_or(|stream| socket::unacknowledged(stream) == 0)
        {
            return true;
        }
        if !self.asked {
            self.asked = true;
            // Otherwise the peer's kernel may hold its acknowledgement back for 40 ms. The request may get lost, but not in
            // the middle: what was written of it is completed.
            let _ = self.write(&[&Header::bare(Kind::Settle).to_bytes()], true);
        }
        false
    }
}

impl Drop for TcpLink {
    fn drop(&mut self) {
        if self.write_out() {
            self.pipe.tear();
        }
    }
}
