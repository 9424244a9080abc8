//! The envelope of a message.

use mpj_datatypes::{Datatype, Primitive, Signature};

use crate::fault::{Content, Fault};

/// The tag of a message, and its immediate data: a word that the receiver gets with the tag, but that is not matched.
/// The messages of collectives carry a description of their call in it; it is 0 in a message without immediate data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MessageTag {
    /// The tag.
    pub tag: i32,
    /// The immediate data.
    pub immediate: u32,
}

impl From<i32> for MessageTag {
    #[inline]
    fn from(tag: i32) -> Self {
        MessageTag { tag, immediate: 0 }
    }
}

/// The envelope of a message: source, tag, type and length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Envelope {
    /// The sender's rank in the communicator.
    pub source: u32,
    /// The tag.
    pub tag: i32,
    /// The [immediate data](MessageTag).
    pub immediate: u32,
    /// The code of the primitive of which the message consists, or 0 if it is mixed.
    pub code: u8,
    /// The signature of the message, if it is mixed.
    pub signature: Signature,
    /// The length of the message in bytes.
    pub bytes: usize,
}

impl Envelope {
    /// Copies the envelope field by field. A copy of the whole struct would load larger units than were just stored.
    /// The processor delays such loads until the stores have reached the cache.
    #[inline]
    pub(crate) fn fields(&self) -> Envelope {
        let &Envelope { source, tag, immediate, code, signature: Signature { hash, count }, bytes } = self;
        Envelope { source, tag, immediate, code, signature: Signature { hash, count }, bytes }
    }

    /// Returns the number of items of `datatype` in the message.
    ///
    /// # Errors
    /// [`Fault::TypeMismatch`] if the message has items of other types, or ends within an item.
    pub fn items_of(&self, datatype: &Datatype) -> Result<usize, Fault> {
        let count = self.bytes.checked_div(datatype.size()).unwrap_or(0);
        if count * datatype.size() == self.bytes && self.fits(datatype, count) {
            return Ok(count);
        }
        // Name the smallest number of whole items that are at least as long as the message.
        let bytes = self.bytes.checked_next_multiple_of(datatype.size().max(1));
        Err(self.mismatch(datatype, bytes.unwrap_or(self.bytes)))
    }

    /// Returns whether the message matches the beginning of `count` items of a type. The items are at least as long as
    /// the message. An empty message matches every type, and packed bytes match every type, on either side.
    pub(super) fn fits(&self, datatype: &Datatype, count: usize) -> bool {
        let (packed, wanted) = (Primitive::Packed, datatype.single_primitive());
        let same = || {
            // If both sides consist of one primitive, no signature is needed.
            if let (Some(sent), Some(wanted)) = (Primitive::from_code(self.code), wanted) {
                return sent == wanted && self.bytes.is_multiple_of(sent.size());
            }
            let Some(sent) = self.full_signature() else { return false };
            // Compute the signature of the same number of bytes of the receive. The count that the message contains is
            // untrusted, so it is only compared.
            let elements = datatype.element_count_in(count, self.bytes);
            let expected = elements.and_then(|elements| datatype.signature_prefix(count, elements));
            expected == Some(sent)
        };
        let is_packed = self.code == packed as u8 || wanted == Some(packed);
        self.bytes == 0 || is_packed || same()
    }

    pub(super) fn mismatch(&self, datatype: &Datatype, bytes: usize) -> Fault {
        let &Envelope { source, tag, immediate, .. } = self;
        Fault::TypeMismatch {
            source,
            tag,
            immediate,
            sent: self.content(),
            expected: Content::of(datatype, bytes),
        }
    }

    fn content(&self) -> Content {
        match Primitive::from_code(self.code) {
            Some(primitive) => Content::Uniform(primitive, self.bytes / primitive.size()),
            None => Content::Mixed(self.bytes),
        }
    }

    fn full_signature(&self) -> Option<Signature> {
        match Primitive::from_code(self.code) {
            Some(p) if self.bytes.is_multiple_of(p.size()) => {
                Some(Signature::of(p).repeat((self.bytes / p.size()) as u64))
            }
            Some(_) => None,
            None => (self.code == 0).then_some(self.signature),
        }
    }
}
