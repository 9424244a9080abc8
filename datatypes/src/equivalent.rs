//! Rust types that can be sent, and those that can be received.

use crate::{Datatype, Primitive};
use core::marker::PhantomData;

/// A Rust type with a datatype, which can be sent.
///
/// # Safety
/// In every value of `Self`, every byte that `datatype()` contains lies inside `size_of::<Self>()` and is initialised
/// (so none is padding), and the extent is `size_of::<Self>()`. No such byte can change behind a shared
/// reference. If `PRIMITIVE` is `Some(p)`, `datatype()` is that primitive.
///
/// # Examples
/// ```
/// use mpj_datatypes::{Datatype, Equivalent, Primitive};
/// assert_eq!(f64::PRIMITIVE, Some(Primitive::F64));
/// assert_eq!(<[i32; 4]>::datatype().single_primitive(), Some(Primitive::I32));
/// ```
///
/// References have no datatype:
/// ```compile_fail
/// mpj_datatypes::Datatype::of::<&u8>();
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no datatype",
    label = "this cannot be sent",
    note = "primitives, arrays of them, and structures with #[repr(C)] and #[derive(Clone, Copy, Datatype)] can",
    note = "a `Vec`, `String` or `Box` is a pointer: send what it points to, or the whole by `send_object`"
)]
pub unsafe trait Equivalent: Copy + 'static {
    /// The primitive, if the type is a single one; callers then need no [`Datatype`](struct@Datatype).
    const PRIMITIVE: Option<Primitive> = None;

    /// Returns the datatype of one value.
    fn datatype() -> Datatype;
}

/// A type that can also be received.
///
/// # Safety
/// Any bytes may be stored where `Self::datatype()` has bytes, once its `bool`s and `char`s have passed
/// [`Datatype::validate`]. All other bytes are padding, so these bytes alone make a valid value. A type with other
/// restricted fields (`NonZero`, enums, references), or with fields that are not sent, must not implement it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be received",
    label = "received bytes do not make a value of this type",
    note = "primitives, arrays of them, and structures with #[repr(C)] and #[derive(Clone, Copy, Datatype)] can be received",
    note = "a `Vec`, `String` or `Box` is a pointer: receive what it points to, or the whole by `recv_object`"
)]
pub unsafe trait Receivable: Equivalent {
    /// `#[derive(Datatype)]` generates a body that compiles only if all fields can be received. Never called.
    #[doc(hidden)]
    fn derived() -> Datatype {
        Self::datatype()
    }
}

macro_rules! primitives {
    ($($type:ty => $primitive:ident),* $(,)?) => {$(
        const _: () = assert!(size_of::<$type>() == Primitive::$primitive.size());

        // SAFETY: a primitive has no padding, and its datatype has all of its bytes.
        unsafe impl Equivalent for $type {
            const PRIMITIVE: Option<Primitive> = Some(Primitive::$primitive);

            #[inline]
            fn datatype() -> Datatype {
                Datatype::primitive(Primitive::$primitive)
            }
        }

        // SAFETY: every bit pattern is a value, or `validate` checks the primitive (bool, char).
        unsafe impl Receivable for $type {}
    )*};
}

primitives! {
    i8 => I8, u8 => U8, i16 => I16, u16 => U16, i32 => I32, u32 => U32, i64 => I64, u64 => U64,
    i128 => I128, u128 => U128, f32 => F32, f64 => F64, bool => Bool, char => Char,
    usize => Usize, isize => Isize,
}

#[cfg(feature = "half")]
primitives! { half::f16 => F16, half::bf16 => Bf16 }

#[cfg(feature = "num-complex")]
primitives! { num_complex::Complex<f32> => Complex32, num_complex::Complex<f64> => Complex64 }

// SAFETY: an array is its elements without gaps, an extent of T apart.
unsafe impl<T: Equivalent, const N: usize> Equivalent for [T; N] {
    const PRIMITIVE: Option<Primitive> = None;

    /// # Panics
    /// For arrays nested hundreds of levels deep.
    fn datatype() -> Datatype {
        match T::datatype().contiguous(N) {
            Ok(datatype) => datatype,
            // The bytes of a Rust type fit isize::MAX, so only its depth could be an error.
            Err(why) => unreachable!("array type: {why}"),
        }
    }
}

// SAFETY: what holds for each element holds for the array.
unsafe impl<T: Receivable, const N: usize> Receivable for [T; N] {}

// SAFETY: no bytes, so none is in the datatype.
unsafe impl<T: 'static> Equivalent for PhantomData<T> {
    const PRIMITIVE: Option<Primitive> = None;

    fn datatype() -> Datatype {
        <[u8; 0]>::datatype()
    }
}

// SAFETY: no bytes, so none is stored.
unsafe impl<T: 'static> Receivable for PhantomData<T> {}
