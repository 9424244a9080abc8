//! State of a reader: the open section, the next section and the next record.

use std::borrow::Cow;

use mpj_pool::ReadBlock;

use crate::dynamic::Dynamic;
use crate::header::payload;
use crate::header::{
    ALIGN, MESSAGE_HEADER_LEN, RECORD_ALIGN, RECORD_HEADER_LEN, SECTION_HEADER_LEN, Section, SectionHeader,
    SectionTag, align_up,
};
use crate::validate;
use crate::{Buffer, ByteOrder, FormatError, ReadError};

/// The mode of a committed or received buffer.
#[derive(Debug)]
pub struct Reading {
    pub(crate) order: ByteOrder,
    pub(super) sections_end: usize,
    pub(crate) open: OpenSection,
    /// End of the last section opened or skipped, or of the message header. The next section begins after padding.
    pub(super) next: usize,
    pub(crate) record: usize,
}

/// The section that is being read. Offsets count from the start of the message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenSection {
    pub(super) tag: SectionTag,
    pub(super) order: ByteOrder,
    /// Whether elements have been read or skipped.
    pub(crate) touched: bool,
    /// Unread elements.
    pub(crate) left: u64,
    /// Offset of the next element, except for objects.
    pub(super) at: usize,
    pub(super) end: usize,
}

impl OpenSection {
    pub(super) const NONE: Self =
        Self { tag: SectionTag::NONE, order: ByteOrder::NATIVE, touched: false, left: 0, at: 0, end: 0 };

    pub(super) fn section(&self) -> Section {
        self.tag.section(self.order, self.left)
    }

    /// Returns the error of a read of `want` while this section, of another tag, has unread elements.
    #[cold]
    fn unread_error(&self, want: SectionTag) -> ReadError {
        if self.touched {
            return ReadError::Unread { kind: self.tag.kind(), left: self.left };
        }
        mismatch(want, self.tag)
    }
}

/// A record that is about to be read.
pub(crate) struct RecordRef {
    open: OpenSection,
    pub(crate) at: usize,
    pub(crate) len: usize,
}

impl Reading {
    #[inline]
    pub(crate) fn new(order: ByteOrder, sections_end: usize) -> Self {
        // Saturating: without a dynamic part no record is read from there.
        let record = sections_end.saturating_add(SECTION_HEADER_LEN);
        Self { order, sections_end, open: OpenSection::NONE, next: MESSAGE_HEADER_LEN, record }
    }

    pub(crate) fn finish_record(&mut self, value: RecordRef) {
        self.enter(value.open);
        self.record = value.at + value.len;
    }

    #[inline]
    pub(crate) fn enter(&mut self, open: OpenSection) {
        self.next = open.end;
        self.open = open;
    }
}

impl<R: ReadBlock> Buffer<R, Reading> {
    /// Returns the section from which to read elements of `want`, without opening it.
    ///
    /// Always inlined, so that the result stays in registers. The open section is copied field by field: a copy of the
    /// whole structure would wait for preceding stores to single fields.
    #[inline(always)]
    pub(crate) fn target(&self, want: SectionTag) -> Result<OpenSection, ReadError> {
        if self.mode.open.tag == want {
            let OpenSection { tag, order, touched, left, at, end } = self.mode.open;
            return Ok(OpenSection { tag, order, touched, left, at, end });
        }
        if self.mode.open.left > 0 {
            return Err(self.mode.open.unread_error(want));
        }
        if let Some(next) = self.next_of(want) {
            return Ok(next);
        }
        let OpenSection { tag, order, touched, left, at, end } = self.next_or_mismatch(want)?;
        Ok(OpenSection { tag, order, touched, left, at, end })
    }

    /// Returns the next section if it has the tag `want` in the message's byte order, the usual case.
    #[inline(always)]
    fn next_of(&self, want: SectionTag) -> Option<OpenSection> {
        let Reading { order, sections_end, .. } = self.mode;
        let at = align_up(self.mode.next, ALIGN)?;
        let left = want.count_in(self.static_part().get(at..sections_end)?.first_chunk()?, order)?;
        let start = at + SECTION_HEADER_LEN;
        let end = start.checked_add(payload(want.kind(), left)?)?;
        Some(OpenSection { tag: want, order, touched: false, left, at: start, end })
    }

    #[inline(never)]
    fn next_or_mismatch(&self, want: SectionTag) -> Result<OpenSection, ReadError> {
        let next = self.next()?;
        if next.tag == want { Ok(next) } else { Err(mismatch(want, next.tag)) }
    }

    pub(crate) fn open_next(&mut self, want: SectionTag) -> Result<u64, ReadError> {
        let OpenSection { tag, left, .. } = self.mode.open;
        if left > 0 {
            return Err(ReadError::Unread { kind: tag.kind(), left });
        }
        let next = self.next()?;
        if next.tag != want {
            return Err(mismatch(want, next.tag));
        }
        self.mode.enter(next);
        Ok(next.left)
    }

    /// Parses the header after the open section. Checks it again, although a received message was checked as a whole:
    /// reading does not rely on that check.
    #[inline]
    pub(super) fn next(&self) -> Result<OpenSection, ReadError> {
        self.next_at(self.mode.next)
    }

    #[inline]
    pub(super) fn next_at(&self, at: usize) -> Result<OpenSection, ReadError> {
        let end = self.mode.sections_end;
        let at = align_up(at, ALIGN).filter(|at| *at < end).ok_or(ReadError::End)?;
        let head = SectionHeader::parse(self.static_range(at, end)?, at, self.mode.order)?;
        let SectionHeader::Section { tag, kind, order, count } = head else {
            return Err(ReadError::End);
        };
        let too_large = FormatError::TooLarge { at: at as u64, count };
        let start = at + SECTION_HEADER_LEN;
        let payload_end = payload(kind, count).and_then(|len| start.checked_add(len)).ok_or(too_large)?;
        Ok(OpenSection { tag, order, touched: false, left: count, at: start, end: payload_end })
    }

    pub(crate) fn next_value(&self, tag: SectionTag) -> Result<RecordRef, ReadError> {
        let mut open = self.target(tag)?;
        open.left = open.left.checked_sub(1).ok_or(ReadError::PastSection { needed: 1, available: 0 })?;
        open.touched = true;
        let (at, len) = self.record(self.mode.record)?;
        Ok(RecordRef { open, at, len })
    }

    /// Returns the offset and the length of the value of the record at `at`.
    pub(crate) fn record(&self, at: usize) -> Result<(usize, usize), ReadError> {
        let left = self.len().saturating_sub(at);
        let missing = FormatError::Truncated {
            at: at as u64,
            needed: RECORD_HEADER_LEN as u64,
            available: left as u64,
        };
        let at = align_up(at, RECORD_ALIGN).ok_or(missing)?;
        let head = self.range(at, RECORD_HEADER_LEN)?;
        let len = match <[u8; RECORD_HEADER_LEN]>::try_from(&*head) {
            Ok(bytes) => self.mode.order.u64(bytes),
            Err(_) => return Err(missing.into()),
        };
        validate::record_len(len, at + RECORD_HEADER_LEN, self.len())
            .map(|len| (at + RECORD_HEADER_LEN, len))
            .map_err(ReadError::from)
    }

    #[inline]
    pub(super) fn static_range(&self, from: usize, to: usize) -> Result<&[u8], FormatError> {
        static_bytes(self.static_part(), from, to)
    }

    /// Returns bytes of the message from the block or the chain.
    pub(crate) fn range(&self, at: usize, len: usize) -> Result<Cow<'_, [u8]>, FormatError> {
        // Only a message written by this process has its dynamic part in the chain.
        let static_len = self.static_len();
        let found = if at >= static_len && self.chain.len() > 0 {
            self.chain.get(at - static_len, len)
        } else {
            at.checked_add(len).and_then(|end| self.static_part().get(at..end)).map(Cow::Borrowed)
        };
        let left = self.len().saturating_sub(at) as u64;
        found.ok_or(FormatError::Truncated { at: at as u64, needed: len as u64, available: left })
    }
}

/// Returns `len` bytes of the message from `at` on if they are contiguous. The chain follows the static part.
pub(crate) fn contiguous_bytes<'a>(
    static_part: &'a [u8],
    chain: &'a Dynamic,
    at: usize,
    len: usize,
) -> Result<&'a [u8], ReadError> {
    let found = match at.checked_sub(static_part.len()) {
        Some(at) if chain.len() > 0 => chain.get_whole(at, len),
        _ => at.checked_add(len).and_then(|end| static_part.get(at..end)),
    };
    found.ok_or(ReadError::Split { len })
}

pub(super) fn static_bytes(static_part: &[u8], from: usize, to: usize) -> Result<&[u8], FormatError> {
    static_part.get(from..to).ok_or(FormatError::Truncated {
        at: from as u64,
        needed: to.saturating_sub(from) as u64,
        available: static_part.len().saturating_sub(from) as u64,
    })
}

#[cold]
fn mismatch(want: SectionTag, found: SectionTag) -> ReadError {
    if want.kind() != found.kind() {
        ReadError::WrongType { expected: want.kind(), found: found.kind() }
    } else if want.codec() != found.codec() {
        ReadError::WrongCodec { expected: want.codec(), found: found.codec() }
    } else {
        ReadError::WrongSchema { expected: want.schema(), found: found.schema() }
    }
}
