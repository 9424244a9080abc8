//! Parts of slices as buffers, and several slices as one message.

mod slices;
mod split;

use mpj_datatypes::{Datatype, Equivalent, Primitive, Receivable};

pub use slices::Slices;
pub use split::{SplitViews, SplitViewsError, Unwritten, ViewId, ViewSpec};

use crate::raw::Buf;
use crate::types::{RecvBuf, SendBuf};

/// Items of a derived type inside a slice, to send.
///
/// ```
/// # mpj::threads(2, |world| {
/// use mpj::{Datatype, View};
/// let column = Datatype::of::<f64>().vector(3, 1, 4)?; // every fourth element, three times
/// let matrix: Vec<f64> = (0..12).map(f64::from).collect();
/// if world.rank() == 0 {
///     world.send(&View::new(&matrix, 1, &column, 1)?, 1, 7)?;
/// } else {
///     let mut got = [0.0; 3];
///     world.recv(&mut got, 0, 7)?;
///     assert_eq!(got, [1.0, 5.0, 9.0]);
/// }
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(()) }).unwrap();
/// ```
///
/// A column of structures:
/// ```
/// # mpj::threads(2, |world| {
/// use mpj::{Datatype, View, ViewMut};
/// #[repr(C)]
/// #[derive(Clone, Copy, Datatype, PartialEq, Debug)]
/// struct Cell {
///     full: bool,
///     heat: f64,
/// }
/// let column = Datatype::of::<Cell>().vector(2, 1, 3)?; // of 2 rows of 3 cells each
/// let cell = |at| Cell { full: at % 2 == 0, heat: at as f64 };
/// if world.rank() == 0 {
///     let cells: [Cell; 6] = std::array::from_fn(cell);
///     world.send(&View::new(&cells, 2, &column, 1)?, 1, 7)?;
/// } else {
///     let mut cells = [cell(0); 6];
///     world.recv(&mut ViewMut::new(&mut cells, 0, &column, 1)?, 0, 7)?;
///     assert_eq!(cells, [2, 0, 0, 5, 0, 0].map(cell));
/// }
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(()) }).unwrap();
/// ```
///
/// # Invariants
/// 1. The items lie in a slice that is borrowed for `'a`, and consist of its elements, without padding. They are not
///    written while the view exists.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    base: *const u8,
    count: usize,
    datatype: &'a Datatype,
}

/// Items of a derived type inside a slice, to receive into. [`SplitViews`] creates several views of one slice.
///
/// # Invariants
/// 1. As for [`View`], and no other code reads or writes the items while the view exists. No `char` of the items
///    straddles two elements.
#[derive(Debug)]
pub struct ViewMut<'a> {
    base: *mut u8,
    count: usize,
    datatype: &'a Datatype,
}

/// The error of a view whose items are outside the slice, or do not consist of its elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ViewError {
    /// The range of bytes of the items, relative to the slice; meaningful only if `mismatch` is false.
    pub bounds: (i64, i64),
    /// The length of the slice in bytes.
    pub len: usize,
    /// Whether the items do not consist of the slice's elements; otherwise they are outside the slice.
    pub mismatch: bool,
    /// The primitive of the datatype; `None` if it consists of different primitives, or of none.
    pub datatype: Option<Primitive>,
    /// The type of the slice's elements.
    pub element: &'static str,
}

impl ViewError {
    fn new<T>(bounds: (i64, i64), len: usize, mismatch: bool, datatype: Option<Primitive>) -> Self {
        ViewError { bounds, len, mismatch, datatype, element: std::any::type_name::<T>() }
    }
}

impl std::fmt::Display for ViewError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.mismatch {
            let datatype = self.datatype.map_or("mixed primitives", Primitive::name);
            return write!(
                f,
                "the datatype (of {datatype}) does not consist of whole elements of the slice (of {})",
                self.element
            );
        }
        let (low, high) = self.bounds;
        write!(f, "the items have bytes {low}..{high}, the slice has {} bytes", self.len)
    }
}

impl std::error::Error for ViewError {}

/// Checks that `count` items from element `offset` on lie in a slice of `len` elements and consist of them.
fn check<T: Equivalent>(
    len: usize,
    offset: usize,
    datatype: &Datatype,
    count: usize,
) -> Result<(), ViewError> {
    let bytes = len.saturating_mul(size_of::<T>());
    let error = |bounds, mismatch| ViewError::new::<T>(bounds, bytes, mismatch, datatype.single_primitive());
    let bounds = datatype.byte_bounds(count).map_err(|_| error((i64::MIN, i64::MAX), false))?;
    let shift = offset.checked_mul(size_of::<T>()).and_then(|s| i64::try_from(s).ok());
    let reach = shift.and_then(|s| Some((bounds.0.checked_add(s)?, bounds.1.checked_add(s)?)));
    let (low, high) = reach.ok_or(error(bounds, false))?;
    // A view of a slice of primitives must consist of these primitives; a view of a slice of structures or arrays must
    // consist of whole elements, which `is_made_of` checks.
    let made_of_elements = match T::PRIMITIVE {
        Some(primitive) => datatype.single_primitive() == Some(primitive),
        None => datatype.is_made_of(&T::datatype()),
    };
    if datatype.size() > 0 && !made_of_elements {
        return Err(error((low, high), true));
    }
    let inside = offset <= len && low >= 0 && u64::try_from(high).is_ok_and(|h| h <= bytes as u64);
    if bounds != (0, 0) && !inside {
        return Err(error((low, high), false));
    }
    Ok(())
}

/// As [`check`], for items that may be written.
fn check_mut<T: Receivable>(
    len: usize,
    offset: usize,
    datatype: &Datatype,
    count: usize,
) -> Result<(), ViewError> {
    check::<T>(len, offset, datatype, count)?;
    // A char that straddles two elements would make both invalid. Whole structures and arrays cannot straddle.
    let straddles = |primitive: Primitive| {
        if !primitive.needs_validation() || datatype.is_made_of(&primitive.into()) {
            return false;
        }
        // More runs than elements contain an element twice, which is an error, too. So `len` runs are enough to check.
        let size = primitive.size() as i64;
        let mut runs = datatype.runs(count);
        runs.by_ref().take(len).any(|run| run.offset % size != 0) || runs.next().is_some()
    };
    if T::PRIMITIVE.is_some_and(straddles) {
        let bytes = len.saturating_mul(size_of::<T>());
        return Err(ViewError::new::<T>((0, 0), bytes, true, datatype.single_primitive()));
    }
    Ok(())
}

/// Returns the address of element `offset`, which for an empty view can be outside the slice.
fn origin<T>(base: *mut T, offset: usize) -> *mut u8 {
    base.cast::<u8>().wrapping_add(offset.wrapping_mul(size_of::<T>()))
}

impl<'a> View<'a> {
    /// Returns a view of `count` items of `datatype` that start at element `offset` of `slice`.
    ///
    /// # Errors
    /// The items are outside the slice, or do not consist of its elements. Items of a slice of structures or arrays
    /// must consist of whole elements ([`Datatype::is_made_of`]). To send parts of an element, use
    /// [`raw`](crate::raw), whose caller guarantees that they have no padding.
    pub fn new<T: Equivalent>(
        slice: &'a [T],
        offset: usize,
        datatype: &'a Datatype,
        count: usize,
    ) -> Result<Self, ViewError> {
        check::<T>(slice.len(), offset, datatype, count)?;
        Ok(View { base: origin(slice.as_ptr().cast_mut(), offset), count, datatype })
    }
}

impl<'a> ViewMut<'a> {
    /// Returns a view of `count` items of `datatype` that start at element `offset` of `slice`.
    ///
    /// # Errors
    /// As [`View::new`]; or a `char` of the items straddles two elements. The receive rejects items that overlap.
    pub fn new<T: Receivable>(
        slice: &'a mut [T],
        offset: usize,
        datatype: &'a Datatype,
        count: usize,
    ) -> Result<Self, ViewError> {
        check_mut::<T>(slice.len(), offset, datatype, count)?;
        Ok(ViewMut { base: origin(slice.as_mut_ptr(), offset), count, datatype })
    }
}

// SAFETY: invariant 1 of `View`.
unsafe impl SendBuf for View<'_> {
    fn send_buf(&self) -> Buf {
        Buf::read_only(self.base, self.count, self.datatype)
    }
}

// SAFETY: invariant 1 of `ViewMut`.
unsafe impl SendBuf for ViewMut<'_> {
    fn send_buf(&self) -> Buf {
        Buf::new(self.base, self.count, self.datatype)
    }
}

// SAFETY: invariant 1 of `ViewMut`; its constructors take only slices of `Receivable` elements.
unsafe impl RecvBuf for ViewMut<'_> {
    fn recv_buf(&mut self) -> Buf {
        Buf::new(self.base, self.count, self.datatype)
    }
}

// SAFETY: a view is a shared borrow of plain elements.
unsafe impl Send for View<'_> {}
// SAFETY: a mutable view is an exclusive borrow of plain elements.
unsafe impl Send for ViewMut<'_> {}
