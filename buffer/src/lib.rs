//! Typed, sectioned message buffers on pooled memory.
//!
//! A [`Buffer`] is one message. It is written section by section, committed, read back in the same order, and cleared:
//! the vocabulary of MPJ Express' mpjbuf, with the run-time state made a type.
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
//! // What a device does: send the pieces in one go, here into a vector…
//! let wire: Vec<u8> = message.segments().flatten().copied().collect();
//! // …and on the other side take the bytes, which are not trusted.
//! let block = message.clear().into_block();
//! let mut message = Buffer::from_bytes(block, &wire)?;
//!
//! let mut ints = [0i32; 4];
//! message.read(&mut ints)?;
//! assert_eq!(ints, [1, 2, 3, 4]);
//! assert_eq!(message.view::<f64>()?, [0.5, 1.5]); // not copied
//! let (name, ranks): (String, Vec<u8>) = message.read_object()?;
//! assert_eq!((name.as_str(), ranks), ("ranks", vec![0, 1]));
//! assert!(message.read(&mut ints).is_err()); // errors, never panics
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # On the wire
//! ```text
//!  device's   0        16       32                                  multiples of 16
//! ┌ ─ ─ ─ ─ ┬────────┬────────┬─────────────┬─┬────────┬─────────┬─┬────────┬─────┬─────────┬─┬─────┬───────┐
//!    room    message  section  i32 × 4       0 section  f64 × 2   0 dynamic  len   object    0 len   object
//! └ ─ ─ ─ ─ ┴────────┴────────┴─────────────┴─┴────────┴─────────┴─┴────────┴─────┴─────────┴─┴─────┴───────┘
//!           ╰────────────────── static part: one block ────────────╯╰──── dynamic part: a chain of blocks ───╯
//!
//!  message  "mpjb" magic │ version u8 │ order u8 │ flags u8 │ 0 │ total length u64
//!  section  kind u8 │ encoding u8 │ codec u8 │ schema u8 │ element size u32 │ count u64
//! ```
//! Numbers are in the byte order of the writer, which the header names; a section may be in the other one. A reader of
//! the other order swaps them. This crate's `README.md` specifies the bytes, and `tests/suite/golden.rs` pins them.
//!
//! # Over sockets
//! | stream | send | receive |
//! |---|---|---|
//! | blocks: `TcpStream`, a pipe, a file | [`Buffer::write_to`], with one call | [`Buffer::read_from`], into a pool's block of the right size, up to a limit |
//! | does not block: mio, tokio | [`MessageReader::write_to`], which knows how far it is | [`Receiver`], fed or reading, in any pieces |
//! | `bytes::Buf` (feature `bytes`) | [`Buffer::reader`], `into_bytes` | [`Receiver::feed`], `Buffer::from_buf` |
//!
//! `examples/echo.rs` sends buffers between tokio's tasks.
//!
//! # Guarantees
//! * Untrusted bytes are safe: [`Buffer::from_bytes`] and [`Buffer::from_block`] check every header before
//!   anything is read, and no input panics.
//! * A failed call changes nothing: not the buffer, not the caller's slice.
//! * Bytes that were not written are never sent: headroom and padding are zeros, never the old content of the pool's
//!   block.
//! * Lengths are 64 bits wide.
//!
//! # Features
//! * `half`: `half::f16` and `bf16` as elements;
//! * `num-complex`: `Complex32` and `Complex64` as elements;
//! * `bytes`: `bytes::Buf` for a message, `BufMut` for a section of bytes, `Bytes` of a message.
//!
//! None is on by default. `cargo test` turns them on: `cargo test -p mpj-buffer`. Nothing here compiles C.
//!
//! # Platforms
//! Those of its pool, of 32 and 64 bits and either byte order; the bytes of a message are the same everywhere.
//!
//! # Where to read next
//! [`Buffer`], then `README.md` (the format), then `src/check.rs` (what is checked). Unsafe code is in `src/block.rs`,
//! `src/block/spare.rs`, `src/dynamic.rs`, `src/codec/sink.rs`, `src/codec/text.rs`, `src/swap.rs` and
//! `src/stream/bytes.rs`, and in `from_block`, whose caller vouches for received bytes.

#[expect(
    unsafe_code,
    reason = "turns the initialised part of a block into a slice, calls what AVX2 was found for; proofs inside"
)]
mod block;
mod buffer;
pub mod codec;
#[expect(unsafe_code, reason = "a block of one of two types is a block; counts what the sink has pushed")]
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
#[cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "calls what AVX2 was found for"))]
mod swap;
mod validate;
mod write;

pub use mpj_pool as pool;

pub use self::buffer::{Buffer, message_start, section_len};
pub use self::codec::{Codec, Fixed, Postcard, Raw, RawVec, raw};
pub use self::element::{Element, ElementKind};
pub use self::error::{CodecError, FormatError, FromBlockError, IndexError, Overflow, ReadError, WriteError};
pub use self::header::{ALIGN, MESSAGE_HEADER, SECTION_HEADER, Section, VERSION};
pub use self::order::ByteOrder;
pub use self::read::Reading;
pub use self::scatter_gather::IndexInt;
pub use self::stream::{ByteWriter, MessageReader, ReceiveError, Received, Receiver};
pub use self::write::Writing;
