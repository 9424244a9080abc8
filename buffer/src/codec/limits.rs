//! What a value that is read may ask for: nesting, elements that take no bytes, and room that is reserved.

use core::cell::Cell;

use serde::de::Error;

use super::{MAX_DEPTH, MAX_ZERO_SIZED};
use crate::CodecError;

/// What is left of the limits while one value is read.
pub(super) struct Limits {
    depth: Cell<u32>,
    empty: Cell<u32>,
    /// For how many further elements sequences may reserve room.
    room: Cell<usize>,
    /// Whether anything that takes bytes has been read since this was last cleared.
    pub(super) moved: Cell<bool>,
    failure: Cell<Option<CodecError>>,
}

impl Limits {
    /// The limits of a value of so many bytes.
    pub(super) fn new(bytes: usize) -> Self {
        Self {
            depth: Cell::new(MAX_DEPTH),
            empty: Cell::new(MAX_ZERO_SIZED),
            room: Cell::new(bytes),
            moved: Cell::new(false),
            failure: Cell::new(None),
        }
    }

    /// Returns which limit was exceeded, if one was.
    pub(super) fn failure(&self) -> Option<CodecError> {
        self.failure.get()
    }

    /// Returns for how many elements room may be reserved where so many are announced: an honest value has one byte for
    /// each, but a nest of lies could reserve room for all bytes at every level.
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

    /// Reads an element of a sequence whose length the bytes announce, and counts it if it takes no bytes; returns whether
    /// it took any. Elements of one type take bytes all or none, so the first that does ends the counting.
    #[inline]
    pub(super) fn element<T, E: Error>(
        &self,
        read: impl FnOnce() -> Result<Option<T>, E>,
    ) -> Result<(Option<T>, bool), E> {
        self.moved.set(false);
        let value = read()?;
        let moved = self.moved.replace(true);
        if value.is_some() && !moved {
            match self.empty.get().checked_sub(1) {
                Some(empty) => self.empty.set(empty),
                None => return Err(self.fail(CodecError::TooManyEmpty { limit: MAX_ZERO_SIZED })),
            }
        }
        // Left as true, also for the sequence around this one: its length took bytes.
        Ok((value, moved))
    }
}
