//! The parameter that selects the data path.

use crate::config::Choice;

/// The path of a message's bytes: through a buffer of the library, or directly from user to user.
///
/// It is a preference of one side: the sender's concerns its copies, the receiver's concerns its own. Every message
/// arrives, whatever both sides prefer.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum DataPath {
    /// The fastest known path for the device, the size and the layout.
    #[default]
    Auto,
    /// The sender packs the message into a block of the pool and sends that; the receiver receives it into a block and
    /// unpacks it from there. This is the path of mpjbuf, on every device.
    Buffered,
    /// The message moves directly between the users' memories if the devices support it: only the device itself copies.
    /// A device that does not support that memory behaves as with [`Auto`](DataPath::Auto). Such a send completes when
    /// its receiver has the message, however short it is. Ranks that send to each other before they receive, and rely
    /// on buffering, therefore deadlock, as they do with any message that is too long to be buffered.
    ZeroCopy,
}

/// The path of all messages that do not set their own.
pub const DATA_PATH: Choice<DataPath> = Choice {
    name: "DATA_PATH",
    values: &[("auto", DataPath::Auto), ("buffered", DataPath::Buffered), ("zerocopy", DataPath::ZeroCopy)],
    help: "path of bodies: the fastest (auto), through pool blocks (buffered) or between user memories (zerocopy)",
};
