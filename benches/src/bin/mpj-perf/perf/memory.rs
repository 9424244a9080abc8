//! Memory that starts on a page boundary and has been written.

use std::collections::TryReserveError;
use std::hint::black_box;
use std::ops::{Deref, DerefMut};

pub(super) const PAGE: usize = 4096;

#[derive(Debug)]
pub(super) struct Pages<T> {
    memory: Vec<T>,
    start: usize,
    len: usize,
}

impl<T: Copy> Pages<T> {
    /// Returns `len` elements, with every page written.
    pub(super) fn filled(len: usize, value: T) -> Result<Self, TryReserveError> {
        let mut memory = Vec::new();
        let spare = PAGE / size_of::<T>();
        memory.try_reserve_exact(len.saturating_add(spare))?;
        memory.resize(len + spare, value);
        // Without `black_box`, a fill with zeros could become a zeroed allocation, which touches no page.
        black_box(&mut memory[..]).fill(value);
        let start = memory.as_ptr().align_offset(PAGE).min(spare);
        Ok(Pages { memory, start, len })
    }
}

impl<T> Deref for Pages<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        &self.memory[self.start..][..self.len]
    }
}

impl<T> DerefMut for Pages<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.memory[self.start..][..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::{PAGE, Pages};

    #[test]
    fn pages_start_at_a_page_boundary() {
        for len in [0, 1, 5000] {
            let pages = Pages::filled(len, 1.5f64).unwrap();
            assert_eq!(pages.as_ptr().addr() % PAGE, 0);
            assert_eq!(&pages[..], vec![1.5; len]);
        }
    }

    #[test]
    fn exhausted_memory_is_an_error() {
        assert!(Pages::filled(usize::MAX / 8, 0u8).is_err() && Pages::filled(usize::MAX, 0u8).is_err());
    }
}
