//! `Bytes` and `BytesMut` of the crate `bytes` as buffers.

use bytes::{Bytes, BytesMut};

use super::{RecvBuf, SendBuf};
use crate::raw::Buf;

// SAFETY: its bytes are initialised, do not move with the handle, and do not change while a handle lives.
unsafe impl SendBuf for Bytes {
    fn send_buf(&self) -> Buf {
        Buf::slice(self)
    }
}

// SAFETY: its bytes are initialised, do not move with the handle, and change only through it.
unsafe impl SendBuf for BytesMut {
    fn send_buf(&self) -> Buf {
        Buf::slice(self)
    }
}

// SAFETY: any byte may be stored there, and no other handle has these bytes.
unsafe impl RecvBuf for BytesMut {
    fn recv_buf(&mut self) -> Buf {
        Buf::slice_mut(self)
    }
}
