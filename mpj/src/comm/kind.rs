//! The kinds of communicators, and the root of a collective of each kind.

use crate::address;
use crate::raw;

/// The kind of an [`Intracomm`](crate::Intracomm).
#[derive(Clone, Copy, Debug)]
pub enum Intra {}

/// The kind of an [`Intercomm`](crate::Intercomm).
#[derive(Clone, Copy, Debug)]
pub enum Inter {}

/// The kinds of communicators, [`Intra`] and [`Inter`], for functions with collectives of both.
///
/// ```
/// use mpj::{CommKind, Communicator};
///
/// fn sum<K: CommKind>(comm: &Communicator<K>, mine: f64) -> mpj::Result<f64> {
///     let mut sum = [0.0];
///     comm.allreduce(&[mine], &mut sum, mpj::Op::Sum)?;
///     Ok(sum[0])
/// }
/// # mpj::threads(2, |world| {
/// assert_eq!(sum(&world, 1.5)?, 3.0);
/// # Ok::<(), mpj::Error>(()) }).unwrap();
/// ```
pub trait CommKind {
    /// The root of a collective.
    type Root: CollectiveRoot;
}

impl CommKind for Intra {
    type Root = usize;
}

impl CommKind for Inter {
    type Root = IntercommRoot;
}

/// The root of a collective: a rank of an [`Intracomm`](crate::Intracomm), or an [`IntercommRoot`].
pub trait CollectiveRoot {
    /// Returns the root argument of a function of [`raw`].
    fn number(self) -> i32;
}

impl CollectiveRoot for usize {
    #[inline]
    fn number(self) -> i32 {
        address::number(self)
    }
}

/// The root of a collective of an [`Intercomm`](crate::Intercomm), as one rank sees it. All ranks of the root's group pass
/// [`Null`](Self::Null), except for the root itself.
///
/// ```
/// use mpj::IntercommRoot;
///
/// # mpj::threads(3, |world| {
/// let is_first = world.rank() == 0;
/// let group = world.split(Some(is_first as u32), 0)?.expect("every rank has a color");
/// let inter = group.create_intercomm(0, &world, if is_first { 1 } else { 0 }, 0)?;
/// let root = if is_first { IntercommRoot::This } else { IntercommRoot::Remote(0) };
/// let mut data = if is_first { [3.0, 4.0] } else { [0.0; 2] };
/// inter.bcast(&mut data, root)?;
/// assert_eq!(data, [3.0, 4.0]);
///
/// // Each group gets the sum of the other group.
/// let mut sum = [0usize];
/// inter.allreduce(&[world.rank()], &mut sum, mpj::Op::Sum)?;
/// assert_eq!(sum, if is_first { [1 + 2] } else { [0] });
/// # Ok::<(), mpj::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum IntercommRoot {
    /// This rank is the root (MPI_ROOT).
    This,
    /// Another rank of this rank's group is the root: this rank takes no part (MPI_PROC_NULL).
    Null,
    /// The root is this rank of the remote group.
    Remote(usize),
}

impl CollectiveRoot for IntercommRoot {
    fn number(self) -> i32 {
        match self {
            IntercommRoot::This => raw::ROOT,
            IntercommRoot::Null => raw::PROC_NULL,
            IntercommRoot::Remote(rank) => address::number(rank),
        }
    }
}
