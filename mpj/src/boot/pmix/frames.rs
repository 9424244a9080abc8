//! The frames of the connection to a PMIx server, without I/O.
//!
//! ```text
//!   header = client: i32, tag: u32, length of the body: u64      client and tag in network byte order
//!   the length is a 32-bit number in network byte order, stored as a 64-bit number of the host
//! ```
//! A reply has the tag of its request.

/// The number of bytes of a header.
const HEADER: usize = 16;

/// The largest body. The map of ranks to hosts of the largest job has about 20 MiB.
pub const MAX_BODY: usize = 64 << 20;

/// Returns a frame with the header of a request.
pub fn frame(client: u32, tag: u32, body: &[u8]) -> Vec<u8> {
    let len = u64::from((body.len() as u32).to_be());
    [&client.to_be_bytes()[..], &tag.to_be_bytes(), &len.to_ne_bytes(), body].concat()
}

/// Assembles frames from pieces of any length.
#[derive(Default, Debug)]
pub struct PmixFrames {
    bytes: Vec<u8>,
}

impl PmixFrames {
    /// Appends received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Removes the first `N` bytes, if they have arrived.
    pub fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let first = *self.bytes.first_chunk::<N>()?;
        self.bytes.drain(..N);
        Some(first)
    }

    /// Returns the tag and the body of the next frame, or `None` if it has not arrived in full.
    ///
    /// # Errors
    /// The frame is longer than the limit.
    pub fn next_frame(&mut self) -> Result<Option<(u32, Vec<u8>)>, String> {
        let Some(header) = self.bytes.first_chunk::<HEADER>() else { return Ok(None) };
        let [_, _, _, _, t0, t1, t2, t3, len @ ..] = *header;
        let len = u32::from_be(u64::from_ne_bytes(len) as u32) as usize;
        if len > MAX_BODY {
            return Err(format!("a message of {len} bytes, but the limit is {MAX_BODY}"));
        }
        if self.bytes.len() < HEADER + len {
            return Ok(None);
        }
        let rest = self.bytes.split_off(HEADER + len);
        let mut body = std::mem::replace(&mut self.bytes, rest);
        body.drain(..HEADER);
        Ok(Some((u32::from_be_bytes([t0, t1, t2, t3]), body)))
    }
}
