//! Writes buffers of the encoding that `buffer.rs` reads and describes.

use super::buffer::{UNDESCRIBED, kind};

/// Writes a buffer. Every method except [`finish`](Self::finish) returns the packer, for the next item.
#[derive(Clone, Default, Debug)]
pub struct Packer {
    bytes: Vec<u8>,
}

impl Packer {
    /// Starts a message with the number of a command.
    pub fn command(command: u8) -> Packer {
        Packer::default().byte(command)
    }

    /// Returns the written bytes.
    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }

    fn raw(mut self, bytes: &[u8]) -> Packer {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// Writes the number of elements of the next item, 1.
    fn one(self) -> Packer {
        self.raw(&1u32.to_be_bytes())
    }

    fn text(self, text: &str) -> Packer {
        // The cast is exact: the strings of a client (names, keys, the card of the root) are short.
        self.raw(&(text.len() as u32 + 1).to_be_bytes()).raw(text.as_bytes()).raw(&[0])
    }

    fn u64(self, number: u64) -> Packer {
        self.raw(&kind::UINT64.to_be_bytes()).raw(&number.to_be_bytes())
    }

    /// Writes a command, a scope or another byte.
    pub fn byte(self, byte: u8) -> Packer {
        self.one().raw(&[byte])
    }

    /// Writes a status.
    pub fn status(self, status: i32) -> Packer {
        self.one().raw(&status.to_be_bytes())
    }

    /// Writes a rank.
    pub fn rank(self, rank: u32) -> Packer {
        self.one().raw(&rank.to_be_bytes())
    }

    /// Writes a string.
    pub fn string(self, text: &str) -> Packer {
        self.one().text(text)
    }

    /// Writes a size.
    pub fn size(self, size: u64) -> Packer {
        self.one().u64(size)
    }

    /// Writes a process.
    pub fn proc(self, namespace: &str, rank: u32) -> Packer {
        self.one().text(namespace).raw(&rank.to_be_bytes())
    }

    /// Writes bytes.
    pub fn object(self, bytes: &[u8]) -> Packer {
        self.one().u64(bytes.len() as u64).raw(bytes)
    }

    /// Writes a buffer in a buffer.
    pub fn buffer(self, bytes: &[u8]) -> Packer {
        self.one().raw(&[UNDESCRIBED]).u64(bytes.len() as u64).raw(bytes)
    }

    /// Writes an info with a `bool`.
    pub fn info_bool(self, key: &str, value: bool) -> Packer {
        let flags = 0u32.to_be_bytes();
        self.one().text(key).raw(&flags).raw(&kind::BOOL.to_be_bytes()).raw(&[value.into()])
    }

    /// Writes a key with a string.
    pub fn kval_string(self, key: &str, value: &str) -> Packer {
        self.one().text(key).raw(&kind::STRING.to_be_bytes()).text(value)
    }

    /// Writes a key with a number of 32 bits.
    pub fn kval_u32(self, key: &str, value: u32) -> Packer {
        self.one().text(key).raw(&kind::UINT32.to_be_bytes()).raw(&value.to_be_bytes())
    }

    /// Writes a key with an object.
    pub fn kval_object(self, key: &str, bytes: &[u8]) -> Packer {
        let packer = self.one().text(key).raw(&kind::BYTE_OBJECT.to_be_bytes());
        packer.u64(bytes.len() as u64).raw(bytes)
    }
}
