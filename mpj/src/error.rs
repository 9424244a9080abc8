//! Errors: a class of the MPI standard, the call, and what was wrong in words.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

use mpj_datatypes::{InvalidValueError, OutOfRangeError, OverlapError, TooLongError, TypeError};
use mpj_devices::{BufError, Fault, OpenError};
use mpj_pool::AllocError;

use crate::view::{SplitViewsError, ViewError};

/// The error classes of MPI; the numbers are those of the MPI 5.0 ABI.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(i32)]
#[non_exhaustive]
pub enum ErrorClass {
    /// A buffer that cannot be used.
    Buffer = 1,
    /// A count that is too large or does not fit the other arguments.
    Count = 2,
    /// A datatype that does not match.
    Type = 3,
    /// A tag outside 0 to 2,147,483,647.
    Tag = 4,
    /// A communicator that was freed, or that there is already.
    Comm = 5,
    /// A rank outside the communicator.
    Rank = 6,
    /// A request that was cancelled.
    Request = 7,
    /// A root outside the communicator.
    Root = 8,
    /// An operation that is not defined for the type.
    Op = 10,
    /// Any other argument.
    Arg = 13,
    /// A message longer than its receive buffer.
    Truncate = 15,
    /// Anything else.
    Other = 16,
    /// A broken invariant of this library: please report it.
    Intern = 17,
    /// Memory, or the space for one more message, is exhausted.
    NoMem = 39,
    /// A rank that has died, or has left the job or the communicator.
    ProcAborted = 58,
}

/// Why a call failed.
///
/// ```
/// # mpj::threads(1, |world| {
/// let error = world.send(&[1.0f64], 5, 0).unwrap_err();
/// assert_eq!(error.class(), mpj::ErrorClass::Rank);
/// assert_eq!(error.to_string(), "send: rank 5 is outside the communicator of 1 rank");
/// # Ok::<(), mpj::Error>(()) }).unwrap();
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Error {
    inner: Box<Inner>,
}

#[derive(Clone, PartialEq, Eq)]
struct Inner {
    class: ErrorClass,
    call: &'static str,
    why: Reason,
}

#[derive(Clone, PartialEq, Eq)]
enum Reason {
    Fault(Fault),
    Text(Arc<str>),
    /// In the words of this rank of the world, which has failed first.
    Told(Arc<str>, u32),
}

thread_local! {
    /// The last error of this thread that another rank's end or failure has led to: its text, and that rank.
    static FOLLOWED: RefCell<Option<(String, u32)>> = const { RefCell::new(None) };
}

/// Returns the rank that a failure of this thread follows from, as its text repeats the error that named that rank.
#[cold]
pub(crate) fn followed(failure: &str) -> Option<u32> {
    let last = FOLLOWED.try_with(RefCell::take).ok().flatten();
    last.filter(|(text, _)| failure.contains(text.as_str())).map(|(_, rank)| rank)
}

impl Error {
    pub(crate) fn new(class: ErrorClass, call: &'static str, why: impl Into<Arc<str>>) -> Self {
        Error { inner: Box::new(Inner { class, call, why: Reason::Text(why.into()) }) }
    }

    /// Returns the error of a call that fails because rank `first` of the world has failed, with that rank's message.
    #[cold]
    pub(crate) fn from_remote(
        class: ErrorClass,
        call: &'static str,
        why: impl Into<Arc<str>>,
        first: u32,
    ) -> Self {
        Error { inner: Box::new(Inner { class, call, why: Reason::Told(why.into(), first) }) }.noted()
    }

    #[cold]
    pub(crate) fn from_fault(call: &'static str, fault: Fault) -> Self {
        let class = match &fault {
            Fault::Truncated { .. } => ErrorClass::Truncate,
            Fault::TypeMismatch { .. } | Fault::InvalidValue { .. } => ErrorClass::Type,
            Fault::Dead { .. }
            | Fault::Left { .. }
            | Fault::Abandoned { .. }
            | Fault::Refused { .. }
            | Fault::Unreachable { .. } => ErrorClass::ProcAborted,
            Fault::Cancelled => ErrorClass::Request,
            Fault::Freed | Fault::AlreadyJoined { .. } => ErrorClass::Comm,
            Fault::NoMemory { .. } | Fault::TooManyMessages { .. } => ErrorClass::NoMem,
            // `SendCancelled`, `TooManyChannels`, and variants that are added later.
            _ => ErrorClass::Other,
        };
        Error { inner: Box::new(Inner { class, call, why: Reason::Fault(fault) }) }.noted()
    }

    /// Returns the error with the name of the public call that made the failing one.
    #[cold]
    pub(crate) fn with_call(mut self, call: &'static str) -> Self {
        self.inner.call = call;
        self.noted()
    }

    /// Keeps in mind which rank it follows from, if it follows from one.
    #[cold]
    fn noted(self) -> Self {
        if let Some(rank) = self.origin_rank().or_else(|| self.failed_rank()) {
            // A thread that is ending runs no rank.
            let _ = FOLLOWED.try_with(|last| last.replace(Some((self.to_string(), rank))));
        }
        self
    }

    /// A buffer that cannot be used.
    #[cold]
    pub(crate) fn buf(call: &'static str, error: BufError) -> Self {
        let class = match error {
            BufError::TooLarge { .. } | BufError::PartialItem { .. } => ErrorClass::Count,
            _ => ErrorClass::Buffer,
        };
        Error::new(class, call, error.to_string())
    }

    /// Returns the MPI class.
    pub fn class(&self) -> ErrorClass {
        self.inner.class
    }

    /// Returns what was wrong, without the call that failed.
    pub(crate) fn why(&self) -> impl fmt::Display {
        &self.inner.why
    }

    /// Returns the call that failed.
    pub fn call(&self) -> &'static str {
        self.inner.call
    }

    /// Returns what went wrong with the operation, if it got as far as the engine.
    pub fn as_fault(&self) -> Option<&Fault> {
        match &self.inner.why {
            Reason::Fault(fault) => Some(fault),
            Reason::Text(_) | Reason::Told(..) => None,
        }
    }

    /// Returns the world rank that failed first: the rank that reported its own failure, even if it goes on, or the
    /// peer that died.
    pub(crate) fn origin_rank(&self) -> Option<u32> {
        match &self.inner.why {
            Reason::Told(_, first) => Some(*first),
            Reason::Fault(Fault::Abandoned { dead, .. }) => Some(*dead),
            Reason::Fault(_) | Reason::Text(_) => None,
        }
    }

    /// Returns the rank of the world that made the operation fail, if one rank did: it has died, has left the job,
    /// cannot be reached, or has freed the communicator before it received the message ([`Fault::Refused`]). If the
    /// peer takes no further part and another rank has died, this is the rank that has died ([`Fault::Abandoned`]).
    pub fn failed_rank(&self) -> Option<u32> {
        match self.as_fault()? {
            Fault::Dead { rank, .. } | Fault::Unreachable { rank, .. } | Fault::Refused { rank } => {
                Some(*rank)
            }
            Fault::Left { rank } => *rank,
            Fault::Abandoned { dead, .. } => Some(*dead),
            _ => None,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Fault(fault) => fault.fmt(f),
            Reason::Text(text) | Reason::Told(text, _) => f.write_str(text),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.inner.call, self.inner.why)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} ({self})", self.inner.class)
    }
}

impl std::error::Error for Error {}

/// Converts errors of the other crates of the stack, for functions that return a [`Result`].
macro_rules! refused {
    ($($why:ty => $class:ident, $call:literal;)*) => {$(
        impl From<$why> for Error {
            fn from(why: $why) -> Self {
                Error::new(ErrorClass::$class, $call, why.to_string())
            }
        }
    )*};
}

refused! {
    TypeError => Type, "datatype";
    OverlapError => Type, "datatype";
    ViewError => Buffer, "view";
    SplitViewsError => Buffer, "pieces";
    OutOfRangeError => Buffer, "pack";
    TooLongError => Truncate, "unpack";
    InvalidValueError => Type, "unpack";
    AllocError => NoMem, "alloc";
}

impl From<OpenError> for Error {
    fn from(error: OpenError) -> Self {
        Error::new(ErrorClass::Other, "start", error.to_string())
    }
}

/// Any error that a rank may return: `?` converts an [`Error`] and those of other crates into it.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The result of most calls. `?` converts the errors of datatypes, views and packed messages into an [`Error`]:
/// ```
/// use mpj::{Datatype, View, World};
///
/// fn send_column(world: &World, matrix: &[f64], columns: usize) -> mpj::Result<()> {
///     let column = Datatype::of::<f64>().vector(matrix.len() / columns, 1, columns as isize)?;
///     world.send(&View::new(matrix, 0, &column, 1)?, world.rank(), 0)
/// }
/// # mpj::threads(1, |world| {
/// send_column(&world, &[0.0; 12], 4)?;
/// let error = mpj::Error::from(View::new(&[0u8; 4], 0, &Datatype::of::<u8>(), 5).unwrap_err());
/// assert_eq!(error.to_string(), "view: the items touch bytes 0..5 of a slice of 4 bytes");
/// # Ok::<(), mpj::Error>(()) }).unwrap();
/// ```
pub type Result<T, E = Error> = std::result::Result<T, E>;
