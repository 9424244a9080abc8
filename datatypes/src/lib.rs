//! MPI datatypes as run-time values, compiled into copy plans.
//!
//! A [`Datatype`](struct@Datatype) describes which primitives lie where in memory. It is built by constructors
//! (contiguous, vector, indexed, subarray, structure, resized, …) and compiled at once into a *plan*: a canonical nest
//! of loops or a list of runs, with a kernel chosen for it. Packing and unpacking run that kernel and can stop and
//! resume at any byte.
//!
//! ```
//! use mpj_datatypes::{Datatype, Packer, Unpacker};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // The first column of a 4 × 4 matrix of bytes goes into a row.
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
//! | where | what |
//! |---|---|
//! | `primitive` `envelope` `node` | leaves, how a type was built, the type itself |
//! | `construct` `extent` `signature` | the constructors, bounds with checked arithmetic, the hash that two ranks compare |
//! | `normalise` `plan` | from constructors to the canonical form |
//! | `kernels/` | the loops that copy; `pack`, `unpack`, `validate` and `range` are thin wrappers of them |
//! | `cursor` | the common part of packers and unpackers |
//! | `runs` `elements` `overlap` `whole` | iovecs; counting parts of a message; types that name a byte twice; types that divide a slice into whole elements |
//! | `transpack` `external32` | layout to layout; the portable form |
//! | `equivalent` `derived` `pod` `views` | Rust types that may be sent or received; structures; those of other crates; `ndarray` |
//!
//! # Features
//! * `derive`, on by default: `#[derive(Datatype)]` for structures;
//! * `bytemuck`: `PodElement`, for structures of other crates;
//! * `half`, `num-complex`: their numbers may be sent;
//! * `ndarray`: datatypes of its views.
//!
//! Their tests run with `cargo test -p mpj-datatypes`. Nothing here compiles C.
//!
//! # Platforms
//! Any with 32 or 64 bits and either byte order. x86-64 has kernels for AVX2 and AVX-512, chosen at run time; on other
//! architectures the compiler generates code from the same loops.
//!
//! # Safety model
//! * Constructors accept any numbers: a type that does not fit is a [`TypeError`], never a panic or a wrap.
//! * [`Packer`] and [`Unpacker`] check all bounds once, against the slice, before the first byte.
//! * The raw entries ([`Datatype::pack`], [`Datatype::unpack`], [`Datatype::validate`]) touch only bytes inside of
//!   [`Datatype::byte_bounds`], whatever the type; layouts may overlap themselves.
//! * Packed input is never trusted: any bytes may be unpacked, and [`Datatype::validate`] repairs `bool` and `char`.

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod construct;
mod cursor;
#[allow(unsafe_code)] // A trait whose contract memory safety rests on.
#[doc(hidden)]
pub mod derive_support;
mod elements;
mod envelope;
#[allow(unsafe_code)] // Traits whose contract memory safety rests on.
mod equivalent;
mod error;
mod extent;
#[allow(unsafe_code)] // The raw face of the portable form.
mod external32;
mod iov;
#[allow(unsafe_code)] // The copy loops.
mod kernels;
mod made_of;
#[cfg(feature = "ndarray")]
#[allow(unsafe_code)] // Elements of views seen as bytes.
mod ndarray;
mod node;
mod normalise;
mod overlap;
#[allow(unsafe_code)] // The raw face of the kernels.
mod pack;
mod plan;
#[cfg(feature = "bytemuck")]
#[allow(unsafe_code)] // Traits whose contract memory safety rests on.
mod pod;
mod primitive;
mod signature;
#[allow(unsafe_code)] // Slices seen as bytes.
mod slice_bounds;
#[allow(unsafe_code)] // The raw face of the kernels.
mod transpack;
#[allow(unsafe_code)] // The raw face of the kernels.
mod unpack;
#[allow(unsafe_code)] // The raw face of the checks.
mod validate;

/// Implements [`Equivalent`] for a structure, and [`Receivable`] if all of its fields are. The datatype names the
/// fields in the order in which they are declared; padding is not sent.
///
/// The structure must be `#[repr(C)]` (also `packed` or `align`) or `#[repr(transparent)]`, and `Copy`. Do not derive
/// it for a structure with invariants between its fields: any bytes may arrive in any of them.
///
/// # Examples
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
/// Without a fixed layout there is no datatype:
/// ```compile_fail
/// #[derive(Clone, Copy, mpj_datatypes::Datatype)]
/// struct Unordered(u8, u32); // needs #[repr(C)]
/// ```
/// Nor for enums, because not every number is a variant:
/// ```compile_fail
/// #[repr(C)]
/// #[derive(Clone, Copy, mpj_datatypes::Datatype)]
/// enum Color { Red, Green }
/// ```
/// nor for unions:
/// ```compile_fail
/// #[repr(C)]
/// #[derive(Clone, Copy, mpj_datatypes::Datatype)]
/// union Either { a: u32, b: f32 }
/// ```
/// nor for what points elsewhere:
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
/// nor for what is not `Copy`, or holds a field without a datatype:
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
/// Parameters must have one, too:
/// ```compile_fail,E0277
/// #[repr(C)]
/// #[derive(Clone, Copy, mpj_datatypes::Datatype)]
/// struct Pair<T> { a: T, b: T }
/// let _ = mpj_datatypes::Datatype::of::<Pair<Option<u8>>>();
/// ```
/// A structure with a field that may only be sent cannot be received:
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
