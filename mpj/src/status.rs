//! What a receive got.

use mpj_datatypes::{Datatype, Primitive};
use mpj_devices::Envelope;

use crate::endpoint::{PROC_NULL_NUMBER, Source};

/// The sender, tag and length of a received message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status {
    source: i32,
    tag: i32,
    bytes: usize,
    code: u8,
}

impl Status {
    pub(crate) fn of(message: &Envelope) -> Self {
        let source = i32::try_from(message.source).unwrap_or(i32::MAX);
        Status { source, tag: message.tag, bytes: message.bytes, code: message.code }
    }

    /// What a receive from nobody, or an operation without a message, gives.
    pub(crate) fn empty() -> Self {
        Status { source: PROC_NULL_NUMBER, tag: mpj_devices::ANY_TAG, bytes: 0, code: 0 }
    }

    /// Returns who sent it: a rank of the communicator, or nobody.
    pub fn source(&self) -> Source {
        usize::try_from(self.source).map_or(Source::Null, Source::Rank)
    }

    /// Returns the sender's rank.
    ///
    /// # Panics
    /// If the message came from nobody ([`PROC_NULL`](crate::PROC_NULL)).
    pub fn rank(&self) -> usize {
        match self.source() {
            Source::Rank(rank) => rank,
            Source::Any | Source::Null => panic!("the message came from nobody"),
        }
    }

    /// Returns the tag.
    pub fn tag(&self) -> i32 {
        self.tag
    }

    /// Returns the length in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the primitive the message is made of; `None` if it is empty or mixed.
    pub fn primitive(&self) -> Option<Primitive> {
        Primitive::from_code(self.code)
    }

    /// Returns how many whole items of `datatype` came; `None` if the message ends inside one (MPI 4.1 §3.2.5).
    pub fn count(&self, datatype: &Datatype) -> Option<usize> {
        match datatype.size() {
            0 => (self.bytes == 0).then_some(0),
            size => self.bytes.is_multiple_of(size).then(|| self.bytes / size),
        }
    }
}
