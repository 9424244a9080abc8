//! The byte order of a rank's processor. Bodies are sent as they are in memory, so a rank with another byte order would
//! receive wrong values without an error.

use crate::device::PeerId;

/// Whether this rank stores the most significant byte of a number first.
pub(crate) const IS_BIG_ENDIAN: bool = cfg!(target_endian = "big");

pub(crate) fn name(is_big_endian: bool) -> &'static str {
    if is_big_endian { "big-endian" } else { "little-endian" }
}

/// Checks that a peer has the byte order of this rank.
///
/// # Errors
/// If the peer has the other byte order.
pub(crate) fn check(peer: PeerId, is_big_endian: bool) -> Result<(), String> {
    if is_big_endian == IS_BIG_ENDIAN {
        return Ok(());
    }
    Err(format!(
        "rank {} has another byte order: it is {} and this rank is {}; start all ranks on processors of one byte order",
        peer.0,
        name(is_big_endian),
        name(IS_BIG_ENDIAN)
    ))
}
