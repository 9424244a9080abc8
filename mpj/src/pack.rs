//! Packing of buffers into bytes, and the reverse (MPI_Pack, MPI_Unpack, MPI_Pack_external, MPI_Unpack_external).

use crate::error::Result;
use crate::raw::{self, Buf};
use crate::types::{RecvBuf, SendBuf};

/// Returns the packed items of a buffer, without gaps (MPI_Pack).
///
/// The bytes have the byte order of this machine. Several packed buffers can follow each other, and [`Packed`] sends
/// them as one message.
/// ```
/// use mpj::{Packed, pack, unpack};
///
/// # mpj::threads(2, |world| {
/// if world.rank() == 0 {
///     let mut bytes = pack(&[1.5, 2.5])?;
///     bytes.extend(pack(&['x', 'y', 'z'])?);
///     world.send(&Packed(bytes), 1, 0)?;
/// } else {
///     let (bytes, _status) = world.recv_vec::<u8>(0, 0)?;
///     let (mut numbers, mut letters) = ([0.0; 2], ['?'; 3]);
///     let used = unpack(&bytes, &mut numbers)?;
///     unpack(&bytes[used..], &mut letters)?;
///     assert_eq!((numbers, letters), ([1.5, 2.5], ['x', 'y', 'z']));
/// }
/// # Ok::<(), mpj::Error>(()) }).unwrap();
/// ```
///
/// # Errors
/// The [buffer](raw::BufError) is invalid, or memory is exhausted.
pub fn pack<B: SendBuf + ?Sized>(buf: &B) -> Result<Vec<u8>> {
    // SAFETY: `buf` is borrowed until we return, and `SendBuf` guarantees a valid description.
    unsafe { raw::pack(&buf.send_buf()) }
}

/// Unpacks items from the beginning of `bytes` into a buffer, until it is full. Returns the number of bytes used
/// (MPI_Unpack).
///
/// # Errors
/// [`ErrorClass::Truncate`](crate::ErrorClass::Truncate) if there are too few bytes,
/// [`ErrorClass::Type`](crate::ErrorClass::Type) if items overlap, or the [buffer](raw::BufError) is invalid: the
/// buffer is unchanged. `Type` also if a `bool` or `char` is invalid: `false` or `'\0'` replaces it.
pub fn unpack<B: RecvBuf + ?Sized>(bytes: &[u8], buf: &mut B) -> Result<usize> {
    // SAFETY: `buf` is borrowed mutably until we return, and `RecvBuf` guarantees a valid description.
    unsafe { raw::unpack(bytes, &buf.recv_buf()) }
}

/// Returns the length of the packed items of a buffer in bytes, in either form (MPI_Pack_size).
///
/// # Errors
/// The [buffer](raw::BufError) is invalid.
pub fn pack_size<B: SendBuf + ?Sized>(buf: &B) -> Result<usize> {
    raw::pack_size(&buf.send_buf())
}

/// Packs as [`pack`] does, in the portable form `external32`: all numbers are in big endian (MPI_Pack_external).
///
/// ```
/// let bytes = mpj::pack_external32(&[0x0102u16, 0x0304])?;
/// assert_eq!(bytes, [1, 2, 3, 4]);
/// let mut numbers = [0u16; 2];
/// mpj::unpack_external32(&bytes, &mut numbers)?;
/// assert_eq!(numbers, [0x0102, 0x0304]);
/// # Ok::<(), mpj::Error>(())
/// ```
///
/// # Errors
/// As [`pack`]; the buffer consists of several pieces.
pub fn pack_external32<B: SendBuf + ?Sized>(buf: &B) -> Result<Vec<u8>> {
    // SAFETY: as in `pack`.
    unsafe { raw::pack_external32(&buf.send_buf()) }
}

/// Unpacks as [`unpack`] does, from the portable form (MPI_Unpack_external).
///
/// # Errors
/// As [`unpack`].
pub fn unpack_external32<B: RecvBuf + ?Sized>(bytes: &[u8], buf: &mut B) -> Result<usize> {
    // SAFETY: as in `unpack`.
    unsafe { raw::unpack_external32(bytes, &buf.recv_buf()) }
}

/// Packed bytes as a buffer (MPI_PACKED): it matches a message of any type. See [`pack`].
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Packed(pub Vec<u8>);

// SAFETY: the bytes are initialised, and on the heap.
unsafe impl SendBuf for Packed {
    fn send_buf(&self) -> Buf {
        Buf::read_only(self.0.as_ptr(), self.0.len(), mpj_datatypes::Primitive::Packed)
    }
}

// SAFETY: as above, and any byte is valid.
unsafe impl RecvBuf for Packed {
    fn recv_buf(&mut self) -> Buf {
        Buf::new(self.0.as_mut_ptr(), self.0.len(), mpj_datatypes::Primitive::Packed)
    }
}
