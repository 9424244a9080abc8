//! The status of a receive.

use mpj_datatypes::{Datatype, Primitive};
use mpj_devices::Envelope;

use crate::address::{Dest, PROC_NULL_NUMBER, Source};

/// The sender, tag and length of a received message.
///
/// As a destination it is the sender, so that a reply goes to the rank that sent the request:
/// ```
/// # mpj::threads(3, |world| {
/// if world.rank() > 0 {
///     world.send(&[world.rank()], 0, 5)?;
///     let mut double = [0usize];
///     world.recv(&mut double, 0, 5)?;
///     assert_eq!(double[0], 2 * world.rank());
/// } else {
///     for _ in 1..world.size() {
///         let mut number = [0usize];
///         let question = world.recv(&mut number, mpj::ANY_SOURCE, mpj::ANY_TAG)?;
///         world.send(&[2 * number[0]], question, question.tag())?;
///     }
/// }
/// # Ok::<(), mpj::Error>(()) }).unwrap();
/// ```
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

    /// Returns the status of a receive from `PROC_NULL`, or of an operation without a message.
    pub(crate) fn empty() -> Self {
        Status { source: PROC_NULL_NUMBER, tag: mpj_devices::ANY_TAG, bytes: 0, code: 0 }
    }

    /// Returns the sender: a rank of the communicator, or `None` for [`PROC_NULL`](crate::PROC_NULL).
    pub fn source(&self) -> Option<usize> {
        usize::try_from(self.source).ok()
    }

    /// Returns the sender's rank.
    ///
    /// # Panics
    /// If the message came from [`PROC_NULL`](crate::PROC_NULL).
    pub fn source_rank(&self) -> usize {
        self.source().expect("the message came from nobody")
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

impl From<Status> for Dest {
    fn from(status: Status) -> Self {
        status.source().into()
    }
}

impl From<Status> for Source {
    fn from(status: Status) -> Self {
        status.source().into()
    }
}
