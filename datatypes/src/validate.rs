//! Validation of received `bool`s and `char`s.

use crate::kernels::check;
use crate::{ArrayOrder, Datatype, InvalidValueError, TypeEnvelope, construct};

impl Datatype {
    /// Checks every `bool` and `char` of `count` items that begins in the first `bytes` packed bytes, even if it ends
    /// after them. Replaces invalid elements by `false` and `'\0'`, and reports the first.
    ///
    /// # Errors
    /// [`InvalidValueError`]: the first invalid element in pack order. All invalid elements are replaced.
    ///
    /// # Safety
    /// As for [`Datatype::unpack`], and every byte of the elements to check is initialised.
    ///
    /// # Examples
    /// ```
    /// use mpj_datatypes::{Datatype, Primitive};
    /// let flags = Datatype::of::<bool>();
    /// let mut received = [1u8, 0, 7, 1];
    /// // SAFETY: four bytes, exclusively borrowed.
    /// let bad = unsafe { flags.validate(received.as_mut_ptr(), 4, 4) }.unwrap_err();
    /// assert_eq!((bad.primitive, bad.position, bad.bits), (Primitive::Bool, 2, 7));
    /// assert_eq!(received, [1, 0, 0, 1]);
    /// ```
    pub unsafe fn validate(&self, dst: *mut u8, count: usize, bytes: usize) -> Result<(), InvalidValueError> {
        let mut scan = Validator { bytes, position: 0, first: Ok(()) };
        // SAFETY: the caller promises the memory of `count` items at `dst`.
        unsafe { scan.items(self, dst, count) };
        scan.first
    }
}

struct Validator {
    bytes: usize,
    /// Current packed position, saturated: a layout that overlaps itself may exceed `usize::MAX`.
    position: usize,
    first: Result<(), InvalidValueError>,
}

impl Validator {
    fn done(&self) -> bool {
        self.position >= self.bytes
    }

    /// Visits `count` items, an extent apart.
    ///
    /// # Safety
    /// That of [`Datatype::validate`] for `count` items at `at`.
    unsafe fn items(&mut self, datatype: &Datatype, at: *mut u8, count: usize) {
        if !datatype.needs_validation() {
            self.position = self.position.saturating_add(datatype.packed_size_or_max(count));
            return;
        }
        if let Some(primitive) = datatype.as_primitive() {
            let left = self.bytes.saturating_sub(self.position);
            let n = count.min(left.div_ceil(primitive.size()));
            // SAFETY: the elements are contiguous (the extent of a primitive is its size), and n of the `count` that
            // the caller promises.
            let found = unsafe { check::elements(primitive, at, n, self.position) };
            self.first = self.first.and(found);
            self.position = self.position.saturating_add(datatype.packed_size_or_max(count));
            return;
        }
        let node = datatype.node();
        for i in 0..count {
            if self.done() {
                return;
            }
            let item = step(at, i, node.extent.extent());
            match &node.lowered {
                // SAFETY: item i of the caller's; the lowered type has the same bytes.
                Some(lowered) => unsafe { self.items(lowered, item, 1) },
                // SAFETY: item i of the caller's.
                None => unsafe { self.item(&node.envelope, item) },
            }
        }
    }

    /// # Safety
    /// That of [`Datatype::validate`] for one item, built as `envelope` says, at `at`.
    unsafe fn item(&mut self, envelope: &TypeEnvelope, at: *mut u8) {
        match envelope {
            // Handled by `items`.
            TypeEnvelope::Primitive(_) | TypeEnvelope::Darray { .. } => {}
            TypeEnvelope::Subarray { ranges, order, inner } => {
                // Without dimensions all items are one row.
                let fastest = match order {
                    ArrayOrder::C => ranges.last(),
                    ArrayOrder::Fortran => ranges.first(),
                };
                let row = fastest.map_or(1, |range| range.sub_size);
                let rows = construct::rows(ranges, *order, inner.extent());
                // SAFETY: the type has these rows.
                unsafe { self.blocks(rows.map(|by| (row, step(at, 1, by), inner))) }
            }
            TypeEnvelope::Pair { value, index } => {
                let offset = value.size().next_multiple_of(index.align());
                let fields = [(*value, 0), (*index, offset)].map(|(p, by)| (Datatype::primitive(p), by));
                // SAFETY: the type has these two.
                unsafe { self.blocks(fields.iter().map(|(inner, by)| (1, step(at, *by, 1), inner))) }
            }
            TypeEnvelope::Contiguous { count, inner } => {
                // SAFETY: the type has these items.
                unsafe { self.items(inner, at, *count) }
            }
            TypeEnvelope::Resized { inner, .. } | TypeEnvelope::Dup { inner } => {
                // SAFETY: the type has this item.
                unsafe { self.items(inner, at, 1) }
            }
            TypeEnvelope::Vector { count, block, stride, inner } => {
                let stride = (*stride as i64).wrapping_mul(inner.extent());
                // SAFETY: the type has these blocks.
                unsafe { self.blocks((0..*count).map(|i| (*block, step(at, i, stride), inner))) }
            }
            TypeEnvelope::HVector { count, block, stride_bytes, inner } => {
                // SAFETY: the type has these blocks.
                unsafe { self.blocks((0..*count).map(|i| (*block, step(at, i, *stride_bytes), inner))) }
            }
            TypeEnvelope::Indexed { blocks, inner } => {
                let start = |by: isize| step(at, 1, (by as i64).wrapping_mul(inner.extent()));
                // SAFETY: the type has these blocks.
                unsafe { self.blocks(blocks.iter().map(|&(len, by)| (len, start(by), inner))) }
            }
            TypeEnvelope::HIndexed { blocks, inner } => {
                // SAFETY: the type has these blocks.
                unsafe { self.blocks(blocks.iter().map(|&(len, by)| (len, step(at, 1, by), inner))) }
            }
            TypeEnvelope::IndexedBlock { block, displacements, inner } => {
                let start = |by: isize| step(at, 1, (by as i64).wrapping_mul(inner.extent()));
                // SAFETY: the type has these blocks.
                unsafe { self.blocks(displacements.iter().map(|&by| (*block, start(by), inner))) }
            }
            TypeEnvelope::HIndexedBlock { block, displacements, inner } => {
                // SAFETY: the type has these blocks.
                unsafe { self.blocks(displacements.iter().map(|&by| (*block, step(at, 1, by), inner))) }
            }
            TypeEnvelope::Structure { fields } => {
                // SAFETY: the type has these fields.
                unsafe { self.blocks(fields.iter().map(|(len, by, inner)| (*len, step(at, 1, *by), inner))) }
            }
        }
    }

    /// Visits blocks given as (number of items, start, type).
    ///
    /// # Safety
    /// That of [`Datatype::validate`] for each.
    unsafe fn blocks<'a>(&mut self, blocks: impl Iterator<Item = (usize, *mut u8, &'a Datatype)>) {
        for (len, at, inner) in blocks {
            if self.done() {
                return;
            }
            // SAFETY: the caller's promise for this block.
            unsafe { self.items(inner, at, len) };
        }
    }
}

/// Returns `at` moved by `count` strides. The result may be outside of the buffer; then it is not accessed.
fn step(at: *mut u8, count: usize, stride: i64) -> *mut u8 {
    at.wrapping_offset((stride as isize).wrapping_mul(count as isize))
}
