//! Collective calls as values, and the algorithms of collectives.
//!
//! An [`OwnedCollective`] owns its buffers. [`Communicator::start`](crate::Communicator::start) starts it, and
//! [`Communicator::prepare`](crate::Communicator::prepare) makes it persistent. The blocking methods of
//! [`Intracomm`](crate::Intracomm) and [`TopologyComm`](crate::topology::TopologyComm) have the same names and
//! arguments, and borrow their buffers.
//!
//! On an [`Intercomm`](crate::Intercomm), the root is an [`IntercommRoot`](crate::IntercommRoot), or the number of a rank
//! of the remote group. On an `Intracomm`, an `IntercommRoot` other than `Remote` is an invalid root.
//!
//! ```
//! use mpj::{Op, coll};
//!
//! # mpj::threads(3, |world| {
//! // Non-blocking: two calls at once.
//! let sum = world.start(coll::allreduce([world.rank()], [0usize], Op::Sum))?;
//! let max = world.start(coll::allreduce([world.rank()], [0usize], Op::Max))?;
//! let ((_, max), _status) = max.wait()?;
//! let ((_, sum), _status) = sum.wait()?;
//! assert_eq!((sum, max), ([3], [2]));
//!
//! // Persistent: prepared once, started often.
//! let mut news = world.prepare(coll::bcast([0u32; 2], 1))?;
//! for day in 0..3 {
//!     if world.rank() == 1 {
//!         *news.buffers_mut() = [day, 7 * day];
//!     }
//!     assert_eq!(*news.start()?.wait()?, [day, 7 * day]);
//! }
//! # Ok::<(), mpj::Error>(()) }).unwrap();
//! ```
//!
//! # Algorithms
//! [`Rules`] select the [`Algorithm`] of a call. The parameters `MPJ_COLL_<OPERATION>` set those of the world, and
//! [`dup_with_rules`](crate::Intracomm::dup_with_rules) those of another communicator.

mod in_place;
mod neighbor;

use std::fmt;
use std::sync::Arc;

pub use in_place::*;
pub use mpj_collectives::{Algorithm, Misfit, Operation, Requirement, Rules, algorithms_of};

use crate::comm::CollectiveRoot;
use crate::op::Op;
use crate::raw::collective_call::{self as calls, Call};
use crate::raw::{self, BlockLayout, Buf};
use crate::request::{BufsFn, CallBufs, OwnedCell};
use crate::types::{RecvBuf, SendBuf};
pub use neighbor::*;

/// A send buffer that a collective call can own.
pub trait OwnedSendBuf: SendBuf + Send + 'static {}

impl<B: SendBuf + Send + 'static> OwnedSendBuf for B {}

/// A receive buffer that a collective call can own.
pub trait OwnedRecvBuf: RecvBuf + Send + 'static {}

impl<B: RecvBuf + Send + 'static> OwnedRecvBuf for B {}

/// A collective call that owns its buffers `B`. See the [module](self).
#[must_use = "start or prepare it"]
pub struct OwnedCollective<B> {
    cell: Arc<OwnedCell<B>>,
    bufs: BufsFn<B>,
    /// Replaces `bufs` at the root of a call in place.
    root_bufs: Option<BufsFn<B>>,
    arguments: Arguments,
}

/// The call and its arguments other than buffers: an owned form of [`raw::Collective`].
#[derive(Debug)]
struct Arguments {
    call: &'static Call,
    op: Option<Op>,
    root: i32,
    send: Layout,
    recv: Layout,
}

/// An owned [`BlockLayout`].
#[derive(Debug)]
enum Layout {
    EvenSplit,
    Varying { counts: Vec<usize>, displacements: Vec<usize> },
}

impl Layout {
    fn varying(counts: &[usize], displacements: &[usize]) -> Self {
        Layout::Varying { counts: counts.to_vec(), displacements: displacements.to_vec() }
    }

    fn as_raw(&self) -> BlockLayout<'_> {
        match self {
            Layout::EvenSplit => BlockLayout::EvenSplit,
            Layout::Varying { counts, displacements } => BlockLayout::Varying { counts, displacements },
        }
    }
}

impl Arguments {
    fn of(call: &'static Call) -> Self {
        Arguments { call, op: None, root: 0, send: Layout::EvenSplit, recv: Layout::EvenSplit }
    }

    fn reduction(call: &'static Call, op: Op) -> Self {
        Arguments { op: Some(op), ..Arguments::of(call) }
    }

    fn as_raw<'a>(&'a self, (send, recv): (&'a [Buf], &'a [Buf])) -> raw::Collective<'a> {
        let Arguments { call, op, root, send: send_layout, recv: recv_layout } = self;
        raw::Collective {
            send_layout: send_layout.as_raw(),
            recv_layout: recv_layout.as_raw(),
            root: *root,
            op: op.as_ref().unwrap_or(raw::Collective::NO_OP),
            ..raw::Collective::with_lists(call, send, recv)
        }
    }
}

impl<B> OwnedCollective<B> {
    fn new(buf: B, bufs: BufsFn<B>, arguments: Arguments) -> Self
    where
        B: Send + 'static,
    {
        OwnedCollective { cell: OwnedCell::shared(buf), bufs, root_bufs: None, arguments }
    }

    /// Calls `f` with the untyped call, and returns its result with the buffers.
    pub(crate) fn with_raw<T>(
        self,
        comm: &raw::Comm,
        f: impl FnOnce(raw::Collective<'_>, raw::KeepAlive) -> crate::Result<T>,
    ) -> crate::Result<(T, Arc<OwnedCell<B>>, BufsFn<B>)>
    where
        B: Send + Sync + 'static,
    {
        // An intercommunicator refuses `MPI_IN_PLACE`, so pass it on every rank: all of them get the error.
        let is_in_place = comm.is_inter() || i32::try_from(comm.rank()) == Ok(self.arguments.root);
        let bufs_of = self.root_bufs.filter(|_| is_in_place).unwrap_or(self.bufs);
        let bufs = bufs_of(&self.cell);
        let keep: raw::KeepAlive = self.cell.clone();
        f(self.arguments.as_raw(bufs.as_slices()), keep).map(|value| (value, self.cell, bufs_of))
    }
}

impl<B> fmt::Debug for OwnedCollective<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OwnedCollective").field(&self.arguments).finish()
    }
}

fn two_buffers<S: OwnedSendBuf, R: OwnedRecvBuf>(
    send: S,
    recv: R,
    arguments: Arguments,
) -> OwnedCollective<(S, R)> {
    OwnedCollective::new((send, recv), OwnedCell::bufs, arguments)
}

fn buffer_lists<S: OwnedSendBuf, R: OwnedRecvBuf>(
    send: Vec<S>,
    recv: Vec<R>,
    arguments: Arguments,
) -> OwnedCollective<(Vec<S>, Vec<R>)> {
    OwnedCollective::new((send, recv), OwnedCell::bufs_per_rank, arguments)
}

/// Describes a barrier: see [`Intracomm::barrier`](crate::Intracomm::barrier).
pub fn barrier() -> OwnedCollective<()> {
    let bufs: BufsFn<()> = |_| CallBufs::Pair([Buf::empty(), Buf::empty()]);
    OwnedCollective::new((), bufs, Arguments::of(calls::BARRIER))
}

/// Describes a broadcast: see [`Intracomm::bcast`](crate::Intracomm::bcast).
pub fn bcast<B: OwnedRecvBuf>(buf: B, root: impl CollectiveRoot) -> OwnedCollective<B> {
    let bufs: BufsFn<B> = |cell| CallBufs::Pair([Buf::empty(), cell.recv_buf()]);
    OwnedCollective::new(buf, bufs, Arguments { root: root.number(), ..Arguments::of(calls::BCAST) })
}

/// Describes a reduction to one rank: see [`Intracomm::reduce`](crate::Intracomm::reduce).
pub fn reduce<S: OwnedSendBuf, R: OwnedRecvBuf>(
    send: S,
    recv: R,
    op: Op,
    root: impl CollectiveRoot,
) -> OwnedCollective<(S, R)> {
    two_buffers(send, recv, Arguments { root: root.number(), ..Arguments::reduction(calls::REDUCE, op) })
}

/// Describes a reduction to all ranks: see [`Intracomm::allreduce`](crate::Intracomm::allreduce).
pub fn allreduce<S: OwnedSendBuf, R: OwnedRecvBuf>(send: S, recv: R, op: Op) -> OwnedCollective<(S, R)> {
    two_buffers(send, recv, Arguments::reduction(calls::ALLREDUCE, op))
}

/// Describes a reduction of which each rank gets a block: see
/// [`Intracomm::reduce_scatter`](crate::Intracomm::reduce_scatter).
pub fn reduce_scatter<S: OwnedSendBuf, R: OwnedRecvBuf>(
    send: S,
    recv: R,
    counts: &[usize],
    op: Op,
) -> OwnedCollective<(S, R)> {
    two_buffers(
        send,
        recv,
        Arguments { send: Layout::varying(counts, &[]), ..Arguments::reduction(calls::REDUCE_SCATTER, op) },
    )
}

/// Describes a reduction whose result is scattered in equal blocks: see
/// [`Intracomm::reduce_scatter_block`](crate::Intracomm::reduce_scatter_block).
pub fn reduce_scatter_block<S: OwnedSendBuf, R: OwnedRecvBuf>(
    send: S,
    recv: R,
    op: Op,
) -> OwnedCollective<(S, R)> {
    two_buffers(send, recv, Arguments::reduction(calls::REDUCE_SCATTER_BLOCK, op))
}

/// Describes an exclusive prefix reduction: see [`Intracomm::exscan`](crate::Intracomm::exscan).
pub fn exscan<S: OwnedSendBuf, R: OwnedRecvBuf>(send: S, recv: R, op: Op) -> OwnedCollective<(S, R)> {
    two_buffers(send, recv, Arguments::reduction(calls::EXSCAN, op))
}

/// Describes a prefix reduction: see [`Intracomm::scan`](crate::Intracomm::scan).
pub fn scan<S: OwnedSendBuf, R: OwnedRecvBuf>(send: S, recv: R, op: Op) -> OwnedCollective<(S, R)> {
    two_buffers(send, recv, Arguments::reduction(calls::SCAN, op))
}

/// Describes a gather of equal blocks: see [`Intracomm::gather`](crate::Intracomm::gather).
pub fn gather<S: OwnedSendBuf, R: OwnedRecvBuf>(
    send: S,
    recv: R,
    root: impl CollectiveRoot,
) -> OwnedCollective<(S, R)> {
    two_buffers(send, recv, Arguments { root: root.number(), ..Arguments::of(calls::GATHER) })
}

/// Describes a gather of blocks of different lengths: see [`Intracomm::gatherv`](crate::Intracomm::gatherv).
pub fn gatherv<S: OwnedSendBuf, R: OwnedRecvBuf>(
    send: S,
    recv: R,
    counts: &[usize],
    displacements: &[usize],
    root: impl CollectiveRoot,
) -> OwnedCollective<(S, R)> {
    let layout = Layout::varying(counts, displacements);
    two_buffers(send, recv, Arguments { recv: layout, root: root.number(), ..Arguments::of(calls::GATHERV) })
}

/// Describes a scatter of equal blocks: see [`Intracomm::scatter`](crate::Intracomm::scatter).
pub fn scatter<S: OwnedSendBuf, R: OwnedRecvBuf>(
    send: S,
    recv: R,
    root: impl CollectiveRoot,
) -> OwnedCollective<(S, R)> {
    two_buffers(send, recv, Arguments { root: root.number(), ..Arguments::of(calls::SCATTER) })
}

/// Describes a scatter of blocks of different lengths: see [`Intracomm::scatterv`](crate::Intracomm::scatterv).
pub fn scatterv<S: OwnedSendBuf, R: OwnedRecvBuf>(
    send: S,
    counts: &[usize],
    displacements: &[usize],
    recv: R,
    root: impl CollectiveRoot,
) -> OwnedCollective<(S, R)> {
    let layout = Layout::varying(counts, displacements);
    two_buffers(send, recv, Arguments { send: layout, root: root.number(), ..Arguments::of(calls::SCATTERV) })
}

/// Describes a gather to all ranks: see [`Intracomm::allgather`](crate::Intracomm::allgather).
pub fn allgather<S: OwnedSendBuf, R: OwnedRecvBuf>(send: S, recv: R) -> OwnedCollective<(S, R)> {
    two_buffers(send, recv, Arguments::of(calls::ALLGATHER))
}

/// Describes a gather of blocks of different lengths to all ranks: see
/// [`Intracomm::allgatherv`](crate::Intracomm::allgatherv).
pub fn allgatherv<S: OwnedSendBuf, R: OwnedRecvBuf>(
    send: S,
    recv: R,
    counts: &[usize],
    displacements: &[usize],
) -> OwnedCollective<(S, R)> {
    two_buffers(
        send,
        recv,
        Arguments { recv: Layout::varying(counts, displacements), ..Arguments::of(calls::ALLGATHERV) },
    )
}

/// Describes an exchange of equal blocks: see [`Intracomm::alltoall`](crate::Intracomm::alltoall).
pub fn alltoall<S: OwnedSendBuf, R: OwnedRecvBuf>(send: S, recv: R) -> OwnedCollective<(S, R)> {
    two_buffers(send, recv, Arguments::of(calls::ALLTOALL))
}

/// Describes an exchange of blocks of different lengths: see [`Intracomm::alltoallv`](crate::Intracomm::alltoallv).
pub fn alltoallv<S: OwnedSendBuf, R: OwnedRecvBuf>(
    send: S,
    send_parts: (&[usize], &[usize]),
    recv: R,
    recv_parts: (&[usize], &[usize]),
) -> OwnedCollective<(S, R)> {
    let parts = |(counts, displacements): (&[usize], &[usize])| Layout::varying(counts, displacements);
    two_buffers(
        send,
        recv,
        Arguments { send: parts(send_parts), recv: parts(recv_parts), ..Arguments::of(calls::ALLTOALLV) },
    )
}

/// Describes an exchange of one buffer with each rank; lengths and datatypes can differ: see
/// [`Intracomm::alltoallw`](crate::Intracomm::alltoallw). If the buffers have different Rust types, box them:
/// `Box<dyn SendBuf + Send + Sync>`.
///
/// ```
/// use mpj::{RecvBuf, SendBuf, coll};
///
/// # mpj::threads(2, |world| {
/// // To rank 0 a number, to rank 1 a text.
/// let send: [Box<dyn SendBuf + Send + Sync>; 2] = [Box::new([0.5 + world.rank() as f64]), Box::new(*b"text")];
/// let recv: Vec<Vec<u8>> = vec![vec![0; 4]; 2];
/// let mut numbers = vec![vec![0.0]; 2];
/// if world.rank() == 0 {
///     ((_, numbers), _) = world.start(coll::alltoallw(send.into(), numbers))?.wait()?;
///     assert_eq!(numbers, [[0.5], [1.5]]);
/// } else {
///     let ((_, texts), _) = world.start(coll::alltoallw(send.into(), recv))?.wait()?;
///     assert_eq!(texts, [b"text", b"text"]);
/// }
/// # Ok::<(), mpj::Error>(()) }).unwrap();
/// ```
pub fn alltoallw<S: OwnedSendBuf, R: OwnedRecvBuf>(
    send: Vec<S>,
    recv: Vec<R>,
) -> OwnedCollective<(Vec<S>, Vec<R>)> {
    buffer_lists(send, recv, Arguments::of(calls::ALLTOALLW))
}
