//! Several slices as one message.

use std::io::IoSlice;
use std::marker::PhantomData;

use mpj_datatypes::{Equivalent, Primitive};

use crate::raw::{Buf, ChainSegment};
use crate::types::SendBuf;

/// Slices that are sent as one message, for example a header and its payload, or the rows of a ragged table.
/// ```
/// use mpj::Slices;
///
/// # mpj::threads(2, |world| {
/// if world.rank() == 0 {
///     let rows = [vec![1u16], vec![], vec![2, 3, 4]];
///     world.send(&Slices::new(rows.iter().map(Vec::as_slice)), 1, 0)?;
/// } else {
///     let mut got = [0u16; 4];
///     world.recv(&mut got, 0, 0)?;
///     assert_eq!(got, [1, 2, 3, 4]);
/// }
/// # Ok::<(), mpj::Error>(()) }).unwrap();
/// ```
/// The elements must be primitives. Structures and all arrays are rejected, because they might have padding:
/// ```compile_fail,E0080
/// let pair = [[0u8; 2]; 3];
/// mpj::Slices::new([&pair[..]]);
/// ```
///
/// # Invariants
/// 1. `buf` describes slices of initialised elements that are borrowed for `'a`.
#[derive(Clone, Debug)]
pub struct Slices<'a> {
    buf: Buf,
    borrow: PhantomData<&'a ()>,
}

impl<'a> Slices<'a> {
    /// Describes slices of primitives as one message. Slices may be empty.
    pub fn new<T: Equivalent>(slices: impl IntoIterator<Item = &'a [T]>) -> Self {
        const { assert!(T::PRIMITIVE.is_some(), "`Slices` needs slices of primitives") };
        let segment = |slice: &[T]| ChainSegment { base: slice.as_ptr().cast(), len: size_of_val(slice) };
        Slices { buf: Buf::chain(slices.into_iter().map(segment), T::datatype()), borrow: PhantomData }
    }

    /// Describes slices of bytes as one message, like [`Write::write_vectored`](std::io::Write::write_vectored).
    pub fn from_io_slices(slices: &'a [IoSlice<'_>]) -> Self {
        let segments = slices.iter().map(|slice| ChainSegment::from(&**slice));
        Slices { buf: Buf::chain(segments, Primitive::U8), borrow: PhantomData }
    }
}

// SAFETY: invariant 1.
unsafe impl SendBuf for Slices<'_> {
    fn send_buf(&self) -> Buf {
        self.buf.clone()
    }
}

// SAFETY: shared borrows of plain elements.
unsafe impl Send for Slices<'_> {}
// SAFETY: as above.
unsafe impl Sync for Slices<'_> {}
