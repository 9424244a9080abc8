//! A reduction of two buffers of this rank.

use mpj_collectives::OperandOrder;
use mpj_devices::{Buf, Source, Target};

use super::coll_bufs::{CollBuf, RankBlocks};
use crate::collective::plan::same_layout;
use crate::collective::temp_buffers::TempBuffers;
use crate::error::{Error, ErrorClass, Result};
use crate::op::Op;

const CALL: &str = "reduce_local";

/// Combines the items of `incoming` with those of `result`: `result = incoming ∘ result` (`MPI_Reduce_local`). If the
/// layouts of the items differ, or values must be checked, the call allocates memory for a copy of `incoming`.
///
/// # Errors
/// As [`reduce`](super::reduce) for the buffers of the root; an invalid `bool` or `char` in `incoming`.
///
/// # Safety
/// The [contracts](super) of a send buffer for `incoming`, and of an in-place reduction for `result`. They do not overlap.
pub unsafe fn reduce_local(incoming: &Buf, result: &Buf, op: &Op) -> Result<()> {
    incoming.check_same_amount(CALL, result, &RankBlocks::default())?;
    incoming.check_no_alias(CALL, result)?;
    result.check_receivable(CALL)?;
    let datatype = result.datatype();
    if let Some(why) = op.unsupported_reason(datatype) {
        return Err(Error::new(ErrorClass::Op, CALL, why));
    }
    let mut incoming = incoming.clone();
    let copy;
    if !same_layout(&incoming, result) || datatype.needs_validation() {
        copy = TempBuffers::new(CALL, datatype, result.count(), 1)?;
        incoming = copied(incoming, copy.part(0, 0, result.count()))?;
    }
    let (from, into, order) = (incoming.base(), result.base(), OperandOrder::IncomingFirst);
    // SAFETY: the caller's contract; the items have the same layout, and those that need it were checked.
    let done = unsafe { op.combine(from, into, result.count(), datatype, order) };
    done.map_err(|error| Error::new(ErrorClass::NoMem, CALL, error.to_string()))
}

/// Copies the items, which checks their values; returns `into`.
fn copied(from: Buf, into: Buf) -> Result<Buf> {
    // SAFETY: the contract of `reduce_local` for `incoming`.
    let source = unsafe { Source::new(from, None) }.map_err(|error| Error::buf(CALL, error))?;
    // SAFETY: the memory belongs to the caller of this function.
    let target = unsafe { Target::new(into.clone(), None) }.map_err(|error| Error::buf(CALL, error))?;
    let invalid = |bad| Error::new(ErrorClass::Type, CALL, format!("an invalid value: {bad}"));
    source.copy_items(target).map_err(invalid)?;
    Ok(into)
}
