//! What can go wrong with one operation: values that say which rank, what was asked and what there was.

use std::fmt;
use std::sync::Arc;

use mpj_datatypes::{Datatype, Primitive};

/// What a message is made of, for error texts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content {
    /// So many of one primitive.
    Of(Primitive, usize),
    /// A mix of primitives, so many bytes in all.
    Mixed(usize),
}

impl Content {
    /// Returns what so many packed bytes of items of a type are.
    pub fn of(datatype: &Datatype, bytes: usize) -> Self {
        match datatype.single_primitive() {
            Some(primitive) => Content::Of(primitive, bytes / primitive.size()),
            None => Content::Mixed(bytes),
        }
    }
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Content::Of(primitive, count) => write!(f, "{count} × {}", primitive.name()),
            Content::Mixed(bytes) => write!(f, "a mixed type of {bytes} bytes"),
        }
    }
}

/// Why one operation failed; the others go on.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Fault {
    /// The message is longer than the buffer; nothing was written.
    Truncated {
        /// Who sent it, in the communicator.
        source: u32,
        /// Its tag.
        tag: i32,
        /// Its length in bytes.
        sent: usize,
        /// The length of the buffer in bytes.
        room: usize,
    },
    /// The message is made of other primitives than the buffer; nothing was written.
    TypeMismatch {
        /// Who sent it, in the communicator.
        source: u32,
        /// Its tag.
        tag: i32,
        /// What was sent.
        sent: Content,
        /// What the receive expected.
        expected: Content,
    },
    /// The message holds a `bool` or `char` that is none; it was replaced by `false` or `'\0'`.
    InvalidValue {
        /// Who sent it, in the communicator.
        source: u32,
        /// Its tag.
        tag: i32,
    },
    /// A rank of the communicator has died.
    Dead {
        /// Its rank in the world.
        rank: u32,
        /// How it died.
        cause: Arc<str>,
    },
    /// The peer has left the job in good order and will not take part in this operation.
    Left {
        /// Its rank in the world; `None` if all peers have left.
        rank: Option<u32>,
    },
    /// The sender took its message back after it had matched, and before its body had come: its call has failed.
    SendCancelled {
        /// Its rank in the world.
        rank: u32,
    },
    /// The receiver has left the communicator, or is leaving the job, and has not received the message.
    Refused {
        /// Its rank in the world.
        rank: u32,
    },
    /// The peer takes no further part in this operation, and a rank that is no member of the communicator has died: the peer
    /// may have left because of that.
    Abandoned {
        /// The peer's rank in the world; `None` if all peers have left.
        rank: Option<u32>,
        /// The rank in the world that died first.
        dead: u32,
        /// How it died.
        cause: Arc<str>,
    },
    /// The operation was cancelled before it matched.
    Cancelled,
    /// The communicator was freed.
    Freed,
    /// No device reaches the peer, or its connection broke.
    Unreachable {
        /// Its rank in the world.
        rank: u32,
        /// What the device said.
        why: Arc<str>,
    },
    /// No memory for a message that came before its receive.
    NoMemory {
        /// The bytes that were asked for.
        bytes: usize,
    },
    /// As many messages as may be wait for their receives at one rank.
    TooManyMessages {
        /// Its rank in the world.
        rank: u32,
        /// How many.
        limit: u64,
    },
    /// There are as many communicators as can be told apart.
    TooManyChannels,
    /// The channel has been joined before, and not been left.
    AlreadyJoined {
        /// Its context.
        context: u64,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Truncated { source, tag, sent, room } => write!(
                f,
                "message truncated: rank {source} sent {sent} bytes with tag {tag}, the receive buffer holds {room}"
            ),
            Fault::TypeMismatch { source, tag, sent, expected } => {
                write!(
                    f,
                    "type mismatch: rank {source} sent {sent} with tag {tag}, the receive expects {expected}"
                )
            }
            Fault::InvalidValue { source, tag } => {
                write!(f, "rank {source} sent a bool or char with tag {tag} that is none")
            }
            Fault::Dead { rank, cause } => write!(f, "rank {rank} has died: {cause}"),
            Fault::Left { rank: Some(rank) } => {
                write!(f, "rank {rank} has left the job and takes no further part")
            }
            Fault::Left { rank: None } => write!(f, "all other ranks have left the job"),
            Fault::Refused { rank } => {
                write!(f, "rank {rank} has left the communicator and has not received the message")
            }
            Fault::SendCancelled { rank } => {
                write!(f, "rank {rank} took its message back: the call it was sent by has failed there")
            }
            Fault::Abandoned { rank, dead, cause } => {
                match rank {
                    Some(rank) => write!(f, "rank {rank} takes no further part in it")?,
                    None => f.write_str("all other ranks have left the job")?,
                }
                write!(f, ", and rank {dead} has died: {cause}")
            }
            Fault::Cancelled => write!(f, "the operation was cancelled"),
            Fault::Freed => write!(f, "the communicator was freed"),
            Fault::Unreachable { rank, why } => write!(f, "rank {rank} cannot be reached: {why}"),
            Fault::NoMemory { bytes } => {
                write!(f, "no memory for an early message of {bytes} bytes: post its receive before")
            }
            Fault::TooManyMessages { rank, limit } => {
                write!(
                    f,
                    "{limit} messages to rank {rank} wait for their receives, and no more may: wait for some first"
                )
            }
            Fault::TooManyChannels => {
                write!(f, "too many communicators at once: 32,768 is the limit; free some")
            }
            Fault::AlreadyJoined { context } => {
                write!(f, "channel {context:#x} has been joined already: leave it first")
            }
        }
    }
}

impl std::error::Error for Fault {}
