//! Notices: messages about the state of a collective, in addition to its own messages. Without failures and stalls,
//! none are sent.
//!
//! A notice is a small message on the channel of the collectives. Its negative tag carries the kind and the sequence
//! number of the call. No caller waits for its send: the operation owns the bytes.

use std::sync::Arc;

use mpj_datatypes::Primitive;
use mpj_devices::{
    Buf, Coalesce, DataPath, Engine, Fault, KeepAlive, MatchedMessage, Mode, Receive, Source, Target,
};

use super::context::CollContext;
use super::label::{self, CallDigest};
use crate::error::{Error, ErrorClass};

/// A message about a collective call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Notice {
    /// The call failed on the sender after it had started; the sender takes no further part.
    Failed(Cause),
    /// The sender rejected the call before it sent anything for it.
    Rejected(Cause),
    /// The sender has waited long for messages of the receiver in this call.
    Query(CallDigest),
    /// The sender has completed this call, and sent all messages of the call before this notice.
    Completed,
}

/// The cause of a failed collective, as it is sent to other ranks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Cause {
    class: ErrorClass,
    /// The world rank that failed first.
    first: u32,
    /// The world rank that has left the job, if that is the cause.
    left: Option<u32>,
    /// The failed call and the error.
    text: Arc<str>,
}

/// The maximum length of a body in bytes.
const LONGEST: usize = 600;

/// The length of the class and the two ranks in front of the text.
const HEAD: usize = 12;

/// All error classes.
const CLASSES: [ErrorClass; 15] = [
    ErrorClass::Buffer,
    ErrorClass::Count,
    ErrorClass::Type,
    ErrorClass::Tag,
    ErrorClass::Comm,
    ErrorClass::Rank,
    ErrorClass::Request,
    ErrorClass::Root,
    ErrorClass::Op,
    ErrorClass::Arg,
    ErrorClass::Truncate,
    ErrorClass::Other,
    ErrorClass::Intern,
    ErrorClass::NoMem,
    ErrorClass::ProcAborted,
];

impl Cause {
    /// Returns the cause for the error of `who`, which is rank `rank` of the world.
    pub(crate) fn of(who: &str, rank: u32, error: &Error) -> Self {
        let left = match error.as_fault() {
            Some(Fault::Left { rank }) => *rank,
            _ => None,
        };
        let first = error.origin_rank().unwrap_or(rank);
        Cause { class: error.class(), first, left, text: format!("{who} failed in {error}").into() }
    }

    /// Returns the error of a call that fails because of this cause.
    pub(crate) fn error(&self, call: &'static str) -> Error {
        match self.left {
            Some(rank) => Error::from_fault(call, Fault::Left { rank: Some(rank) }),
            None => Error::from_remote(self.class, call, Arc::clone(&self.text), self.first),
        }
    }

    /// Returns the error of every later call on the communicator.
    pub(crate) fn to_disabled_error(&self, call: &'static str) -> Error {
        if self.left.is_some() {
            return self.error(call);
        }
        let why = format!(
            "the ranks of this communicator are out of step since {}; messages from rank to rank go on, and a dup of a \
             communicator that is in step helps",
            self.text
        );
        Error::from_remote(self.class, call, why, self.first)
    }

    fn encode(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(HEAD + self.text.len());
        body.extend((self.class as i32).to_le_bytes());
        body.extend(self.first.to_le_bytes());
        body.extend(self.left.unwrap_or(u32::MAX).to_le_bytes());
        body.extend(self.text.as_bytes().iter().take(LONGEST - HEAD));
        body
    }

    /// Decodes a body from `rank`; the body may be empty or invalid.
    fn decode(rank: u32, body: &[u8]) -> Self {
        let word = |at| body.get(at..at + 4).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes);
        let class = CLASSES.into_iter().find(|class| word(0) == Some((*class as i32).cast_unsigned()));
        let first = word(4).unwrap_or(rank);
        let left = word(8).filter(|rank| *rank != u32::MAX);
        let text = match body.get(HEAD..) {
            Some(text) => String::from_utf8_lossy(text).into(),
            None => format!("rank {rank} failed in a collective").into(),
        };
        Cause { class: class.unwrap_or(ErrorClass::Other), first, left, text }
    }
}

impl Notice {
    fn kind(&self) -> u32 {
        match self {
            Notice::Failed(_) => 0,
            Notice::Rejected(_) => 1,
            Notice::Query(_) => 2,
            Notice::Completed => 3,
        }
    }

    /// Sends the notice about call `number` to ranks, without waiting. Ranks that cannot be reached are skipped.
    pub(crate) fn send(&self, context: &CollContext, number: u32, to: impl Iterator<Item = u32>) {
        let body = Arc::new(match self {
            Notice::Failed(cause) | Notice::Rejected(cause) => cause.encode(),
            Notice::Query(label) => label.bits().to_le_bytes().to_vec(),
            Notice::Completed => Vec::new(),
        });
        let tag = (1 << 31 | self.kind() << 19 | label::travelling(number)).cast_signed();
        for rank in to {
            let keep: KeepAlive = Arc::clone(&body) as KeepAlive;
            // SAFETY: the operation keeps the bytes alive, and nobody writes them.
            let source = unsafe {
                Source::new(Buf::read_only(body.as_ptr(), body.len(), Primitive::Byte), Some(keep))
            };
            if let Ok(source) = source {
                // Send the body with the header, whatever path other messages use: a reader of notices does not wait
                // for a body.
                let source = source.with_path(Some(DataPath::Auto));
                let _ =
                    context.engine().send(context.channel(), rank, tag, source, Mode::Standard, Coalesce::No);
            }
        }
    }

    /// Returns whether `tag` is that of a notice.
    pub(crate) fn is_tag(tag: i32) -> bool {
        tag < 0
    }

    /// Decodes a received notice: its sender, the sequence number nearest to `near`, and the notice; `None` if it is
    /// invalid.
    pub(crate) fn read(engine: &Engine, near: u32, message: MatchedMessage) -> Option<(u32, u32, Notice)> {
        let envelope = *message.envelope();
        let mut body = [0u8; LONGEST];
        // If the body did not come with the header, discard the body: the tag suffices.
        let room = if message.has_body() { LONGEST } else { 0 };
        // SAFETY: the body outlives the receive, which completes at once: present bytes are copied, and for an absent
        // body the target is empty.
        let target = unsafe { Target::new(Buf::new(body.as_mut_ptr(), room, Primitive::Byte), None) }.ok()?;
        let received = engine.recv_message(message, Receive::new(target));
        let len = if matches!(received.outcome(), Some(Ok(_))) { envelope.bytes.min(room) } else { 0 };
        let (rank, body) = (envelope.source, &body[..len]);
        let notice = match envelope.tag.cast_unsigned() >> 19 & 0xfff {
            0 => Notice::Failed(Cause::decode(rank, body)),
            1 => Notice::Rejected(Cause::decode(rank, body)),
            2 => Notice::Query(CallDigest::from_bits(u16::from_le_bytes(body.try_into().ok()?))),
            3 => Notice::Completed,
            _ => return None,
        };
        Some((rank, label::number_near(near, envelope.tag), notice))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_told_in_the_words_of_its_rank() {
        let error = Error::new(ErrorClass::Truncate, "gather", "rank 2 sent 8 bytes where 4 are expected");
        let cause = Cause::of("rank 1", 4, &error);
        let told = Cause::decode(1, &cause.encode());
        assert_eq!(told, cause);
        let error = told.error("scan");
        assert_eq!(error.origin_rank(), Some(4));
        assert_eq!(Cause::of("rank 2", 7, &error).error("scan").origin_rank(), Some(4), "it began there");
        let text = "barrier: rank 1 failed in gather: rank 2 sent 8 bytes where 4 are expected";
        assert_eq!(
            (told.error("barrier").class(), told.error("barrier").to_string().as_str()),
            (ErrorClass::Truncate, text)
        );
        let left = Error::from_fault("bcast", Fault::Left { rank: Some(7) });
        let told = Cause::decode(0, &Cause::of("rank 0", 0, &left).encode());
        assert_eq!(
            (told.error("scan").failed_rank(), told.to_disabled_error("scan").failed_rank()),
            (Some(7), Some(7))
        );
    }

    #[test]
    fn anything_may_come_as_a_cause() {
        let long = Cause::of("rank 0", 0, &Error::new(ErrorClass::Other, "gather", "é".repeat(5000)));
        assert_eq!(long.encode().len(), LONGEST);
        assert!(Cause::decode(3, &long.encode()).error("gather").to_string().contains("éé"));
        for body in [&[][..], &[1], &[0xff; 7], &[0xff; HEAD], &[0xff; LONGEST], &[0; LONGEST]] {
            let error = Cause::decode(3, body).error("gather");
            assert!(error.class() == ErrorClass::Other || body.len() >= 8, "{error}");
            assert_eq!(error.call(), "gather");
        }
    }
}
