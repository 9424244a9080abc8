//! Neighbourhood collectives as values.

use super::{Arguments, Layout, OwnedCollective, OwnedRecvBuf, OwnedSendBuf, buffer_lists, two_buffers};
use crate::raw::collective_call as calls;

/// Describes a gather from the neighbours: see
/// [`TopologyComm::neighbor_allgather`](crate::topology::TopologyComm::neighbor_allgather).
///
/// ```
/// use mpj::topology::Dim;
/// use mpj::{Reorder, coll};
///
/// # mpj::threads(3, |world| {
/// let ring = world.cart(&[Dim::periodic(3)], Reorder::No)?.expect("3 cells");
/// let mut halo = ring.prepare(coll::neighbor_allgather([0; 1], [0; 2]))?;
/// for step in 0..3 {
///     halo.buffers_mut().0 = [10 * step + ring.rank()];
///     let active = halo.start()?;
///     // Compute here what does not need the neighbours.
///     let (_mine, around) = active.wait()?;
///     assert_eq!(*around, [2, 1].map(|by| 10 * step + (ring.rank() + by) % 3));
/// }
/// # Ok::<(), mpj::Error>(()) }).unwrap();
/// ```
pub fn neighbor_allgather<S: OwnedSendBuf, R: OwnedRecvBuf>(send: S, recv: R) -> OwnedCollective<(S, R)> {
    two_buffers(send, recv, Arguments::of(calls::NEIGHBOR_ALLGATHER))
}

/// Describes a gather of blocks of different lengths from the neighbours: see
/// [`TopologyComm::neighbor_allgatherv`](crate::topology::TopologyComm::neighbor_allgatherv).
pub fn neighbor_allgatherv<S: OwnedSendBuf, R: OwnedRecvBuf>(
    send: S,
    recv: R,
    counts: &[usize],
    displacements: &[usize],
) -> OwnedCollective<(S, R)> {
    two_buffers(
        send,
        recv,
        Arguments {
            recv: Layout::varying(counts, displacements),
            ..Arguments::of(calls::NEIGHBOR_ALLGATHERV)
        },
    )
}

/// Describes an exchange of equal blocks with the neighbours: see
/// [`TopologyComm::neighbor_alltoall`](crate::topology::TopologyComm::neighbor_alltoall).
pub fn neighbor_alltoall<S: OwnedSendBuf, R: OwnedRecvBuf>(send: S, recv: R) -> OwnedCollective<(S, R)> {
    two_buffers(send, recv, Arguments::of(calls::NEIGHBOR_ALLTOALL))
}

/// Describes an exchange of blocks of different lengths with the neighbours: see
/// [`TopologyComm::neighbor_alltoallv`](crate::topology::TopologyComm::neighbor_alltoallv).
pub fn neighbor_alltoallv<S: OwnedSendBuf, R: OwnedRecvBuf>(
    send: S,
    send_blocks: (&[usize], &[usize]),
    recv: R,
    recv_blocks: (&[usize], &[usize]),
) -> OwnedCollective<(S, R)> {
    let blocks = |(counts, displacements): (&[usize], &[usize])| Layout::varying(counts, displacements);
    let (out, back) = (blocks(send_blocks), blocks(recv_blocks));
    two_buffers(send, recv, Arguments { send: out, recv: back, ..Arguments::of(calls::NEIGHBOR_ALLTOALLV) })
}

/// Describes an exchange of buffers, each with a length and a datatype of its own, with the neighbours: see
/// [`TopologyComm::neighbor_alltoallw`](crate::topology::TopologyComm::neighbor_alltoallw).
pub fn neighbor_alltoallw<S: OwnedSendBuf, R: OwnedRecvBuf>(
    send: Vec<S>,
    recv: Vec<R>,
) -> OwnedCollective<(Vec<S>, Vec<R>)> {
    buffer_lists(send, recv, Arguments::of(calls::NEIGHBOR_ALLTOALLW))
}
