//! The destination and the source of a message, and the tags that a receive accepts.

use mpj_devices::{ANY_SOURCE as ANY_SOURCE_NUMBER, ANY_TAG as ANY_TAG_NUMBER};

pub(crate) const PROC_NULL_NUMBER: i32 = -3;

/// The source of a receive: see [`IntoSource`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Source {
    /// The rank with this number in the communicator.
    Rank(usize),
    /// Any rank.
    Any,
    /// [`PROC_NULL`]: the receive completes at once with an empty message.
    Null,
}

/// The destination of a message: see [`IntoDest`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Dest {
    /// The rank with this number in the communicator.
    Rank(usize),
    /// [`PROC_NULL`]: the send completes at once.
    Null,
}

/// The tags that a receive accepts; an `i32` converts into it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Tag {
    /// This tag.
    Value(i32),
    /// Any tag.
    Any,
}

/// Any source (MPI_ANY_SOURCE).
pub const ANY_SOURCE: Source = Source::Any;
/// Any tag (MPI_ANY_TAG).
pub const ANY_TAG: Tag = Tag::Any;
/// The largest tag (MPI_TAG_UB).
pub const TAG_UB: i32 = i32::MAX;
/// No rank, as source and as destination (MPI_PROC_NULL).
///
/// `None` is `PROC_NULL`, so an `Option` of a rank can stand for a neighbour that might be missing:
/// ```
/// # mpj::threads(3, |world| {
/// let left = world.rank().checked_sub(1); // rank 0 has none
/// let right = (world.rank() + 1 < world.size()).then(|| world.rank() + 1); // nor has the last
/// let mut from_left = [usize::MAX];
/// world.sendrecv(&[world.rank()], right, 0, &mut from_left, left, 0)?;
/// assert_eq!(from_left[0], left.unwrap_or(usize::MAX)); // rank 0 receives nothing
/// # Ok::<(), mpj::Error>(()) }).unwrap();
/// ```
pub const PROC_NULL: ProcNull = ProcNull;

/// The type of [`PROC_NULL`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ProcNull;

/// Types that name the destination of a message: a rank, an `Option` of one, [`PROC_NULL`], a
/// [`Status`](crate::Status), or a [`Dest`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a rank to send to",
    label = "expected a `usize`, an `Option<usize>`, `PROC_NULL` or a `Status`",
    note = "ranks are `usize`, as `rank()` and `size()` return them: convert another integer by `r as usize`"
)]
pub trait IntoDest {
    /// Returns the destination.
    fn into_dest(self) -> Dest;
}

/// Types that name the source of a message: a rank, an `Option` of one, [`ANY_SOURCE`], [`PROC_NULL`], a
/// [`Status`](crate::Status), or a [`Source`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a rank to receive from",
    label = "expected a `usize`, an `Option<usize>`, `ANY_SOURCE`, `PROC_NULL` or a `Status`",
    note = "ranks are `usize`, as `rank()` and `size()` return them: convert another integer by `r as usize`"
)]
pub trait IntoSource {
    /// Returns the source.
    fn into_source(self) -> Source;
}

macro_rules! addresses {
    ($($address:ty),*) => {$(
        impl IntoDest for $address {
            fn into_dest(self) -> Dest {
                self.into()
            }
        }

        impl IntoSource for $address {
            fn into_source(self) -> Source {
                self.into()
            }
        }
    )*};
}

addresses!(usize, Option<usize>, ProcNull, crate::Status);

impl IntoDest for Dest {
    fn into_dest(self) -> Dest {
        self
    }
}

impl IntoSource for Source {
    fn into_source(self) -> Source {
        self
    }
}

impl From<usize> for Source {
    fn from(rank: usize) -> Self {
        Source::Rank(rank)
    }
}

impl From<Option<usize>> for Source {
    fn from(rank: Option<usize>) -> Self {
        rank.map_or(Source::Null, Source::Rank)
    }
}

impl From<ProcNull> for Source {
    fn from(_: ProcNull) -> Self {
        Source::Null
    }
}

impl From<usize> for Dest {
    fn from(rank: usize) -> Self {
        Dest::Rank(rank)
    }
}

impl From<Option<usize>> for Dest {
    fn from(rank: Option<usize>) -> Self {
        rank.map_or(Dest::Null, Dest::Rank)
    }
}

impl From<ProcNull> for Dest {
    fn from(_: ProcNull) -> Self {
        Dest::Null
    }
}

impl From<i32> for Tag {
    fn from(tag: i32) -> Self {
        Tag::Value(tag)
    }
}

/// Returns a rank as an MPI rank. A value that is too large becomes `i32::MAX`, which is not a valid rank.
pub(crate) fn number(rank: usize) -> i32 {
    i32::try_from(rank).unwrap_or(i32::MAX)
}

impl Source {
    pub(crate) fn number(self) -> i32 {
        match self {
            Source::Rank(rank) => number(rank),
            Source::Any => ANY_SOURCE_NUMBER,
            Source::Null => PROC_NULL_NUMBER,
        }
    }
}

impl Dest {
    pub(crate) fn number(self) -> i32 {
        match self {
            Dest::Rank(rank) => number(rank),
            Dest::Null => PROC_NULL_NUMBER,
        }
    }
}

impl Tag {
    pub(crate) fn number(self) -> i32 {
        match self {
            Tag::Value(tag) => tag,
            Tag::Any => ANY_TAG_NUMBER,
        }
    }
}
