//! Many items of a few pieces each, such as structures with padding: piece by piece over a tile of items, so that the
//! length of a piece is tested once per tile and not once per item.

use super::block_copy::Direction;
use super::strided_copy;

/// Longer lists are left to the loop over one item.
const PIECES: usize = 16;
/// Fewer items are not worth it.
const ITEMS: usize = 8;
/// Bytes of a tile on either side: it has to stay in the first cache while its pieces are moved.
const TILE: usize = 8 << 10;

/// Moves all of `items` items, or none if the layout does not suit, and returns how many.
///
/// # Safety
/// `items` whole items at `origin`, `stride` bytes apart, each of `size` packed bytes in the pieces (offset, length) in
/// pack order, all inside of `span` bytes, are valid as [`Kernel`](super::Kernel) says, and so are their packed bytes.
pub(super) unsafe fn run<D: Direction>(
    pieces: impl ExactSizeIterator<Item = (i64, usize)> + Clone,
    span: i64,
    size: usize,
    stride: i64,
    origin: *mut u8,
    packed: *mut u8,
    items: usize,
) -> usize {
    // Pieces of one item keep their order. That of items changes, so that to unpack they must not overlap.
    let apart = D::PACKS || (span >= 0 && stride.unsigned_abs() >= span.unsigned_abs());
    if items < ITEMS || pieces.len() > PIECES || !apart {
        return 0;
    }
    let wide = usize::try_from(stride.unsigned_abs()).unwrap_or(usize::MAX);
    let tile = (TILE / wide.max(size).max(1)).max(4);
    let mut done = 0;
    while done < items {
        let n = tile.min(items - done);
        let (user, out) = (super::step(origin, stride, done), packed.wrapping_add(done * size));
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
