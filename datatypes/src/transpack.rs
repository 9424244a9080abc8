//! Copies from layout to layout without an intermediate packed form.

use core::ops::Range;

use crate::kernels::{self, Side};
use crate::{Datatype, Packer, Unpacker};

impl Datatype {
    /// Copies `count` items of this type at `src` to `into_count` items of `into` at `dst`, as if they were packed and
    /// unpacked. Copies only the bytes at the packed positions `packed`, up to the end of the shorter side. Returns
    /// their number.
    ///
    /// # Safety
    /// `src` and `count` obey the contract of [`pack`](Datatype::pack), `dst` and `into_count` that of
    /// [`unpack`](Datatype::unpack) for `into`. The bytes of the items on the two sides do not overlap.
    ///
    /// # Examples
    /// Copies a column to a row:
    /// ```
    /// use mpj_datatypes::Datatype;
    /// # fn main() -> Result<(), mpj_datatypes::TypeError> {
    /// let matrix = [[1u8, 2], [3, 4], [5, 6]];
    /// let mut row = [0u8; 3];
    /// let column = Datatype::of::<u8>().vector(3, 1, 2)?;
    /// let (src, dst) = (matrix.as_ptr().cast(), row.as_mut_ptr());
    /// // SAFETY: the column is inside the matrix, and three bytes are inside the row.
    /// let n = unsafe { column.transpack(src, 1, &Datatype::of::<u8>(), dst, 3, 0..3) };
    /// assert_eq!((n, row), (3, [1, 3, 5]));
    /// # Ok(()) }
    /// ```
    pub unsafe fn transpack(
        &self,
        src: *const u8,
        count: usize,
        into: &Datatype,
        dst: *mut u8,
        into_count: usize,
        packed: Range<usize>,
    ) -> usize {
        let position = packed.start;
        let total = self.packed_size_or_max(count).min(into.packed_size_or_max(into_count));
        let len = total.min(packed.end).saturating_sub(position);
        if len > 0 {
            let from =
                Side { plan: self.plan(), user: src.cast_mut(), count, stride: self.extent(), position };
            let to =
                Side { plan: into.plan(), user: dst, count: into_count, stride: into.extent(), position };
            // SAFETY: position + len is at most the packed size of either side; the caller promises their bytes, and
            // side `from` is only read.
            unsafe { kernels::transpack(from, to, len) };
        }
        len
    }
}

impl Packer<'_> {
    /// Copies the next packed bytes directly to the layout of `into`, up to the end of the shorter side. Returns their
    /// number.
    ///
    /// ```
    /// use mpj_datatypes::{Datatype, Packer, Unpacker};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let data = [1u8, 2, 3, 4, 5, 6];
    /// let mut back = [0u8; 6];
    /// let odd = Datatype::of::<u8>().vector(3, 1, 2)?;
    /// let reversed = Datatype::of::<u8>().vector(3, 1, -1)?;
    /// let mut unpacker = Unpacker::new(&reversed, &mut back, 2, 1)?;
    /// assert_eq!(Packer::new(&odd, &data, 0, 1)?.transpack(&mut unpacker), 3);
    /// assert_eq!(back, [5, 3, 1, 0, 0, 0]);
    /// # Ok(()) }
    /// ```
    pub fn transpack(&mut self, into: &mut Unpacker<'_>) -> usize {
        let len = self.remaining().min(into.remaining());
        if len == 0 {
            return 0;
        }
        // SAFETY: the invariants of the cursors: one borrows the bytes of its items shared and the other exclusively,
        // so the two sides do not overlap; both have `len` bytes left.
        unsafe { kernels::transpack(self.cursor.side(), into.cursor.side(), len) };
        self.cursor.skip(len);
        into.cursor.skip(len);
        len
    }
}
