//! A collective call as a value: the table of the calls, and the arguments of one call.

use std::slice::from_ref;

use mpj_devices::Buf;

use super::coll_bufs::BlockLayout;
use super::comm::Comm;
use super::neighbor;
use super::plans::{self, inter};
use crate::collective::plan::{EMPTY_BUF, Plan};
use crate::error::Result;
use crate::op::Op;

/// A collective and its arguments, which are those of the blocking call of the same name.
#[derive(Clone, Copy, Debug)]
pub struct Collective<'a> {
    pub(crate) call: &'static Call,
    /// One buffer, or one for each rank.
    pub(crate) send: &'a [Buf],
    /// As `send`.
    pub(crate) recv: &'a [Buf],
    pub(crate) send_layout: BlockLayout<'a>,
    pub(crate) recv_layout: BlockLayout<'a>,
    pub(crate) op: &'a Op,
    pub(crate) root: i32,
}

type PlanFn = for<'a> fn(&Comm, &'static str, &Collective<'a>) -> Result<Plan<'a>>;

/// The names of a call, and the function that checks its arguments and returns its plan.
#[derive(Debug)]
pub(crate) struct Call {
    pub(super) blocking: &'static str,
    pub(super) started: &'static str,
    pub(super) init: &'static str,
    pub(super) plan: PlanFn,
    /// The same for an intercommunicator.
    pub(super) inter: PlanFn,
}

macro_rules! calls {
    ($($call:ident = $name:literal $plan:path, $inter:path;)*) => {$(
        pub(crate) const $call: &Call = &Call {
            blocking: $name,
            started: concat!("i", $name),
            init: concat!($name, "_init"),
            plan: $plan,
            inter: $inter,
        };
    )*};
}

calls! {
    BARRIER = "barrier" plans::barrier, inter::barrier;
    BCAST = "bcast" plans::bcast, inter::bcast;
    REDUCE = "reduce" plans::reduce, inter::reduce;
    ALLREDUCE = "allreduce" plans::allreduce, inter::allreduce;
    REDUCE_SCATTER = "reduce_scatter" plans::reduce_scatter, inter::reduce_scatter;
    REDUCE_SCATTER_BLOCK = "reduce_scatter_block" plans::reduce_scatter_block, inter::reduce_scatter_block;
    SCAN = "scan" plans::scan, inter::undefined;
    EXSCAN = "exscan" plans::exscan, inter::undefined;
    GATHER = "gather" plans::gather, inter::gather;
    GATHERV = "gatherv" plans::gather, inter::gather;
    SCATTER = "scatter" plans::scatter, inter::scatter;
    SCATTERV = "scatterv" plans::scatter, inter::scatter;
    ALLGATHER = "allgather" plans::allgather, inter::allgather;
    ALLGATHERV = "allgatherv" plans::allgather, inter::allgather;
    ALLTOALL = "alltoall" plans::alltoall, inter::alltoall;
    ALLTOALLV = "alltoallv" plans::alltoall, inter::alltoall;
    ALLTOALLW = "alltoallw" plans::alltoallw, inter::alltoallw;
    NEIGHBOR_ALLGATHER = "neighbor_allgather" neighbor::allgather, inter::undefined;
    NEIGHBOR_ALLGATHERV = "neighbor_allgatherv" neighbor::allgather, inter::undefined;
    NEIGHBOR_ALLTOALL = "neighbor_alltoall" neighbor::alltoall, inter::undefined;
    NEIGHBOR_ALLTOALLV = "neighbor_alltoallv" neighbor::alltoall, inter::undefined;
    NEIGHBOR_ALLTOALLW = "neighbor_alltoallw" neighbor::alltoallw, inter::undefined;
}

impl Collective<'_> {
    /// The operation of a call that has none.
    pub(crate) const NO_OP: &'static Op = &Op::NoOp;
}

impl<'a> Collective<'a> {
    #[inline]
    pub(crate) fn with_lists(call: &'static Call, send: &'a [Buf], recv: &'a [Buf]) -> Self {
        Collective {
            call,
            send,
            recv,
            send_layout: BlockLayout::EvenSplit,
            recv_layout: BlockLayout::EvenSplit,
            op: Collective::NO_OP,
            root: 0,
        }
    }

    #[inline]
    fn new(call: &'static Call, send: &'a Buf, recv: &'a Buf) -> Self {
        Collective::with_lists(call, from_ref(send), from_ref(recv))
    }

    /// Checks the arguments, and returns the plan of the call with the name `call`.
    pub(super) fn plan(&self, comm: &Comm, call: &'static str) -> Result<Plan<'a>> {
        let plan = if comm.is_inter() { self.call.inter } else { self.call.plan };
        plan(comm, call, self)
    }

    /// Returns the only send buffer.
    #[inline]
    pub(super) fn send(&self) -> &'a Buf {
        self.send.first().unwrap_or(EMPTY_BUF)
    }

    /// Returns the only receive buffer.
    #[inline]
    pub(super) fn recv(&self) -> &'a Buf {
        self.recv.first().unwrap_or(EMPTY_BUF)
    }

    /// Describes a call of [`barrier`](super::barrier).
    #[inline]
    pub fn barrier() -> Self {
        Collective::new(BARRIER, EMPTY_BUF, EMPTY_BUF)
    }

    /// Describes a call of [`bcast`](super::bcast).
    #[inline]
    pub fn bcast(items: &'a Buf, root: i32) -> Self {
        Collective { root, ..Collective::new(BCAST, items, items) }
    }

    /// Describes a call of [`reduce`](super::reduce).
    #[inline]
    pub fn reduce(send: &'a Buf, recv: &'a Buf, op: &'a Op, root: i32) -> Self {
        Collective { op, root, ..Collective::new(REDUCE, send, recv) }
    }

    /// Describes a call of [`allreduce`](super::allreduce).
    #[inline]
    pub fn allreduce(send: &'a Buf, recv: &'a Buf, op: &'a Op) -> Self {
        Collective { op, ..Collective::new(ALLREDUCE, send, recv) }
    }

    /// Describes a call of [`reduce_scatter`](super::reduce_scatter).
    #[inline]
    pub fn reduce_scatter(send: &'a Buf, recv: &'a Buf, counts: &'a [usize], op: &'a Op) -> Self {
        // The plan computes the displacements.
        let send_layout = BlockLayout::Varying { counts, displacements: &[] };
        Collective { op, send_layout, ..Collective::new(REDUCE_SCATTER, send, recv) }
    }

    /// Describes a call of [`reduce_scatter_block`](super::reduce_scatter_block).
    #[inline]
    pub fn reduce_scatter_block(send: &'a Buf, recv: &'a Buf, op: &'a Op) -> Self {
        Collective { op, ..Collective::new(REDUCE_SCATTER_BLOCK, send, recv) }
    }

    /// Describes a call of [`exscan`](super::exscan).
    #[inline]
    pub fn exscan(send: &'a Buf, recv: &'a Buf, op: &'a Op) -> Self {
        Collective { op, ..Collective::new(EXSCAN, send, recv) }
    }

    /// Describes a call of [`scan`](super::scan).
    #[inline]
    pub fn scan(send: &'a Buf, recv: &'a Buf, op: &'a Op) -> Self {
        Collective { op, ..Collective::new(SCAN, send, recv) }
    }

    /// Describes a call of [`gather`](super::gather).
    #[inline]
    pub fn gather(send: &'a Buf, recv: &'a Buf, layout: BlockLayout<'a>, root: i32) -> Self {
        let call = layout.choose(GATHER, GATHERV);
        Collective { recv_layout: layout, root, ..Collective::new(call, send, recv) }
    }

    /// Describes a call of [`scatter`](super::scatter).
    #[inline]
    pub fn scatter(send: &'a Buf, layout: BlockLayout<'a>, recv: &'a Buf, root: i32) -> Self {
        let call = layout.choose(SCATTER, SCATTERV);
        Collective { send_layout: layout, root, ..Collective::new(call, send, recv) }
    }

    /// Describes a call of [`allgather`](super::allgather).
    #[inline]
    pub fn allgather(send: &'a Buf, recv: &'a Buf, layout: BlockLayout<'a>) -> Self {
        let call = layout.choose(ALLGATHER, ALLGATHERV);
        Collective { recv_layout: layout, ..Collective::new(call, send, recv) }
    }

    /// Describes a call of [`alltoall`](super::alltoall).
    #[inline]
    pub fn alltoall(send: &'a Buf, layout: BlockLayout<'a>, recv: &'a Buf, back: BlockLayout<'a>) -> Self {
        let call = back.choose(ALLTOALL, ALLTOALLV);
        Collective { send_layout: layout, recv_layout: back, ..Collective::new(call, send, recv) }
    }

    /// Describes a call of [`alltoallw`](super::alltoallw).
    #[inline]
    pub fn alltoallw(send: &'a [Buf], recv: &'a [Buf]) -> Self {
        Collective::with_lists(ALLTOALLW, send, recv)
    }

    /// Describes a call of [`neighbor_allgather`](super::neighbor_allgather).
    #[inline]
    pub fn neighbor_allgather(send: &'a Buf, recv: &'a Buf, layout: BlockLayout<'a>) -> Self {
        let call = layout.choose(NEIGHBOR_ALLGATHER, NEIGHBOR_ALLGATHERV);
        Collective { recv_layout: layout, ..Collective::new(call, send, recv) }
    }

    /// Describes a call of [`neighbor_alltoall`](super::neighbor_alltoall).
    #[inline]
    pub fn neighbor_alltoall(
        send: &'a Buf,
        layout: BlockLayout<'a>,
        recv: &'a Buf,
        back: BlockLayout<'a>,
    ) -> Self {
        let call = back.choose(NEIGHBOR_ALLTOALL, NEIGHBOR_ALLTOALLV);
        Collective { send_layout: layout, recv_layout: back, ..Collective::new(call, send, recv) }
    }

    /// Describes a call of [`neighbor_alltoallw`](super::neighbor_alltoallw).
    #[inline]
    pub fn neighbor_alltoallw(send: &'a [Buf], recv: &'a [Buf]) -> Self {
        Collective::with_lists(NEIGHBOR_ALLTOALLW, send, recv)
    }
}
