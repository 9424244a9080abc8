//! Packing of buffers into bytes, and the reverse.

use std::mem::MaybeUninit;

use mpj_datatypes::Primitive;
use mpj_devices::{Buf, BufError, Source, Target};

use super::p2p::check_no_overlap;
use crate::error::{Error, ErrorClass, Result};

/// Returns the length of the packed items in bytes, in either form (MPI_Pack_size, MPI_Pack_external_size).
///
/// # Errors
/// The [buffer](BufError) is invalid.
pub fn pack_size(buf: &Buf) -> Result<usize> {
    buf.bytes().map_err(|error| Error::buf("pack_size", error))
}

/// Returns the packed items in the byte order of this machine (MPI_Pack).
///
/// # Errors
/// The [buffer](BufError) is invalid, or memory is exhausted.
///
/// # Safety
/// The contract of a send buffer, until the call returns.
pub unsafe fn pack(buf: &Buf) -> Result<Vec<u8>> {
    const CALL: &str = "pack";
    // SAFETY: the caller's contract.
    let source = unsafe { Source::new(buf.clone(), None) }.map_err(|error| Error::buf(CALL, error))?;
    filled(CALL, source.bytes(), |room| {
        let room = Buf::new(room.as_mut_ptr().cast(), room.len(), Primitive::Packed);
        // SAFETY: the room is ours.
        let room = unsafe { Target::new(room, None) }.map_err(|error| Error::buf(CALL, error))?;
        source.copy_items(room).map_err(|error| Error::new(ErrorClass::Type, CALL, error.to_string()))
    })
}

/// Returns the packed items in the portable form `external32` (MPI_Pack_external).
///
/// # Errors
/// As [`pack`]; [`ErrorClass::Buffer`] if the buffer is a chain.
///
/// # Safety
/// As [`pack`].
pub unsafe fn pack_external32(buf: &Buf) -> Result<Vec<u8>> {
    const CALL: &str = "pack_external32";
    let bytes = buf.bytes().map_err(|error| Error::buf(CALL, error))?;
    if buf.pieces().is_some() {
        return Err(Error::new(ErrorClass::Buffer, CALL, "expected one piece, found a chain; use pack"));
    }
    filled(CALL, bytes, |room| {
        // SAFETY: the caller's contract.
        unsafe { buf.datatype().pack_external32(buf.base(), buf.count(), 0, room) };
        Ok(())
    })
}

/// Returns `bytes` bytes that `fill` has written; it writes all of them if it succeeds.
fn filled(
    call: &'static str,
    bytes: usize,
    fill: impl FnOnce(&mut [MaybeUninit<u8>]) -> Result<()>,
) -> Result<Vec<u8>> {
    let mut packed = Vec::new();
    packed.try_reserve_exact(bytes).map_err(|error| {
        Error::new(ErrorClass::NoMem, call, format!("no memory for {bytes} bytes: {error}"))
    })?;
    fill(&mut packed.spare_capacity_mut()[..bytes])?;
    // SAFETY: `fill` has written the bytes.
    unsafe { packed.set_len(bytes) };
    Ok(packed)
}

/// Unpacks the items of a buffer from the beginning of `bytes`, and returns the number of bytes used (MPI_Unpack).
///
/// # Errors
/// [`ErrorClass::Truncate`] if there are too few bytes, [`ErrorClass::Type`] if items overlap, or the
/// [buffer](BufError) is invalid: it is unchanged. `Type` also if a `bool` or `char` is invalid; `false` or `'\0'`
/// replaces it.
///
/// # Safety
/// The contract of a receive buffer, until the call returns; it does not overlap with `bytes`.
pub unsafe fn unpack(bytes: &[u8], buf: &Buf) -> Result<usize> {
    const CALL: &str = "unpack";
    let packed = packed_items(CALL, bytes, buf)?;
    // SAFETY: the bytes are borrowed, and only read.
    let source =
        unsafe { Source::new(Buf::read_only(packed.as_ptr(), packed.len(), Primitive::Packed), None) };
    let source = source.map_err(|error| Error::buf(CALL, error))?;
    // SAFETY: the caller's contract.
    let target = unsafe { Target::new(buf.clone(), None) }.map_err(|error| Error::buf(CALL, error))?;
    source.copy_items(target).map_err(|error| Error::new(ErrorClass::Type, CALL, error.to_string()))?;
    Ok(packed.len())
}

/// Unpacks as [`unpack`] does, from the portable form (MPI_Unpack_external).
///
/// # Errors
/// As [`unpack`].
///
/// # Safety
/// As [`unpack`].
pub unsafe fn unpack_external32(bytes: &[u8], buf: &Buf) -> Result<usize> {
    const CALL: &str = "unpack_external32";
    let packed = packed_items(CALL, bytes, buf)?;
    let (base, count) = (buf.base(), buf.count());
    // SAFETY: the caller's contract.
    unsafe { buf.datatype().unpack_external32(base, count, 0, packed) };
    if buf.datatype().needs_validation() {
        // SAFETY: the caller's contract; all bytes of the items were written.
        let valid = unsafe { buf.datatype().validate(base, count, packed.len()) };
        valid.map_err(|error| Error::new(ErrorClass::Type, CALL, error.to_string()))?;
    }
    Ok(packed.len())
}

/// Returns the bytes for all items of a buffer to unpack into.
fn packed_items<'b>(call: &'static str, bytes: &'b [u8], buf: &Buf) -> Result<&'b [u8]> {
    let size = buf.bytes().map_err(|error| Error::buf(call, error))?;
    if buf.pieces().is_some() {
        return Err(Error::buf(call, BufError::Chain));
    }
    check_no_overlap(call, buf.count(), buf.datatype())?;
    bytes.get(..size).ok_or_else(|| {
        let why = format!("the buffer needs {size} packed bytes, and there are {}", bytes.len());
        Error::new(ErrorClass::Truncate, call, why)
    })
}
