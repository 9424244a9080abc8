//! external32, the portable form of packed data (MPI 4.1 §14.5.2): the native form with all numbers in big endian.
//! `usize` and `isize` have this machine's width, `bool` one byte, `char` four.

use crate::{Datatype, Packer, TooLongError, Unpacker, slice_bounds};
use core::mem::MaybeUninit;

/// Bytes of the stack buffer in which received numbers are swapped.
const STAGE: usize = 4096;

/// The next packed bytes that are swapped in the same way.
enum Piece {
    /// One byte of a number that the call copies only in part: the packed position of this byte in native byte order.
    Byte(usize),
    /// `len` bytes of complete numbers of `width` bytes each.
    Whole { len: usize, width: usize },
}

impl Datatype {
    /// Packs as [`pack`](Datatype::pack) does, in the portable form (`MPI_Pack_external`), which has the same length.
    /// Packing may stop and resume at any byte.
    ///
    /// # Safety
    /// That of [`pack`](Datatype::pack).
    pub unsafe fn pack_external32(
        &self,
        src: *const u8,
        count: usize,
        position: usize,
        out: &mut [MaybeUninit<u8>],
    ) -> usize {
        let total = self.packed_size_or_max(count).saturating_sub(position).min(out.len());
        let mut done = 0;
        while done < total {
            let Some(piece) = self.piece(count, position + done, total - done) else { break };
            match piece {
                Piece::Byte(at) => {
                    // SAFETY: the caller's promise; one byte inside the packed form.
                    unsafe { self.pack(src, count, at, &mut out[done..done + 1]) };
                    done += 1;
                }
                Piece::Whole { len, width } => {
                    let out = &mut out[done..done + len];
                    // SAFETY: the caller's promise.
                    unsafe { self.pack(src, count, position + done, out) };
                    convert_byte_order(out, width);
                    done += len;
                }
            }
        }
        done
    }

    /// Unpacks as [`unpack`](Datatype::unpack) does, from the portable form (`MPI_Unpack_external`).
    ///
    /// # Safety
    /// That of [`unpack`](Datatype::unpack).
    pub unsafe fn unpack_external32(
        &self,
        dst: *mut u8,
        count: usize,
        position: usize,
        input: &[u8],
    ) -> usize {
        let total = self.packed_size_or_max(count).saturating_sub(position).min(input.len());
        let mut stage = [0u8; STAGE];
        let mut done = 0;
        while done < total {
            let Some(piece) = self.piece(count, position + done, (total - done).min(STAGE)) else { break };
            match piece {
                Piece::Byte(at) => {
                    // SAFETY: the caller's promise; one byte inside the packed form.
                    unsafe { self.unpack(dst, count, at, &input[done..done + 1]) };
                    done += 1;
                }
                Piece::Whole { len, width } => {
                    let stage = &mut stage[..len];
                    stage.copy_from_slice(&input[done..done + len]);
                    convert_byte_order(slice_bounds::view_mut(stage), width);
                    // SAFETY: the caller's promise.
                    unsafe { self.unpack(dst, count, position + done, stage) };
                    done += len;
                }
            }
        }
        done
    }

    fn piece(&self, count: usize, position: usize, limit: usize) -> Option<Piece> {
        let (width, within, left) = self.numbers_at(count, position)?;
        let len = limit.min(left) / width * width;
        if within > 0 || len == 0 {
            let first = position - within;
            return Some(Piece::Byte(if cfg!(target_endian = "big") {
                position
            } else {
                first + (width - 1 - within)
            }));
        }
        Some(Piece::Whole { len, width })
    }
}

impl Packer<'_> {
    /// Packs the next bytes in the portable form and returns their number: `min(out.len(), self.remaining())`.
    ///
    /// ```
    /// use mpj_datatypes::Packer;
    /// let numbers = [0x0102u16, 0x0304];
    /// let mut portable = [0; 4];
    /// Packer::of_slice(&numbers)?.pack_external32_into(&mut portable);
    /// assert_eq!(portable, [1, 2, 3, 4]);
    /// # Ok::<(), mpj_datatypes::OutOfRangeError>(())
    /// ```
    pub fn pack_external32_into(&mut self, out: &mut [u8]) -> usize {
        let (datatype, at, count, position) = self.cursor.parts();
        // SAFETY: the bytes of the items are initialised and borrowed, by the invariant of `cursor`.
        let n = unsafe { datatype.pack_external32(at, count, position, slice_bounds::view_mut(out)) };
        self.cursor.skip(n);
        n
    }
}

impl Unpacker<'_> {
    /// Unpacks all of `input` from the portable form and returns its length.
    ///
    /// # Errors
    /// [`TooLongError`] if `input` is longer than [`remaining`](Unpacker::remaining); then nothing is written.
    ///
    /// # Examples
    /// ```
    /// use mpj_datatypes::Unpacker;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut numbers = [0u32; 1];
    /// let mut unpacker = Unpacker::of_slice(&mut numbers)?;
    /// unpacker.unpack_external32_from(&[0, 0, 1])?;
    /// unpacker.unpack_external32_from(&[2])?;
    /// assert_eq!(numbers, [258]);
    /// # Ok(()) }
    /// ```
    pub fn unpack_external32_from(&mut self, input: &[u8]) -> Result<usize, TooLongError> {
        let capacity = self.remaining();
        if input.len() > capacity {
            return Err(TooLongError { given: input.len(), capacity });
        }
        let (datatype, at, count, position) = self.cursor.parts();
        // SAFETY: the bytes of the items may be written and are exclusively borrowed, by the invariant of `cursor`.
        let n = unsafe { datatype.unpack_external32(at, count, position, input) };
        self.cursor.skip(n);
        Ok(n)
    }
}

fn convert_byte_order(bytes: &mut [MaybeUninit<u8>], width: usize) {
    if cfg!(target_endian = "big") {
        return;
    }
    match width {
        2 => bytes.as_chunks_mut::<2>().0.iter_mut().for_each(|number| number.reverse()),
        4 => bytes.as_chunks_mut::<4>().0.iter_mut().for_each(|number| number.reverse()),
        8 => bytes.as_chunks_mut::<8>().0.iter_mut().for_each(|number| number.reverse()),
        16 => bytes.as_chunks_mut::<16>().0.iter_mut().for_each(|number| number.reverse()),
        _ => {}
    }
}
