//! Credit, and the control messages that return it and revoke keys.

use std::sync::atomic::Ordering;

use super::super::frame::IbvFrameKind;
use super::{ConnState, QpConnection, SendState};
use crate::device::PostError;

impl QpConnection {
    /// Adds credit for `count` receives that the peer has posted again.
    #[inline]
    pub(in crate::ibvdev) fn grant(&self, count: u16) {
        if count > 0 {
            let granted = self.granted.load(Ordering::Relaxed).wrapping_add(count.into());
            self.granted.store(granted, Ordering::Release);
        }
    }

    /// Records that a receive which the peer had used was posted again. Returns whether so much credit is due to the
    /// peer that it must get a `Credit` message.
    #[inline]
    pub(in crate::ibvdev) fn note_reposted(&self) -> bool {
        let reposted = self.reposted.load(Ordering::Relaxed).wrapping_add(1);
        self.reposted.store(reposted, Ordering::Release);
        self.owes_credit(reposted)
    }

    fn owes_credit(&self, reposted: u32) -> bool {
        reposted.wrapping_sub(self.credit_returned.load(Ordering::Relaxed)) >= (self.sizes.window / 2).into()
    }

    #[inline]
    pub(in crate::ibvdev) fn has_control(&self) -> bool {
        self.has_control.load(Ordering::Relaxed)
    }

    /// Sends the pending control messages for which credit, slots and work requests are available. Sends a `Credit`
    /// message, which needs no credit, if one is due.
    pub(in crate::ibvdev) fn send_control(&self) -> Result<(), PostError> {
        if self.state() != ConnState::Established {
            return Ok(());
        }
        self.send_control_locked(&mut self.sending())
    }

    pub(super) fn send_control_locked(&self, sending: &mut SendState) -> Result<(), PostError> {
        while let Some((kind, key)) = sending.control.front().copied() {
            if !self.has_room(sending)? || !self.has_slot(sending) {
                break;
            }
            self.post_message(sending, kind, &key.to_le_bytes(), 0, |_| ())?;
            sending.control.pop_front();
        }
        let owes = self.owes_credit(self.reposted.load(Ordering::Relaxed));
        if owes && self.has_request(sending) && self.has_slot(sending) {
            self.post_message(sending, IbvFrameKind::Credit, &[], 0, |_| ())?;
        }
        let waits = !sending.control.is_empty() || self.owes_credit(self.reposted.load(Ordering::Relaxed));
        self.has_control.store(waits, Ordering::Relaxed);
        Ok(())
    }
}
