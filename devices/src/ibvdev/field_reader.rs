//! A reader of the fields of cards, hellos and keys.

/// Reads fields of fixed length, one after the other.
pub(super) struct FieldReader<'a>(pub(super) &'a [u8]);

impl FieldReader<'_> {
    pub(super) fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*field)
    }
}
