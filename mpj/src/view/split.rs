//! Several views of one slice.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

use mpj_datatypes::{Datatype, Receivable};

use super::{View, ViewError, ViewMut, check, check_mut, origin};

/// The description of one view: the element at which it starts, the datatype, and the number of items.
#[derive(Clone, Debug)]
pub struct ViewSpec {
    offset: usize,
    datatype: Datatype,
    count: usize,
}

impl ViewSpec {
    /// Describes `count` items of `datatype` that start at element `offset`.
    pub fn new(offset: usize, datatype: &Datatype, count: usize) -> Self {
        ViewSpec { offset, datatype: datatype.clone(), count }
    }
}

/// The written views, the read views, and the elements that no view writes.
type SplitSlice<'a, T> = (Vec<ViewMut<'a>>, Vec<View<'a>>, Unwritten<'a, T>);

/// Views of one slice that are written and read at the same time, as for a halo exchange in place. A written view
/// overlaps no other view. The views are checked once; [`split`](Self::split) can be called any number of times.
/// ```
/// use mpj::{Datatype, ViewSpec, SplitViews};
///
/// # mpj::threads(2, |world| {
/// // 3 rows of 4 columns, of which the first and the last column are copies of the neighbours'.
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
/// Read views may overlap each other: the corners of a grid belong to a row and to a column. While the views exist, the
/// slice cannot be accessed in another way:
/// ```compile_fail,E0506
/// # fn f(halo: &mpj::SplitViews<f64>, mut grid: [f64; 12]) -> Result<(), mpj::ViewError> {
/// let (ghosts, _) = halo.split(&mut grid)?;
/// grid[0] = 1.0;
/// drop(ghosts);
/// # Ok(()) }
/// ```
///
/// # Invariants
/// 1. Every view lies in a slice of `len` elements `T`, and consists of them.
/// 2. A byte of a written view is in no other view, and only once in that view.
/// 3. `written_bytes` has the bytes of all written views, in ascending order.
#[derive(Clone, Debug)]
pub struct SplitViews<T> {
    len: usize,
    written: Vec<ViewSpec>,
    read: Vec<ViewSpec>,
    written_bytes: Vec<Range<usize>>,
    elements: PhantomData<fn() -> T>,
}

impl<T: Receivable> SplitViews<T> {
    /// Describes views of slices of `len` elements. The time grows with the number of runs of bytes in the views; a
    /// column has one run for each element.
    ///
    /// # Errors
    /// A view is not inside the slice, or does not consist of its elements; a written view overlaps another view; a
    /// view contains a byte twice.
    pub fn new(len: usize, written: &[ViewSpec], read: &[ViewSpec]) -> Result<Self, SplitViewsError> {
        let mut taken = Vec::new();
        for (spec, at) in written.iter().zip(0..) {
            let id = ViewId::Write(at);
            check_mut::<T>(len, spec.offset, &spec.datatype, spec.count)
                .map_err(|why| SplitViewsError::OutOfSlice { piece: id, source: why })?;
            taken.extend(extents::<T>(len, spec, id)?);
        }
        let clash = |one: &Extent, other: &Extent| SplitViewsError::Overlap {
            pieces: (one.view, other.view),
            element: one.start.max(other.start) / size_of::<T>(),
        };
        taken.sort_unstable_by_key(|extent| extent.start);
        if let Some(pair) = taken.windows(2).find(|pair| pair[1].start < pair[0].end) {
            return Err(clash(&pair[0], &pair[1]));
        }
        for (spec, at) in read.iter().zip(0..) {
            let id = ViewId::Read(at);
            check::<T>(len, spec.offset, &spec.datatype, spec.count)
                .map_err(|why| SplitViewsError::OutOfSlice { piece: id, source: why })?;
            for extent in extents::<T>(len, spec, id)? {
                let next = taken.partition_point(|other| other.end <= extent.start);
                if let Some(other) = taken.get(next).filter(|other| other.start < extent.end) {
                    return Err(clash(other, &extent));
                }
            }
        }
        let written_bytes = taken.iter().map(|extent| extent.start..extent.end).collect();
        let (written, read) = (written.to_vec(), read.to_vec());
        Ok(SplitViews { len, written, read, written_bytes, elements: PhantomData })
    }

    /// Returns the written views and the read views, in the order of their descriptions.
    ///
    /// # Errors
    /// The slice is shorter than the `len` elements of [`new`](Self::new).
    pub fn split<'a>(&'a self, slice: &'a mut [T]) -> Result<(Vec<ViewMut<'a>>, Vec<View<'a>>), ViewError> {
        self.split_with_rest(slice).map(|(written, read, _)| (written, read))
    }

    /// Returns the views as [`split`](Self::split) does, and access to the elements that no view writes. So a program
    /// can compute with them while messages arrive in the written views.
    /// ```
    /// use mpj::{Datatype, SplitViews, ViewSpec};
    ///
    /// # mpj::threads(2, |world| {
    /// // A ghost element at each end; the neighbours' elements next to it arrive there.
    /// let number = Datatype::of::<f64>();
    /// let halo = SplitViews::<f64>::new(
    ///     8,
    ///     &[ViewSpec::new(0, &number, 1), ViewSpec::new(7, &number, 1)],
    ///     &[ViewSpec::new(1, &number, 1), ViewSpec::new(6, &number, 1)],
    /// )?;
    /// let mut line = [world.rank() as f64; 8];
    /// let (mut ghosts, edges, rest) = halo.split_with_rest(&mut line)?;
    /// let other = 1 - world.rank();
    /// let sum = world.scope(|s| {
    ///     let mut receives = Vec::new();
    ///     for ghost in &mut ghosts {
    ///         receives.push(s.irecv(ghost, other, 0)?);
    ///     }
    ///     for edge in &edges {
    ///         s.isend(edge, other, 0)?;
    ///     }
    ///     let sum: f64 = rest.get(1..7).expect("no ghosts").iter().sum(); // while the messages are under way
    ///     receives.into_iter().try_for_each(|receive| receive.wait().map(drop))?;
    ///     Ok::<f64, mpj::Error>(sum)
    /// })?;
    /// assert_eq!(sum, 6.0 * world.rank() as f64);
    /// assert!(rest.get(0..2).is_none(), "element 0 is a ghost");
    /// assert_eq!((line[0], line[7]), (other as f64, other as f64));
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`split`](Self::split).
    pub fn split_with_rest<'a>(&'a self, slice: &'a mut [T]) -> Result<SplitSlice<'a, T>, ViewError> {
        if slice.len() < self.len {
            let bounds = (0, i64::try_from(self.len.saturating_mul(size_of::<T>())).unwrap_or(i64::MAX));
            return Err(ViewError::new::<T>(bounds, size_of_val(slice), false, T::PRIMITIVE));
        }
        // All views are made from this pointer, and no reference to the slice exists at the same time, so an access
        // through one view does not invalidate the others. Invariant 1 of `View` and of `ViewMut` holds: by invariant 1
        // of `SplitViews` the items lie in the slice, which is borrowed exclusively for `'a`, and by invariant 2 only
        // the view itself accesses the bytes that it may write.
        let (base, len) = (slice.as_mut_ptr(), slice.len());
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
        let rest = Unwritten { base, len, written_bytes: &self.written_bytes, slice: PhantomData };
        Ok((written.collect(), read.collect(), rest))
    }
}

/// The elements of a slice that no view of [`SplitViews`] writes: see [`SplitViews::split_with_rest`].
///
/// # Invariants
/// `base` and `len` are those of a slice that is exclusively borrowed for `'a`, and that is accessed only by this value
/// and by views. The views write only `written_bytes`, which are in ascending order.
#[derive(Clone, Copy)]
pub struct Unwritten<'a, T> {
    base: *const T,
    len: usize,
    written_bytes: &'a [Range<usize>],
    slice: PhantomData<&'a [T]>,
}

// SAFETY: it only gives shared references to elements.
unsafe impl<T: Sync> Send for Unwritten<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Unwritten<'_, T> {}

impl<'a, T> Unwritten<'a, T> {
    /// Returns the elements of a range; `None` if it is not inside the slice, or contains an element that a view writes.
    /// The time grows with the logarithm of the number of runs of bytes in the written views.
    pub fn get(&self, range: Range<usize>) -> Option<&'a [T]> {
        if range.start > range.end || range.end > self.len {
            return None;
        }
        let (start, end) = (range.start * size_of::<T>(), range.end * size_of::<T>());
        let next = self.written_bytes.partition_point(|written| written.end <= start);
        if self.written_bytes.get(next).is_some_and(|written| written.start < end) {
            return None;
        }
        let first = self.base.wrapping_add(range.start);
        // SAFETY: the range is in the slice, whose elements are initialised, and by the invariant no other code writes
        // them for `'a`.
        Some(unsafe { std::slice::from_raw_parts(first, range.len()) })
    }
}

impl<T> fmt::Debug for Unwritten<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unwritten").field("len", &self.len).finish_non_exhaustive()
    }
}

#[derive(Clone, Copy)]
struct Extent {
    start: usize,
    end: usize,
    view: ViewId,
}

/// Returns the ranges of bytes of a view in ascending order, or an error if a byte is repeated.
fn extents<T>(len: usize, spec: &ViewSpec, id: ViewId) -> Result<Vec<Extent>, SplitViewsError> {
    let origin = spec.offset * size_of::<T>();
    let extent = |start: usize, len| Extent { start, end: start + len, view: id };
    let runs = spec.datatype.runs(spec.count);
    // The bounds were checked, so if there are more runs than bytes in the slice, a byte is repeated. One more run than
    // bytes suffices to detect that.
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

/// One view, by its index in the arguments of [`SplitViews::new`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ViewId {
    /// A written view.
    Write(usize),
    /// A read view.
    Read(usize),
}

impl fmt::Display for ViewId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ViewId::Write(at) => write!(f, "write view {at}"),
            ViewId::Read(at) => write!(f, "read view {at}"),
        }
    }
}

/// The error of views that cannot be used at the same time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SplitViewsError {
    /// A view is not inside the slice, or does not consist of its elements.
    OutOfSlice {
        /// The view.
        piece: ViewId,
        /// The error.
        source: ViewError,
    },
    /// A written view overlaps another view, or a view contains a byte twice.
    Overlap {
        /// The two views; twice the same one if it overlaps itself.
        pieces: (ViewId, ViewId),
        /// The first element in which they overlap.
        element: usize,
    },
}

impl fmt::Display for SplitViewsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SplitViewsError::OutOfSlice { piece, source: why } => write!(f, "{piece}: {why}"),
            SplitViewsError::Overlap { pieces: (one, other), element } if one == other => {
                write!(f, "{one} contains element {element} more than once")
            }
            SplitViewsError::Overlap { pieces: (one, other), element } => {
                write!(f, "{one} and {other} overlap at element {element}")
            }
        }
    }
}

impl std::error::Error for SplitViewsError {}
