//! By which way the bytes of a message go.

use crate::config::Choice;

/// By which way the bytes of a message go: through a buffer of the library's, or straight from user to user.
///
/// It is a wish of one end: the sender's is about its copies, the receiver's about its own, and every message arrives by
/// whatever they ask for.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum DataPath {
    /// What is fastest, as far as is known, by device, size and layout.
    #[default]
    Auto,
    /// The sender packs the message into a block of the pool and sends that; the receiver has it come to a block and
    /// unpacks it from there. This is the way of mpjbuf, on every device.
    Buffered,
    /// Whoever can moves the message straight between the users' memories: nothing is copied in user space but by the
    /// device itself. A device that cannot, for that memory, does what it would by [`Auto`](DataPath::Auto). Such a send ends
    /// when its receiver has the message, however short that is: ranks that send to each other before they receive, and
    /// count on a copy, wait for each other for ever, as they do with any message that is too long for one.
    ZeroCopy,
}

/// The path of all messages that say nothing of their own.
pub const PATH: Choice<DataPath> = Choice {
    name: "PATH",
    values: &[("auto", DataPath::Auto), ("buffered", DataPath::Buffered), ("zerocopy", DataPath::ZeroCopy)],
    help: "way of messages: the fastest (auto), through blocks of the pool, or between the users' memories",
};
