//! Messages of the library between ranks of a communicator, on a channel of its own: neither a user's receive nor a
//! collective matches them.
//!
//! A message is a list of words. It has a [`ControlKind`] and a tag, and a receive names both. Messages of a rank with
//! the same kind and tag are received in the order in which they were sent. Each call that uses them checks first that
//! the communicator was not freed, and then takes part to its end.

use std::mem::size_of;
use std::sync::Arc;

use mpj_devices::{
    Buf, Channel, Coalesce, DataPath, Envelope, KeepAlive, MatchedMessage, MessageTag, Mode, Pattern,
    Receive, Source, Target, WaitReason,
};

use super::Comm;
use crate::error::{Error, ErrorClass, Result};
use crate::raw::{abort_on_unwind, mdiscard};

/// The purpose of a control message. Its discriminant is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum ControlKind {
    /// A member of a group takes part in the creation of its communicator.
    Join = 1,
    /// The reply to all members of that group.
    JoinReply = 2,
    /// The leaders of two groups connect them.
    Connect = 3,
}

/// The number of words that a message may have in addition to one per rank of the world.
const MAX_EXTRA_WORDS: usize = 1024;

impl Comm {
    fn control(&self, call: &'static str) -> Result<Arc<Channel>> {
        self.inner.control.get_or_join(self, call)
    }

    /// Sends words to a rank. The call does not wait for the receiver.
    ///
    /// # Errors
    /// A rank of the communicator has died, `dest` has exited or cannot be reached, or this rank has too many channels.
    pub(crate) fn send_control(
        &self,
        call: &'static str,
        dest: u32,
        (kind, tag): (ControlKind, i32),
        words: &[u64],
    ) -> Result<()> {
        let (engine, channel) = (self.engine(), self.control(call)?);
        let words: Arc<[u64]> = words.into();
        let keep: KeepAlive = Arc::new(Arc::clone(&words));
        // SAFETY: the operation keeps the words alive, and no code writes them.
        let source = unsafe { Source::new(Buf::slice(&words), Some(keep)) };
        // The words are short: `MPJ_DATA_PATH` does not concern them.
        let source = source.map_err(|error| Error::buf(call, error))?.with_path(Some(DataPath::Auto));
        let tag = MessageTag { tag, immediate: kind as u32 };
        match engine.send(&channel, dest, tag, source, Mode::Standard, Coalesce::No) {
            Ok(_) => Ok(()),
            Err(fault) => Err(self.fault(call, fault)),
        }
    }

    /// Waits for a message of this kind and tag from a rank; returns its words.
    ///
    /// # Errors
    /// As [`send_control`](Self::send_control), for the sender; the message is invalid.
    pub(crate) fn recv_control(
        &self,
        call: &'static str,
        source: u32,
        id: (ControlKind, i32),
    ) -> Result<Vec<u64>> {
        let message = self.match_control(call, source, id)?;
        self.receive_words(call, message)
    }

    fn match_control(
        &self,
        call: &'static str,
        source: u32,
        (kind, tag): (ControlKind, i32),
    ) -> Result<MatchedMessage> {
        let channel = self.control(call)?;
        let pattern = Pattern { source: source.cast_signed(), tag };
        let accepts = |message: &Envelope| {
            message.tag == tag && message.immediate == kind as u32 && message.source == source
        };
        let take = || self.engine().take_unexpected(&channel, usize::MAX, accepts).map(Ok);
        let poll = |(): &mut ()| {
            // The last messages may have arrived between the search and the check.
            take().or_else(|| {
                let fault = self.engine().ensure_matchable(&channel, pattern).err()?;
                take().or(Some(Err(fault)))
            })
        };
        let what = |(): &()| WaitReason::recv(call, &channel, source.cast_signed(), tag);
        self.engine().wait_for(&mut (), poll, what).map_err(|fault| self.fault(call, fault))
    }

    fn receive_words(&self, call: &'static str, message: MatchedMessage) -> Result<Vec<u64>> {
        let Envelope { source, tag, bytes, .. } = *message.envelope();
        let len = bytes / size_of::<u64>();
        if len > MAX_EXTRA_WORDS + self.engine().site().size as usize {
            mdiscard(message);
            let why = format!("rank {source} sent a control message of {bytes} bytes");
            return Err(Error::new(ErrorClass::Intern, call, why));
        }
        let mut words = vec![0u64; len];
        let received = abort_on_unwind(|| {
            // SAFETY: the words are exclusively borrowed until the receive has completed.
            let target = unsafe { Target::new(Buf::slice_mut(&mut words), None) };
            let target = target.map_err(|error| Error::buf(call, error))?;
            let completion = message.recv(Receive::new(target));
            let what = || WaitReason::recv(call, self.p2p(), source.cast_signed(), tag);
            self.engine().wait_map(&completion, Clone::clone, what).map_err(|fault| self.fault(call, fault))
        });
        received.map(|_| words)
    }
}
