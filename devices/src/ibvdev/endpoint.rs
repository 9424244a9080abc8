use std::mem::MaybeUninit;
use std::sync::Arc;

use super::IbvShared;
use super::connection::QpConnection;
use super::keys::{self, RdmaKey};
use crate::device::{Body, Endpoint, MemoryPart, OpStatus, OpToken, PostError, RemoteKey};

#[derive(Debug)]
pub(super) struct IbvEndpoint {
    connection: Arc<QpConnection>,
    shared: Arc<IbvShared>,
}

impl IbvEndpoint {
    pub(super) fn new(connection: Arc<QpConnection>, shared: Arc<IbvShared>) -> Self {
        IbvEndpoint { connection, shared }
    }
}

#[inline]
fn write(body: Body<'_>, room: &mut [MaybeUninit<u8>]) {
    match body {
        Body::Empty => (),
        Body::Bytes(bytes) => {
            room.write_copy_of_slice(bytes);
        }
        Body::Chain(pieces) => pieces.write(room),
        Body::Packed(body) => body.write(room),
    }
}

impl Endpoint for IbvEndpoint {
    #[inline]
    fn post(&mut self, head: &[u8], body: Body<'_>) -> Result<(), PostError> {
        self.connection.post(head, body.len(), false, |room| write(body, room))
    }

    #[inline]
    fn post_more(&mut self, head: &[u8], body: Body<'_>) -> Result<(), PostError> {
        self.connection.post(head, body.len(), true, |room| write(body, room))
    }

    unsafe fn get(
        &mut self,
        key: &RemoteKey,
        at: u64,
        to: MemoryPart<'_>,
        op: OpToken,
    ) -> Result<OpStatus, PostError> {
        let key =
            RdmaKey::unpack(key).ok_or_else(|| PostError::Broken("it sent a malformed ibvdev key".into()))?;
        let lkey = to.registration.and_then(keys::lkey);
        let (Some(base), Some(lkey)) = (to.contiguous(), lkey) else { return Err(PostError::Unsupported) };
        // SAFETY: the caller upholds the contract of `Endpoint::get`, which includes that of `read`.
        unsafe { self.connection.read(&key, at, (base, to.len, lkey), op) }?;
        Ok(OpStatus::InProgress)
    }

    fn flush(&mut self) -> Result<bool, PostError> {
        self.connection.flush()
    }

    #[inline]
    fn has_unflushed(&self) -> bool {
        self.connection.has_batch()
    }

    fn peer_gone(&mut self) {
        if let Some(quiesced) = self.connection.close() {
            self.shared.release_closed(&self.connection, quiesced);
        }
    }

    fn is_drained(&mut self) -> bool {
        self.connection.is_drained()
    }
}
