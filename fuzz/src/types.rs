use mpj_datatypes::{
    ArrayOrder, Datatype, DistributedDim, Distribution, Packer, Primitive, Run, Signature, TypeEnvelope,
    Unpacker,
};

use crate::input::Input;
use crate::model::{Model, Spec};

/// The approximate maximum length of the list of a datatype's bytes.
const MAX_BYTES: usize = 3000;

/// Builds a datatype and the list of its bytes. Packing, unpacking, queries and validation agree with the list.
pub fn types(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let Some((spec, count)) = choose(&mut input, MAX_BYTES) else { return };
    let datatype = spec.build().expect("small numbers");
    let one = spec.model();
    let model = one.items(count);
    check_properties(&datatype, &one, count, &model);
    check_copies(&datatype, count, &model, &mut input);
    check_external32(&datatype, count, &model, &mut input);
    check_prefixes(&datatype, count, &model);
    check_validation(&datatype, count, &model, &mut input);
    if let Some((other, items)) = choose(&mut input, MAX_BYTES / 2) {
        let to = other.build().expect("small numbers");
        check_transpack((&datatype, count, &model), (&to, items, &other.model().items(items)), &mut input);
    }
}

/// Chooses a datatype and a number of items; returns `None` if their list of bytes might be too long.
pub(crate) fn choose(input: &mut Input<'_>, max_bytes: usize) -> Option<(Spec, usize)> {
    let spec = tree(input, 3);
    // A few items, or enough items that the kernels work in tiles.
    let count = if input.below(8) == 7 { input.below(256) } else { input.below(4) };
    (leaves(&spec).saturating_mul(count.max(1) * 16) <= max_bytes * 4).then_some((spec, count))
}

fn leaves(spec: &Spec) -> usize {
    match spec {
        Spec::Primitive(_) | Spec::Pair(..) => 1,
        Spec::Contiguous(n, inner) => n.saturating_mul(leaves(inner)),
        Spec::Vector(n, block, _, inner) | Spec::HVector(n, block, _, inner) => {
            (n * block).saturating_mul(leaves(inner))
        }
        Spec::Indexed(blocks, inner) => {
            blocks.iter().map(|b| b.0).sum::<usize>().saturating_mul(leaves(inner))
        }
        Spec::HIndexed(blocks, inner) => {
            blocks.iter().map(|b| b.0).sum::<usize>().saturating_mul(leaves(inner))
        }
        Spec::IndexedBlock(block, at, inner) => (block * at.len()).saturating_mul(leaves(inner)),
        Spec::HIndexedBlock(block, at, inner) => (block * at.len()).saturating_mul(leaves(inner)),
        Spec::Structure(fields) => {
            fields.iter().map(|(n, _, inner)| n.saturating_mul(leaves(inner))).fold(0, usize::saturating_add)
        }
        Spec::Subarray(dims, _, inner) => {
            dims.iter().map(|d| d.0).product::<usize>().saturating_mul(leaves(inner))
        }
        Spec::Darray(_, dims, _, inner) => {
            dims.iter().map(|d| d.size).product::<usize>().saturating_mul(leaves(inner))
        }
        Spec::Dup(inner) | Spec::Resized(_, _, inner) => leaves(inner),
    }
}

fn tree(input: &mut Input<'_>, depth: usize) -> Spec {
    let kind = if depth == 0 { 0 } else { input.below(16) };
    let primitive = |input: &mut Input<'_>| input.pick(&Primitive::ALL);
    if kind < 2 {
        return Spec::Primitive(primitive(input));
    }
    if kind == 2 {
        return Spec::Pair(primitive(input), primitive(input));
    }
    let order = |input: &mut Input<'_>| if input.flag() { ArrayOrder::C } else { ArrayOrder::Fortran };
    let some = |input: &mut Input<'_>| input.below(15);
    let blocks =
        |input: &mut Input<'_>| (0..some(input)).map(|_| (input.below(3), input.within(-30, 60))).collect();
    if kind == 3 {
        let fields =
            (0..input.below(4)).map(|_| (input.below(3), input.within(-30, 60), tree(input, depth - 1)));
        return Spec::Structure(fields.collect());
    }
    let inner = Box::new(tree(input, depth - 1));
    match kind {
        4 => Spec::Contiguous(input.below(5), inner),
        5 => Spec::Vector(input.below(5), input.below(4), input.within(-4, 6) as isize, inner),
        6 => Spec::HVector(input.below(12), input.below(4), input.within(-20, 40), inner),
        7 => Spec::Indexed(
            (0..input.below(6)).map(|_| (input.below(3), input.within(-6, 12) as isize)).collect(),
            inner,
        ),
        8 => Spec::HIndexed(blocks(input), inner),
        9 => {
            let block = input.below(4);
            Spec::IndexedBlock(
                block,
                (0..some(input)).map(|_| input.within(-6, 12) as isize).collect(),
                inner,
            )
        }
        10 => {
            let block = input.below(4);
            Spec::HIndexedBlock(block, (0..some(input)).map(|_| input.within(-30, 60)).collect(), inner)
        }
        11 => {
            let order = order(input);
            let dims = (0..1 + input.below(3)).map(|_| {
                let size = 1 + input.below(6);
                let sub = input.below(size + 1);
                (size, sub, input.below(size - sub + 1))
            });
            Spec::Subarray(dims.collect(), order, inner)
        }
        12 => {
            let order = order(input);
            let dims: Vec<_> = (0..1 + input.below(3)).map(|_| distributed(input)).collect();
            let ranks: usize = dims.iter().map(|d| d.processes).product();
            Spec::Darray(input.below(ranks), dims, order, inner)
        }
        13 => Spec::Dup(inner),
        _ => Spec::Resized(input.within(-20, 20), input.within(-30, 60), inner),
    }
}

fn distributed(input: &mut Input<'_>) -> DistributedDim {
    let (size, processes) = (1 + input.below(6), 1 + input.below(3));
    match input.below(4) {
        0 => DistributedDim {
            size,
            processes,
            distribution: Distribution::BlockOf(size.div_ceil(processes) + input.below(3)),
        },
        1 => DistributedDim { size, processes, distribution: Distribution::Block },
        2 => DistributedDim { size, processes, distribution: Distribution::Cyclic(1 + input.below(3)) },
        _ => DistributedDim { size, processes: 1, distribution: Distribution::Whole },
    }
}

fn check_properties(datatype: &Datatype, one: &Model, count: usize, model: &Model) {
    let (low, high) = one.touched();
    assert_eq!(datatype.size(), one.bytes().len());
    assert_eq!(datatype.element_count(), one.leaves.len() as u64);
    assert_eq!((datatype.true_lb(), datatype.true_extent()), (low, high - low));
    assert_eq!((datatype.lb(), datatype.extent()), (one.lb(), one.extent()));
    assert_eq!(datatype.signature(), one.signature());
    assert_eq!(datatype.needs_validation(), one.leaves.iter().any(|leaf| leaf.1.needs_validation()));
    assert_eq!(datatype.byte_bounds(count), Ok(model.touched()));
    assert_eq!(datatype.packed_size(count), Ok(model.bytes().len()));
    let dense = (0..3 * datatype.size() as i64).eq(one.items(3).bytes());
    let exact = datatype.lb() == 0 && datatype.extent() == datatype.size() as i64;
    assert_eq!(datatype.is_contiguous(), dense && exact);
    let runs: Vec<Run> = datatype.runs(count).collect();
    assert!(runs.iter().flat_map(|r| (0..r.len as i64).map(|i| r.offset + i)).eq(model.bytes()));
    assert!(runs.windows(2).all(|pair| pair[0].offset + pair[0].len as i64 != pair[1].offset));
    let mut bytes = model.bytes();
    bytes.sort_unstable();
    let twice = |at: i64| bytes.windows(2).any(|pair| pair == [at, at]);
    match datatype.check_overlap(count) {
        Ok(()) => assert!(bytes.windows(2).all(|pair| pair[0] < pair[1]), "an overlap"),
        Err(found) => assert!(twice(found.offset), "no overlap at {}", found.offset),
    }
    assert!(format!("{datatype:?}").len() < 400, "one line");
    let again = rebuilt(datatype);
    assert!(datatype.runs(count).eq(again.runs(count)));
    assert_eq!((again.lb(), again.extent(), again.signature()), (one.lb(), one.extent(), one.signature()));
}

/// Rebuilds a type from its envelope, down to the leaves.
fn rebuilt(datatype: &Datatype) -> Datatype {
    let inside = |inner: &mut Datatype| *inner = rebuilt(inner);
    let mut envelope = datatype.envelope();
    match &mut envelope {
        TypeEnvelope::Primitive(_) | TypeEnvelope::Pair { .. } => {}
        TypeEnvelope::Structure { fields } => {
            *fields = fields.iter().map(|(n, by, inner)| (*n, *by, rebuilt(inner))).collect();
        }
        TypeEnvelope::Contiguous { inner, .. }
        | TypeEnvelope::Vector { inner, .. }
        | TypeEnvelope::HVector { inner, .. }
        | TypeEnvelope::Indexed { inner, .. }
        | TypeEnvelope::HIndexed { inner, .. }
        | TypeEnvelope::IndexedBlock { inner, .. }
        | TypeEnvelope::HIndexedBlock { inner, .. }
        | TypeEnvelope::Subarray { inner, .. }
        | TypeEnvelope::Darray { inner, .. }
        | TypeEnvelope::Dup { inner }
        | TypeEnvelope::Resized { inner, .. } => inside(inner),
        other => panic!("unknown constructor {other:?}"),
    }
    envelope.build().expect("valid arguments")
}

/// Returns the origin, and memory that contains all bytes of the model, each different from its neighbours.
fn memory(model: &Model) -> (usize, Vec<u8>) {
    let (low, high) = model.touched();
    let (low, high) = (low.min(0), high.max(0));
    ((-low) as usize, (0..high - low).map(|i| (i % 251) as u8).collect())
}

fn place(origin: usize, at: i64) -> usize {
    (origin as i64 + at) as usize
}

fn check_copies(datatype: &Datatype, count: usize, model: &Model, input: &mut Input<'_>) {
    let (origin, data) = memory(model);
    let expected: Vec<u8> = model.bytes().iter().map(|at| data[place(origin, *at)]).collect();
    let chunks: [usize; 3] = core::array::from_fn(|_| 1 + input.below(70));
    let mut packer = Packer::new(datatype, &data, origin, count).expect("inside");
    let mut got = vec![0xee; expected.len() + 70];
    let mut at = 0;
    for chunk in chunks.into_iter().cycle() {
        let n = packer.pack_into_bytes(&mut got[at..at + chunk.min(expected.len() - at)]);
        at += n;
        if packer.remaining() == 0 {
            break;
        }
        assert!(n > 0, "stuck at {at}");
    }
    assert_eq!(&got[..expected.len()], expected);
    assert!(got[expected.len()..].iter().all(|byte| *byte == 0xee), "a write past the end");

    // Where blocks overlap, the last write wins.
    let packed: Vec<u8> = (0..expected.len()).map(|i| (i * 7 % 253) as u8).collect();
    let (mut expected, mut memory) = (data.clone(), data);
    for (at, byte) in model.bytes().iter().zip(&packed) {
        expected[place(origin, *at)] = *byte;
    }
    if memory.len() > 1 && model.touched().1 > 0 {
        let short = memory.len() - 1;
        assert!(Unpacker::new(datatype, &mut memory[..short], origin, count).is_err(), "a byte too short");
    }
    let mut unpacker = Unpacker::new(datatype, &mut memory, origin, count).expect("inside");
    let mut rest = packed.as_slice();
    for chunk in chunks.into_iter().rev().cycle() {
        let (now, later) = rest.split_at(chunk.min(rest.len()));
        assert_eq!(unpacker.unpack_from(now), Ok(now.len()));
        rest = later;
        if rest.is_empty() {
            break;
        }
    }
    assert_eq!((unpacker.remaining(), unpacker.unpack_from(&[0]).map_err(|long| long.capacity)), (0, Err(0)));
    assert_eq!(memory, expected);
}

fn check_external32(datatype: &Datatype, count: usize, model: &Model, input: &mut Input<'_>) {
    let (origin, data) = memory(model);
    let mut expected: Vec<u8> = model.bytes().iter().map(|at| data[place(origin, *at)]).collect();
    let mut rest = expected.as_mut_slice();
    for (_, primitive) in &model.leaves {
        let (leaf, later) = rest.split_at_mut(primitive.size());
        if cfg!(target_endian = "little") {
            leaf.chunks_mut(primitive.swap_width()).for_each(<[u8]>::reverse);
        }
        rest = later;
    }
    let chunk = 1 + input.below(70);
    let mut packer = Packer::new(datatype, &data, origin, count).expect("inside");
    let mut got = vec![0; expected.len()];
    got.chunks_mut(chunk).for_each(|part| assert_eq!(packer.pack_external32_into(part), part.len()));
    assert_eq!((&got, packer.remaining()), (&expected, 0));
    let mut memory = vec![0xee; data.len()];
    let mut expected = memory.clone();
    model.bytes().iter().for_each(|at| expected[place(origin, *at)] = data[place(origin, *at)]);
    let chunk = 1 + input.below(70);
    let mut unpacker = Unpacker::new(datatype, &mut memory, origin, count).expect("inside");
    got.chunks(chunk).for_each(|part| assert_eq!(unpacker.unpack_external32_from(part), Ok(part.len())));
    assert_eq!(memory, expected);
}

fn check_prefixes(datatype: &Datatype, count: usize, model: &Model) {
    let (mut signature, mut bytes) = (Signature::EMPTY, 0);
    let leaves = model.leaves.len();
    for (i, leaf) in model.leaves.iter().enumerate() {
        if i < 40 || i + 8 > leaves {
            assert_eq!(datatype.element_count_in(count, bytes), Some(i as u64));
            assert_eq!(datatype.bytes_of_elements(count, i as u64), Some(bytes));
            assert_eq!(datatype.signature_prefix(count, i as u64), Some(signature));
            for inside in 1..leaf.1.size() {
                assert_eq!(datatype.element_count_in(count, bytes + inside), None);
            }
        }
        bytes += leaf.1.size();
        signature = signature.concat(Signature::of(leaf.1));
    }
    assert_eq!(datatype.element_count_in(count, bytes), Some(leaves as u64));
    assert_eq!(datatype.element_count_in(count, bytes + 1), None);
    assert_eq!(datatype.bytes_of_elements(count, leaves as u64 + 1), None);
    assert_eq!(datatype.signature_prefix(count, leaves as u64 + 1), None);
    if datatype.size() > 0 {
        assert_eq!(datatype.item_count_in(bytes), Some(count));
    }
}

/// Checks that validation zeroes the invalid `bool`s and `char`s among the first `bytes` packed bytes.
fn check_validation(datatype: &Datatype, count: usize, model: &Model, input: &mut Input<'_>) {
    let (origin, mut data) = memory(model);
    let seed = input.byte();
    data.iter_mut().enumerate().for_each(|(i, byte)| *byte = (i as u8 & 7).wrapping_mul(seed) >> (seed & 7));
    let bytes = input.below(model.bytes().len() + 2);
    let mut expected = data.clone();
    let (mut position, mut first) = (0, None);
    for (at, primitive) in &model.leaves {
        let leaf = place(origin, *at)..place(origin, *at) + primitive.size();
        let good = match primitive {
            Primitive::Bool => expected[leaf.start] <= 1,
            Primitive::Char => {
                let code = expected[leaf.clone()].try_into().map(u32::from_ne_bytes).expect("four bytes");
                char::from_u32(code).is_some()
            }
            _ => true,
        };
        if position < bytes && !good {
            expected[leaf].fill(0);
            first = first.or(Some((*primitive, position)));
        }
        position += primitive.size();
    }
    let base = data.as_mut_ptr().wrapping_add(origin);
    // SAFETY: `data` has room for every byte of the items; all are initialised, and nothing else refers to them.
    #[expect(unsafe_code, reason = "tests the raw interface")]
    let found = unsafe { datatype.validate(base, count, bytes) };
    assert_eq!(found.err().map(|bad| (bad.primitive, bad.position)), first);
    assert_eq!(data, expected);
}

fn check_transpack(from: (&Datatype, usize, &Model), to: (&Datatype, usize, &Model), input: &mut Input<'_>) {
    let ((origin, data), (to_origin, mut memory)) = (memory(from.2), memory(to.2));
    let (bytes, to_bytes) = (from.2.bytes(), to.2.bytes());
    let (skip, fed) = (input.below(bytes.len() + 1), input.below(to_bytes.len() + 1));
    let mut expected = memory.clone();
    let mut packer = Packer::new(from.0, &data, origin, from.1).expect("inside");
    packer.pack_into_bytes(&mut vec![0; skip]);
    let mut unpacker = Unpacker::new(to.0, &mut memory, to_origin, to.1).expect("inside");
    unpacker.unpack_from(&vec![7; fed]).expect("inside");
    let n = packer.remaining().min(unpacker.remaining());
    assert_eq!(packer.transpack(&mut unpacker), n);
    assert_eq!((packer.position(), unpacker.position()), (skip + n, fed + n));
    to_bytes[..fed].iter().for_each(|at| expected[place(to_origin, *at)] = 7);
    for (at, to_at) in bytes[skip..].iter().zip(&to_bytes[fed..]) {
        expected[place(to_origin, *to_at)] = data[place(origin, *at)];
    }
    assert_eq!(memory, expected);
}
