//! A rank of a case: its engine, its channel, and short methods to send and receive.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use mpj_datatypes::Equivalent;

use super::owned::{Item, Layout, Receiving, Sending};
use crate::{
    Channel, Coalesce, Engine, Envelope, Exit, Fault, Group, Mode, Pattern, Roster, Sent, Source, Started,
};

/// The context of [`Member::world`]. Programs that run a case must not use this context or [`CONTROL`].
const WORLD: u64 = 1 << 62;
/// The context of the channel that barriers use.
const CONTROL: u64 = WORLD + 1;

/// A rank of a case, on one channel.
#[derive(Clone, Debug)]
pub struct Member {
    /// The engine of the rank.
    pub engine: Arc<Engine>,
    /// The channel. [`join`](Self::join) sets it to the channel of all ranks of the job.
    pub world: Arc<Channel>,
    /// This rank in the channel.
    pub rank: u32,
    /// The number of ranks that messages can name: those of the channel or, in an intercommunicator, of the remote group.
    pub size: u32,
    control: Arc<Channel>,
    dead: Arc<AtomicBool>,
    sends: Arc<AtomicU32>,
}

impl Member {
    /// Joins the channels of all ranks: one for messages and one for barriers.
    ///
    /// # Errors
    /// Those of [`Engine::join`].
    pub fn join(engine: Arc<Engine>) -> Result<Self, Fault> {
        let (rank, size) = (engine.site().rank, engine.site().size);
        let everybody = Group::Range { first: 0, len: size };
        let world = engine.join(WORLD, everybody.clone(), rank)?;
        let control = engine.join(CONTROL, everybody, rank)?;
        let (dead, sends) = (Arc::default(), Arc::new(AtomicU32::new(rank)));
        Ok(Member { engine, world, rank, size, control, dead, sends })
    }

    /// Returns the same rank on another channel.
    pub fn on(&self, channel: &Arc<Channel>) -> Self {
        let world = Arc::clone(channel);
        Member { rank: world.rank(), size: world.group().size(), world, ..self.clone() }
    }

    /// Joins a channel and returns this rank on it; panics if the engine cannot join.
    pub fn join_also(&self, context: u64, group: Group, rank: u32) -> Self {
        self.on(&self.engine.join(context, group, rank).unwrap())
    }

    /// Joins the channel of an intercommunicator between the ranks of the job below `first`, and the others in reverse
    /// order. Its `size` is that of the remote group. Panics if the engine cannot join.
    pub fn join_inter(&self, context: u64, first: u32) -> Self {
        let (me, size) = (self.engine.site().rank, self.engine.site().size);
        let (low, high) = (Group::Range { first: 0, len: first }, (first..size).rev().collect());
        let (own, remote) = if me < first { (low, high) } else { (high, low) };
        let rank = own.rank(crate::PeerId(me)).unwrap();
        self.on(&self.engine.join_inter(context, own, rank, remote).unwrap())
    }

    /// Returns the rank after this one.
    pub fn next(&self) -> u32 {
        (self.rank + 1) % self.size
    }

    /// Returns the rank before this one.
    pub fn previous(&self) -> u32 {
        (self.rank + self.size - 1) % self.size
    }

    /// Returns all ranks except this one.
    pub fn others(&self) -> impl Iterator<Item = u32> + use<> {
        let me = self.rank;
        (0..self.size).filter(move |rank| *rank != me)
    }

    /// Returns the eager limit and the largest frame body of each open device, in bytes.
    pub fn protocol_limits(&self) -> Vec<usize> {
        self.engine.devices.iter().flat_map(|d| [d.caps().eager_limit, d.caps().max_send_size]).collect()
    }

    /// Returns a length in bytes for which every open device uses rendezvous.
    pub fn rendezvous_len(&self) -> usize {
        self.protocol_limits().into_iter().max().unwrap_or(0) * 2 + 13
    }

    /// Returns the roster, where exits are reported.
    pub fn roster(&self) -> &Arc<Roster> {
        &self.engine.roster
    }

    /// Reports this rank as dead; the case must not use it afterwards.
    pub fn report_dead(&self) {
        self.dead.store(true, Ordering::SeqCst);
        self.roster().report(self.engine.site().rank, Exit::Died("killed by the case".into()));
    }

    /// Returns whether [`report_dead`](Self::report_dead) was called.
    pub fn is_dead(&self) -> bool {
        self.dead.load(Ordering::SeqCst)
    }

    /// Waits until all ranks of the job have called this method.
    pub fn barrier(&self) {
        let on = self.on(&self.control);
        let mut step = 1;
        while step < on.size {
            let tag = step as i32;
            let sent = on.isend((on.rank + step) % on.size, tag, vec![0u8]);
            on.recv::<u8>(((on.rank + on.size - step) % on.size) as i32, tag, 1);
            sent.wait(&on).unwrap();
            step *= 2;
        }
    }

    /// Returns when the next send leaves this rank. Both values alternate, in runs of 1, 1, 2, 2, 4, 4, … sends. Rank 0
    /// starts with the first run, and rank 1 with the second.
    fn next_coalesce(&self) -> Coalesce {
        let n = self.sends.fetch_add(1, Ordering::Relaxed).saturating_add(2);
        if n & (1 << (n.ilog2() - 1)) == 0 { Coalesce::No } else { Coalesce::Allowed }
    }

    /// Starts a send by [`Engine::send_from`], as programs do. The engine may coalesce some of the sends.
    ///
    /// # Errors
    /// Those of [`Engine::send_from`].
    pub(super) fn start_source(&self, to: u32, tag: i32, source: Source, mode: Mode) -> Result<Sent, Fault> {
        self.send_as(to, tag, source, mode, self.next_coalesce())
    }

    /// As [`start_source`](Self::start_source), but the caller decides when the message leaves.
    pub(super) fn send_as(
        &self,
        to: u32,
        tag: i32,
        mut source: Source,
        mode: Mode,
        coalesce: Coalesce,
    ) -> Result<Sent, Fault> {
        let sent = self.engine.send_from(&self.world, to, tag.into(), &mut source, mode, coalesce);
        sent.map_err(|fault| *fault)
    }

    /// Flushes a coalesced send, or waits for a pending one.
    pub(super) fn wait_sent(&self, sent: Sent) -> Result<(), Fault> {
        match sent {
            Sent::Posted => Ok(()),
            Sent::Coalesced => {
                self.engine.flush_coalesced();
                Ok(())
            }
            Sent::Pending(completion) => self.engine.wait(Started::Pending(completion)).map(drop),
        }
    }

    /// Starts a send of the items of `data` that `layout` selects.
    ///
    /// # Errors
    /// Those of [`Engine::send_from`].
    pub(super) fn start<T: Item>(
        &self,
        to: u32,
        tag: i32,
        data: Vec<T>,
        layout: Layout,
        mode: Mode,
    ) -> Result<Sending<T>, Fault> {
        Sending::start(data, layout, |source| self.start_source(to, tag, source, mode))
    }

    /// Starts a send of everything in `data`.
    ///
    /// # Panics
    /// The send fails.
    pub fn isend<T: Item>(&self, to: u32, tag: i32, data: Vec<T>) -> Sending<T> {
        self.try_isend(to, tag, data).unwrap()
    }

    /// Starts a send of everything in `data`, to a rank that might have died.
    ///
    /// # Errors
    /// Those of [`Engine::send_from`].
    pub fn try_isend<T: Item>(&self, to: u32, tag: i32, data: Vec<T>) -> Result<Sending<T>, Fault> {
        let layout = Layout::all(&data);
        self.start(to, tag, data, layout, Mode::Standard)
    }

    /// Starts a synchronous send of everything in `data`.
    ///
    /// # Panics
    /// The send fails.
    pub fn issend<T: Item>(&self, to: u32, tag: i32, data: Vec<T>) -> Sending<T> {
        let layout = Layout::all(&data);
        self.start(to, tag, data, layout, Mode::Synchronous).unwrap()
    }

    /// Sends a copy of `data`.
    ///
    /// # Panics
    /// The send fails.
    pub fn send<T: Item>(&self, to: u32, tag: i32, data: &[T]) {
        self.isend(to, tag, data.to_vec()).wait(self).unwrap();
    }

    /// Starts a receive into the items of `memory` that `layout` selects.
    pub(super) fn post<T: Item>(&self, from: i32, tag: i32, memory: Vec<T>, layout: Layout) -> Receiving<T> {
        let pattern = Pattern { source: from, tag };
        Receiving::start(memory, layout, |target| self.engine.recv(&self.world, pattern, target))
    }

    /// Starts a receive of up to `len` items.
    pub fn irecv<T: Item>(&self, from: i32, tag: i32, len: usize) -> Receiving<T> {
        let memory = vec![T::default(); len];
        let layout = Layout::all(&memory);
        self.post(from, tag, memory, layout)
    }

    /// Receives up to `len` items and returns those that arrived; panics if the receive fails.
    pub fn recv<T: Item>(&self, from: i32, tag: i32, len: usize) -> (Envelope, Vec<T>) {
        let (outcome, memory) = self.irecv::<T>(from, tag, len).wait(self);
        let envelope = outcome.unwrap_or_else(|fault| panic!("receive from {from} with tag {tag}: {fault}"));
        (envelope, truncate_to_message(&envelope, memory))
    }

    /// Waits for a receive and returns the items that arrived; panics if the receive fails.
    pub fn received<T: Item>(&self, receiving: Receiving<T>) -> (Envelope, Vec<T>) {
        let (outcome, memory) = receiving.wait(self);
        let envelope = outcome.unwrap();
        (envelope, truncate_to_message(&envelope, memory))
    }

    /// Receives into the items that `layout` selects and returns all of `memory`; panics if the receive fails.
    pub(super) fn recv_into<T: Item>(&self, from: i32, tag: i32, memory: Vec<T>, layout: Layout) -> Vec<T> {
        let (outcome, memory) = self.post(from, tag, memory, layout).wait(self);
        outcome.unwrap();
        memory
    }
}

fn truncate_to_message<T: Equivalent>(envelope: &Envelope, mut memory: Vec<T>) -> Vec<T> {
    memory.truncate(envelope.bytes / size_of::<T>());
    memory
}
