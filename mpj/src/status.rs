//! The status of a receive.

use mpj_datatypes::{Datatype, Primitive};
use mpj_devices::Envelope;

use crate::address::{Dest, PROC_NULL_NUMBER, Source};

/// The sender, tag and length of a received message.
///
/// Used as a destination, it names the sender, so a reply can be sent to it:
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
///         let request = world.recv(&mut number, mpj::ANY_SOURCE, mpj::ANY_TAG)?;
///         world.send(&[2 * number[0]], request, request.tag())?;
///     }
/// }
/// # Ok::<(), mpj::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status {
    source: i32,
    tag: i32,
    bytes: usize,
    primitive_code: u8,
}

impl Status {
    pub(crate) fn of(message: &Envelope) -> Self {
        let source = i32::try_from(message.source).unwrap_or(i32::MAX);
        Status { source, tag: message.tag, bytes: message.bytes, primitive_code: message.code }
    }

    /// Returns the status of a receive from `PROC_NULL`, or of an operation without a message.
    pub(crate) fn empty() -> Self {
        Status { source: PROC_NULL_NUMBER, tag: mpj_devices::ANY_TAG, bytes: 0, primitive_code: 0 }
    }

    /// Returns the sender's rank; `None` after a receive from [`PROC_NULL`](crate::PROC_NULL), a send or a collective.
    pub fn source(&self) -> Option<usize> {
        usize::try_from(self.source).ok()
    }

    /// Returns the sender's rank in the communicator.
    ///
    /// # Panics
    /// If [`source`](Self::source) returns `None`.
    pub fn source_rank(&self) -> usize {
        self.source().expect("the source of the message is PROC_NULL")
    }

    /// Returns the tag.
    pub fn tag(&self) -> i32 {
        self.tag
    }

    /// Returns the length of the message in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the primitive of which the message consists; `None` if it is empty or has several.
    pub fn primitive(&self) -> Option<Primitive> {
        Primitive::from_code(self.primitive_code)
    }

    /// Returns the number of items of `datatype`; `None` if the message ends inside an item (MPI_Get_count).
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
