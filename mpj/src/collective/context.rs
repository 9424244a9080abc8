//! The context in which the collectives of a communicator run.

use std::sync::Arc;

use mpj_devices::{Calls, Channel, Engine};

use super::course::CollState;
use super::label::MATCHED;
use super::tuning::Tuning;

/// The context of a communicator's collectives: a channel that separates their messages from the user's, and the state
/// of the calls. The channel is freed when the last handle is dropped, because active calls may outlive their
/// communicator.
#[derive(Debug)]
pub(crate) struct CollContext {
    engine: Arc<Engine>,
    channel: Arc<Channel>,
    rank: u32,
    size: u32,
    course: CollState,
    tuning: Tuning,
}

impl CollContext {
    /// Creates the context for the members of a channel.
    pub(crate) fn new(engine: Arc<Engine>, channel: Arc<Channel>, tuning: Tuning) -> Self {
        channel.set_tag_mask(MATCHED);
        let (rank, size) = (channel.rank(), channel.group().size());
        let course = CollState::new(engine.bias());
        CollContext { engine, channel, rank, size, course, tuning }
    }

    #[inline]
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    #[inline]
    pub(crate) fn channel(&self) -> &Arc<Channel> {
        &self.channel
    }

    #[inline]
    pub(crate) fn rank(&self) -> u32 {
        self.rank
    }

    #[inline]
    pub(crate) fn size(&self) -> u32 {
        self.size
    }

    #[inline]
    pub(crate) fn tuning(&self) -> &Tuning {
        &self.tuning
    }

    #[inline]
    pub(crate) fn course(&self) -> &CollState {
        &self.course
    }
}

impl Calls for CollContext {
    fn next(&self) -> u32 {
        self.course.counts().upcoming()
    }
}

impl Drop for CollContext {
    fn drop(&mut self) {
        self.engine.free(&self.channel);
    }
}
