//! The reasons why an operation can fail. Each value contains the ranks, sizes and types that its error text names.

use std::fmt;
use std::sync::Arc;

use mpj_datatypes::{Datatype, Primitive};

/// The types and the number of the items of a message, for error texts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content {
    /// This number of items of one primitive.
    Uniform(Primitive, usize),
    /// A mix of primitives, with this total length in bytes.
    Mixed(usize),
}

impl Content {
    /// Describes `bytes` packed bytes of items of a type.
    pub fn of(datatype: &Datatype, bytes: usize) -> Self {
        match datatype.single_primitive() {
            Some(primitive) => Content::Uniform(primitive, bytes / primitive.size()),
            None => Content::Mixed(bytes),
        }
    }
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Content::Uniform(primitive, count) => write!(f, "{count} × {}", primitive.name()),
            Content::Mixed(bytes) => write!(f, "a mixed type of {bytes} bytes"),
        }
    }
}

/// The reason why an operation failed.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Fault {
    /// The message is longer than the buffer; nothing was written.
    Truncated {
        /// The sender's rank in the communicator.
        source: u32,
        /// The tag of the message.
        tag: i32,
        /// The [immediate data](crate::MessageTag) of the message.
        immediate: u32,
        /// The length of the message in bytes.
        sent: usize,
        /// The length of the buffer in bytes.
        room: usize,
    },
    /// The primitives of the message differ from those of the buffer; nothing was written.
    TypeMismatch {
        /// The sender's rank in the communicator.
        source: u32,
        /// The tag of the message.
        tag: i32,
        /// The [immediate data](crate::MessageTag) of the message.
        immediate: u32,
        /// The type of the message.
        sent: Content,
        /// The type of the receive.
        expected: Content,
    },
    /// The message contains invalid `bool` or `char` values; each was replaced by `false` or `'\0'`.
    InvalidValue {
        /// The sender's rank in the communicator.
        source: u32,
        /// The tag of the message.
        tag: i32,
        /// The [immediate data](crate::MessageTag) of the message.
        immediate: u32,
    },
    /// A rank of the communicator has died, or this rank has failed all its operations, for example after a timeout.
    Dead {
        /// The rank in the world that died or failed.
        rank: u32,
        /// How it died or failed.
        cause: Arc<str>,
    },
    /// The peer is exiting or has exited normally, and takes no part in this operation.
    Left {
        /// Its rank in the world; `None` if all ranks that can send in the communicator are exiting or have exited.
        rank: Option<u32>,
    },
    /// The sender cancelled the message after the match, because the sender's call failed, or by
    /// [`Engine::cancel`](crate::Engine::cancel).
    SendCancelled {
        /// Its rank in the world.
        rank: u32,
    },
    /// The receiver has freed the communicator, or is exiting, and has not received the message.
    Refused {
        /// Its rank in the world.
        rank: u32,
    },
    /// The peer takes no further part in this operation, and a rank that is not a member of the communicator has died.
    /// The peer may have exited because of that death.
    Abandoned {
        /// The peer's rank in the world; `None` if all ranks that can send in the communicator are exiting or gone.
        rank: Option<u32>,
        /// The rank in the world that died first.
        dead: u32,
        /// How it died.
        cause: Arc<str>,
    },
    /// The operation was cancelled, or this rank closed before the operation was matched.
    Cancelled,
    /// The communicator was freed, or the engine was dropped.
    Freed,
    /// No device reaches the peer, its connection broke, or there is no such rank.
    Unreachable {
        /// The peer's rank in the world; the given rank in the communicator if there is no such rank.
        rank: u32,
        /// The reason that the device or the engine gave.
        why: Arc<str>,
    },
    /// No memory for an unexpected message, for the packed copy of a message to send, or for a receive of unknown
    /// length.
    NoMemory {
        /// The size of the allocation that failed, in bytes.
        bytes: usize,
    },
    /// Too many messages wait for a reply from one rank, or for the connection to it.
    TooManyMessages {
        /// That rank in the world.
        rank: u32,
        /// The limit.
        limit: u64,
    },
    /// Too few identifiers of channels are left; a communicator needs two to four.
    TooManyChannels,
    /// The channel was joined before, and has not been freed.
    AlreadyJoined {
        /// Its context.
        context: u64,
    },
    /// The channel belongs to another engine.
    ForeignChannel,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Truncated { source, tag, sent, room, .. } => write!(
                f,
                "message truncated: rank {source} sent {sent} bytes with tag {tag}, the receive buffer holds {room}"
            ),
            Fault::TypeMismatch { source, tag, sent, expected, .. } => {
                write!(
                    f,
                    "type mismatch: rank {source} sent {sent} with tag {tag}, the receive expects {expected}"
                )
            }
            Fault::InvalidValue { source, tag, .. } => {
                write!(f, "rank {source} sent an invalid bool or char with tag {tag}")
            }
            Fault::Dead { rank, cause } => write!(f, "rank {rank} has failed: {cause}"),
            Fault::Left { rank: Some(rank) } => {
                write!(f, "rank {rank} has left the job and takes no further part")
            }
            Fault::Left { rank: None } => {
                write!(f, "all ranks that can send in the communicator have left the job")
            }
            Fault::Refused { rank } => {
                write!(f, "rank {rank} has left the communicator and has not received the message")
            }
            Fault::SendCancelled { rank } => {
                write!(f, "rank {rank} cancelled its send after the match: the call failed there")
            }
            Fault::Abandoned { rank, dead, cause } => {
                match rank {
                    Some(rank) => write!(f, "rank {rank} takes no further part in it")?,
                    None => f.write_str("all ranks that can send in the communicator have left the job")?,
                }
                write!(f, ", and rank {dead} has failed: {cause}")
            }
            Fault::Cancelled => write!(f, "the operation was cancelled"),
            Fault::Freed => write!(f, "the communicator was freed"),
            Fault::Unreachable { rank, why } => write!(f, "rank {rank} cannot be reached: {why}"),
            Fault::NoMemory { bytes } => {
                write!(f, "no memory to buffer {bytes} bytes: free memory, or post the receive earlier")
            }
            Fault::TooManyMessages { rank, limit } => {
                write!(
                    f,
                    "the limit of {limit} unreceived messages to rank {rank} is reached: wait for some of them first"
                )
            }
            Fault::TooManyChannels => {
                write!(f, "too many communicators at once: at most 32,640 are possible; free some")
            }
            Fault::AlreadyJoined { context } => {
                write!(f, "context {context:#x} is already in use on this rank: free it first")
            }
            Fault::ForeignChannel => {
                f.write_str("the channel belongs to another engine: use the engine that has joined it")
            }
        }
    }
}

impl std::error::Error for Fault {}
