//! Many items of a few pieces each, such as structures with padding: piece by piece over a batch of items, so that the
//! length of a piece is tested once per batch and not once per item.

use super::block_copy::Direction;
use super::strided_copy;

/// Maximum number of pieces; longer lists are copied item by item.
const MAX_PIECES: usize = 16;
const MIN_ITEMS: usize = 8;
/// Bytes of a batch on the longer side, so that it stays in the first cache; a batch has at least four items.
const BATCH: usize = 8 << 10;

/// Copies all `items`, or none if another loop is faster or items to unpack might overlap. Returns the number copied.
///
/// # Safety
/// `items` whole items at `origin`, `stride` bytes apart, each of `size` packed bytes in the pieces (offset, length) in
/// pack order, all inside `span` bytes, are valid as [`Kernel`](super::Kernel) says, and so are their packed bytes.
pub(super) unsafe fn run<D: Direction>(
    pieces: impl ExactSizeIterator<Item = (i64, usize)> + Clone,
    span: i64,
    size: usize,
    stride: i64,
    origin: *mut u8,
    packed: *mut u8,
    items: usize,
) -> usize {
    // The pieces of an item keep their order. The order of items changes, so items to unpack must not overlap.
    let disjoint = D::PACKS || (span >= 0 && stride.unsigned_abs() >= span.unsigned_abs());
    if items < MIN_ITEMS || pieces.len() > MAX_PIECES || !disjoint {
        return 0;
    }
    let distance = usize::try_from(stride.unsigned_abs()).unwrap_or(usize::MAX);
    let batch = (BATCH / distance.max(size).max(1)).max(4);
    let mut done = 0;
    while done < items {
        let n = batch.min(items - done);
        let (user, out) = (super::offset_by_strides(origin, stride, done), packed.wrapping_add(done * size));
        let mut start = 0;
        for (offset, len) in pieces.clone() {
            let at = user.wrapping_offset(offset as isize);
            let (src, dst) = D::route(at, out.wrapping_add(start));
            let (from, to) =
                if D::PACKS { (stride as isize, size as isize) } else { (size as isize, stride as isize) };
            // SAFETY: this piece of the next n items.
            unsafe { strided_copy::run(src, from, dst, to, n, len) };
            start += len;
        }
        done += n;
    }
    items
}
