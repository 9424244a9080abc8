//! The buffer of blocks at signed displacements, as C programs pass them.

use mpj_datatypes::Datatype;
use mpj_devices::Buf;

use super::p2p::too_large;
use crate::error::{Error, ErrorClass, Result};

/// Describes blocks of `counts[i]` items at `displacements[i]` items from `base`, which can be negative. Returns a buffer
/// of all items from the first block to the end of the last one, and the displacements of the blocks in it, for
/// [`BlockLayout::Varying`](super::BlockLayout). The position of an empty block has no meaning.
///
/// A collective accesses only the blocks, unless it is in place: then it can read items between them.
///
/// ```
/// use mpj::raw::{self, BlockLayout, Buf};
/// use mpj::Primitive;
///
/// # mpj::threads(2, |world| {
/// // The block of rank 0 is before `middle`.
/// let mut all = [0u16; 5];
/// let middle = &raw mut all[3];
/// let counts = [3, 2];
/// let (recv, displacements) =
///     raw::buf_of_blocks(middle.cast(), Primitive::U16.into(), &counts, &[-3, 0])?;
/// let layout = BlockLayout::Varying { counts: &counts, displacements: &displacements };
/// let mine = vec![7 + world.rank() as u16; counts[world.rank()]];
/// // SAFETY: the blocks are in `all`, which is not accessed until the call has returned.
/// unsafe { raw::allgather(world.as_raw(), &Buf::slice(&mine), &recv, layout)? };
/// assert_eq!(all, [7, 7, 7, 8, 8]);
/// # Ok::<(), mpj::Error>(()) }).unwrap();
/// ```
///
/// # Errors
/// [`ErrorClass::Arg`] if the numbers of counts and displacements differ; [`ErrorClass::Count`] if the blocks exceed the
/// address space.
pub fn buf_of_blocks(
    base: *mut u8,
    datatype: Datatype,
    counts: &[usize],
    displacements: &[isize],
) -> Result<(Buf, Vec<usize>)> {
    const CALL: &str = "buf_of_blocks";
    if counts.len() != displacements.len() {
        let why = format!("{} counts and {} displacements", counts.len(), displacements.len());
        return Err(Error::new(ErrorClass::Arg, CALL, why));
    }
    let blocks = || displacements.iter().copied().zip(counts.iter().copied());
    let (mut first, mut end) = (0, 0);
    for (number, (at, count)) in blocks().filter(|(_, count)| *count > 0).enumerate() {
        let block_end = at.checked_add_unsigned(count).ok_or_else(|| too_large(CALL, count))?;
        (first, end) = if number == 0 { (at, block_end) } else { (at.min(first), block_end.max(end)) };
    }
    let count = end.abs_diff(first);
    let extent = isize::try_from(datatype.extent()).ok();
    let offset = extent.and_then(|extent| first.checked_mul(extent)).ok_or_else(|| too_large(CALL, count))?;
    let starts = blocks().map(|(at, count)| if count == 0 { 0 } else { at.abs_diff(first) }).collect();
    Ok((Buf::new(base.wrapping_offset(offset), count, datatype), starts))
}
