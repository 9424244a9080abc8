//! Arrays that are distributed over a grid of processes.

use super::subarray::ArrayOrder;
use crate::{Datatype, TypeEnvelope, TypeError};

/// Distribution of the indices of one dimension over the processes along it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Distribution {
    /// All indices belong to the only process along the dimension (`MPI_DISTRIBUTE_NONE`).
    Whole,
    /// One block per process, equal until the indices run out (`MPI_DISTRIBUTE_BLOCK`, `MPI_DISTRIBUTE_DFLT_DARG`).
    Block,
    /// One block of this size per process, until the indices run out (`MPI_DISTRIBUTE_BLOCK`).
    BlockOf(usize),
    /// Blocks of this size, given to the processes in turn (`MPI_DISTRIBUTE_CYCLIC`).
    Cyclic(usize),
}

/// One dimension of a distributed array and of the grid of processes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DistributedDim {
    /// Number of indices.
    pub size: usize,
    /// Number of processes along the dimension.
    pub processes: usize,
    /// Distribution of the indices.
    pub distribution: Distribution,
}

impl Datatype {
    /// Returns the type of the items of an array that belong to process `rank`, with the bounds of the whole array
    /// (`MPI_Type_create_darray`, MPI 4.1 §5.1.4). In the grid of processes the last dimension is always the fastest.
    ///
    /// # Errors
    /// [`TypeError::Distribution`] if the indices of a dimension cannot be distributed in this way, [`TypeError::Rank`]
    /// if the grid has no such process, and others as for [`contiguous`](Self::contiguous).
    ///
    /// # Examples
    /// Six rows distributed to two processes, two rows at a time:
    /// ```
    /// use mpj_datatypes::{Datatype, DistributedDim, Distribution, ArrayOrder, Run};
    /// let rows = DistributedDim { size: 6, processes: 2, distribution: Distribution::Cyclic(2) };
    /// let columns = DistributedDim { size: 10, processes: 1, distribution: Distribution::Whole };
    /// let first = Datatype::of::<u8>().darray(0, &[rows, columns], ArrayOrder::C)?;
    /// let runs: Vec<Run> = first.runs(1).collect();
    /// assert_eq!(runs, [Run { offset: 0, len: 20 }, Run { offset: 40, len: 20 }]);
    /// # Ok::<(), mpj_datatypes::TypeError>(())
    /// ```
    pub fn darray(
        &self,
        rank: usize,
        dimensions: &[DistributedDim],
        order: ArrayOrder,
    ) -> Result<Datatype, TypeError> {
        let mut places = vec![0; dimensions.len()];
        let mut rest = rank;
        for (place, dimension) in places.iter_mut().zip(dimensions).rev() {
            *place = rest.checked_rem(dimension.processes).ok_or(TypeError::Rank { rank })?;
            rest /= dimension.processes;
        }
        if rest > 0 {
            return Err(TypeError::Rank { rank });
        }
        let mut lowered = self.clone();
        for d in order.fastest_first(dimensions.len()) {
            lowered = lowered.distribute_dim(d, &dimensions[d], places[d])?;
        }
        let envelope =
            TypeEnvelope::Darray { rank, dimensions: dimensions.into(), order, inner: self.clone() };
        Datatype::from_lowered(lowered, envelope)
    }

    /// Returns the type of the items of one dimension that belong to process `place`, with the bounds of all items.
    fn distribute_dim(
        &self,
        dimension: usize,
        along: &DistributedDim,
        place: usize,
    ) -> Result<Datatype, TypeError> {
        let DistributedDim { size, processes, distribution: how } = *along;
        let invalid = TypeError::Distribution { dimension, size, processes };
        let block = match how {
            Distribution::Whole if processes == 1 => size,
            Distribution::Block => size.div_ceil(processes),
            Distribution::BlockOf(block) if block.saturating_mul(processes) >= size => block,
            Distribution::Cyclic(block) if block > 0 => return self.cyclic(size, processes, block, place),
            _ => return Err(invalid),
        };
        let start = block.saturating_mul(place).min(size);
        self.one_dim_subarray(size, block.min(size - start), start)
    }

    fn cyclic(
        &self,
        size: usize,
        processes: usize,
        block: usize,
        place: usize,
    ) -> Result<Datatype, TypeError> {
        let block = block.min(size.max(1));
        let start = block.saturating_mul(place);
        let round = block.saturating_mul(processes);
        let mine = size.saturating_sub(start);
        // Each round except the last has a whole block for this process; the last may have less.
        let (rounds, rest) = (mine / round, (mine % round).min(block));
        let whole = rounds + usize::from(rest == block);
        let part = if rest == block { 0 } else { rest };
        if whole == 0 && part == 0 {
            return self.one_dim_subarray(size, 0, 0);
        }
        // Called only with indices of the array, so never with a saturated product.
        let steps = |indices: usize| {
            isize::try_from(indices)
                .map_err(|_| TypeError::Count { count: indices })
                .and_then(|n| self.scaled(1, n))
        };
        let distance = if whole > 1 { steps(round)? } else { 0 };
        let blocks = self.hvector(whole, block, distance)?;
        let mut fields = vec![(1, steps(start)?, blocks)];
        if part > 0 {
            fields.push((part, steps(start + whole * round)?, self.clone()));
        }
        Datatype::structure(&fields)?.resized(0, self.extent_of(size)?)
    }
}
