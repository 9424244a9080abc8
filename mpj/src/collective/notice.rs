//! Notices: small messages about a collective call, in addition to its own messages. They are sent only after a failure
//! or a stall.
//!
//! ```text
//!   tag         bit 31: 1   30 ... 0: sequence number
//!   immediate   Failed: 0x100   Completed: 0x200   Query: the digest of the sender's call (its lowest byte is not 0)
//!   body        Failed: class, origin rank, rank that has left or u32::MAX (u32 each, little-endian), text
//! ```

use std::sync::Arc;

use mpj_datatypes::Primitive;
use mpj_devices::{
    Buf, Coalesce, DataPath, Fault, KeepAlive, MatchedMessage, MessageTag, Mode, Receive, Source, Target,
};

use super::call_id::{CallDigest, decode_seq, seq_tag};
use super::context::CollContext;
use crate::error::{Error, ErrorClass};

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Notice {
    /// The call failed on the sender, which takes no further part in it.
    Failed(Cause),
    /// The sender has waited long for a message from the receiver of this notice. The digest is that of the sender's
    /// call.
    Query(CallDigest),
    /// The sender has ended this call, and sends no more messages for it.
    Completed,
}

/// Why a collective failed, as it is sent to other ranks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Cause {
    class: ErrorClass,
    /// The world rank that failed first.
    origin_rank: u32,
    /// The world rank that has left the job, if that is the cause.
    left_rank: Option<u32>,
    /// The rank and the call that failed, and the error.
    text: Arc<str>,
}

/// The maximum length of a body. The text is cut to fit.
const MAX_NOTICE_BYTES: usize = 600;

const HEADER_BYTES: usize = 12;

/// The immediate data of notices. The lowest byte, which is the operation code of a call, is 0.
const FAILED: u32 = 0x100;
const COMPLETED: u32 = 0x200;

impl Cause {
    /// `failed_rank` is the text for a rank of the communicator, such as `rank 1`; `rank` is its world rank.
    pub(crate) fn from_error(failed_rank: &str, rank: u32, error: &Error) -> Self {
        let left_rank = match error.as_fault() {
            Some(Fault::Left { rank }) => *rank,
            _ => None,
        };
        let origin_rank = error.origin_rank().unwrap_or(rank);
        Cause {
            class: error.class(),
            origin_rank,
            left_rank,
            text: format!("{failed_rank} failed in {error}").into(),
        }
    }

    pub(crate) fn to_error(&self, call: &'static str) -> Error {
        match self.left_rank {
            Some(rank) => Error::from_fault(call, Fault::Left { rank: Some(rank) }),
            None => Error::from_remote(self.class, call, Arc::clone(&self.text), self.origin_rank),
        }
    }

    /// Returns the error of each later collective on the communicator.
    pub(crate) fn to_disabled_error(&self, call: &'static str) -> Error {
        if self.left_rank.is_some() {
            return self.to_error(call);
        }
        let why = format!(
            "collectives on this communicator are disabled since {}; point-to-point still works; use a communicator \
             that was duplicated earlier",
            self.text
        );
        Error::from_remote(self.class, call, why, self.origin_rank)
    }

    fn encode(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(HEADER_BYTES + self.text.len());
        body.extend(self.class.number().to_le_bytes());
        body.extend(self.origin_rank.to_le_bytes());
        body.extend(self.left_rank.unwrap_or(u32::MAX).to_le_bytes());
        body.extend(self.text.as_bytes().iter().take(MAX_NOTICE_BYTES - HEADER_BYTES));
        body
    }

    /// Returns the encoded cause as words. The first word is the length of the encoding in bytes; the last word is
    /// padded.
    pub(crate) fn to_words(&self) -> Vec<u64> {
        let body = self.encode();
        let words = body.chunks(size_of::<u64>()).map(|chunk| {
            let mut bytes = [0; size_of::<u64>()];
            bytes[..chunk.len()].copy_from_slice(chunk);
            u64::from_le_bytes(bytes)
        });
        std::iter::once(body.len() as u64).chain(words).collect()
    }

    /// Decodes the words that [`to_words`](Self::to_words) returns. As in [`decode`](Self::decode), defaults replace
    /// missing and invalid parts.
    pub(crate) fn from_words(rank: u32, world_rank: u32, words: &[u64]) -> Self {
        let (len, body) = words.split_first().unwrap_or((&0, &[]));
        let mut bytes: Vec<u8> = body.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.truncate(usize::try_from(*len).unwrap_or(0));
        Cause::decode(rank, world_rank, &bytes)
    }

    /// Decodes a body from communicator rank `rank`, which is world rank `world_rank`. Replaces what is missing or
    /// invalid by defaults.
    fn decode(rank: u32, world_rank: u32, body: &[u8]) -> Self {
        let word = |at| body.get(at..at + 4).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes);
        let class = word(0).and_then(|number| ErrorClass::from_number(number.cast_signed()));
        let origin_rank = word(4).unwrap_or(world_rank);
        let left_rank = word(8).filter(|rank| *rank != u32::MAX);
        let text = match body.get(HEADER_BYTES..) {
            Some(text) => String::from_utf8_lossy(text).into(),
            None => format!("rank {rank} failed in a collective").into(),
        };
        Cause { class: class.unwrap_or(ErrorClass::Other), origin_rank, left_rank, text }
    }
}

impl Notice {
    fn immediate(&self) -> u32 {
        match self {
            Notice::Failed(_) => FAILED,
            Notice::Query(digest) => digest.bits(),
            Notice::Completed => COMPLETED,
        }
    }

    /// Sends the notice about a call to ranks of the communicator without waiting, and ignores errors.
    pub(crate) fn send(&self, context: &CollContext, seq: u32, to: impl Iterator<Item = u32>) {
        let body = Arc::new(match self {
            Notice::Failed(cause) => cause.encode(),
            Notice::Query(_) | Notice::Completed => Vec::new(),
        });
        let tag = MessageTag { tag: seq_tag(seq) | i32::MIN, immediate: self.immediate() };
        for rank in to {
            let keep: KeepAlive = Arc::clone(&body) as KeepAlive;
            // SAFETY: the operation keeps the bytes alive, and no code writes them.
            let source = unsafe {
                Source::new(Buf::read_only(body.as_ptr(), body.len(), Primitive::Byte), Some(keep))
            };
            if let Ok(source) = source {
                // `read` does not wait for a body: do not use zero copy, so that the body comes with the header. With a
                // low eager limit or without credit it comes later, and the receiver discards it.
                let source = source.with_path(Some(DataPath::Auto));
                let _ =
                    context.engine().send(context.channel(), rank, tag, source, Mode::Standard, Coalesce::No);
            }
        }
    }

    pub(crate) fn is_tag(tag: i32) -> bool {
        tag < 0
    }

    /// Receives a notice. Returns its sender, its sequence number, which is decoded relative to `current`, and the
    /// notice; `None` if the notice is invalid.
    pub(crate) fn read(
        context: &CollContext,
        current: u32,
        message: MatchedMessage,
    ) -> Option<(u32, u32, Notice)> {
        let envelope = *message.envelope();
        let mut body = [0u8; MAX_NOTICE_BYTES];
        // A body that did not come with the header is discarded.
        let capacity = if message.has_body() { MAX_NOTICE_BYTES } else { 0 };
        // SAFETY: the body outlives the receive, which completes at once: present bytes are copied, and for an absent
        // body the target is empty.
        let target =
            unsafe { Target::new(Buf::new(body.as_mut_ptr(), capacity, Primitive::Byte), None) }.ok()?;
        let received = message.recv(Receive::new(target));
        let len = if matches!(received.outcome(), Some(Ok(_))) { envelope.bytes.min(capacity) } else { 0 };
        let (rank, body) = (envelope.source, &body[..len]);
        let world_rank = context.channel().group().peer(rank)?.0;
        let notice = match envelope.immediate {
            FAILED => Notice::Failed(Cause::decode(rank, world_rank, body)),
            COMPLETED => Notice::Completed,
            digest if digest as u8 != 0 => Notice::Query(CallDigest::from_bits(digest)),
            _ => return None,
        };
        Some((rank, decode_seq(current, envelope.tag), notice))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_of_a_cause_has_the_text_of_the_failed_rank() {
        let error = Error::new(ErrorClass::Truncate, "gather", "rank 2 sent 8 bytes, expected 4");
        let cause = Cause::from_error("rank 1", 4, &error);
        let decoded = Cause::decode(1, 4, &cause.encode());
        assert_eq!(decoded, cause);
        assert_eq!(Cause::from_words(1, 4, &cause.to_words()), cause);
        let error = decoded.to_error("scan");
        assert_eq!(error.origin_rank(), Some(4));
        assert_eq!(
            Cause::from_error("rank 2", 7, &error).to_error("scan").origin_rank(),
            Some(4),
            "the failure began on world rank 4"
        );
        let text = "barrier: rank 1 failed in gather: rank 2 sent 8 bytes, expected 4";
        assert_eq!(
            (decoded.to_error("barrier").class(), decoded.to_error("barrier").to_string().as_str()),
            (ErrorClass::Truncate, text)
        );
        let left = Error::from_fault("bcast", Fault::Left { rank: Some(7) });
        let decoded = Cause::decode(0, 0, &Cause::from_error("rank 0", 0, &left).encode());
        assert_eq!(
            (decoded.to_error("scan").failed_rank(), decoded.to_disabled_error("scan").failed_rank()),
            (Some(7), Some(7))
        );
    }

    #[test]
    fn invalid_causes_are_decoded() {
        let long = Cause::from_error("rank 0", 0, &Error::new(ErrorClass::Other, "gather", "é".repeat(5000)));
        assert_eq!(long.encode().len(), MAX_NOTICE_BYTES);
        assert!(Cause::decode(3, 5, &long.encode()).to_error("gather").to_string().contains("éé"));
        for body in [
            &[][..],
            &[1],
            &[0xff; 7],
            &[0xff; HEADER_BYTES],
            &[0xff; MAX_NOTICE_BYTES],
            &[0; MAX_NOTICE_BYTES],
        ] {
            let error = Cause::decode(3, 5, body).to_error("gather");
            assert!(error.class() == ErrorClass::Other || body.first() == Some(&0), "{error}");
            assert_eq!(error.call(), "gather");
            assert!(
                body.len() >= 8 || error.origin_rank() == Some(5),
                "the world rank of the sender: {error}"
            );
        }
    }
}
