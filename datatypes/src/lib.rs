//! MPI datatypes as run-time values, compiled into copy plans.
//!
//! A [`Datatype`] says which primitives lie where in memory. It is built by constructors (contiguous, vector, indexed,
//! structure, resized, …) and compiled at once into a *plan*: a canonical nest of loops or a list of runs, with
//! a kernel chosen for it. Packing and unpacking run that kernel and can stop and resume at any byte.
//!
//! ```
//! use mpj_datatypes::{Datatype, Packer, Unpacker};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // The first column of a 4 × 4 matrix of bytes goes into a row.
//! let matrix: [u8; 16] = core::array::from_fn(|i| i as u8);
//! let column = Datatype::of::<u8>().vector(4, 1, 4)?;
//! let mut packer = Packer::new(&column, &matrix, 0, 1)?;
//! let mut packed = [0u8; 4];
//! assert_eq!(packer.fill_bytes(&mut packed), 4);
//!
//! let mut row = [0u8; 4];
//! Unpacker::new(&Datatype::of::<u8>(), &mut row, 0, 4)?.feed(&packed)?;
//! assert_eq!(row, [0, 4, 8, 12]);
//! # Ok(()) }
//! ```
//!
//! | where | what |
//! |---|---|
//! | `primitive` `envelope` `node` | leaves, how a type was built, the type itself |
//! | `construct` `extent` `signature` | the constructors, bounds with checked arithmetic, the hash that two ranks compare |
//! | `normalise` `plan` | from constructors to the canonical form |
//! | `kernels/` | the loops that copy: with the thin faces `pack`, `unpack`, `validate`, `range` the only unsafe code |
//! | `runs` `elements` | iovecs; counting parts of a message |
//! | `equivalent` | which Rust types may be sent, which received |
//!
//! # Safety model
//! * Numbers given to constructors may be anything: what does not fit is a [`TypeError`], never a panic or a wrap.
//! * [`Packer`] and [`Unpacker`] check all bounds once, against the slice, before the first byte.
//! * The raw entries ([`Datatype::pack`], [`Datatype::unpack`], [`Datatype::validate`]) touch only bytes inside of
//!   [`Datatype::bounds`], whatever the type; layouts may overlap themselves.
//! * Packed input is never trusted: any bytes may be unpacked, and [`Datatype::validate`] repairs `bool` and `char`.

mod construct;
mod elements;
mod envelope;
#[allow(unsafe_code)] // Traits whose contract memory safety rests on.
mod equivalent;
mod error;
mod extent;
#[allow(unsafe_code)] // The copy loops.
mod kernels;
mod node;
mod normalise;
#[allow(unsafe_code)] // The raw face of the kernels.
mod pack;
mod plan;
mod primitive;
#[allow(unsafe_code)] // Slices seen as bytes.
mod range;
mod runs;
mod signature;
#[allow(unsafe_code)] // The raw face of the kernels.
mod unpack;
#[allow(unsafe_code)] // The raw face of the checks.
mod validate;

pub use envelope::Envelope;
pub use equivalent::{Equivalent, Receivable};
pub use error::{InvalidValue, OutOfRange, TooLong, TypeError};
pub use node::Datatype;
pub use pack::Packer;
pub use primitive::Primitive;
pub use runs::{Run, Runs};
pub use signature::Signature;
pub use unpack::Unpacker;
