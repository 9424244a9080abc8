//! What can be sent and what can be received.

use mpj_datatypes::{Datatype, Equivalent, Receivable};
use mpj_devices::Shape;

/// The pointer, count and type of a buffer to send.
#[derive(Debug)]
pub struct SendParts {
    pub(crate) base: *const u8,
    pub(crate) count: usize,
    pub(crate) shape: Shape,
}

/// The pointer, count and type of a buffer to receive into.
#[derive(Debug)]
pub struct RecvParts {
    pub(crate) base: *mut u8,
    pub(crate) count: usize,
    pub(crate) shape: Shape,
}

/// A buffer that can be sent.
///
/// * slices, arrays and `Vec`s of [`Equivalent`] elements: primitives, arrays of them, and structures with
///   `#[derive(Datatype)]`;
/// * one primitive, or one structure with [`#[derive(mpj::Datatype)]`](derive@crate::Datatype);
/// * parts of a slice: [`View`]s;
/// * a `Box`, `Arc` or reference of any of these.
///
/// A tuple is none: the language does not say where its fields lie, so that it may be laid out otherwise in the program
/// at the other end. Make it a structure with `#[repr(C)]`, or send it by
/// [`send_object`](crate::Intracomm::send_object).
/// ```compile_fail,E0277
/// # fn f(world: &mpj::World) -> mpj::Result<()> {
/// world.send(&(1u8, 2.5f64), 1, 0)
/// # }
/// ```
///
/// # Safety
/// The items that the parts describe are initialised and stay where they are for as long as `self` is neither moved
/// nor changed; for buffers on the heap (`Vec`, `Box`) also when it is moved.
#[expect(unsafe_code, reason = "the engine reads through the pointer")]
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no buffer to send",
    note = "slices, arrays and `Vec`s of primitives and of structures with `#[derive(mpj::Datatype)]` are, and views of them",
    note = "tuples have no fixed layout; any serde value goes by `send_object`"
)]
pub unsafe trait SendBuf {
    /// Returns where the buffer is and what it is made of.
    fn send_parts(&self) -> SendParts;
}

/// A buffer that can be received into: as [`SendBuf`], of elements that are [`Receivable`], and not shared.
///
/// # Safety
/// As [`SendBuf`]; the items may be written, and any bit pattern may be stored there or is checked by the engine
/// before the operation ends ([`Receivable`]).
#[expect(unsafe_code, reason = "the engine writes through the pointer")]
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no buffer to receive into",
    note = "slices, arrays and `Vec`s of primitives and of structures with `#[derive(mpj::Datatype)]` are, and mutable views",
    note = "tuples have no fixed layout; any serde value comes by `recv_object`"
)]
pub unsafe trait RecvBuf: SendBuf {
    /// Returns where the buffer is and what it is made of.
    fn recv_parts(&mut self) -> RecvParts;
}

/// The shape of elements `T`.
pub(crate) fn shape<T: Equivalent>() -> Shape {
    match T::PRIMITIVE {
        Some(primitive) => Shape::Flat(primitive),
        None => Shape::of(&T::datatype()),
    }
}

// SAFETY: `Equivalent` says that every byte of the type map is initialised; a slice does not move while it is borrowed.
unsafe impl<T: Equivalent> SendBuf for [T] {
    #[inline]
    fn send_parts(&self) -> SendParts {
        SendParts { base: self.as_ptr().cast(), count: self.len(), shape: shape::<T>() }
    }
}

// SAFETY: as above, and `Receivable` allows the writes.
unsafe impl<T: Receivable> RecvBuf for [T] {
    #[inline]
    fn recv_parts(&mut self) -> RecvParts {
        RecvParts { base: self.as_mut_ptr().cast(), count: self.len(), shape: shape::<T>() }
    }
}

macro_rules! by_slice {
    ($([$($generics:tt)*] $buffer:ty),* $(,)?) => {$(
        // SAFETY: its slice is a `SendBuf`; the elements move only when the buffer itself is moved (arrays) or never.
        unsafe impl<T: Equivalent, $($generics)*> SendBuf for $buffer {
            #[inline]
            fn send_parts(&self) -> SendParts {
                <[T]>::send_parts(self)
            }
        }

        // SAFETY: its slice is a `RecvBuf`.
        unsafe impl<T: Receivable, $($generics)*> RecvBuf for $buffer {
            #[inline]
            fn recv_parts(&mut self) -> RecvParts {
                <[T]>::recv_parts(self)
            }
        }
    )*};
}

by_slice!([const N: usize] [T; N], [] Vec<T>);

macro_rules! by_pointer {
    ($($pointer:ty),* $(,)?) => {$(
        // SAFETY: what it points at is a `SendBuf`, which moves and changes only by this pointer, or not at all.
        unsafe impl<B: SendBuf + ?Sized> SendBuf for $pointer {
            #[inline]
            fn send_parts(&self) -> SendParts {
                B::send_parts(self)
            }
        }
    )*};
}

by_pointer!(Box<B>, std::sync::Arc<B>, &B, &mut B);

// SAFETY: a `RecvBuf` that nobody else points at.
unsafe impl<B: RecvBuf + ?Sized> RecvBuf for Box<B> {
    #[inline]
    fn recv_parts(&mut self) -> RecvParts {
        B::recv_parts(self)
    }
}

// SAFETY: as above.
unsafe impl<B: RecvBuf + ?Sized> RecvBuf for &mut B {
    #[inline]
    fn recv_parts(&mut self) -> RecvParts {
        B::recv_parts(self)
    }
}

macro_rules! single {
    ($($primitive:ty),* $(,)?) => {$(
        // SAFETY: one initialised element.
        unsafe impl SendBuf for $primitive {
            #[inline]
            fn send_parts(&self) -> SendParts {
                std::slice::from_ref(self).send_parts()
            }
        }

        // SAFETY: one element of a `Receivable` type.
        unsafe impl RecvBuf for $primitive {
            #[inline]
            fn recv_parts(&mut self) -> RecvParts {
                std::slice::from_mut(self).recv_parts()
            }
        }
    )*};
}

single!(u8, i8, u16, i16, u32, i32, u64, i64, u128, i128, usize, isize, f32, f64, bool, char);

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
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    base: *const u8,
    count: usize,
    datatype: &'a Datatype,
}

/// Items of a derived type inside a slice, to receive into.
#[derive(Debug)]
pub struct ViewMut<'a> {
    base: *mut u8,
    count: usize,
    datatype: &'a Datatype,
}

/// A derived type that reaches outside its slice, or is made of other primitives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutOfSlice {
    /// The lowest byte and one past the highest byte the items touch, relative to the slice.
    pub bounds: (i64, i64),
    /// The length of the slice in bytes.
    pub len: usize,
    /// Whether the primitives differ.
    pub mismatch: bool,
}

impl std::fmt::Display for OutOfSlice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.mismatch {
            return write!(f, "the datatype is not made of the slice's elements");
        }
        let (low, high) = self.bounds;
        write!(f, "the items touch bytes {low}..{high} of a slice of {} bytes", self.len)
    }
}

impl std::error::Error for OutOfSlice {}

fn check<T: Equivalent>(
    slice: &[T],
    offset: usize,
    datatype: &Datatype,
    count: usize,
) -> Result<(), OutOfSlice> {
    let len = size_of_val(slice);
    let refuse = |bounds, mismatch| OutOfSlice { bounds, len, mismatch };
    let bounds = datatype.bounds(count).map_err(|_| refuse((i64::MIN, i64::MAX), false))?;
    let shift = offset.checked_mul(size_of::<T>()).and_then(|s| i64::try_from(s).ok());
    let reach = shift.and_then(|s| Some((bounds.0.checked_add(s)?, bounds.1.checked_add(s)?)));
    let (low, high) = reach.ok_or(refuse(bounds, false))?;
    let inside = offset <= slice.len() && low >= 0 && u64::try_from(high).is_ok_and(|h| h <= len as u64);
    if bounds != (0, 0) && !inside {
        return Err(refuse((low, high), false));
    }
    // A slice of primitives may only be taken apart into those; a slice of structs into whatever it names is for
    // `raw`, where the caller vouches for padding and bit patterns.
    let made_of_elements = T::PRIMITIVE.is_some() && datatype.homogeneous() == T::PRIMITIVE;
    if datatype.size() > 0 && !made_of_elements {
        return Err(refuse((low, high), true));
    }
    Ok(())
}

impl<'a> View<'a> {
    /// Takes `count` items of `datatype` that start at element `offset` of `slice`.
    ///
    /// # Errors
    /// The items leave the slice, or are not made of its elements.
    pub fn new<T: Equivalent>(
        slice: &'a [T],
        offset: usize,
        datatype: &'a Datatype,
        count: usize,
    ) -> Result<Self, OutOfSlice> {
        check(slice, offset, datatype, count)?;
        Ok(View { base: slice.as_ptr().cast::<u8>().wrapping_add(offset * size_of::<T>()), count, datatype })
    }
}

impl<'a> ViewMut<'a> {
    /// Takes `count` items of `datatype` that start at element `offset` of `slice`.
    ///
    /// # Errors
    /// As [`View::new`].
    pub fn new<T: Receivable>(
        slice: &'a mut [T],
        offset: usize,
        datatype: &'a Datatype,
        count: usize,
    ) -> Result<Self, OutOfSlice> {
        check(slice, offset, datatype, count)?;
        // A bool or char that straddles two elements would leave both unchecked.
        let size = i64::try_from(size_of::<T>()).unwrap_or(i64::MAX);
        if datatype.needs_check() && datatype.runs(count).any(|run| run.offset % size != 0) {
            return Err(OutOfSlice { bounds: (0, 0), len: size_of_val(slice), mismatch: true });
        }
        Ok(ViewMut {
            base: slice.as_mut_ptr().cast::<u8>().wrapping_add(offset * size_of::<T>()),
            count,
            datatype,
        })
    }
}

// SAFETY: the constructor checked the bounds against a slice that is borrowed for as long as the view lives.
unsafe impl SendBuf for View<'_> {
    fn send_parts(&self) -> SendParts {
        SendParts { base: self.base, count: self.count, shape: Shape::of(self.datatype) }
    }
}

// SAFETY: as for `View`.
unsafe impl SendBuf for ViewMut<'_> {
    fn send_parts(&self) -> SendParts {
        SendParts { base: self.base, count: self.count, shape: Shape::of(self.datatype) }
    }
}

// SAFETY: as for `View`; the slice is borrowed mutably and its elements are `Receivable`.
unsafe impl RecvBuf for ViewMut<'_> {
    fn recv_parts(&mut self) -> RecvParts {
        RecvParts { base: self.base, count: self.count, shape: Shape::of(self.datatype) }
    }
}

// SAFETY: a view is a shared borrow of plain elements.
unsafe impl Send for View<'_> {}
// SAFETY: a mutable view is an exclusive borrow of plain elements.
unsafe impl Send for ViewMut<'_> {}
