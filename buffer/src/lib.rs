//! Typed, sectioned message buffers on pooled memory.
//!
//! A [`Buffer`] is one message. It is written section by section, committed, read back in the same order, and cleared,
//! as in MPJ Express' mpjbuf. The state (writing or reading) is part of the type.
//!
//! ```
//! use mpj_buffer::Buffer;
//!
//! let mut message = Buffer::with_capacity(4096)?;
//! message.write(&[1i32, 2, 3])?;
//! message.write(&[4i32])?; // the same section
//! message.write(&[0.5f64, 1.5])?; // another one
//! message.write_object(&("ranks", vec![0u8, 1]))?; // any serde value, of any size
//! let mut message = message.commit();
//!
//! // A device can send the segments with one vectored write. Here they are copied into a vector.
//! let wire: Vec<u8> = message.segments().flatten().copied().collect();
//! // The receiver checks the untrusted bytes and copies them into a block.
//! let block = message.clear().into_block();
//! let mut message = Buffer::from_bytes(block, &wire)?;
//!
//! let mut ints = [0i32; 4];
//! message.read(&mut ints)?;
//! assert_eq!(ints, [1, 2, 3, 4]);
//! assert_eq!(message.view::<f64>()?, [0.5, 1.5]); // not copied
//! let (name, ranks): (String, Vec<u8>) = message.read_object()?;
//! assert_eq!((name.as_str(), ranks), ("ranks", vec![0, 1]));
//! assert!(message.read(&mut ints).is_err()); // no elements are left
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # On the wire
//! ```text
//!            0         16        32        48        64        80        96        112   120
//! ┌ ─ ─ ─ ─ ─┬─────────┬─────────┬─────────┬─────────┬─────────┬─────────┬─────────┬─────┬────────┐
//!   headroom │ message │ section │ 4 × i32 │ section │ 2 × f64 │ section │ dynamic │ len │ object │
//! └ ─ ─ ─ ─ ─┴─────────┴─────────┴─────────┴─────────┴─────────┴─────────┴─────────┴─────┴────────┘
//!            ╰────────────────── static part: one block ─────────────────╯╰ dynamic part: a chain ─╯
//! ```
//! These are the offsets of the message in the example. The third section header counts the objects, whose values are
//! records in the dynamic part, a chain of blocks. Zeros before a section header align it to 16, and zeros before a
//! record align it to 8; this message needs none.
//!
//! Headers and elements are in the writer's byte order, which the message header states; the elements of a section can
//! have the other order. `README.md` of this crate specifies the bytes, and `tests/suite/golden.rs` tests them.
//!
//! # Over sockets
//! | stream | send | receive |
//! |---|---|---|
//! | blocking: `TcpStream`, a pipe, a file | [`Buffer::write_to`], usually one call | [`Buffer::read_from`], into a pool block of the right size, up to a limit |
//! | non-blocking: mio, tokio | [`MessageReader::write_to`], which keeps its position | [`Receiver`], which takes bytes in any portions |
//! | `bytes::Buf` (feature `bytes`) | [`Buffer::reader`], `into_bytes` | [`Receiver::feed`], `Buffer::from_buf` |
//!
//! `examples/echo.rs` sends buffers between tokio tasks.
//!
//! # Guarantees
//! * Untrusted bytes are safe: every header of a received message is checked before anything is read, and received
//!   bytes never cause a panic.
//! * A failed write or read of elements or objects changes neither the message nor the caller's slice.
//! * Uninitialised memory is never sent: headroom and padding are filled with zeros.
//!
//! # Features
//! * `half`: `half::f16` and `bf16` as elements;
//! * `num-complex`: `Complex32` and `Complex64` as elements;
//! * `bytes`: `bytes::Buf` to read a message, `BufMut` to write a section of bytes; conversion from `Buf`, to `Bytes`.
//!
//! None is enabled by default; this crate's own tests and examples enable all. No feature compiles C.
//!
//! # Where to read next
//! [`Buffer`], then `README.md` (the format), then `src/validate.rs` (the checks). An `expect(unsafe_code)` attribute
//! marks each module or function that has unsafe code, and gives the reason.

#[expect(
    unsafe_code,
    reason = "turns the initialised part of a block into a slice, calls AVX2 code after detection; proofs inside"
)]
mod block;
mod buffer;
pub mod codec;
#[expect(
    unsafe_code,
    reason = "implements RawBuffer for a block of either of two types; counts bytes pushed by a codec"
)]
mod dynamic;
mod dynamic_slice;
mod element;
mod error;
mod header;
mod object;
mod order;
mod read;
mod scatter_gather;
mod segments;
mod stream;
#[cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "calls AVX2 code after detection"))]
mod swap;
mod validate;
mod write;

pub use mpj_pool as pool;

pub use self::buffer::{Buffer, message_start, section_len};
pub use self::codec::{Codec, Fixed, Postcard, Raw, RawVec, raw};
pub use self::element::{Element, ElementKind};
pub use self::error::{CodecError, FormatError, FromBlockError, IndexError, Overflow, ReadError, WriteError};
pub use self::header::{ALIGN, MESSAGE_HEADER_LEN, SECTION_HEADER_LEN, Section, VERSION};
pub use self::order::ByteOrder;
pub use self::read::Reading;
pub use self::scatter_gather::IndexInt;
pub use self::stream::{ByteWriter, MessageReader, ReceiveError, Received, Receiver};
pub use self::write::Writing;
