//! Bounds and extents, and the range of the bytes that an item contains (MPI 4.1 §5.1.7, §5.1.8).

use crate::plan::Loop;
use crate::{Primitive, TypeError};

/// The bounds of one item, in bytes relative to its origin.
///
/// # Invariants
/// 1. `leaves` is the lowest byte of the item and one past the highest; `None` if the item has no bytes.
/// 2. `markers` is the explicit (lb, ub), set here or in inner types. It overrides `leaves`.
/// 3. The difference of the two numbers of `leaves`, and that of `markers`, fits an `i64`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    leaves: Option<(i64, i64)>,
    markers: Option<(i64, i64)>,
    align: usize,
    lb: i64,
    extent: i64,
}

impl Extent {
    pub(crate) fn of(primitive: Primitive) -> Extent {
        let size = primitive.size() as i64;
        Extent { leaves: Some((0, size)), markers: None, align: primitive.align(), lb: 0, extent: size }
    }

    pub(crate) fn lb(&self) -> i64 {
        self.lb
    }

    pub(crate) fn extent(&self) -> i64 {
        self.extent
    }

    /// Returns the lowest byte and one past the highest byte; (0, 0) if the item has no bytes.
    pub(crate) fn byte_range(&self) -> (i64, i64) {
        self.leaves.unwrap_or((0, 0))
    }

    pub(crate) fn resized(&self, lb: i64, extent: i64) -> Result<Extent, TypeError> {
        let ub = lb.checked_add(extent).ok_or(TypeError::Extent { count: 1, step: extent })?;
        Ok(Extent { markers: Some((lb, ub)), lb, extent, ..*self })
    }
}

#[derive(Debug)]
pub(crate) struct BoundsBuilder {
    leaves: Option<(i128, i128)>,
    markers: Option<(i128, i128)>,
    align: usize,
}

impl BoundsBuilder {
    pub(crate) fn new() -> BoundsBuilder {
        BoundsBuilder { leaves: None, markers: None, align: 1 }
    }

    /// Adds the repetitions of `inner` in nested loops, the first at `displacement`.
    pub(crate) fn add(
        &mut self,
        inner: &Extent,
        displacement: i64,
        levels: &[Loop],
    ) -> Result<(), TypeError> {
        let nothing = inner.leaves.is_none() && inner.markers.is_none();
        if nothing || levels.iter().any(|level| level.count == 0) {
            return Ok(());
        }
        // Positions are linear in the indices, so the extremes are at the ends of each loop. Fewer than 2^60 numbers of
        // 64 bits cannot overflow an i128.
        let (mut lowest, mut highest) = (i128::from(displacement), i128::from(displacement));
        for level in levels {
            let last = i128::from(span(level.count, level.stride)?);
            lowest += last.min(0);
            highest += last.max(0);
        }
        self.add_at(inner, lowest, highest);
        Ok(())
    }

    pub(crate) fn add_at(&mut self, inner: &Extent, lowest: i128, highest: i128) {
        if inner.leaves.is_some() || inner.markers.is_some() {
            self.align = self.align.max(inner.align);
        }
        for at in [lowest, highest] {
            widen(&mut self.leaves, inner.leaves, at);
            widen(&mut self.markers, inner.markers, at);
        }
    }

    /// Sets explicit bounds, which replace those of the pieces.
    pub(crate) fn mark(&mut self, lb: i64, ub: i64) {
        self.markers = Some((lb.into(), ub.into()));
    }

    /// Returns the bounds of all pieces. Without markers the extent is a multiple of the alignment: the ε of MPI 4.1
    /// §5.1.7.
    pub(crate) fn finish(self) -> Result<Extent, TypeError> {
        let leaves = narrow(self.leaves)?;
        let markers = narrow(self.markers)?;
        let (lb, extent) = match (markers, leaves) {
            (Some((lb, ub)), _) => (lb, difference(lb, ub)?),
            (None, Some((lb, ub))) => {
                let plain = difference(lb, ub)?;
                let padding = plain.wrapping_neg() & (self.align as i64 - 1);
                let extent = plain.checked_add(padding).ok_or(TypeError::Extent { count: 1, step: plain })?;
                lb.checked_add(extent).ok_or(TypeError::Extent { count: 1, step: extent })?;
                (lb, extent)
            }
            (None, None) => (0, 0),
        };
        if let Some((low, high)) = leaves {
            difference(low, high)?;
        }
        Ok(Extent { leaves, markers, align: self.align, lb, extent })
    }
}

/// Returns the distance from the first to the last of `count` positions.
pub(crate) fn span(count: usize, step: i64) -> Result<i64, TypeError> {
    let last = i64::try_from(count).map_err(|_| TypeError::Count { count })? - 1;
    last.checked_mul(step).ok_or(TypeError::Extent { count, step })
}

fn widen(hull: &mut Option<(i128, i128)>, piece: Option<(i64, i64)>, at: i128) {
    let Some((low, high)) = piece else { return };
    let (low, high) = (i128::from(low) + at, i128::from(high) + at);
    *hull = Some(match *hull {
        Some((lowest, highest)) => (lowest.min(low), highest.max(high)),
        None => (low, high),
    });
}

fn narrow(hull: Option<(i128, i128)>) -> Result<Option<(i64, i64)>, TypeError> {
    let Some((low, high)) = hull else { return Ok(None) };
    match (i64::try_from(low), i64::try_from(high)) {
        (Ok(low), Ok(high)) => Ok(Some((low, high))),
        (Err(_), _) => Err(TypeError::Extent { count: 1, step: saturate(low) }),
        (_, Err(_)) => Err(TypeError::Extent { count: 1, step: saturate(high) }),
    }
}

fn saturate(value: i128) -> i64 {
    value.clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

fn difference(low: i64, high: i64) -> Result<i64, TypeError> {
    high.checked_sub(low).ok_or(TypeError::Extent { count: 1, step: high })
}

/// Returns the lowest byte of `count` items and one past the highest; (0, 0) if they have no bytes.
pub(crate) fn bounds(extent: &Extent, count: usize) -> Result<(i64, i64), TypeError> {
    let Some((low, high)) = extent.leaves else { return Ok((0, 0)) };
    if count == 0 {
        return Ok((0, 0));
    }
    let last = span(count, extent.extent)?;
    let fail = TypeError::Extent { count, step: extent.extent };
    let low = low.checked_add(last.min(0)).ok_or(fail)?;
    let high = high.checked_add(last.max(0)).ok_or(fail)?;
    high.checked_sub(low).ok_or(fail)?;
    Ok((low, high))
}
