//! Pool blocks as buffers: messages of `mpj::buffer`, and bytes.

use mpj_buffer::{Buffer, Reading};
use mpj_datatypes::Primitive;
use mpj_pool::{FilledBlock, RawBuffer, ReadBlock};

use super::{RecvBuf, SendBuf};
use crate::raw::{Buf, ChainSegment};

// SAFETY: the bytes of a committed message are initialised. They lie in blocks that neither move with the buffer nor
// change behind a shared reference.
unsafe impl<R: ReadBlock> SendBuf for Buffer<R, Reading> {
    fn send_buf(&self) -> Buf {
        let mut segments = self.segments();
        match segments.next() {
            Some(only) if only.len() == self.len() => {
                let buf = Buf::read_only(only.as_ptr(), only.len(), Primitive::Packed);
                buf.in_region(self.region())
            }
            _ => Buf::chain(self.segments().map(ChainSegment::from), Primitive::Packed),
        }
    }
}

// SAFETY: the written bytes are initialised. They lie in a block that does not move with the handle, and change only
// through it.
unsafe impl<B: RawBuffer> SendBuf for FilledBlock<B> {
    fn send_buf(&self) -> Buf {
        Buf::slice(self.as_ref()).in_region(self.region())
    }
}

// SAFETY: any byte is valid, and the handle owns the block.
unsafe impl<B: RawBuffer> RecvBuf for FilledBlock<B> {
    fn recv_buf(&mut self) -> Buf {
        let buf = Buf::slice_mut(self.as_mut());
        buf.in_region(self.region())
    }
}
