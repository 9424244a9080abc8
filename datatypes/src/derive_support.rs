//! Support for the code that `#[derive(Datatype)]` generates. Not part of the API.
//!
//! The generated code is unsafe, and a program can redirect its paths: `#[datatype(crate = …)]` takes any module, and
//! `extern crate self as core` makes `::core` the program's own. So the generated code proves its claims by functions
//! of [`struct@Datatype`], and names this type as the return type of [`Equivalent::datatype`]: a path to another type
//! does not compile. It computes field offsets without `offset_of!`. A field's type can be a macro that expands to
//! different code at each place, so the bodies of the generated functions contain no field type: the compiler infers
//! the types from the fields.
//!
//! Redefined names have no effect, including those of the standard library:
//! ```
//! extern crate core as real;
//! extern crate self as core;
//! pub mod mem {
//!     #[macro_export]
//!     macro_rules! lie {
//!         ($($any:tt)*) => { 0 };
//!     }
//!     pub use lie as offset_of;
//! }
//! pub use real::option;
//!
//! mod fake {
//!     pub use mpj_datatypes::{Datatype, Equivalent, Primitive, Receivable};
//!     pub mod derive_support {
//!         pub trait Received<'a> {}
//!         impl<T> Received<'_> for T {}
//!         pub trait Sent<'a> {}
//!         impl<T> Sent<'_> for T {}
//!         pub fn structure<T>(_: &[(usize, mpj_datatypes::Datatype)]) -> mpj_datatypes::Datatype {
//!             mpj_datatypes::Datatype::of::<u64>()
//!         }
//!     }
//! }
//!
//! #[repr(C)]
//! #[derive(Clone, Copy, mpj_datatypes::Datatype)]
//! #[datatype(crate = fake)]
//! struct Letter {
//!     number: u32,
//!     letter: char,
//! }
//!
//! # fn main() {
//! let letter = mpj_datatypes::Datatype::of::<Letter>();
//! assert!(letter.needs_validation());
//! assert_eq!(letter.runs(1).map(|run| (run.offset, run.len)).collect::<Vec<_>>(), [(0, 8)]);
//! # }
//! ```
//! A type with the name of the cache does not replace it:
//! ```compile_fail,E0277
//! #![allow(dead_code)]
//! extern crate self as std;
//! extern crate std as real;
//! pub mod sync {
//!     use crate::real::marker::PhantomData;
//!     use crate::real::ops::Deref;
//!     use mpj_datatypes::Datatype;
//!     pub struct OnceLock<T>(PhantomData<T>);
//!     impl<T> OnceLock<T> {
//!         pub const fn new() -> Self {
//!             OnceLock(PhantomData)
//!         }
//!     }
//!     static LIE: crate::real::sync::OnceLock<Datatype> = crate::real::sync::OnceLock::new();
//!     impl Deref for OnceLock<Datatype> {
//!         type Target = crate::real::sync::OnceLock<Datatype>;
//!         fn deref(&self) -> &Self::Target {
//!             LIE.get_or_init(Datatype::of::<[u64; 512]>);
//!             &LIE
//!         }
//!     }
//! }
//!
//! #[repr(C)]
//! #[derive(Clone, Copy, mpj_datatypes::Datatype)]
//! pub struct Small {
//!     x: u8,
//! }
//!
//! fn main() {}
//! ```
//! The type of a field has no access to the cache:
//! ```
//! static __MPJ_DATATYPE: u8 = 0;
//! macro_rules! byte {
//!     () => {
//!         [u8; {
//!             assert!(size_of_val(&__MPJ_DATATYPE) == 1, "a static of the macro");
//!             1
//!         }]
//!     };
//! }
//!
//! #[repr(C)]
//! #[derive(Clone, Copy, mpj_datatypes::Datatype)]
//! struct Small {
//!     x: byte!(),
//! }
//!
//! #[repr(transparent)]
//! #[derive(Clone, Copy, mpj_datatypes::Datatype)]
//! struct Same(byte!());
//!
//! # fn main() {
//! assert_eq!(mpj_datatypes::Datatype::of::<Small>().size(), 1);
//! assert_eq!(mpj_datatypes::Datatype::of::<Same>().size(), 1);
//! # }
//! ```
//! Only [`Receivable`], which is unsafe, marks a type as receivable:
//! ```compile_fail,E0277
//! # use mpj_datatypes::{Datatype, Equivalent, Primitive, Receivable};
//! # #[derive(Clone, Copy)] struct Sent(u8);
//! # unsafe impl Equivalent for Sent {
//! #     const PRIMITIVE: Option<Primitive> = None;
//! #     fn datatype() -> Datatype { u8::datatype() }
//! # }
//! mod fake {
//!     pub use mpj_datatypes::{Datatype, Equivalent, Primitive, Receivable};
//!     pub mod derive_support {
//!         pub trait Received<'a> {}
//!         impl<T> Received<'_> for T {}
//!         pub trait Sent<'a> {}
//!         impl<T> Sent<'_> for T {}
//!     }
//! }
//!
//! #[repr(C)]
//! #[derive(Clone, Copy, Datatype)]
//! #[datatype(crate = fake)]
//! struct Outer { inner: Sent }
//! ```
//! ```compile_fail,E0200
//! # struct Sent(u8);
//! impl mpj_datatypes::derive_support::Received<'_> for Sent {}
//! ```
//! The generated implementation of [`Receivable`] defines `derived`. So a redirected path to another unsafe trait,
//! which has no such function, does not compile:
//! ```compile_fail,E0407
//! mod fake {
//!     pub use std::marker::Send as Receivable;
//!     pub use mpj_datatypes::{Datatype, Equivalent, Primitive, derive_support};
//! }
//!
//! #[repr(C)]
//! #[derive(Clone, Copy, mpj_datatypes::Datatype)]
//! #[datatype(crate = fake)]
//! struct Local(std::marker::PhantomData<*const u8>);
//! ```

use std::sync::OnceLock;

use crate::{Datatype, Equivalent, Primitive, Receivable};

#[doc(hidden)]
impl Datatype {
    /// Returns the datatype of a structure and caches it in `cell`. `fields` gets the address of an uninitialised `T`.
    ///
    /// # Panics
    /// If offsets overflow the bounds of a type, which field offsets never do, or if structures are nested hundreds of
    /// levels deep.
    pub fn derived_structure<T: Equivalent, C: DatatypeCell, const N: usize>(
        cell: &C,
        fields: impl FnOnce(*const T) -> [(usize, Datatype); N],
    ) -> Datatype {
        cell.get_or_build(|| Datatype::derived_generic(fields))
    }

    /// As [`derived_structure`](Self::derived_structure), without a cache.
    ///
    /// # Panics
    /// As [`derived_structure`](Self::derived_structure).
    pub fn derived_generic<T: Equivalent, const N: usize>(
        fields: impl FnOnce(*const T) -> [(usize, Datatype); N],
    ) -> Datatype {
        let place = Box::<T>::new_uninit();
        let list = fields(place.as_ptr()).map(|(offset, inner)| (1, offset as i64, inner));
        let size = size_of::<T>() as i64;
        let built = Datatype::structure(&list).and_then(|plain| {
            let same = plain.lb() == 0 && plain.extent() == size;
            if same { Ok(plain) } else { plain.resized(0, size) }
        });
        match built {
            Ok(datatype) => datatype,
            Err(why) => unreachable!("derived structure: {why}"),
        }
    }

    /// Returns the datatype of a `#[repr(transparent)]` structure. The argument is a function that returns its field.
    pub fn derived_transparent<T: Equivalent, F: Equivalent>(_: fn(T) -> F) -> Datatype {
        const { assert!(size_of::<T>() == size_of::<F>(), "a transparent structure is as large as its field") };
        F::datatype()
    }

    /// Returns the primitive of a `#[repr(transparent)]` structure. The argument is a function that returns its field.
    pub const fn derived_primitive<T: Equivalent, F: Equivalent>(_: fn(T) -> F) -> Option<Primitive> {
        const { assert!(size_of::<T>() == size_of::<F>(), "a transparent structure is as large as its field") };
        F::PRIMITIVE
    }

    /// Returns the offset and the datatype of a field of a structure.
    pub fn derived_field<T, F: Equivalent>(structure: *const T, field: *const F) -> (usize, Datatype) {
        (field.addr().wrapping_sub(structure.addr()), F::datatype())
    }

    /// Compiles only if a field can be received. The argument is a function that returns its address.
    pub fn derived_received<T, F: for<'received> Received<'received>>(_: fn(*const T) -> *const F) {}
}

/// The cache of a derived datatype. It is a type parameter, so that the argument has exactly the type of the generated
/// static. A parameter of a concrete type would accept a reference that `Deref` of the program's type returns.
///
/// # Safety
/// A new cell is empty, and later contains only what `build` has returned.
pub unsafe trait DatatypeCell {
    fn get_or_build(&self, build: impl FnOnce() -> Datatype) -> Datatype;
}

// SAFETY: only `OnceLock::new` makes one in a constant, and only generated code has access to the generated static.
// That code contains no expression or type of the program.
unsafe impl DatatypeCell for OnceLock<Datatype> {
    fn get_or_build(&self, build: impl FnOnce() -> Datatype) -> Datatype {
        self.get_or_init(build).clone()
    }
}

/// [`Receivable`] as a bound that the compiler checks only where it is used.
///
/// # Safety
/// The type is [`Receivable`]; all receivable types have the implementation below.
pub unsafe trait Received<'received> {}

// SAFETY: it is `Receivable`.
unsafe impl<T: Receivable> Received<'_> for T {}

/// [`Equivalent`] as a bound that the compiler checks only where it is used, so that a structure that is not `Copy`
/// gives one error, at its implementation of [`Equivalent`].
pub trait Sent<'sent>: Equivalent {}

impl<T: Equivalent> Sent<'_> for T {}
