//! The state that the collectives of a communicator share.

use std::sync::Arc;

use mpj_devices::{Calls, Channel, Engine};

use super::call_tag::MATCH_MASK;
use super::state::CollState;
use super::tuning::Tuning;

/// The channel of a communicator's collectives, which separates their messages from the user's, and the state and
/// tuning of their calls. The channel is freed with the last handle, because active calls can outlive the communicator.
#[derive(Debug)]
pub(crate) struct CollContext {
    engine: Arc<Engine>,
    channel: Arc<Channel>,
    rank: u32,
    size: u32,
    state: CollState,
    tuning: Tuning,
}

impl CollContext {
    pub(crate) fn new(engine: Arc<Engine>, channel: Arc<Channel>, tuning: Tuning) -> Self {
        channel.set_tag_mask(MATCH_MASK);
        let (rank, size) = (channel.rank(), channel.group().size());
        let state = CollState::new(engine.bias());
        CollContext { engine, channel, rank, size, state, tuning }
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
    pub(crate) fn coll_state(&self) -> &CollState {
        &self.state
    }
}

impl Calls for CollContext {
    fn next(&self) -> u32 {
        self.state.sequence().peek_next()
    }
}

impl Drop for CollContext {
    fn drop(&mut self) {
        self.engine.free(&self.channel);
    }
}
