//! Compares random types with a naive model.

use crate::model::{Model, small_spec};
use mpj_datatypes::{Datatype, Packer, Run, Signature, TypeEnvelope, Unpacker};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

/// Returns the origin in a buffer that holds exactly the items, and the buffer. Neighbouring bytes differ.
fn memory(model: &Model) -> (usize, Vec<u8>) {
    let (low, high) = model.touched();
    let bytes = (0..high - low).map(|i| (i % 251) as u8).collect();
    (usize::try_from(-low).unwrap_or(0), bytes)
}

/// As `memory`, for a buffer that also contains the origin.
fn covering(model: &Model) -> (usize, Vec<u8>) {
    let (low, high) = model.touched();
    let (low, high) = (low.min(0), high.max(0));
    ((-low) as usize, (0..high - low).map(|i| (i % 251) as u8).collect())
}

fn expected(model: &Model, origin: usize, data: &[u8]) -> Vec<u8> {
    model.bytes().iter().map(|&at| data[(origin as i64 + at) as usize]).collect()
}

fn runs_to_bytes(runs: &[Run]) -> Vec<i64> {
    runs.iter().flat_map(|r| (0..r.len as i64).map(|i| r.offset + i)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, ..ProptestConfig::default() })]

    #[test]
    fn properties_match_model(spec in small_spec(2000)) {
        let (datatype, model) = (spec.build().unwrap(), spec.model());
        let (low, high) = model.touched();
        prop_assert_eq!(datatype.size(), model.bytes().len());
        prop_assert_eq!(datatype.element_count(), model.leaves.len() as u64);
        prop_assert_eq!((datatype.true_lb(), datatype.true_extent()), (low, high - low));
        prop_assert_eq!((datatype.lb(), datatype.extent()), (model.lb(), model.extent()));
        prop_assert_eq!(datatype.signature(), model.signature());
        prop_assert_eq!(datatype.needs_validation(), model.leaves.iter().any(|l| l.1.needs_validation()));
        let first = model.leaves.first().map(|l| l.1);
        let same = model.leaves.iter().all(|l| Some(l.1) == first);
        prop_assert_eq!(datatype.single_primitive(), if same { first } else { None });
        for count in 0..4 {
            let items = model.items(count);
            prop_assert_eq!(datatype.byte_bounds(count).unwrap(), items.touched());
            prop_assert_eq!(datatype.packed_size(count).unwrap(), items.bytes().len());
        }
        let dense = (0..3 * datatype.size() as i64).collect::<Vec<_>>() == model.items(3).bytes();
        let exact = datatype.lb() == 0 && datatype.extent() == datatype.size() as i64;
        prop_assert_eq!(datatype.is_contiguous(), dense && exact);
    }

    #[test]
    fn runs_match_model(spec in small_spec(2000), count in 0..4usize) {
        let (datatype, model) = (spec.build().unwrap(), spec.model().items(count));
        let runs: Vec<Run> = datatype.runs(count).collect();
        prop_assert_eq!(runs_to_bytes(&runs), model.bytes());
        for pair in runs.windows(2) {
            prop_assert_ne!(pair[0].offset + pair[0].len as i64, pair[1].offset);
        }
        prop_assert!(runs.iter().all(|r| r.len > 0));
    }

    #[test]
    fn packed_bytes_match_model(spec in small_spec(2000), count in 0..4usize, chunks in prop::collection::vec(1..40usize, 1..8)) {
        let (datatype, model) = (spec.build().unwrap(), spec.model().items(count));
        let (origin, data) = covering(&model);
        let want = expected(&model, origin, &data);

        let mut packer = Packer::new(&datatype, &data, origin, count).unwrap();
        let mut got = Vec::new();
        for &chunk in chunks.iter().cycle() {
            let mut cell = vec![0; chunk];
            let n = packer.pack_into_bytes(&mut cell);
            got.extend_from_slice(&cell[..n]);
            if n < chunk {
                break;
            }
        }
        prop_assert_eq!(packer.remaining(), 0);
        prop_assert_eq!(&got, &want);

        let packed: Vec<u8> = (0..want.len()).map(|i| (i * 7 % 253) as u8).collect();
        let (mut wanted, mut memory) = (data.clone(), data);
        for (&at, &byte) in model.bytes().iter().zip(&packed) {
            wanted[(origin as i64 + at) as usize] = byte;
        }
        let mut unpacker = Unpacker::new(&datatype, &mut memory, origin, count).unwrap();
        let mut rest = &packed[..];
        for &chunk in chunks.iter().cycle() {
            let (now, later) = rest.split_at(chunk.min(rest.len()));
            unpacker.unpack_from(now).unwrap();
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(unpacker.remaining(), 0);
        prop_assert_eq!(unpacker.unpack_from(&[0]).unwrap_err().capacity, 0);
        prop_assert_eq!(memory, wanted);
    }

    #[test]
    fn many_items_match_model(spec in small_spec(80), count in 8..300usize, cut in 0..2000usize) {
        let (datatype, model) = (spec.build().unwrap(), spec.model().items(count));
        let (origin, data) = covering(&model);
        let want = expected(&model, origin, &data);
        let cut = cut.min(want.len());
        let mut packer = Packer::new(&datatype, &data, origin, count).unwrap();
        let mut got = vec![0; want.len()];
        packer.pack_into_bytes(&mut got[..cut]);
        packer.pack_into_bytes(&mut got[cut..]);
        prop_assert_eq!(&got, &want);
        let packed: Vec<u8> = (0..want.len()).map(|i| (i * 7 % 253) as u8).collect();
        let (mut wanted, mut memory) = (data.clone(), data);
        for (&at, &byte) in model.bytes().iter().zip(&packed) {
            wanted[(origin as i64 + at) as usize] = byte;
        }
        let mut unpacker = Unpacker::new(&datatype, &mut memory, origin, count).unwrap();
        unpacker.unpack_from(&packed[..cut]).unwrap();
        unpacker.unpack_from(&packed[cut..]).unwrap();
        prop_assert_eq!(memory, wanted);
    }

    #[test]
    fn packing_resumes_at_every_byte(spec in small_spec(60), count in 1..3usize) {
        let (datatype, model) = (spec.build().unwrap(), spec.model().items(count));
        let (origin, data) = covering(&model);
        let want = expected(&model, origin, &data);
        for cut in 0..=want.len() {
            for end in cut..=want.len() {
                let mut packer = Packer::new(&datatype, &data, origin, count).unwrap();
                let mut got = vec![0xee; want.len()];
                prop_assert_eq!(packer.pack_into_bytes(&mut got[..cut]), cut);
                prop_assert_eq!(packer.pack_into_bytes(&mut got[cut..end]), end - cut);
                prop_assert_eq!(&got[..end], &want[..end]);
                prop_assert!(got[end..].iter().all(|&b| b == 0xee));
            }
        }
    }

    #[test]
    fn external32_matches_model(spec in small_spec(600), count in 0..4usize, chunks in prop::collection::vec(1..40usize, 1..8)) {
        let (datatype, model) = (spec.build().unwrap(), spec.model().items(count));
        let (origin, data) = covering(&model);
        let mut want = expected(&model, origin, &data);
        let mut rest = &mut want[..];
        for &(_, primitive) in &model.leaves {
            let (leaf, later) = rest.split_at_mut(primitive.size());
            if cfg!(target_endian = "little") {
                leaf.chunks_mut(primitive.swap_width()).for_each(<[u8]>::reverse);
            }
            rest = later;
        }
        let mut packer = Packer::new(&datatype, &data, origin, count).unwrap();
        let (mut got, mut cell) = (Vec::new(), [0; 40]);
        for &chunk in chunks.iter().cycle() {
            let n = packer.pack_external32_into(&mut cell[..chunk]);
            got.extend_from_slice(&cell[..n]);
            if n < chunk {
                break;
            }
        }
        prop_assert_eq!(&got, &want);
        let mut memory = vec![0xee; data.len()];
        let mut wanted = memory.clone();
        for &at in &model.bytes() {
            let at = (origin as i64 + at) as usize;
            wanted[at] = data[at];
        }
        let mut unpacker = Unpacker::new(&datatype, &mut memory, origin, count).unwrap();
        for piece in got.chunks(chunks[0]) {
            unpacker.unpack_external32_from(piece).unwrap();
        }
        prop_assert_eq!(memory, wanted);
    }

    #[test]
    fn transpack_matches_model(
        from in small_spec(600),
        to in small_spec(600),
        count in 0..4usize,
        to_count in 0..4usize,
        skip in 0..20usize,
        to_skip in 0..20usize,
    ) {
        let (a, model_a) = (from.build().unwrap(), from.model().items(count));
        let (b, model_b) = (to.build().unwrap(), to.model().items(to_count));
        let ((from_at, data), (to_at, memory)) = (covering(&model_a), covering(&model_b));
        check_transpack((&a, &model_a, from_at, &data, count, skip), (&b, &model_b, to_at, memory, to_count, to_skip))?;
    }

    #[test]
    fn transpack_of_related_layouts_matches_model(spec in small_spec(600), count in 1..40usize, stride in -3..6i64, skip in 0..20usize) {
        let inner = spec.build().unwrap();
        let (low, high) = spec.model().touched();
        let model_a = spec.model().items(count);
        let step = (high - low) * stride;
        let b = inner.hvector(count, 1, step).unwrap();
        let hvector = crate::model::Spec::HVector(count, 1, step, Box::new(spec)).model();
        let ((from_at, data), (to_at, memory)) = (covering(&model_a), covering(&hvector));
        check_transpack((&inner, &model_a, from_at, &data, count, skip), (&b, &hvector, to_at, memory, 1, skip))?;
    }

    #[test]
    fn slices_one_byte_too_short_are_errors(spec in small_spec(500), count in 1..4usize) {
        let (datatype, model) = (spec.build().unwrap(), spec.model().items(count));
        let (low, _) = model.touched();
        if model.leaves.is_empty() || low > 0 {
            return Ok(());
        }
        let (origin, mut data) = memory(&model);
        prop_assert!(Packer::new(&datatype, &data, origin, count).is_ok());
        prop_assert!(Unpacker::new(&datatype, &mut data, origin, count).is_ok());
        prop_assert!(Packer::new(&datatype, &data, origin + 1, count).is_err());
        if origin > 0 {
            prop_assert!(Packer::new(&datatype, &data, origin - 1, count).is_err());
        }
        data.pop();
        prop_assert!(Packer::new(&datatype, &data, origin, count).is_err());
        prop_assert!(Unpacker::new(&datatype, &mut data, origin, count).is_err());
    }

    #[test]
    fn signature_prefixes_match_model(spec in small_spec(400), count in 0..4usize) {
        let (datatype, model) = (spec.build().unwrap(), spec.model().items(count));
        let (mut signature, mut bytes) = (Signature::EMPTY, 0);
        prop_assert_eq!(datatype.signature_prefix(count, 0), Some(signature));
        prop_assert_eq!(datatype.element_count_in(count, 0), Some(0));
        for (i, leaf) in model.leaves.iter().enumerate() {
            for inside in 1..leaf.1.size() {
                prop_assert_eq!(datatype.element_count_in(count, bytes + inside), None);
            }
            bytes += leaf.1.size();
            signature = signature.concat(Signature::of(leaf.1));
            prop_assert_eq!(datatype.element_count_in(count, bytes), Some(i as u64 + 1));
            prop_assert_eq!(datatype.bytes_of_elements(count, i as u64 + 1), Some(bytes));
            prop_assert_eq!(datatype.signature_prefix(count, i as u64 + 1), Some(signature));
        }
        prop_assert_eq!(datatype.element_count_in(count, bytes + 1), None);
        prop_assert_eq!(datatype.bytes_of_elements(count, model.leaves.len() as u64 + 1), None);
        if datatype.size() > 0 {
            prop_assert_eq!(datatype.item_count_in(bytes), Some(count));
        }
        prop_assert_eq!(datatype.signature_prefix(count, model.leaves.len() as u64 + 1), None);
    }

    #[test]
    fn overlaps_match_model(spec in small_spec(600), count in 0..5usize) {
        let (datatype, model) = (spec.build().unwrap(), spec.model().items(count));
        let mut bytes = model.bytes();
        bytes.sort_unstable();
        let twice: Vec<i64> = bytes.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
        for _ in 0..2 {
            match datatype.check_overlap(count) {
                Ok(()) => prop_assert!(twice.is_empty(), "{:?}", twice),
                Err(found) => prop_assert!(twice.contains(&found.offset), "{} of {:?}", found.offset, twice),
            }
        }
    }

    #[test]
    fn envelope_builds_the_same_type(spec in small_spec(500)) {
        let datatype = spec.build().unwrap();
        let again = rebuild(&datatype);
        let once = datatype.envelope().build().unwrap();
        prop_assert!(datatype.runs(2).eq(once.runs(2)));
        prop_assert_eq!(datatype.envelope().name(), once.envelope().name());
        prop_assert_eq!(datatype.signature(), again.signature());
        prop_assert_eq!((datatype.lb(), datatype.extent()), (again.lb(), again.extent()));
        prop_assert!(datatype.runs(2).eq(again.runs(2)));
    }
}

type From<'a> = (&'a Datatype, &'a Model, usize, &'a [u8], usize, usize);
type To<'a> = (&'a Datatype, &'a Model, usize, Vec<u8>, usize, usize);

fn check_transpack(from: From<'_>, to: To<'_>) -> Result<(), TestCaseError> {
    let ((a, model_a, from_at, data, count, skip), (b, model_b, to_at, mut memory, to_count, to_skip)) =
        (from, to);
    let mut wanted = memory.clone();
    let mut packer = Packer::new(a, data, from_at, count).unwrap();
    let skipped = packer.pack_into_bytes(&mut vec![0; skip]);
    let mut unpacker = Unpacker::new(b, &mut memory, to_at, to_count).unwrap();
    let fed = to_skip.min(unpacker.remaining());
    unpacker.unpack_from(&vec![7; fed]).unwrap();
    let n = packer.remaining().min(unpacker.remaining());
    prop_assert_eq!(packer.transpack(&mut unpacker), n);
    prop_assert_eq!((packer.position(), unpacker.position()), (skipped + n, fed + n));
    let place = |at: i64, origin: usize| (origin as i64 + at) as usize;
    for &at in &model_b.bytes()[..fed] {
        wanted[place(at, to_at)] = 7;
    }
    for (&src, &dst) in model_a.bytes()[skipped..].iter().zip(&model_b.bytes()[fed..]) {
        wanted[place(dst, to_at)] = data[place(src, from_at)];
    }
    prop_assert_eq!(memory, wanted);
    Ok(())
}

/// The tests above cover a kernel only if the strategy reaches its form; `kernels.rs` tests lists of items.
#[test]
fn all_forms_but_items_are_reached() {
    let mut runner = TestRunner::deterministic();
    let mut seen = std::collections::BTreeMap::<String, usize>::new();
    for _ in 0..600 {
        let spec = small_spec(2000).new_tree(&mut runner).unwrap().current();
        let text = format!("{:?}", spec.build().unwrap());
        let form = text.split("plan: ").nth(1).unwrap_or("\"primitive\"").to_owned();
        *seen.entry(form).or_default() += 1;
    }
    for form in ["block", "strided", "blocks", "runs", "sequence", "repeat", "empty"] {
        let n = seen.get(&format!("\"{form}\" }}")).copied().unwrap_or(0);
        assert!(n >= 6, "{form}: {n} of {seen:?}");
    }
}

fn rebuild(datatype: &Datatype) -> Datatype {
    match datatype.envelope() {
        TypeEnvelope::Primitive(p) => Ok(Datatype::primitive(p)),
        TypeEnvelope::Pair { value, index } => Ok(Datatype::pair(value, index)),
        TypeEnvelope::Contiguous { count, inner } => rebuild(&inner).contiguous(count),
        TypeEnvelope::Vector { count, block, stride, inner } => rebuild(&inner).vector(count, block, stride),
        TypeEnvelope::HVector { count, block, stride_bytes, inner } => {
            rebuild(&inner).hvector(count, block, stride_bytes)
        }
        TypeEnvelope::Indexed { blocks, inner } => rebuild(&inner).indexed(&blocks),
        TypeEnvelope::HIndexed { blocks, inner } => rebuild(&inner).hindexed(&blocks),
        TypeEnvelope::IndexedBlock { block, displacements, inner } => {
            rebuild(&inner).indexed_block(block, &displacements)
        }
        TypeEnvelope::HIndexedBlock { block, displacements, inner } => {
            rebuild(&inner).hindexed_block(block, &displacements)
        }
        TypeEnvelope::Subarray { ranges, order, inner } => {
            let inner = rebuild(&inner);
            TypeEnvelope::Subarray { ranges, order, inner }.build()
        }
        TypeEnvelope::Darray { rank, dimensions, order, inner } => {
            rebuild(&inner).darray(rank, &dimensions, order)
        }
        TypeEnvelope::Structure { fields } => {
            let fields: Vec<_> = fields.iter().map(|(n, by, inner)| (*n, *by, rebuild(inner))).collect();
            Datatype::structure(&fields)
        }
        TypeEnvelope::Resized { lb, extent, inner } => rebuild(&inner).resized(lb, extent),
        TypeEnvelope::Dup { inner } => rebuild(&inner).dup(),
        other => panic!("unknown constructor {other:?}"),
    }
    .unwrap()
}
