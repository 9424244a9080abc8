//! Type trees from bytes, packed and unpacked.

use mpj_datatypes::{Datatype, Packer, Primitive, Unpacker};

/// Takes numbers from the front of the bytes.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn next(&mut self, below: u8) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first % below
    }
}

fn tree(bytes: &mut Bytes<'_>, depth: u8) -> Option<Datatype> {
    const LEAVES: [Primitive; 4] = [Primitive::U8, Primitive::I16, Primitive::F32, Primitive::F64];
    let kind = if depth == 0 { 0 } else { bytes.next(7) };
    let leaf = LEAVES[usize::from(bytes.next(4))];
    if kind == 0 {
        return Some(Datatype::primitive(leaf));
    }
    let inner = tree(bytes, depth - 1)?;
    let (count, block) = (usize::from(bytes.next(4)), usize::from(bytes.next(4)));
    let stride = isize::from(bytes.next(9)) - 2;
    match kind {
        1 => inner.contiguous(count),
        2 => inner.vector(count, block, stride),
        3 => inner.hvector(count, block, i64::from(bytes.next(64)) - 16),
        4 => inner.indexed(&[(block, stride), (count, isize::from(bytes.next(9)))]),
        5 => Datatype::structure(&[
            (count, 0, inner),
            (1, i64::from(bytes.next(64)), Datatype::primitive(leaf)),
        ]),
        _ => inner.resized(i64::from(bytes.next(8)), i64::from(bytes.next(64))),
    }
    .ok()
}

/// Builds a type tree, packs items of it in pieces of any length and unpacks them again; returns the packed length.
///
/// # Panics
/// If the round trip changes what it packs: a bug.
pub fn pack_unpack(bytes: &[u8]) -> usize {
    let mut bytes = Bytes(bytes);
    let Some(datatype) = tree(&mut bytes, 3) else { return 0 };
    let count = usize::from(bytes.next(4));
    let Ok((low, high)) = datatype.bounds(count) else { return 0 };
    let (Ok(origin), Ok(len)) = (usize::try_from(-low.min(0)), usize::try_from(high - low.min(0))) else {
        return 0;
    };
    if len > 1 << 16 {
        return 0;
    }
    let source: Vec<u8> = (0..len).map(|i| (i * 7 + 1) as u8).collect();
    let pack = |memory: &[u8], piece: usize| {
        let mut packer = Packer::new(&datatype, memory, origin, count).expect("inside its bounds");
        let mut packed = vec![0u8; packer.remaining()];
        for part in packed.chunks_mut(piece.max(1)) {
            assert_eq!(packer.fill_bytes(part), part.len());
        }
        packed
    };
    let packed = pack(&source, 1 + usize::from(bytes.next(33)));
    let mut copy = vec![0u8; len];
    if let Ok(mut unpacker) = Unpacker::new(&datatype, &mut copy, origin, count) {
        for part in packed.chunks(1 + usize::from(bytes.next(33))) {
            assert_eq!(unpacker.feed(part), Ok(part.len()));
        }
    }
    // Where items overlap, the later one wins on unpacking; packing the copy again gives what is there now.
    let again = pack(&copy, usize::MAX);
    assert_eq!(again.len(), packed.len());
    packed.len()
}
