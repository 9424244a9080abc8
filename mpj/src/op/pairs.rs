//! `MinLoc` and `MaxLoc` on pairs of a value and an index.

use std::cmp::Ordering;

use mpj_datatypes::{Datatype, Primitive};

/// A value and an index, for [`Op::MinLoc`](crate::Op::MinLoc) and [`Op::MaxLoc`](crate::Op::MaxLoc): the types of MPI's
/// `MPI_2INT`, `MPI_DOUBLE_INT` and so on, and of mpiJava's `INT2`, `DOUBLE2` and so on.
///
/// ```
/// use mpj::{Op, Pair};
///
/// # mpj::threads(3, |world| {
/// let mine = Pair { value: [2.5, 0.5, 2.0][world.rank()], index: world.rank() };
/// let mut least = mine;
/// world.allreduce(&mine, &mut least, Op::MinLoc)?;
/// assert_eq!(least, Pair { value: 0.5, index: 1 });
/// # Ok::<(), mpj::Error>(()) }).unwrap();
/// ```
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug, mpj_datatypes_derive::MpjDatatype)]
#[datatype(crate = crate)]
pub struct Pair<T, I = i32> {
    /// The value that is compared.
    pub value: T,
    /// Where the value is: a rank, or any other number. Of equal values, the one with the lower index is chosen.
    pub index: I,
}

/// The primitives of a value and of its index, each with its offset in an item.
pub(super) type PairElements = [(Primitive, i64); 2];

/// Returns the elements of a datatype whose items are pairs of two numbers.
pub(super) fn elements(datatype: &Datatype) -> Option<PairElements> {
    let pair = datatype.pair_elements()?;
    pair.iter().all(|(primitive, _)| order_of(*primitive).is_some()).then_some(pair)
}

/// A number with a total order for MinLoc and MaxLoc. So the result does not depend on the order of the operands.
trait Located: Copy {
    /// Returns `Less` if `a` is chosen: the smaller number, or the larger one if `is_max`. A NaN is chosen before all
    /// numbers.
    fn choose(a: Self, b: Self, is_max: bool) -> Ordering;

    /// Orders numbers that are equal: 0 and -0, and NaNs.
    fn break_tie(a: Self, b: Self) -> Ordering;
}

macro_rules! located {
    (integers: $($integer:ty),*; floats: $($float:ty),*) => {
        $(impl Located for $integer {
            fn choose(a: Self, b: Self, is_max: bool) -> Ordering {
                if is_max { b.cmp(&a) } else { a.cmp(&b) }
            }

            fn break_tie(_: Self, _: Self) -> Ordering {
                Ordering::Equal
            }
        })*
        $(impl Located for $float {
            fn choose(a: Self, b: Self, is_max: bool) -> Ordering {
                let (first, last) = if is_max { (b, a) } else { (a, b) };
                // Only a NaN has no order.
                first.partial_cmp(&last).unwrap_or(b.is_nan().cmp(&a.is_nan()))
            }

            fn break_tie(a: Self, b: Self) -> Ordering {
                a.to_bits().cmp(&b.to_bits())
            }
        })*
    };
}

located! {
    integers: i8, u8, i16, u16, i32, u32, i64, u64, i128, u128, isize, usize;
    floats: f32, f64
}

/// Evaluates `$value` with `$type` as the Rust type of a primitive; `None` if that is not an integer, `f32` or `f64`.
macro_rules! for_number {
    ($primitive:expr, $type:ident => $value:expr) => {
        for_number!(@ $primitive, $type => $value;
            I8 i8, U8 u8, I16 i16, U16 u16, I32 i32, U32 u32, I64 i64, U64 u64, I128 i128, U128 u128, Isize isize,
            Usize usize, F32 f32, F64 f64)
    };
    (@ $primitive:expr, $type:ident => $value:expr; $($name:ident $number:ty),*) => {
        match $primitive {
            $(Primitive::$name => {
                type $type = $number;
                Some($value)
            })*
            _ => None,
        }
    };
}

/// Compares the numbers at two addresses.
type IndexOrder = unsafe fn(*const u8, *const u8) -> Ordering;

fn order_of(index: Primitive) -> Option<IndexOrder> {
    for_number!(index, Number => compare::<Number> as IndexOrder)
}

/// # Safety
/// Both addresses have a number of the type.
unsafe fn compare<N: Located>(a: *const u8, b: *const u8) -> Ordering {
    // SAFETY: the caller's contract.
    let a = unsafe { a.cast::<N>().read_unaligned() };
    // SAFETY: the caller's contract.
    let b = unsafe { b.cast::<N>().read_unaligned() };
    N::choose(a, b, false).then_with(|| N::break_tie(a, b))
}

/// # Safety
/// As [`Op::combine`](super::Op::combine), for `count` items at a distance of `extent` bytes, whose elements `pair` are.
pub(super) unsafe fn combine(
    is_max: bool,
    pair: &PairElements,
    from: *const u8,
    into: *mut u8,
    items: (usize, i64),
) {
    let [(value, _), (index, _)] = *pair;
    let Some(order) = order_of(index) else { return };
    // SAFETY: the caller's contract.
    for_number!(value, Value => unsafe { combine_as::<Value>(is_max, (pair, order), from, into, items) });
}

/// # Safety
/// As [`combine`]; the values are `V`, and `order` compares the indices.
unsafe fn combine_as<V: Located>(
    is_max: bool,
    (pair, order): (&PairElements, IndexOrder),
    from: *const u8,
    into: *mut u8,
    (count, extent): (usize, i64),
) {
    let [(_, value_at), (index, index_at)] = *pair;
    for item in 0..count {
        let shift = (item as isize).wrapping_mul(extent as isize);
        let at = |offset: i64| shift.wrapping_add(offset as isize);
        let [a, b] = [from, into.cast_const()].map(|base| base.wrapping_offset(at(value_at)).cast::<V>());
        let (a_index, b_index) = (from.wrapping_offset(at(index_at)), into.wrapping_offset(at(index_at)));
        // SAFETY: the caller's contract.
        let a = unsafe { a.read_unaligned() };
        // SAFETY: the caller's contract.
        let b = unsafe { b.read_unaligned() };
        let chosen = V::choose(a, b, is_max)
            // SAFETY: the caller's contract.
            .then_with(|| unsafe { order(a_index, b_index) })
            .then_with(|| V::break_tie(a, b));
        if chosen.is_lt() {
            // SAFETY: the caller's contract.
            unsafe { into.wrapping_offset(at(value_at)).cast::<V>().write_unaligned(a) };
            // SAFETY: the caller's contract; the items do not overlap.
            unsafe { b_index.copy_from_nonoverlapping(a_index, index.size()) };
        }
    }
}
