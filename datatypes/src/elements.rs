//! Element counts and signatures of parts of a message.

use crate::{Datatype, Primitive, Signature, TypeEnvelope};

impl Datatype {
    /// Returns the signature of the first `elements` primitives of `count` items, or `None` if there are fewer. A
    /// shorter message matches a longer receive if it has this signature (MPI 4.1 §3.3.1, §5.1.11).
    ///
    /// ```
    /// use mpj_datatypes::Datatype;
    /// let row = Datatype::of::<f32>().contiguous(100)?;
    /// let sent = Datatype::of::<f32>().signature().repeat(130);
    /// assert_eq!(row.signature_prefix(2, sent.count), Some(sent));
    /// assert_eq!(row.signature_prefix(1, sent.count), None);
    /// # Ok::<(), mpj_datatypes::TypeError>(())
    /// ```
    pub fn signature_prefix(&self, count: usize, elements: u64) -> Option<Signature> {
        let mut done = Signature::EMPTY;
        let (mut datatype, mut count, mut left) = (self.clone(), count, elements);
        while left > 0 {
            let each = datatype.element_count();
            let whole = left.checked_div(each)?;
            left -= whole * each;
            if whole > count as u64 || (whole == count as u64 && left > 0) {
                return None;
            }
            done = done.concat(datatype.signature().repeat(whole));
            if left > 0 {
                (datatype, count) = locate_boundary(&datatype, |len, inner| {
                    let all = len as u64 * inner.element_count();
                    let inside = left <= all;
                    if !inside {
                        left -= all;
                        done = done.concat(inner.signature().repeat(len as u64));
                    }
                    inside
                })?;
            }
        }
        Some(done)
    }

    /// Returns the number of primitives in `bytes` packed bytes of `count` items, or `None` if the bytes end inside a
    /// primitive or exceed the items (`MPI_Get_elements`, MPI 4.1 §5.1.11).
    ///
    /// ```
    /// use mpj_datatypes::Datatype;
    /// let pair = Datatype::structure(&[(1, 0, Datatype::of::<i16>()), (1, 8, Datatype::of::<f64>())])?;
    /// assert_eq!(pair.element_count_in(5, 22), Some(5));
    /// assert_eq!(pair.element_count_in(5, 11), None);
    /// # Ok::<(), mpj_datatypes::TypeError>(())
    /// ```
    pub fn element_count_in(&self, count: usize, bytes: usize) -> Option<u64> {
        let mut done = 0u64;
        let (mut datatype, mut count, mut left) = (self.clone(), count, bytes);
        while left > 0 {
            let each = datatype.size();
            let whole = left.checked_div(each)?;
            left -= whole * each;
            if whole > count || (whole == count && left > 0) {
                return None;
            }
            // At most `bytes`, because a primitive has at least one byte.
            done += whole as u64 * datatype.element_count();
            if left > 0 {
                (datatype, count) = locate_boundary(&datatype, |len, inner| {
                    let all = len * inner.size();
                    let inside = left <= all;
                    if !inside {
                        left -= all;
                        done += len as u64 * inner.element_count();
                    }
                    inside
                })?;
            }
        }
        Some(done)
    }

    /// Returns the number of items in `bytes` packed bytes, or `None` if they are not a whole number of items
    /// (`MPI_Get_count`, MPI 4.1 §3.2.5: `MPI_UNDEFINED`). Zero bytes are zero items of any type.
    ///
    /// ```
    /// use mpj_datatypes::Datatype;
    /// let row = Datatype::of::<f64>().contiguous(3)?;
    /// assert_eq!(row.item_count_in(48), Some(2));
    /// assert_eq!(row.item_count_in(40), None);
    /// assert_eq!(row.element_count_in(2, 40), Some(5));
    /// # Ok::<(), mpj_datatypes::TypeError>(())
    /// ```
    pub fn item_count_in(&self, bytes: usize) -> Option<usize> {
        match (bytes, self.size()) {
            (0, _) => Some(0),
            (_, 0) => None,
            (bytes, size) => bytes.is_multiple_of(size).then_some(bytes / size),
        }
    }

    /// Returns the packed size of the first `elements` primitives of `count` items, or `None` if there are fewer or the
    /// size overflows (for `MPI_Status_set_elements`, MPI 4.1 §13.3).
    ///
    /// ```
    /// use mpj_datatypes::Datatype;
    /// let pair = Datatype::structure(&[(1, 0, Datatype::of::<i16>()), (1, 8, Datatype::of::<f64>())])?;
    /// assert_eq!(pair.bytes_of_elements(5, 3), Some(12));
    /// assert_eq!(pair.bytes_of_elements(1, 3), None);
    /// # Ok::<(), mpj_datatypes::TypeError>(())
    /// ```
    pub fn bytes_of_elements(&self, count: usize, elements: u64) -> Option<usize> {
        let mut done = 0usize;
        let (mut datatype, mut count, mut left) = (self.clone(), count, elements);
        while left > 0 {
            let each = datatype.element_count();
            let whole = left.checked_div(each)?;
            left -= whole * each;
            if whole > count as u64 || (whole == count as u64 && left > 0) {
                return None;
            }
            done = done.checked_add((whole as usize).checked_mul(datatype.size())?)?;
            if left > 0 {
                (datatype, count) = locate_boundary(&datatype, |len, inner| {
                    let all = len as u64 * inner.element_count();
                    let inside = left <= all;
                    if !inside {
                        left -= all;
                        done += len * inner.size();
                    }
                    inside
                })?;
            }
        }
        Some(done)
    }

    /// Returns whether one item of each type contains the same primitives in the same order. Exact, unlike equal
    /// [signatures](Self::signature), which are hashes. The time grows with the number of items of mixed primitives.
    ///
    /// ```
    /// use mpj_datatypes::Datatype;
    /// let (number, flag) = (Datatype::of::<u8>(), Datatype::of::<bool>());
    /// let mixed = Datatype::structure(&[(1, 0, number.clone()), (2, 1, flag.clone())])?;
    /// let nested = Datatype::structure(&[(1, 0, mixed.clone()), (1, 8, number.clone())])?;
    /// let flat = [(1, 0, number.clone()), (1, 2, flag.clone()), (1, 4, flag), (1, 6, number)];
    /// assert!(nested.has_same_elements(&Datatype::structure(&flat)?));
    /// assert!(!nested.has_same_elements(&mixed));
    /// # Ok::<(), mpj_datatypes::TypeError>(())
    /// ```
    pub fn has_same_elements(&self, other: &Datatype) -> bool {
        if core::ptr::eq(self.node(), other.node()) {
            return true;
        }
        let runs = |datatype: &Datatype| {
            let mut runs = Vec::new();
            add_primitive_runs(datatype, 1, &mut runs);
            runs
        };
        self.element_count() == other.element_count() && runs(self) == runs(other)
    }

    /// Returns the primitive with this index among those of one item.
    pub(crate) fn primitive_at(&self, index: u64) -> Option<Primitive> {
        let (mut datatype, mut index) = (self.clone(), index);
        while datatype.single_primitive().is_none() {
            index = index.checked_rem(datatype.element_count())?;
            (datatype, _) = locate_boundary(&datatype, |len, inner| {
                let all = len as u64 * inner.element_count();
                let inside = index < all;
                if !inside {
                    index -= all;
                }
                inside
            })?;
        }
        datatype.single_primitive()
    }

    /// Returns, for a packed position inside `count` items: the width of the numbers there, the number of bytes of the
    /// current number before the position, and a lower bound of the packed bytes from there on that have this width.
    pub(crate) fn numbers_at(&self, count: usize, position: usize) -> Option<(usize, usize, usize)> {
        let (mut datatype, mut count, mut position) = (self.clone(), count, position);
        loop {
            let size = datatype.size();
            if let Some(primitive) = datatype.single_primitive() {
                let width = primitive.swap_width();
                let left = datatype.packed_size_or_max(count).checked_sub(position)?;
                return (left > 0).then_some((width, position % width, left));
            }
            position = position.checked_rem(size)?;
            (datatype, count) = locate_boundary(&datatype, |len, inner| {
                let all = len * inner.size();
                let inside = position < all;
                if !inside {
                    position -= all;
                }
                inside
            })?;
        }
    }
}

fn add_primitive_runs(datatype: &Datatype, count: usize, runs: &mut Vec<(Primitive, u64)>) {
    if let Some(primitive) = datatype.single_primitive() {
        let more = datatype.element_count() * count as u64;
        match runs.last_mut() {
            Some((last, total)) if *last == primitive => *total += more,
            _ if more > 0 => runs.push((primitive, more)),
            _ => (),
        }
        return;
    }
    for _ in 0..count {
        // The closure returns false, so that the search visits all pieces.
        locate_boundary(datatype, |len, inner| {
            add_primitive_runs(inner, len, runs);
            false
        });
    }
}

/// Finds the piece (type, number of items) of one item that contains a position: the first for which `ends_in` returns
/// true. Returns `None` if no piece does, and for primitives. A piece is a field, or all items of the only inner type.
fn locate_boundary(
    datatype: &Datatype,
    mut ends_in: impl FnMut(usize, &Datatype) -> bool,
) -> Option<(Datatype, usize)> {
    let node = datatype.node();
    let items = |inner: &Datatype| node.size.checked_div(inner.size());
    match &node.envelope {
        TypeEnvelope::Primitive(_) => None,
        TypeEnvelope::Pair { value, index } => {
            let fields = [*value, *index].map(Datatype::primitive);
            fields.into_iter().find(|inner| ends_in(1, inner)).map(|inner| (inner, 1))
        }
        TypeEnvelope::Contiguous { inner, .. }
        | TypeEnvelope::Vector { inner, .. }
        | TypeEnvelope::HVector { inner, .. }
        | TypeEnvelope::Indexed { inner, .. }
        | TypeEnvelope::HIndexed { inner, .. }
        | TypeEnvelope::IndexedBlock { inner, .. }
        | TypeEnvelope::HIndexedBlock { inner, .. }
        | TypeEnvelope::Subarray { inner, .. }
        | TypeEnvelope::Darray { inner, .. }
        | TypeEnvelope::Dup { inner }
        | TypeEnvelope::Resized { inner, .. } => {
            let count = items(inner)?;
            ends_in(count, inner).then(|| (inner.clone(), count))
        }
        TypeEnvelope::Structure { fields } => {
            let mut sized = fields.iter().filter(|(len, _, inner)| *len > 0 && inner.size() > 0);
            sized.find(|(len, _, inner)| ends_in(*len, inner)).map(|(len, _, inner)| (inner.clone(), *len))
        }
    }
}
