//! `Bytes` and `BytesMut` of the crate `bytes`, which are sent in place.

use bytes::{Bytes, BytesMut};

use super::{RecvBuf, SendBuf};
use crate::raw::Buf;

// SAFETY: its bytes are initialised, lie on the heap or are static, and do not change while a handle lives.
unsafe impl SendBuf for Bytes {
    fn send_buf(&self) -> Buf {
        Buf::slice(self)
    }
}

// SAFETY: its bytes are initialised, lie on the heap, and change only through this handle.
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
