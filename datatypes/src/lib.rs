//! MPI datatypes as run-time values, compiled into copy plans.
//!
//! A [`Datatype`](struct@Datatype) describes which primitives lie where in memory. Constructors (contiguous, vector,
//! indexed, subarray, structure, resized, …) compile it into a *plan*: a canonical form, such as nested loops or a
//! list of runs, with a kernel for each direction. Packing and unpacking can stop and resume at any byte.
//!
//! ```
//! use mpj_datatypes::{Datatype, Packer, Unpacker};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // The first column of a 4 × 4 matrix of bytes is copied to a row.
//! let matrix: [u8; 16] = core::array::from_fn(|i| i as u8);
//! let column = Datatype::of::<u8>().vector(4, 1, 4)?;
//! let mut packer = Packer::new(&column, &matrix, 0, 1)?;
//! let mut packed = [0u8; 4];
//! assert_eq!(packer.pack_into_bytes(&mut packed), 4);
//!
//! let mut row = [0u8; 4];
//! Unpacker::new(&Datatype::of::<u8>(), &mut row, 0, 4)?.unpack_from(&packed)?;
//! assert_eq!(row, [0, 4, 8, 12]);
//! # Ok(()) }
//! ```
//!
//! # Features
//! * `derive`, on by default: `#[derive(Datatype)]` for structures;
//! * `bytemuck`: `PodElement`, for structures of other crates;
//! * `half`, `num-complex`: the numbers of these crates as elements;
//! * `ndarray`: datatypes of array views.
//!
//! No feature compiles C.
//!
//! # Safety model
//! * Constructors accept any numbers: overflow is a [`TypeError`].
//! * [`Packer`] and [`Unpacker`] check all bounds against the slice before they copy the first byte.
//! * The raw functions, such as [`Datatype::pack`], access only bytes inside [`Datatype::byte_bounds`] and packed
//!   bytes; a layout may overlap itself.
//! * Any packed bytes can be unpacked; [`Datatype::validate`] then replaces invalid `bool`s and `char`s.

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod construct;
mod cursor;
#[allow(unsafe_code)] // An unsafe trait.
#[doc(hidden)]
pub mod derive_support;
mod elements;
mod envelope;
#[allow(unsafe_code)] // Unsafe traits and their implementations.
mod equivalent;
mod error;
mod extent;
#[allow(unsafe_code)] // Unsafe functions of raw pointers.
mod external32;
mod iov;
#[allow(unsafe_code)] // The copy loops.
mod kernels;
mod made_of;
#[cfg(feature = "ndarray")]
#[allow(unsafe_code)] // Views as bytes.
mod ndarray;
mod node;
mod normalise;
mod overlap;
#[allow(unsafe_code)] // Unsafe functions of raw pointers.
mod pack;
mod plan;
#[cfg(feature = "bytemuck")]
#[allow(unsafe_code)] // Implementations of unsafe traits.
mod pod;
mod primitive;
mod signature;
#[allow(unsafe_code)] // Slices seen as bytes.
mod slice_bounds;
#[allow(unsafe_code)] // Unsafe functions of raw pointers.
mod transpack;
#[allow(unsafe_code)] // Unsafe functions of raw pointers.
mod unpack;
#[allow(unsafe_code)] // Unsafe functions of raw pointers.
mod validate;

/// Implements [`Equivalent`] for a structure, and [`Receivable`] if all of its fields are. The datatype contains the
/// fields in the order of their declaration, without padding.
///
/// The structure must be `#[repr(C)]`, optionally with `packed` or `align`, or `#[repr(transparent)]`, and `Copy`. Do
/// not derive it for a structure with invariants between its fields: each field may receive any value.
///
/// ```
/// use mpj_datatypes::{Datatype, Packer};
///
/// #[repr(C)]
/// #[derive(Clone, Copy, Datatype)]
/// struct Particle {
///     kind: u8,
///     at: [f64; 3],
/// }
///
/// let particles = [Particle { kind: 1, at: [0.5; 3] }; 10];
/// let packer = Packer::of_slice(&particles)?;
/// assert_eq!(packer.remaining(), 10 * 25);
/// # Ok::<(), mpj_datatypes::OutOfRangeError>(())
/// ```
///
/// The layout must be fixed:
/// ```compile_fail
/// #[derive(Clone, Copy, mpj_datatypes::Datatype)]
/// struct Unordered(u8, u32); // needs #[repr(C)]
/// ```
/// Enums have no datatype, because not every number is a variant:
/// ```compile_fail
/// #[repr(C)]
/// #[derive(Clone, Copy, mpj_datatypes::Datatype)]
/// enum Color { Red, Green }
/// ```
/// Unions have no datatype:
/// ```compile_fail
/// #[repr(C)]
/// #[derive(Clone, Copy, mpj_datatypes::Datatype)]
/// union Either { a: u32, b: f32 }
/// ```
/// References and structures with a lifetime parameter have no datatype:
/// ```compile_fail
/// #[repr(C)]
/// #[derive(Clone, Copy, mpj_datatypes::Datatype)]
/// struct Borrowed { name: &'static [u8; 4] }
/// ```
/// ```compile_fail
/// #[repr(C)]
/// #[derive(Clone, Copy, mpj_datatypes::Datatype)]
/// struct Borrowed<'a> { length: u32, names: core::marker::PhantomData<&'a u8> }
/// ```
/// The structure must be `Copy`, and all fields must have a datatype:
/// ```compile_fail,E0277
/// #[repr(C)]
/// #[derive(mpj_datatypes::Datatype)]
/// struct OpStatus { a: u32 }
/// ```
/// ```compile_fail,E0277
/// #[repr(C)]
/// #[derive(Clone, Copy, mpj_datatypes::Datatype)]
/// struct Optional { a: Option<u32> }
/// ```
/// Type parameters must have a datatype, too:
/// ```compile_fail,E0277
/// #[repr(C)]
/// #[derive(Clone, Copy, mpj_datatypes::Datatype)]
/// struct Pair<T> { a: T, b: T }
/// let _ = mpj_datatypes::Datatype::of::<Pair<Option<u8>>>();
/// ```
/// A structure with a field that is not [`Receivable`] cannot be received:
/// ```compile_fail,E0277
/// # use mpj_datatypes::{Datatype, Equivalent, Primitive, Receivable};
/// # #[derive(Clone, Copy)] struct Sent(u8);
/// # unsafe impl Equivalent for Sent {
/// #     const PRIMITIVE: Option<Primitive> = None;
/// #     fn datatype() -> Datatype { u8::datatype() }
/// # }
/// #[repr(C)]
/// #[derive(Clone, Copy, Datatype)]
/// struct Outer { inner: Sent }
/// fn receive<T: Receivable>() {}
/// receive::<Outer>();
/// ```
#[cfg(feature = "derive")]
pub use mpj_datatypes_derive::Datatype;

pub use construct::{ArrayOrder, DistributedDim, Distribution, Subrange};
pub use envelope::TypeEnvelope;
pub use equivalent::{Equivalent, Receivable};
pub use error::{InvalidValueError, OutOfRangeError, OverlapError, TooLongError, TypeError};
pub use iov::{Run, Runs};
pub use node::Datatype;
pub use pack::Packer;
#[cfg(feature = "bytemuck")]
pub use pod::PodElement;
pub use primitive::Primitive;
pub use signature::Signature;
pub use unpack::Unpacker;
