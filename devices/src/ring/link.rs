//! The sending end of a ring as a [`Link`].

use std::fmt;
use std::mem::MaybeUninit;
use std::sync::Arc;

use super::{Area, INLINE, Producer};
use crate::device::{Body, Link, PostError};
use crate::doorbell::Doorbell;

/// A doorbell that is looked for when it is first needed: `find` returns it, or sees to it that whoever brings it rings
/// it then.
pub(crate) struct LateBell {
    known: Option<Arc<Doorbell>>,
    find: Box<dyn Fn() -> Option<Arc<Doorbell>> + Send>,
}

impl LateBell {
    pub(crate) fn new(find: impl Fn() -> Option<Arc<Doorbell>> + Send + 'static) -> Self {
        LateBell { known: None, find: Box::new(find) }
    }

    #[inline]
    pub(crate) fn get(&mut self) -> Option<&Doorbell> {
        if self.known.is_none() {
            self.known = (self.find)();
        }
        self.known.as_deref()
    }
}

impl fmt::Debug for LateBell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LateBell").field(&self.known).finish()
    }
}

/// The ring to one peer.
#[derive(Debug)]
pub(crate) struct RingLink {
    producer: Producer,
    area: Arc<Area>,
    bell: LateBell,
}

impl RingLink {
    pub(crate) fn new(producer: Producer, area: Arc<Area>, bell: LateBell) -> Self {
        RingLink { producer, area, bell }
    }
}

impl Link for RingLink {
    #[inline]
    fn post(&mut self, head: &[u8], body: Body<'_>) -> Result<(), PostError> {
        if !self.producer.has_room() {
            return Err(PostError::Again);
        }
        let len = body.len();
        let fill = |room: &mut [MaybeUninit<u8>]| match body {
            Body::Empty => (),
            Body::Bytes(bytes) => {
                room.write_copy_of_slice(bytes);
            }
            Body::Fill(_, fill) => fill(room),
        };
        if head.len() + len <= INLINE {
            self.producer.send_inline(head, len, fill);
        } else if len <= self.area.fragment() {
            let index = self.area.lend(len, fill).ok_or(PostError::Again)?;
            self.producer.send_fragment(head, index, len as u32);
        } else {
            return Err(PostError::Unsupported);
        }
        if let Some(bell) = self.bell.get() {
            bell.ring();
        }
        Ok(())
    }
}
