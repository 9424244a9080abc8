//! Reduction operations: those of MPI, and user-defined ones.

mod half;
mod pairs;
mod predefined;
mod user;

use mpj_collectives::OperandOrder;
use mpj_datatypes::Datatype;
use mpj_pool::AllocError;

pub use pairs::Pair;
pub use user::UserOp;

use crate::error::Result;
use crate::raw;
use crate::types::{RecvBuf, SendBuf};

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
    /// The sum; integers wrap. Defined for integers, floats (of 16 bits, too) and complex numbers.
    Sum,
    /// The product of the same types; integers wrap.
    Prod,
    /// The smallest number: of integers or floats.
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
    /// The [`Pair`] with the smallest value. Of equal values, the one with the lower index is chosen, and a NaN before all
    /// numbers.
    MinLoc,
    /// The [`Pair`] with the largest value; otherwise as [`MinLoc`](Self::MinLoc).
    MaxLoc,
    /// The left operand. Only for [`reduce_local`](Self::reduce_local), where it copies.
    Replace,
    /// The right operand. Only for [`reduce_local`](Self::reduce_local), where it does nothing.
    NoOp,
    /// A user-defined operation: see [`Op::user`] and [`Op::from_raw_fn`].
    User(UserOp),
}

impl Op {
    /// Returns whether the operation is commutative.
    pub fn is_commutative(&self) -> bool {
        match self {
            Op::User(user) => user.is_commutative(),
            Op::Replace | Op::NoOp => false,
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
            Op::MinLoc => 10,
            Op::MaxLoc => 11,
            Op::Replace => 12,
            Op::NoOp => 13,
            Op::User(user) => 14 + u8::from(user.is_commutative()),
        }
    }

    /// Returns why the operation is not defined for a datatype; `None` if it is defined.
    pub(crate) fn unsupported_reason(&self, datatype: &Datatype) -> Option<String> {
        let is_defined = match self {
            Op::User(user) => return user.unsupported_reason(datatype),
            Op::Replace | Op::NoOp => true,
            Op::MinLoc | Op::MaxLoc => pairs::elements(datatype).is_some(),
            _ => datatype
                .single_primitive()
                .is_some_and(|primitive| predefined::kernel(self, primitive).is_some()),
        };
        let of = || match (self, datatype.single_primitive()) {
            (Op::MinLoc | Op::MaxLoc, _) => "items that are not pairs of two numbers",
            (_, Some(primitive)) => primitive.name(),
            (_, None) => "a mixed datatype",
        };
        (!is_defined).then(|| format!("{self:?} is not defined for {}", of()))
    }

    /// Combines `incoming` with `result`, element by element (MPI_Reduce_local): `result = incoming ∘ result`.
    ///
    /// ```
    /// use mpj::Op;
    ///
    /// let mut result = [10, 20, 30];
    /// Op::Max.reduce_local(&[15, 15, 15], &mut result)?;
    /// assert_eq!(result, [15, 20, 30]);
    /// # Ok::<(), mpj::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`Intracomm::reduce`](crate::Intracomm::reduce), at the root.
    pub fn reduce_local<S: SendBuf + ?Sized, R: RecvBuf + ?Sized>(
        &self,
        incoming: &S,
        result: &mut R,
    ) -> Result<()> {
        // SAFETY: both buffers are borrowed until we return, one of them mutably, so they do not overlap.
        unsafe { raw::reduce_local(&incoming.send_buf(), &result.recv_buf(), self) }
    }

    /// Combines the `count` items at `from` with those at `into`, which the result replaces. Fails if the operand order
    /// requires a copy of the items, and memory is exhausted.
    ///
    /// # Safety
    /// Both pointers have `count` initialised items of `datatype`, for which
    /// [`unsupported_reason`](Self::unsupported_reason) returns `None`; those at `into` may be written; they do not
    /// overlap.
    pub(crate) unsafe fn combine(
        &self,
        from: *const u8,
        into: *mut u8,
        count: usize,
        datatype: &Datatype,
        order: OperandOrder,
    ) -> std::result::Result<(), AllocError> {
        if count == 0 {
            // Without items the pointers can be null, which a user function must not get.
            return Ok(());
        }
        if let Some(primitive) = datatype.single_primitive()
            && let Some(kernel) = predefined::kernel(self, primitive)
        {
            if datatype.is_contiguous() {
                // Do not enumerate the runs, which would allocate.
                // SAFETY: the caller's contract; the items are adjacent primitives.
                unsafe { kernel(from, into, count * datatype.size()) };
                return Ok(());
            }
            for run in datatype.runs(count) {
                let offset = run.offset as isize;
                let (from, into) = (from.wrapping_offset(offset), into.wrapping_offset(offset));
                // SAFETY: as above; a run of a homogeneous type consists of whole primitives.
                unsafe { kernel(from, into, run.len) };
            }
            return Ok(());
        }
        match self {
            // SAFETY: the caller's contract.
            Op::User(user) => unsafe { user.combine(from, into, count, datatype, order)? },
            Op::Replace => {
                // SAFETY: the caller's contract.
                unsafe { datatype.transpack(from, count, datatype, into, count, 0..usize::MAX) };
            }
            Op::MinLoc | Op::MaxLoc => {
                let Some(pair) = pairs::elements(datatype) else { return Ok(()) };
                let is_max = matches!(self, Op::MaxLoc);
                // SAFETY: the caller's contract; the pair is that of the datatype.
                unsafe { pairs::combine(is_max, &pair, from, into, (count, datatype.extent())) };
            }
            // `NoOp` keeps the result; the others have kernels.
            _ => (),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
