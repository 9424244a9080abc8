//! [`Cart`]: a communicator whose ranks are the cells of a grid.

use std::ops::Deref;
use std::sync::Arc;

use super::{CartLayout, Dim, Reorder, TopologyComm};
use crate::comm::Intracomm;
use crate::error::{Error, ErrorClass, Result};
use crate::raw::{self, TopologyLayout};

/// A communicator whose ranks are the cells of a grid; the last coordinate changes fastest. [`Intracomm::cart`] creates
/// it.
#[derive(Clone, Debug)]
pub struct Cart {
    comm: TopologyComm,
    layout: Arc<CartLayout>,
    coords: Arc<[usize]>,
}

impl Cart {
    fn new(comm: raw::Comm) -> Result<Self> {
        let Some(TopologyLayout::Cart(layout)) = raw::topology(&comm).map(raw::VirtualTopology::layout)
        else {
            return Err(Error::new(ErrorClass::Topology, "cart", "the communicator is not a grid"));
        };
        let layout = Arc::clone(layout);
        let coords = layout.coords_of(comm.rank() as usize)?.into();
        Ok(Cart { comm: TopologyComm::new(comm), layout, coords })
    }

    /// Returns the grid.
    pub fn layout(&self) -> &CartLayout {
        &self.layout
    }

    /// Returns the dimensions (MPI_Cart_get).
    pub fn dims(&self) -> &[Dim] {
        self.layout.dims()
    }

    /// Returns the coordinates of this rank (MPI_Cart_get).
    pub fn coords(&self) -> &[usize] {
        &self.coords
    }

    /// Returns the coordinates of a rank (MPI_Cart_coords).
    ///
    /// # Errors
    /// [`ErrorClass::Rank`](crate::ErrorClass::Rank) if there is no such rank.
    pub fn coords_of(&self, rank: usize) -> Result<Vec<usize>> {
        self.layout.coords_of(rank)
    }

    /// Returns the rank at these coordinates, which wrap around in periodic dimensions (MPI_Cart_rank); `None` if they
    /// are outside an open dimension.
    ///
    /// # Errors
    /// [`ErrorClass::Dims`](crate::ErrorClass::Dims) if there is not one coordinate for each dimension.
    pub fn rank_of(&self, coords: &[isize]) -> Result<Option<usize>> {
        self.layout.rank_of(coords)
    }

    /// Returns the ranks that are `by` cells before and after this one in a dimension (MPI_Cart_shift): the source and
    /// the destination of a shift. `None`, outside an open dimension, stands for [`PROC_NULL`](crate::PROC_NULL).
    ///
    /// ```
    /// use mpj::Reorder;
    /// use mpj::topology::Dim;
    ///
    /// # mpj::threads(3, |world| {
    /// let line = world.cart(&[Dim::open(3)], Reorder::No)?.expect("3 cells");
    /// let (left, right) = line.shift(0, 1)?;
    /// let mut from_left = [usize::MAX];
    /// line.sendrecv(&[line.rank()], right, 0, &mut from_left, left, 0)?;
    /// assert_eq!(from_left[0], left.unwrap_or(usize::MAX)); // rank 0 receives nothing
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`ErrorClass::Dims`](crate::ErrorClass::Dims) if there is no such dimension.
    pub fn shift(&self, dim: usize, by: isize) -> Result<(Option<usize>, Option<usize>)> {
        self.layout.shift(self.rank(), dim, by)
    }

    /// Returns the communicator of the sub-grid that contains this rank and consists of the dimensions for which `keep`
    /// is true (MPI_Cart_sub). Collective.
    ///
    /// ```
    /// use mpj::Reorder;
    /// use mpj::topology::Dim;
    ///
    /// # mpj::threads(6, |world| {
    /// let grid = world.cart(&[Dim::open(2), Dim::open(3)], Reorder::No)?.expect("6 cells");
    /// let row = grid.sub(&[false, true])?;
    /// assert_eq!((row.size(), row.rank()), (3, grid.coords()[1]));
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`barrier`](Intracomm::barrier); [`ErrorClass::Dims`](crate::ErrorClass::Dims) if there is not one flag for
    /// each dimension, [`ErrorClass::Topology`](crate::ErrorClass::Topology) if the ranks have passed different flags;
    /// a rank has too many communicators.
    pub fn sub(&self, keep: &[bool]) -> Result<Cart> {
        raw::cart_sub(self.as_raw(), keep).and_then(Cart::new)
    }

    /// Creates a communicator of the same grid with its own messages. Collective.
    ///
    /// # Errors
    /// As [`Intracomm::dup`].
    pub fn dup(&self) -> Result<Cart> {
        self.as_raw().dup().and_then(Cart::new)
    }
}

impl Deref for Cart {
    type Target = TopologyComm;

    fn deref(&self) -> &TopologyComm {
        &self.comm
    }
}

/// Grids (MPI 4.1 §8.5.1).
impl Intracomm {
    /// Creates a communicator whose ranks are the cells of a grid (MPI_Cart_create); ranks without a cell get `None`.
    /// Without dimensions, the grid has one cell. All ranks must pass the same arguments. Collective.
    ///
    /// ```
    /// use mpj::Reorder;
    /// use mpj::topology::Dim;
    ///
    /// # mpj::threads(5, |world| {
    /// let Some(grid) = world.cart(&[Dim::open(2), Dim::periodic(2)], Reorder::No)? else {
    ///     assert_eq!(world.rank(), 4); // 2 × 2 cells
    ///     return Ok(());
    /// };
    /// assert_eq!(grid.coords(), [grid.rank() / 2, grid.rank() % 2]);
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`barrier`](Self::barrier); [`ErrorClass::Dims`] if a size is 0 or the grid has more cells than the
    /// communicator has ranks; [`ErrorClass::Topology`] if the ranks have passed different arguments; a rank has too
    /// many communicators.
    pub fn cart(&self, dims: &[Dim], reorder: Reorder) -> Result<Option<Cart>> {
        raw::cart_create(self.as_raw(), dims, reorder.flag())?.map(Cart::new).transpose()
    }

    /// Returns the rank that this process would get from [`cart`](Self::cart) with [`Reorder::ByHost`], or `None` if it
    /// would get no cell (MPI_Cart_map). Not collective.
    ///
    /// # Errors
    /// [`ErrorClass::Dims`] if a size is 0 or the grid has more cells than the communicator has ranks; the communicator
    /// was freed.
    pub fn cart_map(&self, dims: &[Dim]) -> Result<Option<usize>> {
        Ok(raw::cart_map(self.as_raw(), dims)?.map(|rank| rank as usize))
    }

    /// Returns this communicator as a grid, if it is a handle or a duplicate of one (MPI_Topo_test).
    pub fn as_cart(&self) -> Option<Cart> {
        Cart::new(self.as_raw().clone()).ok()
    }
}
