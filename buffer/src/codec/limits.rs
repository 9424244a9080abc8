//! Limits for a value that is decoded: nesting, zero-sized elements, and reserved memory.

use core::cell::Cell;

use serde::de::Error;

use super::{MAX_DEPTH, MAX_ZERO_SIZED};
use crate::CodecError;

/// The limits that remain while one value is decoded.
pub(super) struct Limits {
    depth: Cell<u32>,
    zero_sized: Cell<u32>,
    /// For how many further elements sequences may reserve memory.
    room: Cell<usize>,
    /// Whether anything that takes bytes has been read since this was last cleared.
    pub(super) moved: Cell<bool>,
    failure: Cell<Option<CodecError>>,
}

impl Limits {
    /// Returns the limits for a value of `bytes` bytes.
    pub(super) fn new(bytes: usize) -> Self {
        Self {
            depth: Cell::new(MAX_DEPTH),
            zero_sized: Cell::new(MAX_ZERO_SIZED),
            room: Cell::new(bytes),
            moved: Cell::new(false),
            failure: Cell::new(None),
        }
    }

    /// Returns which limit was exceeded, if one was.
    pub(super) fn failure(&self) -> Option<CodecError> {
        self.failure.get()
    }

    /// Returns for how many elements memory may be reserved if `announced` are announced. In a valid value each has at
    /// least one byte. Forged lengths in nested sequences could otherwise reserve memory for all bytes at every level.
    pub(super) fn hint(&self, announced: usize) -> usize {
        let room = self.room.get();
        let hint = announced.min(room);
        self.room.set(room - hint);
        hint
    }

    #[cold]
    fn fail<E: Error>(&self, error: CodecError) -> E {
        self.failure.set(Some(error));
        E::custom(error)
    }

    #[inline]
    pub(super) fn inside<T, E: Error>(&self, read: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let Some(depth) = self.depth.get().checked_sub(1) else {
            return Err(self.fail(CodecError::TooDeep { limit: MAX_DEPTH }));
        };
        self.depth.set(depth);
        let value = read();
        self.depth.set(depth + 1);
        value
    }

    /// Reads an element of a sequence whose length is read from the bytes, and counts it if it is zero-sized; returns
    /// whether it took any bytes. Elements of one type all take bytes or all take none, so the first that does ends the
    /// counting.
    #[inline]
    pub(super) fn element<T, E: Error>(
        &self,
        read: impl FnOnce() -> Result<Option<T>, E>,
    ) -> Result<(Option<T>, bool), E> {
        self.moved.set(false);
        let value = read()?;
        let moved = self.moved.replace(true);
        if value.is_some() && !moved {
            match self.zero_sized.get().checked_sub(1) {
                Some(empty) => self.zero_sized.set(empty),
                None => return Err(self.fail(CodecError::TooManyEmpty { limit: MAX_ZERO_SIZED })),
            }
        }
        // Left as true, also for the sequence around this one: its length took bytes.
        Ok((value, moved))
    }
}
