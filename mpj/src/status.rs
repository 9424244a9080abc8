//! The status of a receive.

use mpj_datatypes::{Datatype, Equivalent, Primitive};
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
///         let status = world.recv(&mut number, mpj::ANY_SOURCE, mpj::ANY_TAG)?;
///         world.send(&[2 * number[0]], status, status.tag())?;
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
    is_cancelled: bool,
}

impl Status {
    pub(crate) fn of(message: &Envelope) -> Self {
        let source = i32::try_from(message.source).unwrap_or(i32::MAX);
        let (tag, bytes, primitive_code) = (message.tag, message.bytes, message.code);
        Status { source, tag, bytes, primitive_code, is_cancelled: false }
    }

    /// Creates a status, for example for a [generalized request](crate::raw::generalized) (MPI_Status_set_source and
    /// similar functions).
    pub fn new(source: Option<usize>, tag: i32, bytes: usize) -> Self {
        Status {
            source: source.map_or(PROC_NULL_NUMBER, crate::address::number),
            tag,
            bytes,
            primitive_code: 0,
            is_cancelled: false,
        }
    }

    /// Returns the status of a receive from `PROC_NULL`, or of an operation without a message.
    pub(crate) fn empty() -> Self {
        Status::new(None, mpj_devices::ANY_TAG, 0)
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
        self.source().expect("the operation received no message: the status has no source")
    }

    /// Returns the tag.
    pub fn tag(&self) -> i32 {
        self.tag
    }

    /// Returns the length of the message in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns whether the operation was cancelled (MPI_Test_cancelled). A cancelled receive returns an
    /// [error](crate::Error::is_cancelled) and no status.
    pub fn is_cancelled(&self) -> bool {
        self.is_cancelled
    }

    /// Sets whether the operation was cancelled, for a [generalized request](crate::raw::generalized)
    /// (MPI_Status_set_cancelled).
    pub fn set_cancelled(&mut self, is_cancelled: bool) {
        self.is_cancelled = is_cancelled;
    }

    /// Returns the primitive of which the message consists; `None` if it has several, or for an operation without a
    /// message. An empty message has the primitive of its sender's buffer.
    pub fn primitive(&self) -> Option<Primitive> {
        Primitive::from_code(self.primitive_code)
    }

    /// Returns the number of `T`s in the message; `None` if the message ends inside a `T` or consists of another
    /// primitive (MPI_Get_count).
    ///
    /// ```
    /// # mpj::threads(1, |world| {
    /// world.send(&[1.5f64, 2.5], 0, 0)?;
    /// let status = world.probe(0, 0)?;
    /// assert_eq!((status.count::<f64>(), status.count::<[f64; 2]>()), (Some(2), Some(1)));
    /// assert_eq!((status.count::<[f64; 3]>(), status.count::<u64>()), (None, None));
    /// # world.recv(&mut [0.0; 2], 0, 0)?;
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    pub fn count<T: Equivalent>(&self) -> Option<usize> {
        self.count_of(&T::datatype())
    }

    /// As [`count`](Self::count), for items of a datatype.
    pub fn count_of(&self, datatype: &Datatype) -> Option<usize> {
        self.matches(datatype).then(|| datatype.item_count_in(self.bytes)).flatten()
    }

    /// Returns the number of primitives in a message of `T`s; `None` if the message ends inside a primitive or consists
    /// of another one (MPI_Get_elements). The message may end inside a `T`.
    pub fn elements<T: Equivalent>(&self) -> Option<u64> {
        self.elements_of(&T::datatype())
    }

    /// As [`elements`](Self::elements), for items of a datatype.
    pub fn elements_of(&self, datatype: &Datatype) -> Option<u64> {
        let items = self.bytes.checked_div(datatype.size()).unwrap_or(0).saturating_add(1);
        self.matches(datatype).then(|| datatype.element_count_in(items, self.bytes)).flatten()
    }

    /// Returns whether items of the datatype can be those of the message. The status knows the type of a message only
    /// if it consists of one primitive.
    fn matches(&self, datatype: &Datatype) -> bool {
        match (self.primitive(), datatype.single_primitive()) {
            (Some(sent), Some(wanted)) if self.bytes > 0 => {
                sent == wanted || [sent, wanted].contains(&Primitive::Packed)
            }
            _ => true,
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
