//! User-defined operations.

use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::Deref;
use std::sync::Arc;
use std::{fmt, ptr};

use mpj_collectives::OperandOrder;
use mpj_datatypes::{Datatype, Primitive, Receivable, Run};
use mpj_pool::{AllocError, Pool, RawBuffer};

use super::Op;

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
    ///
    /// The function may send and receive, which MPI forbids. While it waits, its thread advances the other non-blocking
    /// collectives of this rank, and so may call it again, or call another function, before it returns. A function that
    /// holds a lock, or needs a message that depends on its own return, can then wait for ever.
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
                // SAFETY: only `UserOp::combine` calls this, with `count` items of `T`'s datatype at both.
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
    /// bytes), so are the pointers. The items of one collective can be passed in several parts. For messages in the
    /// function, see [`user`](Self::user).
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
}

impl UserOp {
    pub(super) fn is_commutative(&self) -> bool {
        self.commutative
    }

    /// As [`Op::unsupported_reason`].
    pub(super) fn unsupported_reason(&self, datatype: &Datatype) -> Option<String> {
        let Function::Typed { name, datatype: own, .. } = &self.function else { return None };
        // The function reads and writes items in memory, so the elements must be at the same offsets. A signature
        // is only a hash, so if either type has invalid bit patterns, the elements are compared exactly.
        let same = own.signature() == datatype.signature()
            && own.extent() == datatype.extent()
            && own.runs(1).eq(datatype.runs(1))
            && (!own.needs_validation() && !datatype.needs_validation() || own.has_same_elements(datatype));
        let found = || datatype.single_primitive().map_or("mixed elements", Primitive::name);
        (!same).then(|| match found() {
            found if found == *name => {
                format!("the operation is for {name}, the datatype has {found} with another layout")
            }
            found => format!("the operation is for {name}, the datatype has {found}"),
        })
    }

    /// As [`Op::combine`], for at least one item.
    ///
    /// # Safety
    /// As [`Op::combine`].
    pub(super) unsafe fn combine(
        &self,
        from: *const u8,
        into: *mut u8,
        count: usize,
        datatype: &Datatype,
        order: OperandOrder,
    ) -> Result<(), AllocError> {
        match &self.function {
            Function::Typed { function, .. } => function(from, into, count, order),
            Function::Erased(function) if self.commutative || order == OperandOrder::IncomingFirst => {
                function(from, into, count, datatype);
            }
            // SAFETY: the caller's contract.
            Function::Erased(function) => unsafe {
                apply_incoming_last(&**function, from, into, count, datatype)?;
            },
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
/// As [`Op::combine`].
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
