//! A slow, independent parser of the message format in `buffer/README.md`.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ParsedSection {
    pub(crate) kind: u8,
    pub(crate) codec: u8,
    pub(crate) schema: u8,
    pub(crate) count: u64,
    /// Whether the elements are in big-endian byte order.
    pub(crate) big: bool,
    pub(crate) at: usize,
}

#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) sections: Vec<ParsedSection>,
    /// The offset of the dynamic part's header, if the message has one.
    pub(crate) dynamic: Option<usize>,
    /// The header offset and the length of each record of the dynamic part.
    pub(crate) records: Vec<(usize, usize)>,
}

fn number(bytes: &[u8], big: bool) -> u128 {
    let digit = |all: u128, byte: &u8| all << 8 | u128::from(*byte);
    if big { bytes.iter().fold(0, digit) } else { bytes.iter().rev().fold(0, digit) }
}

/// Parses a message; returns `None` if it is invalid.
pub(crate) fn parse(bytes: &[u8]) -> Option<Message> {
    let head = bytes.get(..16)?;
    let big = match (&head[..5], head[5]) {
        (b"mpjb\x01", b'<') => false,
        (b"mpjb\x01", b'>') => true,
        _ => return None,
    };
    if head[6] > 1 || head[7] != 0 || number(&head[8..], big) != bytes.len() as u128 {
        return None;
    }
    let mut message = Message { sections: Vec::new(), dynamic: None, records: Vec::new() };
    let mut objects = 0u128;
    let mut at = 16;
    while at < bytes.len() {
        let start = padding(bytes, at, 16)?;
        let head = bytes.get(start..start + 16)?;
        let (each, count) = (number(&head[4..8], big), number(&head[8..], big));
        at = start + 16;
        match head[0] {
            33 => {
                if head[1..4] != [0; 3] || each != 1 || count != (bytes.len() - at) as u128 {
                    return None;
                }
                message.dynamic = Some(start);
                break;
            }
            32 => {
                if head[1] != 1 || head[2] == 0 || each != 0 {
                    return None;
                }
                objects += count;
            }
            kind => {
                let known = size(kind)? as u128;
                let encoded = head[1] == 0 || head[1] == 2 && known > 1;
                if !encoded
                    || head[2..4] != [0; 2]
                    || each != known
                    || each * count > (bytes.len() - at) as u128
                {
                    return None;
                }
            }
        }
        let big = big != (head[1] == 2);
        message.sections.push(ParsedSection {
            kind: head[0],
            codec: head[2],
            schema: head[3],
            count: count as u64,
            big,
            at,
        });
        at += (each * count) as usize;
    }
    if let Some(start) = message.dynamic {
        at = start + 16;
        while at < bytes.len() {
            let start = padding(bytes, at, 8)?;
            let len = number(bytes.get(start..start + 8)?, big);
            if len > (bytes.len() - start - 8) as u128 {
                return None;
            }
            message.records.push((start, len as usize));
            at = start + 8 + len as usize;
        }
    }
    let whole = message.dynamic.is_some() == (head[6] == 1) && objects == message.records.len() as u128;
    // `objects` is a `u128` because the sum over all sections can exceed 64 bits.
    whole.then_some(message)
}

fn padding(bytes: &[u8], at: usize, unit: usize) -> Option<usize> {
    let start = at.next_multiple_of(unit);
    bytes.get(at..start)?.iter().all(|byte| *byte == 0).then_some(start)
}

/// Returns the message as a machine of the other byte order would write it.
pub(crate) fn swapped(bytes: &[u8]) -> Vec<u8> {
    let message = parse(bytes).expect("a valid message");
    let mut swapped = bytes.to_vec();
    swapped[5] ^= b'<' ^ b'>';
    swapped[8..16].reverse();
    let mut values = Vec::new();
    let mut records = message.records.iter();
    for section in &message.sections {
        swapped[section.at - 12..section.at - 8].reverse();
        swapped[section.at - 8..section.at].reverse();
        if section.kind != 32 {
            values.push((
                section.at,
                section.count as usize * size(section.kind).expect("known"),
                section.kind,
            ));
            continue;
        }
        for &(start, len) in records.by_ref().take(section.count as usize) {
            swapped[start..start + 8].reverse();
            if section.codec == 3 {
                values.push((start + 8, len, section.schema));
            }
        }
    }
    if let Some(start) = message.dynamic {
        swapped[start + 4..start + 8].reverse();
        swapped[start + 8..start + 16].reverse();
    }
    for (at, len, kind) in values {
        // The two halves of a complex number are swapped separately.
        let size = size(kind).expect("known");
        let width = if matches!(kind, 17 | 18) { size / 2 } else { size };
        swapped[at..at + len].chunks_exact_mut(width).for_each(<[u8]>::reverse);
    }
    swapped
}

/// Returns the element size of a kind in bytes.
pub(crate) fn size(kind: u8) -> Option<usize> {
    const SIZES: [usize; 18] = [1, 1, 2, 2, 4, 4, 8, 8, 16, 16, 4, 8, 1, 4, 2, 2, 8, 16];
    SIZES.get(usize::from(kind).checked_sub(1)?).copied()
}
