//! Limits for a value that is decoded: nesting, zero-sized elements, and reserved memory.

use core::cell::Cell;

use serde::de::Error;

use super::{MAX_DEPTH, MAX_ZERO_SIZED};
use crate::CodecError;

pub(super) struct Limits {
    depth: Cell<u32>,
    zero_sized: Cell<u32>,
    /// Number of elements for which memory may still be reserved: at first, one per byte of the value.
    reservable_elements: Cell<usize>,
    /// Whether bytes have been read since this flag was last cleared.
    pub(super) has_read_bytes: Cell<bool>,
    failure: Cell<Option<CodecError>>,
}

impl Limits {
    pub(super) fn new(bytes: usize) -> Self {
        Self {
            depth: Cell::new(MAX_DEPTH),
            zero_sized: Cell::new(MAX_ZERO_SIZED),
            reservable_elements: Cell::new(bytes),
            has_read_bytes: Cell::new(false),
            failure: Cell::new(None),
        }
    }

    pub(super) fn failure(&self) -> Option<CodecError> {
        self.failure.get()
    }

    /// Returns the number of elements for which to reserve memory: at most `announced`, and one per byte. All sequences
    /// of a value share `reservable_elements`; otherwise nested sequences with false lengths would reserve memory at
    /// every level.
    pub(super) fn hint(&self, announced: usize) -> usize {
        let reservable_elements = self.reservable_elements.get();
        let hint = announced.min(reservable_elements);
        self.reservable_elements.set(reservable_elements - hint);
        hint
    }

    #[cold]
    fn fail<E: Error>(&self, error: CodecError) -> E {
        self.failure.set(Some(error));
        E::custom(error)
    }

    #[inline]
    pub(super) fn nested<T, E: Error>(&self, read: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let Some(depth) = self.depth.get().checked_sub(1) else {
            return Err(self.fail(CodecError::TooDeep { limit: MAX_DEPTH }));
        };
        self.depth.set(depth);
        let value = read();
        self.depth.set(depth + 1);
        value
    }

    /// Reads an element of a sequence whose length is in the bytes, counts the element if it is zero-sized, and returns
    /// whether it has bytes. After an element with bytes the caller stops counting: all elements have the same type.
    #[inline]
    pub(super) fn element<T, E: Error>(
        &self,
        read: impl FnOnce() -> Result<Option<T>, E>,
    ) -> Result<(Option<T>, bool), E> {
        self.has_read_bytes.set(false);
        let value = read()?;
        let has_bytes = self.has_read_bytes.replace(true);
        if value.is_some() && !has_bytes {
            match self.zero_sized.get().checked_sub(1) {
                Some(empty) => self.zero_sized.set(empty),
                None => return Err(self.fail(CodecError::TooManyZeroSized { limit: MAX_ZERO_SIZED })),
            }
        }
        // `has_read_bytes` is now set for the enclosing sequence, because the length of this sequence has bytes.
        Ok((value, has_bytes))
    }
}
