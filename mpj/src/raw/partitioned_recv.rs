//! Partitioned receives: one message whose parts can be used as they arrive (MPI 4.1 §4.2).
//!
//! ```text
//!              start              handshake has arrived           all parts have arrived, wait
//!   INACTIVE ---------> UNMATCHED ---------------------> POSTED ------------------------------> INACTIVE
//! ```
//! The handshake arrives once. Until then a task of the engine waits for it and posts the receives of the round, even if
//! this rank waits in another call. Afterwards a start posts the receives of its round at once. If the request is dropped
//! before the handshake has arrived, a later request gets it.

use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mpj_devices::{
    Buf, Channel, Completion, Engine, Envelope, KeepAlive, Listener, Pattern, ProgressTask, Receive, Target,
    run_deferred_drops, with_deferred_drops,
};

use super::comm::Comm;
use super::p2p::{check_disjoint, pattern};
use super::part_channel::{items_per_part, no_such_part, part_tag};
use super::part_handshake::{Link, SenderParts};
use super::persistent::{PersistentOperation, StoredBuf, still_active};
use super::request::OpInfo;
use super::{ANY_SOURCE, ANY_TAG, PROC_NULL};
use crate::error::{Error, ErrorClass, Result};
use crate::status::Status;

const INIT: &str = "precv_init";
const ARRIVED: &str = "parrived";

/// The request's handle of a partitioned receive.
#[derive(Debug)]
pub(super) struct PartReceiver(Arc<PartRecv>);

/// A partitioned receive, which the handle shares with the task of an unmatched round.
#[derive(Debug)]
pub(super) struct PartRecv {
    comm: Comm,
    /// `None` if the source is `PROC_NULL`.
    link: Option<Link>,
    source: i32,
    tag: i32,
    buf: StoredBuf,
    parts: usize,
    bytes_per_part: usize,
    /// Kept by each receive: the owner of the buffer, and the communicator.
    keep: KeepAlive,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    round: Round,
    /// The parts of the sender, once the handshake has arrived.
    sender: Option<Result<SenderParts>>,
    /// The receives of the round that use the buffer: if it did not fail, one for each part of the sender.
    receives: Vec<Completion>,
    /// The number of the first receives that are known to be complete.
    complete: usize,
}

#[derive(Debug)]
enum Round {
    Inactive,
    Unmatched,
    Posted,
    Failed(Error),
}

/// Creates a partitioned receive into the items of `buf`, in `parts` parts of the same length (MPI_Precv_init). The
/// request is inactive. After a [start](PersistentOperation::start), [`parrived`](PersistentOperation::parrived) tests each
/// part. See [`psend_init`](super::psend_init).
///
/// # Errors
/// As [`psend_init`](super::psend_init); the source or the tag is a wildcard, or items overlap.
pub fn precv_init(
    comm: &Comm,
    buf: Buf,
    parts: usize,
    source: i32,
    tag: i32,
    keep: Option<KeepAlive>,
) -> Result<PersistentOperation> {
    check_source(comm, source, tag)?;
    let items = check_disjoint(INIT, &buf).and_then(|()| items_per_part(INIT, buf.count(), parts));
    let items = items.map_err(|error| comm.named(error))?;
    let bytes_per_part = buf.part(0, items).bytes().map_err(|error| Error::buf(INIT, error))?;
    let link = if source == PROC_NULL { None } else { Some(Link::open(comm, source, tag)?) };
    let state = State { round: Round::Inactive, sender: None, receives: Vec::new(), complete: 0 };
    let (comm, buf, state) = (comm.clone(), StoredBuf(buf), Mutex::new(state));
    // A round that has matched completes even if its request and the communicator are dropped.
    let keep: KeepAlive = Arc::new((keep, comm.clone()));
    let shared = PartRecv { comm, link, source, tag, buf, parts, bytes_per_part, keep, state };
    Ok(PersistentOperation::from(PartReceiver(Arc::new(shared))))
}

fn check_source(comm: &Comm, source: i32, tag: i32) -> Result<()> {
    if source == ANY_SOURCE {
        let why = "ANY_SOURCE is not allowed: name the sender";
        return Err(comm.named(Error::new(ErrorClass::Rank, INIT, why)));
    }
    if tag == ANY_TAG {
        let why = "ANY_TAG is not allowed: name the tag";
        return Err(comm.named(Error::new(ErrorClass::Tag, INIT, why)));
    }
    if source == PROC_NULL { comm.check_not_freed(INIT) } else { pattern(comm, INIT, source, tag).map(drop) }
}

impl PartReceiver {
    /// # Safety
    /// The contract of a receive buffer, until the operation has completed.
    pub(super) unsafe fn start(&mut self) -> Result<()> {
        let mut state = self.state();
        if !matches!(state.round, Round::Inactive) {
            return Err(self.comm.named(still_active(INIT)));
        }
        self.comm.begin_part_round(INIT)?;
        state.receives.clear();
        state.complete = 0;
        state.round = if self.link.is_some() { Round::Unmatched } else { Round::Posted };
        drop(state);
        if let Some(link) = &self.link
            && !self.0.poll()
        {
            let task = Arc::clone(&self.0) as Arc<dyn ProgressTask>;
            self.comm.engine().spawn(&link.channel, task);
        }
        Ok(())
    }

    pub(super) fn wait(&mut self) -> Result<Status> {
        let (engine, info, channel) = self.wait_target();
        let outcome = engine.wait_for(&mut (), |()| self.outcome(), |()| info.wait_reason(channel));
        self.end_round();
        outcome
    }
}

impl Deref for PartReceiver {
    type Target = PartRecv;

    fn deref(&self) -> &PartRecv {
        &self.0
    }
}

impl Drop for PartReceiver {
    fn drop(&mut self) {
        if let Some(Link { channel, handshake, .. }) = &self.link
            && !self.comm.engine().cancel_receive(channel, handshake)
        {
            // The handshake has arrived, so the sender waits until the parts of the round have been received.
            self.with_state(|_| ());
        }
        self.end_round();
    }
}

impl ProgressTask for PartRecv {
    /// Posts the receives of the round if the handshake has arrived. The task also ends if the round does, or if this
    /// rank leaves: it must not wait for a handshake then.
    fn poll(&self) -> bool {
        self.with_state(|state| !matches!(state.round, Round::Unmatched)) || self.comm.engine().is_closing()
    }
}

impl PartRecv {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `f` with the state, after the receives of the round were posted if that is due.
    fn with_state<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        // A receive that is posted can complete a send of this rank, whose memory is then dropped.
        let value = with_deferred_drops(|| {
            let mut state = self.state();
            self.advance(&mut state);
            f(&mut state)
        });
        run_deferred_drops();
        value
    }

    pub(super) fn is_active(&self) -> bool {
        !matches!(self.state().round, Round::Inactive)
    }

    /// Posts the receives of the round if that is due and the handshake has arrived.
    fn advance(&self, state: &mut State) {
        let (Round::Unmatched, Some(link)) = (&state.round, &self.link) else { return };
        if state.sender.is_none() {
            state.sender = link.sender_parts();
        }
        let posted = match &state.sender {
            None => return,
            Some(Err(error)) => Err(error.clone()),
            Some(Ok(sender)) => self.post_all(link, sender, &mut state.receives),
        };
        state.round = posted.map_or_else(|error| Round::Failed(self.comm.named(error)), |()| Round::Posted);
    }

    fn post_all(&self, link: &Link, sender: &SenderParts, receives: &mut Vec<Completion>) -> Result<()> {
        let item = self.buf.0.datatype().size();
        let no_memory =
            |error| Error::new(ErrorClass::NoMem, INIT, format!("{} parts: {error}", sender.parts));
        let fits = self
            .check_layout(sender, item)
            .and_then(|()| receives.try_reserve(sender.parts).map_err(no_memory));
        let items = if fits.is_ok() { sender.bytes.checked_div(item).unwrap_or(0) } else { 0 };
        for part in 0..sender.parts {
            // A message that does not fit is refused, so that its sender does not wait for ever.
            let buf = if fits.is_ok() { self.buf.0.part(part * items, items) } else { Buf::empty() };
            // SAFETY: the contract of `start`; the parts are disjoint, because items do not overlap.
            let target = unsafe { Target::new(buf, Some(Arc::clone(&self.keep))) };
            let target = target.map_err(|error| Error::buf(INIT, error))?.with_path(self.comm.path());
            let pattern = Pattern { source: self.source, tag: part_tag(sender.first + part as u32) };
            let posted = self.comm.engine().post(&link.channel, pattern, Receive::new(target));
            let receive = posted.map_err(|fault| self.comm.fault(INIT, *fault))?;
            // The round does not wait for a part that it refuses, which uses no memory.
            if fits.is_ok() {
                receives.push(receive);
            }
        }
        fits
    }

    /// Checks that the parts of both sides are the same message, and that each part of the sender consists of items.
    fn check_layout(&self, sender: &SenderParts, item: usize) -> Result<()> {
        let SenderParts { parts, bytes, .. } = *sender;
        if parts * bytes != self.parts * self.bytes_per_part {
            let why = format!(
                "rank {} sends {parts} parts of {bytes} bytes, the receive has {} of {} bytes",
                self.source, self.parts, self.bytes_per_part
            );
            return Err(Error::new(ErrorClass::Truncate, INIT, why));
        }
        if bytes > 0 && !bytes.is_multiple_of(item) {
            let why = format!(
                "rank {} sends parts of {bytes} bytes, which are not whole items of {item} bytes",
                self.source
            );
            return Err(Error::new(ErrorClass::Type, INIT, why));
        }
        Ok(())
    }

    /// Makes progress once if the part has not arrived, and returns whether it has; true if the request is inactive.
    pub(super) fn parrived(&self, part: usize) -> Result<bool> {
        if part >= self.parts {
            return Err(self.comm.named(no_such_part(ARRIVED, part, self.parts)));
        }
        if self.has_arrived(part)? {
            return Ok(true);
        }
        self.comm.engine().progress();
        self.has_arrived(part)
    }

    fn has_arrived(&self, part: usize) -> Result<bool> {
        self.with_state(|state| self.has_arrived_in(state, part))
    }

    fn has_arrived_in(&self, state: &State, part: usize) -> Result<bool> {
        let sender = match (&state.round, &state.sender) {
            (Round::Failed(error), _) => return Err(error.clone()),
            (Round::Posted, Some(Ok(sender))) => sender,
            (Round::Unmatched, _) => return Ok(false),
            (Round::Inactive | Round::Posted, _) => return Ok(true),
        };
        let range = part * self.bytes_per_part..(part + 1) * self.bytes_per_part;
        for receive in &state.receives[sender.overlap(range)] {
            match receive.outcome() {
                None => return Ok(false),
                Some(Ok(_)) => (),
                Some(Err(fault)) => return Err(self.comm.fault(ARRIVED, fault.clone())),
            }
        }
        Ok(true)
    }

    pub(super) fn outcome(&self) -> Option<Result<Status>> {
        self.with_state(|state| self.outcome_in(state))
    }

    fn outcome_in(&self, state: &mut State) -> Option<Result<Status>> {
        match &state.round {
            Round::Inactive => return Some(Ok(Status::empty())),
            Round::Unmatched => return None,
            // The receives that were posted before a failure use the buffer until they are complete.
            Round::Posted | Round::Failed(_) => (),
        }
        let rest = &state.receives[state.complete..];
        let complete = rest.iter().take_while(|receive| receive.outcome().is_some()).count();
        state.complete += complete;
        (state.complete == state.receives.len()).then(|| match &state.round {
            Round::Failed(error) => Err(error.clone()),
            _ => self.result(&state.receives),
        })
    }

    /// Calls `f` with the receive for which the round waits next: that of the handshake, or of the first part that is
    /// not complete.
    fn with_pending<T>(&self, f: impl FnOnce(&Completion) -> T) -> Option<T> {
        self.with_state(|state| {
            let is_pending = self.outcome_in(state).is_none();
            let handshake = self.link.as_ref().map(|link| &link.handshake);
            let next = match state.round {
                Round::Unmatched => handshake,
                _ => state.receives.get(state.complete),
            };
            next.filter(|_| is_pending).map(f)
        })
    }

    /// Registers a task, which is notified when the next part has arrived. Returns false if it must poll.
    pub(super) fn listen(&self, listener: Listener) -> bool {
        matches!(listener, Listener::Task(_)) && self.with_pending(|next| next.listen(listener)).is_some()
    }

    pub(super) fn is_listening(&self) -> bool {
        self.with_pending(Completion::is_listening) == Some(true)
    }

    fn result(&self, receives: &[Completion]) -> Result<Status> {
        let mut outcomes = receives.iter().filter_map(Completion::outcome);
        if let Some(Err(fault)) = outcomes.clone().find(|outcome| outcome.is_err()) {
            return Err(self.comm.fault(INIT, fault.clone()));
        }
        Ok(match outcomes.next() {
            Some(Ok(first)) => {
                let bytes = self.parts * self.bytes_per_part;
                Status::of(&Envelope { tag: self.tag, bytes, ..*first })
            }
            _ => Status::empty(),
        })
    }

    fn end_round(&self) {
        let ended = std::mem::replace(&mut self.state().round, Round::Inactive);
        if !matches!(ended, Round::Inactive) {
            self.comm.end_part_round();
        }
    }

    pub(super) fn wait_target(&self) -> (&Arc<Engine>, OpInfo, &Arc<Channel>) {
        (self.comm.engine(), OpInfo::recv(INIT, self.source, self.tag), self.comm.p2p())
    }

    pub(super) fn name(&self) -> &'static str {
        INIT
    }
}
