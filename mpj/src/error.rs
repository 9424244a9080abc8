//! Errors: a class of the MPI standard, the call, and a description.

mod class;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use mpj_datatypes::{InvalidValueError, OutOfRangeError, OverlapError, TooLongError, TypeError};
use mpj_devices::{BufError, Channel, Fault, OpenError, WORLD};
use mpj_pool::AllocError;

pub use self::class::ErrorClass;
use crate::view::{SplitViewsError, ViewError};

/// Why a call failed.
///
/// ```
/// # mpj::threads(1, |world| {
/// let error = world.send(&[1.0f64], 5, 0).unwrap_err();
/// assert_eq!(error.class(), mpj::ErrorClass::Rank);
/// assert_eq!(error.to_string(), "send: rank 5 is out of range: the communicator has only rank 0");
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
    /// The name of the communicator, unless it is the world or unknown.
    communicator: Option<Arc<str>>,
    reason: Reason,
}

#[derive(Clone, PartialEq, Eq)]
enum Reason {
    Fault(Fault),
    Text(Arc<str>),
    /// The error text of this world rank, which failed first.
    Remote(Arc<str>, u32),
}

thread_local! {
    /// The last error of this thread that an exit or failure of another rank caused: its text, and that world rank.
    static LAST_CAUSE: RefCell<Option<(String, u32)>> = const { RefCell::new(None) };
}

/// The last such errors of all threads, without duplicates, oldest first: a rank can return an error of a helper thread.
static RECENT_CAUSES: Mutex<VecDeque<(String, u32)>> = Mutex::new(VecDeque::new());

const MAX_RECENT_CAUSES: usize = 64;

/// Returns the world rank that caused `failure`, the text of the failure of this thread's rank, if that text contains the
/// text of an error that another rank caused. The text can be escaped: `expect` prints the debug form of a string.
///
/// The last error of this thread takes precedence over those of other threads, which can belong to other ranks of this
/// process. Of these, the longest text that matches decides, because the text of an error can contain that of its cause.
/// If two ranks have caused errors with this text, the cause is unknown.
#[cold]
pub(crate) fn cause_of(failure: &str) -> Option<u32> {
    let is_in = |text: &str| failure.contains(text) || failure.contains(&text.escape_debug().to_string());
    let last = LAST_CAUSE.try_with(RefCell::take).ok().flatten();
    if let Some((_, rank)) = last.filter(|(text, _)| is_in(text)) {
        return Some(rank);
    }
    let recent = RECENT_CAUSES.lock().unwrap_or_else(PoisonError::into_inner);
    let matching = || recent.iter().filter(|(text, _)| is_in(text));
    let longest = matching().map(|(text, _)| text.len()).max()?;
    let mut ranks = matching().filter(|(text, _)| text.len() == longest).map(|(_, rank)| *rank);
    let first = ranks.next()?;
    ranks.all(|rank| rank == first).then_some(first)
}

impl Error {
    pub(crate) fn new(class: ErrorClass, call: &'static str, why: impl Into<Arc<str>>) -> Self {
        Self::of(class, call, Reason::Text(why.into()))
    }

    fn of(class: ErrorClass, call: &'static str, reason: Reason) -> Self {
        Error { inner: Box::new(Inner { class, call, communicator: None, reason }) }
    }

    /// Returns the error of a call that fails because world rank `first` has failed; `why` is that rank's error.
    #[cold]
    pub(crate) fn from_remote(
        class: ErrorClass,
        call: &'static str,
        why: impl Into<Arc<str>>,
        first: u32,
    ) -> Self {
        Self::of(class, call, Reason::Remote(why.into(), first)).remember_cause()
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
            Fault::Freed | Fault::AlreadyJoined { .. } | Fault::ForeignChannel => ErrorClass::Comm,
            Fault::NoMemory { .. } | Fault::TooManyMessages { .. } => ErrorClass::NoMem,
            // `SendCancelled`, `TooManyChannels`, and variants that are added later.
            _ => ErrorClass::Other,
        };
        Self::of(class, call, Reason::Fault(fault)).remember_cause()
    }

    /// Replaces the name of the failed call by that of its public caller.
    #[cold]
    pub(crate) fn with_call(mut self, call: &'static str) -> Self {
        self.inner.call = call;
        self.remember_cause()
    }

    /// Adds the name of the communicator of this channel, unless it is the world or the error has a name already.
    #[cold]
    pub(crate) fn on(mut self, channel: &Channel) -> Self {
        if self.inner.communicator.is_none() {
            self.inner.communicator = channel.name().filter(|name| &**name != WORLD);
        }
        self.remember_cause()
    }

    #[cold]
    fn remember_cause(self) -> Self {
        if let Some(rank) = self.origin_rank().or_else(|| self.failed_rank()) {
            let cause = (self.to_string(), rank);
            let mut recent = RECENT_CAUSES.lock().unwrap_or_else(PoisonError::into_inner);
            recent.retain(|known| *known != cause);
            if recent.len() == MAX_RECENT_CAUSES {
                recent.pop_front();
            }
            recent.push_back(cause.clone());
            drop(recent);
            // While a thread exits, its thread-locals cannot be accessed, and no rank reports its errors.
            let _ = LAST_CAUSE.try_with(|last| last.replace(Some(cause)));
        }
        self
    }

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

    pub(crate) fn why(&self) -> impl fmt::Display {
        &self.inner.reason
    }

    /// Returns the name of the call that failed.
    pub fn call(&self) -> &'static str {
        self.inner.call
    }

    /// Returns the name of the communicator of the call; `None` if it is the world, or the error has no communicator.
    pub fn communicator(&self) -> Option<&str> {
        self.inner.communicator.as_deref()
    }

    /// Returns whether the operation was cancelled by this rank (MPI_Test_cancelled).
    pub fn is_cancelled(&self) -> bool {
        matches!(self.as_fault(), Some(Fault::Cancelled))
    }

    /// Returns the fault of the operation; `None` if the error has another reason, such as an invalid argument.
    pub fn as_fault(&self) -> Option<&Fault> {
        match &self.inner.reason {
            Reason::Fault(fault) => Some(fault),
            Reason::Text(_) | Reason::Remote(..) => None,
        }
    }

    /// Returns the world rank that failed first, if the error is a consequence: the rank that reported its own failure,
    /// even if it continues, or the dead rank of [`Fault::Abandoned`].
    pub(crate) fn origin_rank(&self) -> Option<u32> {
        match &self.inner.reason {
            Reason::Remote(_, first) => Some(*first),
            Reason::Fault(Fault::Abandoned { dead, .. }) => Some(*dead),
            Reason::Fault(_) | Reason::Text(_) => None,
        }
    }

    /// Returns the world rank that made the operation fail: it has died, has left the job, cannot be reached, or has
    /// refused the message ([`Fault::Refused`]). If the peer takes no further part because another rank has died, this
    /// is the rank that has died ([`Fault::Abandoned`]). Other errors have no such rank.
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
            Reason::Text(text) | Reason::Remote(text, _) => f.write_str(text),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.inner.call)?;
        if let Some(communicator) = &self.inner.communicator {
            write!(f, " on {communicator:?}")?;
        }
        write!(f, ": {}", self.inner.reason)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} ({self})", self.inner.class)
    }
}

impl std::error::Error for Error {}

macro_rules! from_errors {
    ($($why:ty => $class:ident, $call:literal;)*) => {$(
        impl From<$why> for Error {
            fn from(why: $why) -> Self {
                Error::new(ErrorClass::$class, $call, why.to_string())
            }
        }
    )*};
}

from_errors! {
    TypeError => Type, "datatype";
    OverlapError => Type, "datatype";
    ViewError => Buffer, "view";
    SplitViewsError => Buffer, "split views";
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

/// Any error: `?` converts an [`Error`] and errors of other crates into it.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The result of most calls. `?` converts errors of datatypes, views, packed data, pools and requests into [`Error`]:
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
/// assert_eq!(error.to_string(), "view: the items have bytes 0..5, the slice has 4 bytes");
/// # Ok::<(), mpj::Error>(()) }).unwrap();
/// ```
pub type Result<T, E = Error> = std::result::Result<T, E>;
