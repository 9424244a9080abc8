//! The invalid values that one side of a ring can find.

use std::fmt;

/// A value in a ring that a correct peer never writes. It ends the connection to the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Malformed {
    /// A cell's sequence number is neither the next one nor that of the previous round.
    Sequence { found: u32, next: u32 },
    /// A cell's checksum does not match its contents.
    Checksum { found: u16, expected: u16 },
    /// The kind of a cell is unknown.
    Kind { kind: u8 },
    /// The head and the bytes after it are together longer than the 56 bytes of a cell after its header.
    TooLong { head_len: u8, rest_len: u8 },
    /// The lengths do not fit the kind of the cell, or a `SplitData` cell exceeds the missing bytes of its body.
    LengthsForKind { kind: u8, head_len: u8, rest_len: u8 },
    /// The index of a fragment is out of range.
    Index { index: u32, count: u32 },
    /// A body is longer than a fragment, a split body is empty, or `written` is 0 or at least `len`.
    BodySize { len: u32, written: Option<u32>, fragment: usize },
    /// A body is in transfer and the cell does not continue it, or the cell continues a body and none is in transfer,
    /// or `StreamData` announces 0 or too many bytes.
    Order { kind: u8, missing: usize },
    /// The count of cells consumed or of fragments returned is out of range.
    Count { what: &'static str, found: u64, least: u64, most: u64 },
    /// A word that only this side writes does not have the value that this side wrote.
    Overwritten { what: &'static str, found: u64, written: u64 },
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !matches!(self, Malformed::Count { .. } | Malformed::Overwritten { .. }) {
            f.write_str("it wrote a malformed cell: ")?;
        }
        match *self {
            Malformed::Sequence { found, next } => {
                write!(f, "sequence number {found} instead of {next}")
            }
            Malformed::Checksum { found, expected } => {
                write!(
                    f,
                    "checksum {found:#06x}, but {expected:#06x} matches its contents: the memory was \
                     overwritten"
                )
            }
            Malformed::Kind { kind } => write!(f, "unknown cell kind {kind}"),
            Malformed::TooLong { head_len, rest_len } => {
                write!(f, "a head of {head_len} bytes and {rest_len} more")
            }
            Malformed::LengthsForKind { kind, head_len, rest_len } => {
                write!(f, "cell kind {kind} with a head of {head_len} bytes and {rest_len} more")
            }
            Malformed::Index { index, count } => write!(f, "fragment index {index} of {count}"),
            Malformed::BodySize { len, written, fragment } => {
                write!(f, "a body of {len} bytes (allowed: 1 to {fragment})")?;
                written.map_or(Ok(()), |written| write!(f, ", {written} of them written"))
            }
            Malformed::Order { kind, missing } => {
                write!(f, "cell kind {kind} with {missing} bytes of a body missing")
            }
            Malformed::Count { what, found, least, most } => {
                write!(f, "it wrote a malformed count of {what}: {found}, not {least} to {most}")
            }
            Malformed::Overwritten { what, found, written } => {
                write!(
                    f,
                    "the memory of its ring with this rank was overwritten: the {what} is {found} instead of \
                     {written}"
                )
            }
        }
    }
}
