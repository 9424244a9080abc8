//! The path of a message, as pure functions of plain values: the thresholds of a device ([`Caps`]), the data path, the
//! memory and the credit. No other file of the engine chooses a path by a threshold. `tests.rs` has the table of all
//! devices.
//!
//! | at | function | result |
//! |---|---|---|
//! | sender, before it locks the outbox | [`send_bounce`] | whether the body is packed into a pool block first |
//! | sender, with the lock | [`is_eager`], [`send_path`] | one frame, or an RTS with a key or without one |
//! | receiver of an RTS with a key | [`receive_path`], [`get_len`] | a get in pieces, or a CTS |
//! | sender, after a CTS | [`sends_zcopy`], [`piece_len`] | pieces that the device sends from user memory, or copies |
//!
//! Not decided here: a receiver views an exported body if the user calls `recv_block` or `recv_buffer` of `mpj` without
//! `Buffered`; a target with `Buffered` gets its bounce buffer when it accepts a message, eager or not
//! (`Target::accepts`). A device chooses how it moves a frame, by its length (`devices/README.md`).

#[cfg(test)]
mod tests;

use super::flush::credit_cost;
use super::send::Mode;
use crate::data_path::DataPath;
use crate::device::{Caps, SizeRange};

/// The body of a message at one end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LocalBody {
    /// The path that this end has chosen.
    pub(crate) path: DataPath,
    /// The length of the message, even if the receive buffer is longer.
    pub(crate) bytes: usize,
    pub(crate) is_contiguous: bool,
    /// Whether all of the memory is in one region of a pool.
    pub(crate) in_region: bool,
    /// Whether the operation owns the memory, so that a peer may read it for longer than the operation.
    pub(crate) is_owned: bool,
}

/// The protocol of a message, as its sender chooses it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SendPath {
    /// One frame with the body.
    Eager,
    /// One frame with the body; the receiver replies when the message is matched.
    EagerSync,
    /// An RTS. It carries the key of exported memory if `export` is set and the device can export the body; otherwise
    /// the key of registered memory if `register` is set and the registration succeeds; otherwise no key.
    Rendezvous { export: bool, register: bool },
}

/// Whether a sender packs the body into a pool block before the protocol is chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Bounce {
    No,
    /// If the limit of implicit bounce buffers allows it.
    IfAvailable,
    Always,
}

/// How a receiver obtains the body of an RTS with a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReceivePath {
    /// A CTS requests the body in frames.
    Frames,
    /// The device gets the body into the receive buffer.
    Get,
    /// The device gets the body into a bounce buffer.
    GetIntoBounce,
}

/// Longest body that gets a bounce buffer without `Buffered`. Above it, the memory costs more than a registration.
const MAX_BOUNCE: usize = 16 << 20;

/// Returns whether a message is eager. `can_export` is [`Device::can_export`](crate::device::Device::can_export),
/// called only if the result depends on it.
#[inline]
pub(crate) fn is_eager(caps: &Caps, body: LocalBody, credit: u64, can_export: impl FnOnce() -> bool) -> bool {
    body.bytes <= caps.eager_limit
        && credit >= credit_cost(body.bytes)
        && !(body.path == DataPath::ZeroCopy && moves(caps, caps.get, body))
        && !(prefers_export(caps, body) && can_export())
}

/// Returns the path of a message from its sender, whose remaining credit at the receiver is `credit`.
#[inline]
pub(crate) fn send_path(
    caps: &Caps,
    body: LocalBody,
    credit: u64,
    mode: Mode,
    can_export: impl FnOnce() -> bool,
) -> SendPath {
    match (is_eager(caps, body, credit, can_export), mode) {
        (true, Mode::Standard) => SendPath::Eager,
        (true, Mode::Synchronous) => SendPath::EagerSync,
        (false, _) => SendPath::Rendezvous {
            export: body.is_owned && caps.export_min.is_some(),
            register: moves(caps, caps.get, body),
        },
    }
}

/// Returns whether a sender packs a body into a bounce buffer. With `Buffered`, it packs every body that is not empty.
/// Otherwise, it packs a body that [needs it](needs_bounce), but only above the eager limit, and only if a receiver
/// with `Auto` requests bodies of that length by a get of the device.
#[inline]
pub(crate) fn send_bounce(caps: &Caps, body: LocalBody) -> Bounce {
    let as_auto = LocalBody { path: DataPath::Auto, ..body };
    match body.path {
        DataPath::Buffered if body.bytes > 0 => Bounce::Always,
        DataPath::Auto | DataPath::ZeroCopy
            if body.bytes > caps.eager_limit && pays(caps.get, as_auto) && needs_bounce(caps, body) =>
        {
            Bounce::IfAvailable
        }
        _ => Bounce::No,
    }
}

/// Returns how the receiver obtains a body for which it has a key. `can_bounce` is false after no bounce buffer was
/// available.
pub(crate) fn receive_path(caps: &Caps, body: LocalBody, can_bounce: bool) -> ReceivePath {
    if can_bounce && pays(caps.get, body) && needs_bounce(caps, body) {
        ReceivePath::GetIntoBounce
    } else if moves(caps, caps.get, body) {
        ReceivePath::Get
    } else {
        ReceivePath::Frames
    }
}

/// Returns the length of the next piece of a get of which `left` bytes were not posted yet.
#[inline]
pub(crate) fn get_len(caps: &Caps, left: usize) -> usize {
    caps.get.map_or(0, |sizes| sizes.max).min(left)
}

/// Returns whether the device sends the pieces of a requested body from user memory.
pub(crate) fn sends_zcopy(caps: &Caps, body: LocalBody) -> bool {
    moves(caps, caps.zcopy, body)
}

/// Returns the length of the next piece of a requested body of which `left` bytes are not sent yet.
#[inline]
pub(crate) fn piece_len(caps: &Caps, is_zcopy: bool, left: usize) -> usize {
    let max = caps.zcopy.filter(|_| is_zcopy).map_or(usize::MAX, |sizes| sizes.max);
    left.min(caps.max_send_size).min(max)
}

/// Returns whether an operation of the device is worthwhile for a body. `ZeroCopy` ignores the minimum.
#[inline]
fn pays(sizes: Option<SizeRange>, body: LocalBody) -> bool {
    sizes.is_some_and(|SizeRange { min, max }| {
        let min = if body.path == DataPath::ZeroCopy { 1 } else { min.max(1) };
        body.bytes >= min && max > 0
    })
}

/// Returns whether a body should be exported even if it is within the eager limit. False with `Buffered`, because the
/// body is in a bounce buffer.
#[inline]
fn prefers_export(caps: &Caps, body: LocalBody) -> bool {
    let is_in_own_block = body.is_owned && body.in_region && body.path != DataPath::Buffered;
    is_in_own_block && caps.export_min.is_some_and(|min| body.bytes >= min)
}

#[inline]
fn has_supported_layout(caps: &Caps, body: LocalBody) -> bool {
    body.is_contiguous || caps.noncontiguous
}

/// Returns whether an operation of the device is worthwhile for a body and supports its layout.
#[inline]
fn moves(caps: &Caps, sizes: Option<SizeRange>, body: LocalBody) -> bool {
    pays(sizes, body) && has_supported_layout(caps, body)
}

/// Returns whether a body should be in a bounce buffer while a device that registers memory moves it: the device does
/// not support the layout, or, with `Auto`, a copy is faster than a registration.
#[inline]
fn needs_bounce(caps: &Caps, body: LocalBody) -> bool {
    let is_copy_faster = |min| body.path == DataPath::Auto && !body.in_region && body.bytes < min;
    caps.register_min
        .filter(|_| body.bytes <= MAX_BOUNCE)
        .is_some_and(|min| !has_supported_layout(caps, body) || is_copy_faster(min))
}
