//! The parameter that selects the data path.

use crate::config::Choice;

/// The path of a message's bytes: through a buffer of the library, or directly from user to user.
///
/// Each side chooses its own path: the sender's path determines the copies at the sender, the receiver's path those at
/// the receiver. Any combination works.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum DataPath {
    /// The fastest known path for the device, the size and the layout.
    #[default]
    Auto,
    /// A sender packs the message into a pool block and sends the block; a receiver receives into a block and unpacks
    /// it. This is the path of mpjbuf, on every device.
    Buffered,
    /// The message moves directly between the users' memories, if the device supports that for this memory, and if the
    /// other side has this path or its [`Auto`](DataPath::Auto) does the same for this length. Otherwise the message
    /// moves as with `Auto`. If the sender's device supports it, a zero-copy send of any length except 0 completes only
    /// after a receive has matched it. Therefore ranks deadlock if they send to each other before they receive, as they
    /// do with any message that is too long to be buffered.
    ZeroCopy,
}

/// The path of all messages that do not set their own.
pub const DATA_PATH: Choice<DataPath> = Choice {
    name: "DATA_PATH",
    values: &[("auto", DataPath::Auto), ("buffered", DataPath::Buffered), ("zerocopy", DataPath::ZeroCopy)],
    help: "path of bodies: the fastest (auto), through pool blocks (buffered) or between user memories (zerocopy)",
};
