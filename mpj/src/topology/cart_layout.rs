//! The grid of a Cartesian topology: coordinates, ranks and shifts, without a communicator.

use std::fmt;

use crate::error::{Error, ErrorClass, Result};

/// A dimension of a grid.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Dim {
    /// The number of cells.
    pub size: usize,
    /// Whether the last cell and the first one are neighbours.
    pub periodic: bool,
}

impl Dim {
    /// Returns a dimension that does not wrap around: nothing is before the first cell or after the last one.
    pub const fn open(size: usize) -> Self {
        Dim { size, periodic: false }
    }

    /// Returns a dimension whose last cell is a neighbour of the first one.
    pub const fn periodic(size: usize) -> Self {
        Dim { size, periodic: true }
    }
}

impl fmt::Display for Dim {
    /// Writes the size, such as `4`, or `4 (periodic)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.size, if self.periodic { " (periodic)" } else { "" })
    }
}

/// A grid whose cells are ranks: the last coordinate changes fastest, as in MPI.
///
/// ```
/// use mpj::topology::{CartLayout, Dim};
///
/// //   0 1 2
/// //   3 4 5     The rows are periodic.
/// let grid = CartLayout::new(&[Dim::open(2), Dim::periodic(3)])?;
/// assert_eq!(grid.coords_of(5)?, [1, 2]);
/// assert_eq!(grid.rank_of(&[1, -1])?, Some(5));
/// assert_eq!(grid.shift(5, 1, 1)?, (Some(4), Some(3)));
/// assert_eq!(grid.shift(5, 0, 1)?, (Some(2), None));
/// # Ok::<(), mpj::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CartLayout {
    dims: Box<[Dim]>,
    size: usize,
}

impl CartLayout {
    /// Creates a grid. Without dimensions, it has one cell.
    ///
    /// # Errors
    /// [`ErrorClass::Dims`] if a size is 0, or if the grid has more than 2,147,483,647 cells.
    pub fn new(dims: &[Dim]) -> Result<Self> {
        let fail = |why| Err(Error::new(ErrorClass::Dims, "cart", why));
        if let Some(dim) = dims.iter().position(|dim| dim.size == 0) {
            return fail(format!("dimension {dim} of the grid {} has size 0", sizes(dims)));
        }
        let size = dims.iter().try_fold(1usize, |size, dim| size.checked_mul(dim.size));
        match size.filter(|size| i32::try_from(*size).is_ok()) {
            Some(size) => Ok(CartLayout { dims: dims.into(), size }),
            None => fail(format!("the grid {} has more than {} cells", sizes(dims), i32::MAX)),
        }
    }

    /// Returns the dimensions.
    pub fn dims(&self) -> &[Dim] {
        &self.dims
    }

    /// Returns the number of cells.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Returns the coordinates of a rank (MPI_Cart_coords).
    ///
    /// # Errors
    /// [`ErrorClass::Rank`] if the grid has no such rank.
    pub fn coords_of(&self, rank: usize) -> Result<Vec<usize>> {
        self.check_rank("coords_of", rank)?;
        let mut coords = vec![0; self.dims.len()];
        let mut rest = rank;
        for (coord, dim) in coords.iter_mut().zip(&self.dims).rev() {
            (*coord, rest) = (rest % dim.size, rest / dim.size);
        }
        Ok(coords)
    }

    /// Returns the rank at these coordinates, which wrap around in periodic dimensions (MPI_Cart_rank); `None` if they
    /// are outside an open dimension.
    ///
    /// # Errors
    /// [`ErrorClass::Dims`] if there is not one coordinate for each dimension.
    pub fn rank_of(&self, coords: &[isize]) -> Result<Option<usize>> {
        if coords.len() != self.dims.len() {
            let why = format!("{} coordinates for {} dimensions", coords.len(), self.dims.len());
            return Err(Error::new(ErrorClass::Dims, "rank_of", why));
        }
        let wrap = |coord: isize, dim: &Dim| {
            let at = if dim.periodic { coord.rem_euclid(dim.size as isize) } else { coord };
            usize::try_from(at).ok().filter(|at| *at < dim.size)
        };
        let mut at = coords.iter().zip(&self.dims);
        Ok(at.try_fold(0, |rank, (coord, dim)| Some(rank * dim.size + wrap(*coord, dim)?)))
    }

    /// Returns the ranks that are `by` cells before and after `rank` in a dimension: the source and the destination of a
    /// shift (MPI_Cart_shift). `None` stands for a cell outside an open dimension.
    ///
    /// # Errors
    /// [`ErrorClass::Rank`] if the grid has no such rank, [`ErrorClass::Dims`] if it has no such dimension.
    pub fn shift(&self, rank: usize, dim: usize, by: isize) -> Result<(Option<usize>, Option<usize>)> {
        self.check_rank("shift", rank)?;
        if dim >= self.dims.len() {
            let why = format!("dimension {dim} does not exist: the grid has {} dimensions", self.dims.len());
            return Err(Error::new(ErrorClass::Dims, "shift", why));
        }
        let Dim { size, periodic } = self.dims[dim];
        let stride: usize = self.dims[dim + 1..].iter().map(|dim| dim.size).product();
        let at = rank / stride % size;
        let moved = |by: i128| {
            let to = at as i128 + by;
            let to = if periodic { to.rem_euclid(size as i128) } else { to };
            usize::try_from(to).ok().filter(|to| *to < size).map(|to| rank - at * stride + to * stride)
        };
        Ok((moved(-(by as i128)), moved(by as i128)))
    }

    /// Returns the neighbours of a rank in the order of the blocks in neighbourhood collectives: for each dimension, the
    /// rank before it and the rank after it.
    ///
    /// # Errors
    /// [`ErrorClass::Rank`] if the grid has no such rank.
    pub fn neighbors(&self, rank: usize) -> Result<Vec<Option<usize>>> {
        self.check_rank("neighbors", rank)?;
        let mut all = Vec::with_capacity(2 * self.dims.len());
        for dim in 0..self.dims.len() {
            let (before, after) = self.shift(rank, dim, 1)?;
            all.extend([before, after]);
        }
        Ok(all)
    }

    /// Returns the grid of the dimensions for which `keep` is true.
    ///
    /// # Errors
    /// [`ErrorClass::Dims`] if the length of `keep` is not the number of dimensions.
    pub fn sub(&self, keep: &[bool]) -> Result<CartLayout> {
        if keep.len() != self.dims.len() {
            let why = format!("{} flags for {} dimensions", keep.len(), self.dims.len());
            return Err(Error::new(ErrorClass::Dims, "sub", why));
        }
        let dims: Vec<Dim> =
            self.dims.iter().zip(keep).filter(|(_, keep)| **keep).map(|(dim, _)| *dim).collect();
        CartLayout::new(&dims)
    }

    /// Returns the number of the [`sub`](Self::sub) grid that contains a rank. Its ranks have the same order as in this
    /// grid.
    pub(crate) fn sub_index_of(&self, rank: usize, keep: &[bool]) -> Result<usize> {
        let coords = self.coords_of(rank)?;
        let dropped = coords.iter().zip(&self.dims).zip(keep).filter(|(_, keep)| !**keep);
        Ok(dropped.fold(0, |index, ((coord, dim), _)| index * dim.size + coord))
    }

    fn check_rank(&self, call: &'static str, rank: usize) -> Result<()> {
        if rank >= self.size {
            let why = format!("rank {rank} is out of range: the grid {self} has {} cells", self.size);
            return Err(Error::new(ErrorClass::Rank, call, why));
        }
        Ok(())
    }
}

/// Returns the sizes as a text, such as `2 × 3 (periodic)`.
fn sizes(dims: &[Dim]) -> String {
    if dims.is_empty() {
        return "without dimensions".to_owned();
    }
    dims.iter().map(Dim::to_string).collect::<Vec<_>>().join(" × ")
}

impl fmt::Display for CartLayout {
    /// Writes the sizes, such as `2 × 3 (periodic)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&sizes(&self.dims))
    }
}
