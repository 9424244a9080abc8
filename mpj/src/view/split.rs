//! Several views of one slice at once. The bytes that they name are checked once, when the views are described.

use std::fmt;
use std::marker::PhantomData;

use mpj_datatypes::{Datatype, Receivable};

use super::{View, ViewError, ViewMut, check, check_mut, origin};

/// Items of a datatype in a slice: at which element the first one starts, of which type, and how many.
#[derive(Clone, Debug)]
pub struct ViewSpec {
    offset: usize,
    datatype: Datatype,
    count: usize,
}

impl ViewSpec {
    /// Describes `count` items of `datatype` from element `offset` on, as [`View::new`] takes them.
    pub fn new(offset: usize, datatype: &Datatype, count: usize) -> Self {
        ViewSpec { offset, datatype: datatype.clone(), count }
    }
}

/// Pieces of one slice that are written and read at the same time. A written piece overlaps no other piece.
///
/// Described once, and used any number of times: a halo exchange in place, split columns as split rows, is one
/// [`split`](Self::split) and a scope.
/// ```
/// use mpj::{Datatype, ViewSpec, SplitViews};
///
/// # mpj::threads(2, |world| {
/// // 3 rows of 4 columns each, of which the first and the last one are the neighbours'.
/// let column = Datatype::of::<f64>().vector(3, 1, 4)?;
/// let ghosts = [ViewSpec::new(0, &column, 1), ViewSpec::new(3, &column, 1)];
/// let edges = [ViewSpec::new(1, &column, 1), ViewSpec::new(2, &column, 1)];
/// let halo = SplitViews::<f64>::new(12, &ghosts, &edges)?;
///
/// let other = 1 - world.rank();
/// let mut grid: Vec<f64> = (0..12).map(|i| (100 * world.rank() + i) as f64).collect();
/// for _ in 0..10 {
///     let (mut ghosts, edges) = halo.split(&mut grid)?;
///     for (ghost, edge) in ghosts.iter_mut().zip(edges.iter().rev()) {
///         world.sendrecv(edge, other, 0, ghost, other, 0)?;
///     }
/// }
/// let from = 100.0 * other as f64;
/// assert_eq!((grid[4], grid[7]), (from + 6.0, from + 5.0));
/// # Ok::<(), mpj::Error>(()) }).unwrap();
/// ```
/// Pieces to read may share bytes with each other: the corners of a grid belong to a row and to a column. While the
/// views live, the slice cannot be accessed in any other way:
/// ```compile_fail,E0503
/// # fn f(halo: &mpj::SplitViews<f64>, mut grid: [f64; 12]) -> Result<(), mpj::ViewError> {
/// let (ghosts, _) = halo.split(&mut grid)?;
/// grid[0] = 1.0;
/// drop(ghosts);
/// # Ok(()) }
/// ```
///
/// # Invariants
/// 1. Every piece lies in a slice of `len` elements `T`, and is made of them.
/// 2. No byte of a piece to write is named twice, by this or any other piece.
#[derive(Clone, Debug)]
pub struct SplitViews<T> {
    len: usize,
    written: Vec<ViewSpec>,
    read: Vec<ViewSpec>,
    elements: PhantomData<fn() -> T>,
}

impl<T: Receivable> SplitViews<T> {
    /// Describes pieces of slices of `len` elements. Takes time for each run of bytes that a piece consists of: for a
    /// column, each of its elements.
    ///
    /// # Errors
    /// The piece that leaves such slices, or is not made of their elements; two pieces with a byte in common of which
    /// one is to be written; a piece that names a byte twice.
    pub fn new(len: usize, written: &[ViewSpec], read: &[ViewSpec]) -> Result<Self, SplitViewsError> {
        let mut taken = Vec::new();
        for (piece, at) in written.iter().zip(0..) {
            let id = ViewId::Write(at);
            check_mut::<T>(len, piece.offset, &piece.datatype, piece.count)
                .map_err(|why| SplitViewsError::OutOfSlice { piece: id, source: why })?;
            taken.extend(extents::<T>(len, piece, id)?);
        }
        let clash = |one: &Extent, other: &Extent| SplitViewsError::Overlap {
            pieces: (one.piece, other.piece),
            element: one.start.max(other.start) / size_of::<T>(),
        };
        taken.sort_unstable_by_key(|extent| extent.start);
        if let Some(pair) = taken.windows(2).find(|pair| pair[1].start < pair[0].end) {
            return Err(clash(&pair[0], &pair[1]));
        }
        for (piece, at) in read.iter().zip(0..) {
            let id = ViewId::Read(at);
            check::<T>(len, piece.offset, &piece.datatype, piece.count)
                .map_err(|why| SplitViewsError::OutOfSlice { piece: id, source: why })?;
            for extent in extents::<T>(len, piece, id)? {
                let behind = taken.partition_point(|other| other.end <= extent.start);
                if let Some(other) = taken.get(behind).filter(|other| other.start < extent.end) {
                    return Err(clash(other, &extent));
                }
            }
        }
        Ok(SplitViews { len, written: written.to_vec(), read: read.to_vec(), elements: PhantomData })
    }

    /// Returns the views of the pieces to write and of those to read, in their orders.
    ///
    /// # Errors
    /// The slice is shorter than `len` elements, for which the pieces were checked.
    pub fn split<'a>(&'a self, slice: &'a mut [T]) -> Result<(Vec<ViewMut<'a>>, Vec<View<'a>>), ViewError> {
        if slice.len() < self.len {
            let bounds = (0, i64::try_from(self.len.saturating_mul(size_of::<T>())).unwrap_or(i64::MAX));
            return Err(ViewError { bounds, len: size_of_val(slice), mismatch: false });
        }
        // All views are made from this one pointer, and no reference to the slice exists at the same time: an access
        // through one view does not invalidate the others. By invariant 1 their items lie in the slice, which is
        // borrowed exclusively for `'a`. By invariant 2 only the view itself accesses the bytes that it may write. This
        // is invariant 1 of `View` and of `ViewMut`.
        let base = slice.as_mut_ptr();
        let written = self.written.iter().map(|ViewSpec { offset, datatype, count }| ViewMut {
            base: origin(base, *offset),
            count: *count,
            datatype,
        });
        let read = self.read.iter().map(|ViewSpec { offset, datatype, count }| View {
            base: origin(base, *offset),
            count: *count,
            datatype,
        });
        Ok((written.collect(), read.collect()))
    }
}

/// Adjacent bytes of a slice that a piece names.
#[derive(Clone, Copy)]
struct Extent {
    start: usize,
    end: usize,
    piece: ViewId,
}

/// Returns the bytes that a piece names, in ascending order, if it names none of them twice.
fn extents<T>(len: usize, piece: &ViewSpec, id: ViewId) -> Result<Vec<Extent>, SplitViewsError> {
    let origin = piece.offset * size_of::<T>();
    let extent = |start: usize, len| Extent { start, end: start + len, piece: id };
    let runs = piece.datatype.runs(piece.count);
    // The bounds were checked. If there are more runs than bytes, one byte is named twice, and this many runs suffice
    // to find it.
    let runs = runs.take(len.saturating_mul(size_of::<T>()).saturating_add(1));
    let mut extents: Vec<Extent> =
        runs.map(|run| extent(origin.wrapping_add_signed(run.offset as isize), run.len)).collect();
    extents.sort_unstable_by_key(|extent| extent.start);
    match extents.windows(2).find(|pair| pair[1].start < pair[0].end) {
        Some(pair) => {
            Err(SplitViewsError::Overlap { pieces: (id, id), element: pair[1].start / size_of::<T>() })
        }
        None => Ok(extents),
    }
}

/// One of several pieces, by its index among those to write or those to read.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ViewId {
    /// A piece to write.
    Write(usize),
    /// A piece to read.
    Read(usize),
}

impl fmt::Display for ViewId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ViewId::Write(at) => write!(f, "piece {at} to write"),
            ViewId::Read(at) => write!(f, "piece {at} to read"),
        }
    }
}

/// Why pieces cannot be used at the same time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SplitViewsError {
    /// A piece leaves the slice, or is not made of its elements.
    OutOfSlice {
        /// Which one.
        piece: ViewId,
        /// The error.
        source: ViewError,
    },
    /// Two pieces of which one is to be written have a byte in common, or one names it twice.
    Overlap {
        /// The two; the same one if it overlaps itself.
        pieces: (ViewId, ViewId),
        /// The first element of the slice where they meet.
        element: usize,
    },
}

impl fmt::Display for SplitViewsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SplitViewsError::OutOfSlice { piece, source: why } => write!(f, "{piece}: {why}"),
            SplitViewsError::Overlap { pieces: (one, other), element } if one == other => {
                write!(f, "{one} names element {element} more than once")
            }
            SplitViewsError::Overlap { pieces: (one, other), element } => {
                write!(f, "{one} and {other} both touch element {element}")
            }
        }
    }
}

impl std::error::Error for SplitViewsError {}
