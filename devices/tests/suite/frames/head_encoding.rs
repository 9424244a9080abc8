//! Encodes the heads of frames, independently of the engine.

pub(crate) const BYTES: mpj_datatypes::Primitive = mpj_datatypes::Primitive::Byte;

/// Returns a long head without immediate data. The words are at the offsets 12, 20, 28 (`op`) and 36 (`extra`).
pub(crate) fn head(kind: u8, code: u8, channel: u16, tag: i32, words: [u64; 4]) -> Vec<u8> {
    let mut head = vec![kind, code];
    head.extend(channel.to_le_bytes());
    head.extend(tag.to_le_bytes());
    head.extend([0; 4]);
    words.iter().for_each(|word| head.extend(word.to_le_bytes()));
    head
}

pub(crate) fn word(head: &[u8], at: usize) -> u64 {
    head.get(at..at + 8).map_or(0, |b| u64::from_le_bytes(b.try_into().unwrap()))
}

pub(crate) const BIND: u8 = 1;
pub(crate) const EAGER: u8 = 2;
pub(crate) const EAGER_SYNC: u8 = 3;
pub(crate) const RTS: u8 = 4;
pub(crate) const CTS: u8 = 5;
pub(crate) const DATA: u8 = 6;
pub(crate) const FIN: u8 = 7;
pub(crate) const CREDIT: u8 = 8;
pub(crate) const NACK: u8 = 9;

pub(crate) fn bind(channel: u16, context: u64, rank: u32) -> Vec<u8> {
    head(BIND, 0, channel, rank.cast_signed(), [context, 0, 0, 0])
}

/// Returns the short head of an eager message of bytes with tag 1.
pub(crate) fn eager(channel: u16) -> Vec<u8> {
    head(EAGER, BYTES as u8, channel, 1, [0; 4])[..8].to_vec()
}

pub(crate) fn eager_sync(channel: u16, op: u64) -> Vec<u8> {
    head(EAGER_SYNC, BYTES as u8, channel, 1, [0, 0, op, 0])
}

pub(crate) fn rts(channel: u16, op: u64, bytes: u64) -> Vec<u8> {
    head(RTS, BYTES as u8, channel, 1, [0, 0, op, bytes])
}

/// Returns a NACK for the receiver's operation `op`, whose body the sender has cancelled.
pub(crate) fn nack(context: u64, op: u64) -> Vec<u8> {
    head(NACK, 0, 0, 0, [context, 0, op, 0])
}

/// Returns a NACK for the sender's message `op`, which will never be received.
pub(crate) fn refusal(context: u64, op: u64) -> Vec<u8> {
    head(NACK, 0, 0, 0, [context, 0, op, 1])
}

pub(crate) fn reply(kind: u8, channel: u16, op: u64, extra: u64) -> Vec<u8> {
    head(kind, 0, channel, 0, [0, 0, op, extra])
}
