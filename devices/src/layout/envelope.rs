//! What travels with a message.

use mpj_datatypes::{Primitive, Signature};

use crate::fault::Content;

/// What travels with a message: who, tag, type, length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Envelope {
    /// The sender's rank in the communicator.
    pub source: u32,
    /// The tag.
    pub tag: i32,
    /// The code of the primitive it is made of, or 0 if it is mixed.
    pub code: u8,
    /// Its signature if it is mixed.
    pub signature: Signature,
    /// Its length in bytes.
    pub bytes: usize,
}

impl Envelope {
    /// Copies it field by field. What was just made and is copied as a whole would be read in larger pieces than it was
    /// written, and the processor waits for such reads until all that was written before has reached the cache.
    #[inline]
    pub(crate) fn fields(&self) -> Envelope {
        let &Envelope { source, tag, code, signature: Signature { hash, count }, bytes } = self;
        Envelope { source, tag, code, signature: Signature { hash, count }, bytes }
    }

    pub(super) fn content(&self) -> Content {
        match Primitive::from_code(self.code) {
            Some(primitive) => Content::Of(primitive, self.bytes / primitive.size()),
            None => Content::Mixed(self.bytes),
        }
    }

    pub(super) fn full_signature(&self) -> Option<Signature> {
        match Primitive::from_code(self.code) {
            Some(p) if self.bytes.is_multiple_of(p.size()) => {
                Some(Signature::of(p).repeat((self.bytes / p.size()) as u64))
            }
            Some(_) => None,
            None => (self.code == 0).then_some(self.signature),
        }
    }
}
