use mpj_datatypes::{
    ArrayOrder, Datatype, DistributedDim, Distribution, Packer, Primitive, Run, TypeError, Unpacker,
};
use rustix::time::{ClockId, clock_gettime};

use crate::input::Input;
use crate::peak_memory;

/// The limit in seconds of CPU time for all calls of one input, which should take almost no time.
const CPU_LIMIT: i64 = 5;

/// Builds datatypes with any arguments. Invalid arguments are rejected. Valid types need little time and memory, and
/// their queries do not panic. Slices that are too short for a type are rejected.
pub fn numbers(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let seconds = || clock_gettime(ClockId::ThreadCPUTime).tv_sec;
    let begin = seconds();
    let mut datatype = Datatype::primitive(input.pick(&Primitive::ALL));
    for _ in 0..12 {
        if input.is_empty() {
            break;
        }
        let other = datatype.clone();
        let (built, peak) = peak_memory::measure(|| derive(&datatype, &other, &mut input));
        assert!(peak < 1 << 16, "{peak} bytes for a constructor");
        match built {
            Ok(built) => datatype = built,
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
    let (_, peak) = peak_memory::measure(|| query(&datatype, &mut input));
    assert!(peak < 4 << 20, "{peak} bytes for a query");
    assert!(seconds() - begin < CPU_LIMIT, "{datatype:?}");
}

fn derive(inner: &Datatype, other: &Datatype, input: &mut Input<'_>) -> Result<Datatype, TypeError> {
    let big = |input: &mut Input<'_>| input.edge() as usize;
    let far = |input: &mut Input<'_>| {
        let number = input.edge().cast_signed();
        if input.flag() { number.wrapping_neg() } else { number }
    };
    let order = if input.flag() { ArrayOrder::C } else { ArrayOrder::Fortran };
    match input.below(13) {
        0 => inner.contiguous(big(input)),
        1 => inner.vector(big(input), big(input), far(input) as isize),
        2 => inner.hvector(big(input), big(input), far(input)),
        3 => {
            let blocks: Vec<_> = (0..input.below(4)).map(|_| (big(input), far(input) as isize)).collect();
            inner.indexed(&blocks)
        }
        4 => {
            let blocks: Vec<_> = (0..input.below(4)).map(|_| (big(input), far(input))).collect();
            inner.hindexed(&blocks)
        }
        5 => {
            let at: Vec<_> = (0..input.below(4)).map(|_| far(input) as isize).collect();
            inner.indexed_block(big(input), &at)
        }
        6 => {
            let at: Vec<_> = (0..input.below(4)).map(|_| far(input)).collect();
            inner.hindexed_block(big(input), &at)
        }
        7 => {
            let byte = Datatype::of::<u8>();
            let fields: Vec<_> = (0..input.below(4))
                .map(|i| (big(input), far(input), [inner, other, &byte][i % 3].clone()))
                .collect();
            Datatype::structure(&fields)
        }
        8 => {
            let rank = input.below(4);
            let lists: [Vec<usize>; 3] = core::array::from_fn(|_| {
                (0..rank + usize::from(input.below(16) == 15)).map(|_| big(input)).collect()
            });
            inner.subarray(&lists[0], &lists[1], &lists[2], order)
        }
        9 => {
            let dims: Vec<_> = (0..input.below(4)).map(|_| distributed(input)).collect();
            inner.darray(big(input), &dims, order)
        }
        10 => inner.resized(far(input), far(input)),
        11 => inner.dup(),
        _ => {
            let size = 1 + big(input) % (1 << 40);
            let sub = big(input) % (size + 1);
            let start = big(input) % (size - sub + 1);
            inner.subarray(&[size, 2], &[sub, 1], &[start, 1], order)
        }
    }
}

fn distributed(input: &mut Input<'_>) -> DistributedDim {
    let (size, processes) = (input.edge() as usize, input.edge() as usize);
    let how = match input.below(4) {
        0 => Distribution::Block,
        1 => Distribution::BlockOf(input.edge() as usize),
        2 => Distribution::Cyclic(input.edge() as usize),
        _ => Distribution::Whole,
    };
    DistributedDim { size, processes, distribution: how }
}

fn query(datatype: &Datatype, input: &mut Input<'_>) {
    let count = input.edge() as usize;
    assert!(datatype.size() <= isize::MAX as usize && datatype.element_count() <= datatype.size() as u64);
    let _ = (datatype.lb(), datatype.extent(), datatype.true_lb(), datatype.true_extent());
    let bounds = datatype.byte_bounds(count);
    let packed = datatype.packed_size(count);
    if let (Ok((low, high)), Ok(packed)) = (bounds, packed) {
        assert!(low <= high && (packed == 0) == (low == high), "{low}..{high} holds {packed}");
        let mut total = 0u128;
        for Run { offset, len } in datatype.runs(count).take(300) {
            assert!(len > 0 && low <= offset && i128::from(offset) + len as i128 <= i128::from(high));
            total += len as u128;
        }
        assert!(total <= packed as u128);
        let leaves = input.edge();
        if let Some(bytes) = datatype.bytes_of_elements(count, leaves) {
            assert!(bytes <= packed);
            assert_eq!(datatype.element_count_in(count, bytes), Some(leaves));
            assert!(datatype.signature_prefix(count, leaves).is_some());
        }
        let _ = datatype.element_count_in(count, input.edge() as usize);
        let _ = datatype.item_count_in(input.edge() as usize);
    } else {
        assert_eq!(datatype.runs(count).next(), None);
    }
    let _ = (datatype.is_contiguous(), datatype.check_overlap(count).map_err(|overlap| overlap.to_string()));
    let _ = datatype.signature().repeat(input.edge());
    // `Packer::new` and `Unpacker::new` succeed only if the items lie within these bytes.
    let mut memory = [0u8; 4096];
    let origin = input.below(4097);
    let inside = bounds.is_ok_and(|(low, high)| {
        low == high || (low >= -(origin as i64) && high.saturating_add(origin as i64) <= 4096)
    });
    let packer = Packer::new(datatype, &memory, origin, count);
    if packed.is_ok() {
        assert_eq!(packer.is_ok(), inside, "{bounds:?} from {origin}");
    }
    if let Ok(mut packer) = packer {
        let mut some = [0; 512];
        assert_eq!(packer.remaining().min(512), packer.pack_into_bytes(&mut some));
    }
    if let Ok(mut unpacker) = Unpacker::new(datatype, &mut memory, origin, count) {
        let len = unpacker.remaining().min(512);
        assert_eq!(unpacker.unpack_from(&[1; 512][..len]), Ok(len));
    }
}
