//! Partitioned sends: one message whose parts are sent when they are ready (MPI 4.1 §4.2).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mpj_devices::{
    Buf, Channel, Coalesce, Completion, Engine, KeepAlive, Listener, Mode, Sent, Source, run_deferred_drops,
    with_deferred_drops,
};

use super::comm::Comm;
use super::part_channel::{HANDSHAKE_WORDS, items_per_part, no_such_part, part_tag};
use super::persistent::{PersistentOperation, StoredBuf, still_active};
use super::request::OpInfo;
use crate::error::{Error, ErrorClass, Result};
use crate::status::Status;

const INIT: &str = "psend_init";
const READY: &str = "pready";

#[derive(Debug)]
pub(super) struct PartSender {
    comm: Comm,
    /// `None` if the destination is `PROC_NULL`.
    link: Option<Link>,
    dest: i32,
    tag: i32,
    buf: StoredBuf,
    items_per_part: usize,
    keep: Option<KeepAlive>,
    is_active: bool,
    parts: Box<[Mutex<Part>]>,
    /// The number of parts whose send has not started.
    unready: AtomicUsize,
    /// The number of the first parts that are known to be complete.
    complete: AtomicUsize,
}

#[derive(Debug)]
struct Link {
    channel: Arc<Channel>,
    dest: u32,
    /// The number of the first part.
    first: u32,
}

#[derive(Debug)]
enum Part {
    Unready,
    /// A thread starts to send it.
    Starting,
    Sent,
    Pending(Completion),
    Failed(Error),
}

/// Creates a partitioned send: the items of `buf`, in `parts` parts of the same length (MPI_Psend_init). The request is
/// inactive. After a [start](PersistentOperation::start), each part is sent by [`pready`](PersistentOperation::pready). The
/// operation has completed when all parts have been sent.
///
/// The receiver calls [`precv_init`](super::precv_init). The requests of two ranks match by tag, in the order of their
/// creation. The two numbers of parts may differ. Other receives do not match.
///
/// # Errors
/// The rank or the tag is invalid, the communicator was freed, or the receiver has exited; [`ErrorClass::Arg`] if
/// `parts` is 0 or above 65,536; [`ErrorClass::Count`] if it does not divide the number of items.
pub fn psend_init(
    comm: &Comm,
    buf: Buf,
    parts: usize,
    dest: i32,
    tag: i32,
    keep: Option<KeepAlive>,
) -> Result<PersistentOperation> {
    comm.check_send(INIT, dest, tag)?;
    let items_per_part = items_per_part(INIT, buf.count(), parts).map_err(|error| comm.named(error))?;
    let bytes = buf.part(0, items_per_part).bytes().map_err(|error| Error::buf(INIT, error))?;
    let link = match u32::try_from(dest) {
        Ok(dest) => Some(Link::open(comm, dest, tag, parts, bytes)?),
        Err(_) => None,
    };
    let unready = AtomicUsize::new(0);
    let slots = (0..parts).map(|_| Mutex::new(Part::Sent)).collect();
    Ok(PersistentOperation::from(PartSender {
        comm: comm.clone(),
        link,
        dest,
        tag,
        buf: StoredBuf(buf),
        items_per_part,
        keep,
        is_active: false,
        parts: slots,
        unready,
        complete: AtomicUsize::new(parts),
    }))
}

impl Link {
    /// Reserves tags, and sends the handshake.
    fn open(comm: &Comm, dest: u32, tag: i32, parts: usize, part_bytes: usize) -> Result<Self> {
        let channel = comm.part_channel(INIT)?;
        let first = comm.part_tags().reserve(INIT, parts)?;
        let words: Arc<[u64; HANDSHAKE_WORDS]> = Arc::new([first.into(), parts as u64, part_bytes as u64]);
        let (buf, keep): (Buf, KeepAlive) = (Buf::slice(&*words), words);
        // SAFETY: the operation keeps the words, which nobody writes to.
        let source = unsafe { Source::new(buf, Some(keep)) }.map_err(|error| Error::buf(INIT, error))?;
        let (mut source, how) = (source.not_lent(), (Mode::Standard, Coalesce::No));
        let sent = comm.engine().send_from(&channel, dest, tag.into(), &mut source, how.0, how.1);
        // The parts, which follow it, fail with the same fault if the handshake fails later.
        sent.map_err(|fault| comm.fault(INIT, *fault))?;
        Ok(Link { channel, dest, first })
    }
}

impl PartSender {
    fn part(&self, part: usize) -> MutexGuard<'_, Part> {
        self.parts[part].lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn start(&mut self) -> Result<()> {
        if self.is_active {
            return Err(self.comm.named(still_active(INIT)));
        }
        self.comm.begin_part_round(INIT)?;
        for part in &mut self.parts {
            *part.get_mut().unwrap_or_else(PoisonError::into_inner) = Part::Unready;
        }
        (*self.unready.get_mut(), *self.complete.get_mut()) = (self.parts.len(), 0);
        self.is_active = true;
        Ok(())
    }

    pub(super) fn is_active(&self) -> bool {
        self.is_active
    }

    /// # Safety
    /// The contract of a send buffer for the items of the part, until the operation has completed.
    pub(super) unsafe fn pready(&self, part: usize) -> Result<()> {
        if part >= self.parts.len() {
            return Err(self.comm.named(no_such_part(READY, part, self.parts.len())));
        }
        let mut state = self.part(part);
        if !self.is_active {
            let why = "the request is not active: start it first";
            return Err(self.comm.named(Error::new(ErrorClass::Request, READY, why)));
        }
        if !matches!(*state, Part::Unready) {
            let why = format!("part {part} was marked ready already in this round");
            return Err(self.comm.named(Error::new(ErrorClass::Request, READY, why)));
        }
        *state = Part::Starting;
        // The send can drop memory of other operations, and wake tasks, which might use this request.
        drop(state);
        // SAFETY: the caller's contract.
        let sent = unsafe { self.send(part) };
        let outcome = sent.as_ref().map(drop).map_err(Error::clone);
        *self.part(part) = match sent {
            Ok(Sent::Pending(completion)) => Part::Pending(completion),
            Ok(Sent::Posted | Sent::Coalesced) => Part::Sent,
            Err(error) => Part::Failed(error),
        };
        if self.unready.fetch_sub(1, Ordering::AcqRel) == 1 {
            // Another thread might sleep until all parts are ready.
            self.comm.engine().wake_all();
        }
        outcome
    }

    /// # Safety
    /// As [`pready`](Self::pready).
    unsafe fn send(&self, part: usize) -> Result<Sent> {
        let Some(Link { channel, dest, first }) = &self.link else { return Ok(Sent::Posted) };
        let buf = self.buf.0.part(part * self.items_per_part, self.items_per_part);
        // SAFETY: the caller's contract.
        let source = unsafe { Source::new(buf, self.keep.clone()) };
        let source = source.map_err(|error| Error::buf(READY, error))?;
        let mut source = source.with_path(self.comm.path()).not_lent();
        let (tag, engine) = (part_tag(first + part as u32), self.comm.engine());
        let sent = engine.send_from(channel, *dest, tag.into(), &mut source, Mode::Standard, Coalesce::No);
        sent.map_err(|fault| self.comm.fault(READY, *fault))
    }

    /// Returns the numbers of the parts that are not ready.
    pub(super) fn unready_parts(&self) -> Vec<usize> {
        (0..self.parts.len()).filter(|part| self.is_unready(*part)).collect()
    }

    pub(super) fn is_unready(&self, part: usize) -> bool {
        matches!(*self.part(part), Part::Unready)
    }

    pub(super) fn outcome(&self) -> Option<Result<Status>> {
        if !self.is_active {
            return Some(Ok(Status::empty()));
        }
        if self.unready.load(Ordering::Acquire) > 0 {
            return None;
        }
        let known = self.complete.load(Ordering::Relaxed);
        let is_complete = |part: &usize| match &*self.part(*part) {
            Part::Unready | Part::Starting => false,
            Part::Pending(completion) => completion.outcome().is_some(),
            Part::Sent | Part::Failed(_) => true,
        };
        let complete = known + (known..self.parts.len()).take_while(is_complete).count();
        self.complete.store(complete, Ordering::Relaxed);
        (complete == self.parts.len()).then(|| self.result())
    }

    /// Calls `f` with the send of the first part that is not complete, if all parts are ready.
    fn with_pending<T>(&self, f: impl FnOnce(&Completion) -> T) -> Option<T> {
        if self.outcome().is_some() {
            return None;
        }
        let first = self.complete.load(Ordering::Relaxed);
        // A waker that is replaced is foreign code, and must not run under the lock.
        let value = with_deferred_drops(|| match &*self.parts.get(first)?.lock().ok()? {
            Part::Pending(completion) => Some(f(completion)),
            _ => None,
        });
        run_deferred_drops();
        value
    }

    /// Registers a task, which is notified when the next part has been sent. Returns false if it must poll.
    pub(super) fn listen(&self, listener: Listener) -> bool {
        matches!(listener, Listener::Task(_)) && self.with_pending(|part| part.listen(listener)).is_some()
    }

    pub(super) fn is_listening(&self) -> bool {
        self.with_pending(Completion::is_listening) == Some(true)
    }

    fn result(&self) -> Result<Status> {
        let error = (0..self.parts.len()).find_map(|part| match &*self.part(part) {
            Part::Failed(error) => Some(error.clone()),
            Part::Pending(completion) => {
                let fault = completion.outcome()?.as_ref().err()?;
                Some(self.comm.fault(INIT, fault.clone()))
            }
            Part::Unready | Part::Starting | Part::Sent => None,
        });
        error.map_or(Ok(Status::empty()), Err)
    }

    pub(super) fn wait(&mut self) -> Result<Status> {
        let (engine, info, channel) = self.wait_target();
        let outcome = engine.wait_for(&mut (), |()| self.outcome(), |()| info.wait_reason(channel));
        self.end_round();
        outcome
    }

    fn end_round(&mut self) {
        if std::mem::take(&mut self.is_active) {
            self.comm.end_part_round();
        }
    }

    pub(super) fn wait_target(&self) -> (&Arc<Engine>, OpInfo, &Arc<Channel>) {
        (self.comm.engine(), OpInfo::send(INIT, self.dest, self.tag), self.comm.p2p())
    }

    pub(super) fn name(&self) -> &'static str {
        INIT
    }
}

impl Drop for PartSender {
    fn drop(&mut self) {
        self.end_round();
    }
}
