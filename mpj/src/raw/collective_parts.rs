//! Collectives that are parts of another call.

use std::borrow::Cow;

use mpj_collectives::{Arguments, BufIndex, Operation, Span, Step};
use mpj_devices::Buf;

use super::coll_bufs::CollBuf;
use crate::collective::blocking::BlockingCall;
use crate::collective::call_id::CallDigest;
use crate::collective::plan::{EMPTY_BUF, Plan, PlanBuffers};
use crate::error::Result;

/// All parts of a call have the same digest, which does not contain the algorithm. A part ignores the parameters that
/// select algorithms: its algorithm is fixed, or depends on a number of bytes that all ranks know.
impl BlockingCall<'_> {
    /// # Safety
    /// The contract of [`bcast`](super::bcast).
    pub(crate) unsafe fn bcast(&mut self, digest: CallDigest, items: &Buf, root: u32) -> Result<()> {
        let call = Arguments { root, count: items.count(), ..self.arguments() };
        // SAFETY: the caller's contract; the steps of the root only read the items.
        unsafe { self.run_part(digest, (Operation::Bcast, "binomial"), &call, [items, items]) }
    }

    /// Waits until every rank has called this method.
    pub(crate) fn barrier(&mut self, digest: CallDigest) -> Result<()> {
        let call = self.arguments();
        // SAFETY: the steps access no memory.
        unsafe { self.run_part(digest, (Operation::Barrier, "dissemination"), &call, [EMPTY_BUF; 2]) }
    }

    pub(crate) fn bcast_words(&mut self, digest: CallDigest, words: &mut [u64], root: u32) -> Result<()> {
        let items = Buf::slice_mut(words);
        // SAFETY: the words are exclusively borrowed until the call returns.
        unsafe { self.bcast(digest, &items, root) }
    }

    /// Gathers items at `root`, placed by `blocks`: a function from a rank to the first item and the number of items.
    ///
    /// # Safety
    /// The contract of [`gather`](super::gather); the blocks lie in `recv`.
    pub(crate) unsafe fn gather(
        &mut self,
        digest: CallDigest,
        send: &Buf,
        recv: &Buf,
        blocks: &dyn Fn(u32) -> (usize, usize),
        root: u32,
    ) -> Result<()> {
        let (own, recv_block) = (Some(send.full_span(BufIndex::SEND)), span_of(BufIndex::RECV, blocks));
        let call = Arguments { root, own, recv: &recv_block, ..self.arguments() };
        // SAFETY: the caller's contract.
        unsafe { self.run_part(digest, (Operation::Gather, "linear"), &call, [send, recv]) }
    }

    /// Scatters the items of `root`, placed by `blocks`.
    ///
    /// # Safety
    /// The contract of [`scatter`](super::scatter); the blocks lie in `send`.
    pub(crate) unsafe fn scatter(
        &mut self,
        digest: CallDigest,
        send: &Buf,
        blocks: &dyn Fn(u32) -> (usize, usize),
        recv: &Buf,
        root: u32,
    ) -> Result<()> {
        let (into, send_block) = (Some(recv.full_span(BufIndex::RECV)), span_of(BufIndex::SEND, blocks));
        let call = Arguments { root, into, send: &send_block, ..self.arguments() };
        // SAFETY: the caller's contract.
        unsafe { self.run_part(digest, (Operation::Scatter, "linear"), &call, [send, recv]) }
    }

    /// Gathers items at `root` into one buffer per rank. This rank sends `bufs[0]`, and at the root `bufs[1 + r]`
    /// receives from rank `r`.
    ///
    /// # Safety
    /// The contract of a send buffer for `bufs[0]`, and of a receive buffer for each of the others.
    pub(crate) unsafe fn gather_into_bufs(
        &mut self,
        digest: CallDigest,
        bufs: &[Buf],
        root: u32,
    ) -> Result<()> {
        let span =
            |index: u32| Span::new(BufIndex::new(index), 0, bufs.get(index as usize).map_or(0, Buf::count));
        let recv_block = |rank| span(1 + rank);
        let call = Arguments { root, own: Some(span(0)), recv: &recv_block, ..self.arguments() };
        // SAFETY: the caller's contract.
        unsafe { self.run_list(digest, (Operation::Gather, "linear"), &call, bufs) }
    }

    /// Gathers bytes at every rank, in one buffer per rank: `bufs[r]` receives from rank `r`, and this rank sends its
    /// own. The total number of bytes decides on the algorithm, so it must be the same on all ranks.
    ///
    /// # Safety
    /// The contract of a send buffer for this rank's buffer, and of a receive buffer for each of the others.
    pub(crate) unsafe fn allgather_bufs(&mut self, digest: CallDigest, bufs: &[Buf]) -> Result<()> {
        let total = bufs.iter().fold(0usize, |sum, buf| sum.saturating_add(buf.count()));
        let algorithm = if total <= LINEAR_MAX_BYTES { "linear" } else { "ring" };
        let recv_block = |rank: u32| bufs[rank as usize].full_span(BufIndex::new(rank));
        let call = Arguments { recv: &recv_block, ..self.arguments() };
        // SAFETY: the caller's contract; the steps only read this rank's own items, which are in place.
        unsafe { self.run_list(digest, (Operation::Allgather, algorithm), &call, bufs) }
    }

    /// Sends the items of the first half of the buffers, one for each rank, and receives into the second half.
    ///
    /// # Safety
    /// The contract of a send buffer for the first half, and of a receive buffer for the second half.
    pub(crate) unsafe fn alltoall_bufs(&mut self, digest: CallDigest, bufs: &[Buf]) -> Result<()> {
        let size = self.size();
        let span = |index: u32| bufs[index as usize].full_span(BufIndex::new(index));
        let recv_block = |rank| span(size + rank);
        let call = Arguments { send: &span, recv: &recv_block, ..self.arguments() };
        // SAFETY: the caller's contract.
        unsafe { self.run_list(digest, (Operation::Alltoall, "pairwise"), &call, bufs) }
    }

    /// Sends each rank one of the words, and returns those that the ranks send.
    pub(crate) fn alltoall_words(&mut self, digest: CallDigest, words: &[u64]) -> Result<Vec<u64>> {
        let mut received = vec![0u64; words.len()];
        let (send_block, recv_block) = (
            |rank| Span::new(BufIndex::SEND, rank as usize, 1),
            |rank| Span::new(BufIndex::RECV, rank as usize, 1),
        );
        let call = Arguments { send: &send_block, recv: &recv_block, ..self.arguments() };
        let (send, recv) = (Buf::slice(words), Buf::slice_mut(&mut received));
        // SAFETY: both buffers are borrowed for the call and do not overlap; the steps only read the first.
        unsafe { self.run_part(digest, (Operation::Alltoall, "linear"), &call, [&send, &recv]) }?;
        Ok(received)
    }

    /// Gathers `words`, whose length is the same on all ranks, at every rank.
    pub(crate) fn allgather_words(&mut self, digest: CallDigest, words: &[u64]) -> Result<Vec<u64>> {
        let len = words.len();
        let mut all = vec![0u64; len * self.size() as usize];
        let algorithm = if size_of_val(&*all) <= LINEAR_MAX_BYTES { "linear" } else { "ring" };
        let recv_block = |rank: u32| Span::new(BufIndex::RECV, rank as usize * len, len);
        let own = Some(Span::new(BufIndex::SEND, 0, len));
        let call = Arguments { own, recv: &recv_block, ..self.arguments() };
        let (send, recv) = (Buf::slice(words), Buf::slice_mut(&mut all));
        // SAFETY: both buffers are borrowed for the call and do not overlap; the steps only read the first.
        unsafe { self.run_part(digest, (Operation::Allgather, algorithm), &call, [&send, &recv]) }?;
        Ok(all)
    }

    fn arguments(&self) -> Arguments<'static> {
        Arguments::new(self.rank(), self.size())
    }

    /// # Safety
    /// The contract of [`run`](Self::run).
    unsafe fn run_list(
        &mut self,
        digest: CallDigest,
        algorithm: (Operation, &str),
        call: &Arguments<'_>,
        bufs: &[Buf],
    ) -> Result<()> {
        let user = PlanBuffers::List { bufs: Cow::Borrowed(bufs), temp: Vec::new() };
        let plan = Plan { digest, steps: steps_of(algorithm, call), user, op: None };
        // SAFETY: the caller's contract.
        unsafe { self.run(plan) }
    }

    /// # Safety
    /// The contract of [`run`](Self::run).
    pub(super) unsafe fn run_part(
        &mut self,
        digest: CallDigest,
        algorithm: (Operation, &str),
        call: &Arguments<'_>,
        [send, recv]: [&Buf; 2],
    ) -> Result<()> {
        // SAFETY: the caller's contract.
        unsafe { self.run(Plan::new(digest, steps_of(algorithm, call), send, recv)) }
    }
}

/// The number of bytes up to which an allgather inside another call is linear.
pub(super) const LINEAR_MAX_BYTES: usize = 64 << 10;

pub(super) fn steps_of((operation, name): (Operation, &str), call: &Arguments<'_>) -> Vec<Step> {
    let mut steps = Vec::new();
    let algorithm = mpj_collectives::algorithm_named(operation, name).expect("the table has this algorithm");
    (algorithm.steps)(call, &mut steps);
    steps
}

fn span_of(buf: BufIndex, blocks: &dyn Fn(u32) -> (usize, usize)) -> impl Fn(u32) -> Span {
    move |rank| {
        let (at, count) = blocks(rank);
        Span::new(buf, at, count)
    }
}
