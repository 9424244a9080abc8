//! Validation of a received message: all offsets and counts, in time proportional to the number of sections and
//! records. Elements (`bool`, `char`) and objects are checked when they are read.

use crate::header::{
    self, ALIGN, MESSAGE_HEADER_LEN, MessageHeader, RECORD_ALIGN, RECORD_HEADER_LEN, SectionHeader, align_up,
};
use crate::{ByteOrder, FormatError, SECTION_HEADER_LEN};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CheckedMessage {
    pub(crate) order: ByteOrder,
    pub(crate) sections_end: usize,
}

pub(crate) fn message(bytes: &[u8]) -> Result<CheckedMessage, FormatError> {
    let head = MessageHeader::parse(bytes)?;
    let given = bytes.len() as u64;
    if head.total > given {
        return Err(FormatError::Truncated { at: 0, needed: head.total, available: given });
    }
    if head.total < given {
        return Err(FormatError::Trailing { total: head.total, given });
    }

    let mut at = MESSAGE_HEADER_LEN;
    let mut announced = 0u64;
    while at < bytes.len() {
        let (start, rest) = padded(bytes, at, ALIGN)?;
        match SectionHeader::parse(rest, start, head.order)? {
            SectionHeader::Dynamic { len } => {
                // The flag announces the dynamic part, which is the last section.
                if !head.dynamic {
                    return Err(FormatError::Flags { found: 0 });
                }
                let payload = start + SECTION_HEADER_LEN;
                let left = bytes.len() - payload;
                check_dynamic_len(payload, len, left)?;
                records(bytes, payload, head.order, announced)?;
                return Ok(CheckedMessage { order: head.order, sections_end: start });
            }
            SectionHeader::Section { kind, count, .. } => {
                let payload = start + SECTION_HEADER_LEN;
                let too_large = FormatError::TooLarge { at: start as u64, count };
                if kind == crate::ElementKind::Object {
                    announced = announced.checked_add(count).ok_or(too_large)?;
                }
                let needed = header::payload(kind, count).ok_or(too_large)?;
                let left = bytes.len() - payload;
                if needed > left {
                    return Err(FormatError::Truncated {
                        at: payload as u64,
                        needed: needed as u64,
                        available: left as u64,
                    });
                }
                at = payload + needed;
            }
        }
    }
    if head.dynamic {
        return Err(FormatError::Flags { found: 1 });
    }
    if announced != 0 {
        return Err(FormatError::ObjectCount { announced, found: 0 });
    }
    Ok(CheckedMessage { order: head.order, sections_end: bytes.len() })
}

/// Checks the records from `at` to the end, and that their number is `announced`.
fn records(bytes: &[u8], mut at: usize, order: ByteOrder, announced: u64) -> Result<(), FormatError> {
    let mut found = 0u64;
    while at < bytes.len() {
        let (start, rest) = padded(bytes, at, RECORD_ALIGN)?;
        let head = rest.first_chunk::<RECORD_HEADER_LEN>().ok_or(FormatError::Truncated {
            at: start as u64,
            needed: RECORD_HEADER_LEN as u64,
            available: rest.len() as u64,
        })?;
        let value = start + RECORD_HEADER_LEN;
        at = value + record_len(order.u64(*head), value, bytes.len())?;
        found += 1;
    }
    if found == announced { Ok(()) } else { Err(FormatError::ObjectCount { announced, found }) }
}

/// Returns the length of the value at `at` if a message of `total` bytes can hold it.
pub(crate) fn record_len(len: u64, at: usize, total: usize) -> Result<usize, FormatError> {
    let left = total.saturating_sub(at);
    usize::try_from(len).ok().filter(|len| *len <= left).ok_or(FormatError::Truncated {
        at: at as u64,
        needed: len,
        available: left as u64,
    })
}

/// Checks the padding from `at` to the next multiple of `unit`; returns that offset and the bytes from there.
fn padded(bytes: &[u8], at: usize, unit: usize) -> Result<(usize, &[u8]), FormatError> {
    let truncated = FormatError::Truncated {
        at: at as u64,
        needed: (at.wrapping_neg() % unit) as u64,
        available: (bytes.len() - at) as u64,
    };
    let start = align_up(at, unit).ok_or(truncated)?;
    let rest = bytes.get(start..).ok_or(truncated)?;
    match bytes[at..start].iter().position(|b| *b != 0) {
        Some(i) => Err(FormatError::Padding { at: (at + i) as u64 }),
        None => Ok((start, rest)),
    }
}

fn check_dynamic_len(at: usize, needed: u64, left: usize) -> Result<(), FormatError> {
    let (at, left) = (at as u64, left as u64);
    match needed.cmp(&left) {
        core::cmp::Ordering::Equal => Ok(()),
        core::cmp::Ordering::Greater => Err(FormatError::Truncated { at, needed, available: left }),
        core::cmp::Ordering::Less => Err(FormatError::Trailing { total: at + needed, given: at + left }),
    }
}
