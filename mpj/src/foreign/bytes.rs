//! The handles of the crate `bytes`: their bytes are sent where they lie.

use bytes::{Bytes, BytesMut};

use crate::types::{SendBuf, SendParts};

// SAFETY: its bytes are initialised, lie on the heap or are static, and nobody can change them while a handle lives.
unsafe impl SendBuf for Bytes {
    fn send_parts(&self) -> SendParts {
        self.as_ref().send_parts()
    }
}

// SAFETY: its bytes are initialised, lie on the heap, and change only through this handle.
unsafe impl SendBuf for BytesMut {
    fn send_parts(&self) -> SendParts {
        self.as_ref().send_parts()
    }
}

// SAFETY: any byte may be stored there, and nobody else has these bytes.
unsafe impl crate::types::RecvBuf for BytesMut {
    fn recv_parts(&mut self) -> crate::types::RecvParts {
        self.as_mut().recv_parts()
    }
}
