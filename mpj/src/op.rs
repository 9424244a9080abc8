//! Reduction operations: those of MPI, and user-defined ones.

use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::Deref;
use std::sync::Arc;
use std::{fmt, ptr};

use mpj_collectives::OperandOrder;
use mpj_datatypes::{Datatype, Primitive, Receivable, Run};
use mpj_pool::{AllocError, Pool, RawBuffer};

/// A reduction operation, which combines two items into one (MPI 4.1 §6.9).
///
/// ```
/// # mpj::threads(3, |world| {
/// let mut sum = [0i64];
/// world.allreduce(&[world.rank() as i64], &mut sum, mpj::Op::Sum)?;
/// assert_eq!(sum, [3]);
///
/// let longest = mpj::Op::user(true, |a: &[u32; 2], b: &[u32; 2]| if a[1] > b[1] { *a } else { *b });
/// let mut best = [[0u32; 2]];
/// world.allreduce(&[[world.rank() as u32, 10 - world.rank() as u32]], &mut best, longest)?;
/// assert_eq!(best, [[0, 10]]);
/// # Ok::<(), mpj::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Op {
    /// The sum; integers wrap.
    Sum,
    /// The product; integers wrap.
    Prod,
    /// The smallest number.
    Min,
    /// The largest number.
    Max,
    /// Logical and of `bool`s, integers or bytes. An integer or a byte is true if it is not 0.
    Land,
    /// Logical or.
    Lor,
    /// Logical exclusive or.
    Lxor,
    /// Bitwise and of integers, bytes or `bool`s.
    Band,
    /// Bitwise or.
    Bor,
    /// Bitwise exclusive or.
    Bxor,
    /// A user-defined operation: see [`Op::user`] and [`Op::from_raw_fn`].
    User(UserOp),
}

/// A user-defined operation.
#[derive(Clone)]
pub struct UserOp {
    function: Function,
    commutative: bool,
}

#[derive(Clone)]
enum Function {
    /// For items of one type.
    Typed { function: DeferDrop<TypedFn>, name: &'static str, datatype: Datatype },
    /// For items of any datatype.
    Erased(DeferDrop<ErasedFn>),
}

/// A user function. The drop of its captured values might take long or panic, so it is deferred while this thread makes
/// progress.
struct DeferDrop<F: ?Sized + Send + Sync + 'static>(ManuallyDrop<Arc<F>>);

impl<F: ?Sized + Send + Sync + 'static> DeferDrop<F> {
    fn new(function: Arc<F>) -> Self {
        DeferDrop(ManuallyDrop::new(function))
    }
}

impl<F: ?Sized + Send + Sync + 'static> Clone for DeferDrop<F> {
    fn clone(&self) -> Self {
        DeferDrop(self.0.clone())
    }
}

impl<F: ?Sized + Send + Sync + 'static> Deref for DeferDrop<F> {
    type Target = F;

    fn deref(&self) -> &F {
        &self.0
    }
}

impl<F: ?Sized + Send + Sync + 'static> Drop for DeferDrop<F> {
    fn drop(&mut self) {
        // SAFETY: the value is taken only here, and not used again.
        mpj_devices::drop_deferred(unsafe { ManuallyDrop::take(&mut self.0) });
    }
}

type TypedFn = dyn Fn(*const u8, *mut u8, usize, OperandOrder) + Send + Sync;
type ErasedFn = dyn Fn(*const u8, *mut u8, usize, &Datatype) + Send + Sync;

impl fmt::Debug for UserOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let on = match &self.function {
            Function::Typed { name, .. } => name,
            Function::Erased(_) => "any datatype",
        };
        write!(f, "UserOp({on}, commutative: {})", self.commutative)
    }
}

impl Op {
    /// Creates an operation from an associative function. If it is not `commutative`, the items are combined in order
    /// of rank.
    pub fn user<T: Receivable>(
        commutative: bool,
        function: impl Fn(&T, &T) -> T + Send + Sync + 'static,
    ) -> Op {
        let datatype = T::datatype();
        let padded: Option<Vec<Run>> =
            (datatype.size() != size_of::<T>()).then(|| datatype.runs(1).collect());
        let typed = move |from: *const u8, into: *mut u8, count: usize, order: OperandOrder| {
            let padded = padded.as_deref();
            for at in 0..count {
                let offset = at * size_of::<T>();
                let (from, into) = (from.wrapping_add(offset), into.wrapping_add(offset));
                // SAFETY: only `Op::reduce_local` calls this, with `count` items of `T`'s datatype at both.
                let from: T = unsafe { read_item(from, padded) };
                // SAFETY: as above.
                let old: T = unsafe { read_item(into, padded) };
                let new = match order {
                    OperandOrder::IncomingFirst => function(&from, &old),
                    OperandOrder::IncomingLast => function(&old, &from),
                };
                // SAFETY: as above.
                unsafe { write_item(&new, into, padded) };
            }
        };
        let name = std::any::type_name::<T>();
        Op::User(UserOp {
            function: Function::Typed { function: DeferDrop::new(Arc::new(typed)), name, datatype },
            commutative,
        })
    }

    /// Creates an operation for items of any datatype (`MPI_Op_create`): for each `i` below `len`,
    /// `function(in, inout, len, datatype)` computes `inout[i] = in[i] ∘ inout[i]`. It must be associative. If it is
    /// not `commutative`, the items are combined in order of rank.
    ///
    /// The function may read `len` items at `in`, and read and write `len` items at `inout`, which do not overlap. It
    /// must leave valid values at `inout`. If the collective's buffers are aligned for the type (to at most 64
    /// bytes), so are the pointers. The items of one collective can be passed in several parts.
    ///
    /// ```
    /// # mpj::threads(3, |world| {
    /// let first = mpj::Op::from_raw_fn(false, |from, into, len, datatype| {
    ///     for byte in 0..len * datatype.size() {
    ///         // SAFETY: both pointers have `len` items without gaps.
    ///         unsafe { *into.add(byte) = *from.add(byte) };
    ///     }
    /// });
    /// let mut got = [0u16; 2];
    /// world.allreduce(&[10 + world.rank() as u16; 2], &mut got, first)?;
    /// assert_eq!(got, [10; 2]);
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    pub fn from_raw_fn(
        commutative: bool,
        function: impl Fn(*const u8, *mut u8, usize, &Datatype) + Send + Sync + 'static,
    ) -> Op {
        Op::User(UserOp { function: Function::Erased(DeferDrop::new(Arc::new(function))), commutative })
    }

    /// Returns whether the operation is commutative.
    pub fn is_commutative(&self) -> bool {
        match self {
            Op::User(user) => user.commutative,
            _ => true,
        }
    }

    /// Returns a code by which the ranks compare their operations. All commutative user-defined operations have the
    /// same code, and all non-commutative ones another.
    pub(crate) fn wire_code(&self) -> u8 {
        match self {
            Op::Sum => 0,
            Op::Prod => 1,
            Op::Min => 2,
            Op::Max => 3,
            Op::Land => 4,
            Op::Lor => 5,
            Op::Lxor => 6,
            Op::Band => 7,
            Op::Bor => 8,
            Op::Bxor => 9,
            Op::User(user) => 10 + u8::from(user.commutative),
        }
    }

    /// Returns why the operation is not defined for a datatype; `None` if it is defined.
    pub(crate) fn unsupported_reason(&self, datatype: &Datatype) -> Option<String> {
        if let Op::User(user) = self {
            let Function::Typed { name, datatype: own, .. } = &user.function else { return None };
            // The function reads and writes items in memory, so the elements must be at the same offsets. A signature
            // is only a hash, so if either type has invalid bit patterns, the elements are compared exactly.
            let same = own.signature() == datatype.signature()
                && own.extent() == datatype.extent()
                && own.runs(1).eq(datatype.runs(1))
                && (!own.needs_validation() && !datatype.needs_validation()
                    || own.has_same_elements(datatype));
            let of = || datatype.single_primitive().map_or("mixed elements", Primitive::name);
            return (!same).then(|| format!("the operation is for {name}, the datatype has {}", of()));
        }
        let Some(primitive) = datatype.single_primitive() else {
            return Some(format!("{self:?} is not defined for a mixed datatype"));
        };
        (!is_defined_for(self, primitive))
            .then(|| format!("{self:?} is not defined for {}", primitive.name()))
    }

    /// Combines the `count` items at `from` with those at `into`, which the result replaces. Fails if the operand order
    /// requires a copy of the items, and memory is exhausted.
    ///
    /// # Safety
    /// Both pointers have `count` initialised items of `datatype`, for which
    /// [`unsupported_reason`](Self::unsupported_reason) returns `None`; those at `into` may be written; they do not
    /// overlap.
    pub(crate) unsafe fn reduce_local(
        &self,
        from: *const u8,
        into: *mut u8,
        count: usize,
        datatype: &Datatype,
        order: OperandOrder,
    ) -> Result<(), AllocError> {
        if count == 0 {
            // Without items the pointers can be null, which a user function must not get.
            return Ok(());
        }
        if let Op::User(user) = self {
            match &user.function {
                Function::Typed { function, .. } => function(from, into, count, order),
                Function::Erased(function) if user.commutative || order == OperandOrder::IncomingFirst => {
                    function(from, into, count, datatype);
                }
                // SAFETY: the caller's contract.
                Function::Erased(function) => unsafe {
                    apply_incoming_last(&**function, from, into, count, datatype)?;
                },
            }
            return Ok(());
        }
        let Some(primitive) = datatype.single_primitive() else { return Ok(()) };
        let size = primitive.size();
        if datatype.is_contiguous() {
            // Do not enumerate the runs, which would allocate.
            // SAFETY: the caller's contract; the items are adjacent primitives.
            unsafe { predefined(self, primitive, from, into, count * (datatype.size() / size)) };
            return Ok(());
        }
        for run in datatype.runs(count) {
            let offset = run.offset as isize;
            let (from, into) = (from.wrapping_offset(offset), into.wrapping_offset(offset));
            // SAFETY: as above; a run of a homogeneous type consists of whole primitives.
            unsafe { predefined(self, primitive, from, into, run.len / size) };
        }
        Ok(())
    }
}

/// Reads an item. For a type with padding, `padded` has its runs of bytes. The bytes between the runs are not read,
/// because they can belong to other objects.
///
/// # Safety
/// The bytes of the runs of `T`'s datatype at `at` are those of a value; `padded` is `None` only if `T` has no padding.
#[inline]
unsafe fn read_item<T: Receivable>(at: *const u8, padded: Option<&[Run]>) -> T {
    let Some(runs) = padded else {
        // SAFETY: the runs cover all bytes of the type.
        return unsafe { at.cast::<T>().read_unaligned() };
    };
    let mut item = MaybeUninit::<T>::uninit();
    for run in runs {
        let offset = run.offset as isize;
        let (from, to) = (at.wrapping_offset(offset), item.as_mut_ptr().cast::<u8>().wrapping_offset(offset));
        // SAFETY: the run belongs to the item at both places.
        unsafe { from.copy_to_nonoverlapping(to, run.len) };
    }
    // SAFETY: all bytes that were not copied are padding.
    unsafe { item.assume_init() }
}

/// Writes an item as [`read_item`] reads it.
///
/// # Safety
/// As for `read_item`, and the bytes may be written.
#[inline]
unsafe fn write_item<T: Receivable>(item: &T, at: *mut u8, padded: Option<&[Run]>) {
    let Some(runs) = padded else {
        // SAFETY: the runs cover all bytes of the type.
        return unsafe { at.cast::<T>().write_unaligned(*item) };
    };
    for run in runs {
        let offset = run.offset as isize;
        let (from, to) =
            (ptr::from_ref(item).cast::<u8>().wrapping_offset(offset), at.wrapping_offset(offset));
        // SAFETY: the run belongs to the item at both places.
        unsafe { from.copy_to_nonoverlapping(to, run.len) };
    }
}

const COPY_CHUNK: usize = 64 << 10;

/// Computes `into = into ∘ from` with a function that overwrites its second operand, here a copy of `from`.
///
/// # Safety
/// As [`Op::reduce_local`].
unsafe fn apply_incoming_last(
    function: &ErasedFn,
    from: *const u8,
    into: *mut u8,
    count: usize,
    datatype: &Datatype,
) -> Result<(), AllocError> {
    let extent = datatype.extent();
    let chunk =
        COPY_CHUNK.checked_div(extent.unsigned_abs() as usize).unwrap_or(count).clamp(1, count.max(1));
    let (low, high) = datatype.byte_bounds(chunk).expect("items that lie in memory have bounds");
    // Rounded down, so that the items have the alignment of the block, at least 64.
    let low = low & !63;
    let block = mpj_pool::global().alloc((high - low) as usize)?;
    let copy = block.as_ptr().as_ptr().wrapping_offset(-(low as isize));
    for at in (0..count).step_by(chunk) {
        let len = chunk.min(count - at);
        let shift = (at as isize).wrapping_mul(extent as isize);
        let (from, into) = (from.wrapping_offset(shift), into.wrapping_offset(shift));
        // SAFETY: the caller's contract; the block has space for `chunk` items around `copy`.
        unsafe { datatype.transpack(from, len, datatype, copy, len, 0..usize::MAX) };
        function(into, copy, len, datatype);
        // SAFETY: as above; the function has left valid items at `copy`.
        unsafe { datatype.transpack(copy, len, datatype, into, len, 0..usize::MAX) };
    }
    Ok(())
}

/// Returns whether the operation is defined for this primitive; [`predefined`] implements the predefined operations.
fn is_defined_for(op: &Op, primitive: Primitive) -> bool {
    use Primitive::*;
    let (is_number, has_bits) = match primitive {
        I8 | U8 | I16 | U16 | I32 | U32 | I64 | U64 | I128 | U128 | Usize | Isize => (true, true),
        F32 | F64 => (true, false),
        Byte | Bool => (false, true),
        Char | Packed | F16 | Bf16 | Complex32 | Complex64 => (false, false),
    };
    match op {
        Op::Sum | Op::Prod | Op::Min | Op::Max => is_number,
        Op::Land | Op::Lor | Op::Lxor | Op::Band | Op::Bor | Op::Bxor => has_bits,
        Op::User(_) => true,
    }
}

/// # Safety
/// As [`Op::reduce_local`], for `count` primitives in a row.
unsafe fn combine_slices<T: Copy>(from: *const u8, into: *mut u8, count: usize, f: impl Fn(T, T) -> T) {
    let (from, into) = (from.cast::<T>(), into.cast::<T>());
    for at in 0..count {
        // SAFETY: the caller's contract.
        let a = unsafe { from.add(at) };
        // SAFETY: the caller's contract.
        let a = unsafe { a.read_unaligned() };
        // SAFETY: the caller's contract.
        let slot = unsafe { into.add(at) };
        // SAFETY: the caller's contract.
        let b = unsafe { slot.read_unaligned() };
        // SAFETY: the caller's contract.
        unsafe { slot.write_unaligned(f(a, b)) };
    }
}

/// Expands to a `match` with a separate loop for each operation, so that each loop can be vectorised.
macro_rules! arms {
    ($type:ty, $op:expr, $from:expr, $into:expr, $count:expr; $($($pattern:pat_param)|+ => $f:expr),* $(,)?) => {
        match $op {
            $($($pattern)|+ => {
                // SAFETY: the contract of `predefined`.
                unsafe { combine_slices::<$type>($from, $into, $count, $f) }
            })*
            _ => (),
        }
    };
}

/// # Safety
/// As [`Op::reduce_local`], for `count` primitives in a row.
unsafe fn predefined(op: &Op, primitive: Primitive, from: *const u8, into: *mut u8, count: usize) {
    macro_rules! float {
        ($type:ty) => {
            arms!($type, op, from, into, count;
                Op::Sum => |a, b| a + b,
                Op::Prod => |a, b| a * b,
                // The result must not depend on the order of the operands: a NaN operand gives `NAN`, and -0 is less
                // than 0.
                Op::Min => |a, b| if b < a {
                    b
                } else if a < b {
                    a
                } else if a == b {
                    <$type>::from_bits(a.to_bits() | b.to_bits())
                } else {
                    <$type>::NAN
                },
                Op::Max => |a, b| if b > a {
                    b
                } else if a > b {
                    a
                } else if a == b {
                    <$type>::from_bits(a.to_bits() & b.to_bits())
                } else {
                    <$type>::NAN
                },
            )
        };
    }
    macro_rules! integer {
        ($type:ty) => {
            arms!($type, op, from, into, count;
                Op::Sum => <$type>::wrapping_add,
                Op::Prod => <$type>::wrapping_mul,
                Op::Min => Ord::min,
                Op::Max => Ord::max,
                Op::Band => |a, b| a & b,
                Op::Bor => |a, b| a | b,
                Op::Bxor => |a, b| a ^ b,
                Op::Land => |a, b| <$type>::from(a != 0 && b != 0),
                Op::Lor => |a, b| <$type>::from(a != 0 || b != 0),
                Op::Lxor => |a, b| <$type>::from((a != 0) != (b != 0)),
            )
        };
    }
    match primitive {
        Primitive::F64 => float!(f64),
        Primitive::F32 => float!(f32),
        // The result of bytes 0 and 1 is 0 or 1, a valid `bool`.
        Primitive::Bool => arms!(u8, op, from, into, count;
            Op::Land | Op::Band => |a, b| a & b,
            Op::Lor | Op::Bor => |a, b| a | b,
            Op::Lxor | Op::Bxor => |a, b| a ^ b,
        ),
        Primitive::Byte | Primitive::U8 => integer!(u8),
        Primitive::I8 => integer!(i8),
        Primitive::I16 => integer!(i16),
        Primitive::U16 => integer!(u16),
        Primitive::I32 => integer!(i32),
        Primitive::U32 => integer!(u32),
        Primitive::I64 => integer!(i64),
        Primitive::U64 => integer!(u64),
        Primitive::I128 => integer!(i128),
        Primitive::U128 => integer!(u128),
        Primitive::Usize => integer!(usize),
        Primitive::Isize => integer!(isize),
        // `is_defined_for` is false for all predefined operations.
        Primitive::Char
        | Primitive::Packed
        | Primitive::F16
        | Primitive::Bf16
        | Primitive::Complex32
        | Primitive::Complex64 => (),
    }
}

#[cfg(test)]
mod tests;
