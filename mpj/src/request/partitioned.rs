//! Typed partitioned messages.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mpj_datatypes::Receivable;

use super::owned::consumed_error;
use super::part_buffer::PartBuffer;
use super::wait_many::{RequestRef, Waitable};
use crate::error::{Error, ErrorClass, Result};
use crate::raw;
use crate::status::Status;

/// A partitioned send: [`Intracomm::psend_init`](crate::Intracomm::psend_init) creates it, and [`start`](Self::start)
/// starts a round. Many threads can fill the parts of a round, and each part is sent when it is
/// [ready](PartMut::ready).
///
/// ```
/// # mpj::threads(2, |world| {
/// if world.rank() == 0 {
///     let mut send = world.psend_init(vec![0u32; 4000], 4, 1, 0)?;
///     for round in 0..3 {
///         let filling = send.start()?;
///         std::thread::scope(|threads| {
///             for at in 0..4 {
///                 let mut part = filling.part(at)?;
///                 threads.spawn(move || {
///                     part.fill(round + at as u32);
///                     part.ready()
///                 });
///             }
///             Ok::<(), mpj::Error>(())
///         })?;
///         filling.wait()?;
///     }
/// } else {
///     let mut recv = world.precv_init(vec![0u32; 4000], 2, 0, 0)?; // the sender has 4 parts
///     for round in 0..3 {
///         let arriving = recv.start()?;
///         while arriving.part(1)?.is_none() {} // compute here
///         assert_eq!(arriving.part(1)?.expect("it has arrived")[1999], round + 3);
///         assert_eq!(arriving.wait()?[0], round);
///     }
/// }
/// # Ok::<(), mpj::Error>(()) }).unwrap();
/// ```
/// The compiler rejects a wait for a round while a part is being filled:
/// ```compile_fail,E0505
/// # fn f(world: &mpj::World) -> mpj::Result<()> {
/// let mut send = world.psend_init([0u8; 4], 2, 1, 0)?;
/// let filling = send.start()?;
/// let part = filling.part(0)?;
/// filling.wait()?;
/// part.ready()
/// # }
/// ```
pub struct PartitionedSend<T> {
    raw: raw::PersistentOperation,
    buffer: Arc<PartBuffer<T>>,
    /// For each part, whether it has a [`PartMut`], or was made ready by one. [`resume`](Self::resume) resets all
    /// flags, so [`part`](FillingRequest::part) also checks whether the part is ready. No code accesses an unready part
    /// without its [`PartMut`]; only the operation accesses a ready part.
    taken: Box<[AtomicBool]>,
}

impl<T> PartitionedSend<T> {
    pub(crate) fn new(raw: raw::PersistentOperation, buffer: Arc<PartBuffer<T>>, parts: usize) -> Self {
        PartitionedSend { raw, buffer, taken: (0..parts).map(|_| AtomicBool::new(false)).collect() }
    }

    /// Starts a round, in which all parts can be filled (MPI_Start).
    ///
    /// # Errors
    /// The error of the previous round if its handle was dropped or forgotten; [`ErrorClass::Request`] if parts of that
    /// round are not ready: [`resume`](Self::resume) it; the communicator was freed.
    pub fn start(&mut self) -> Result<FillingRequest<'_, T>> {
        if self.raw.is_active() {
            check_ready("psend_init", &self.raw)?;
            self.raw.wait()?;
        }
        // SAFETY: the parts are initialised. Only its `PartMut` writes a part, and the call of `pready` consumes it.
        unsafe { self.raw.start()? };
        Ok(self.filling())
    }

    /// Returns a handle of the active round, if its handle was dropped or forgotten. Parts that are not ready can be
    /// filled again.
    pub fn resume(&mut self) -> Option<FillingRequest<'_, T>> {
        self.raw.is_active().then(|| self.filling())
    }

    fn filling(&mut self) -> FillingRequest<'_, T> {
        // No `PartMut` exists, because each borrows a handle that borrows `self`.
        self.taken.iter_mut().for_each(|taken| *taken.get_mut() = false);
        FillingRequest { request: self }
    }
}

fn check_ready(call: &'static str, raw: &raw::PersistentOperation) -> Result<()> {
    let missing = raw.unready_parts();
    if missing.is_empty() {
        return Ok(());
    }
    let why = format!(
        "parts {missing:?} of the round are not ready: call `ready` for each, after `resume` if no handle is left"
    );
    Err(raw.named(Error::new(ErrorClass::Request, call, why)))
}

/// An active round of a [`PartitionedSend`]. If it is dropped or forgotten, the round stays active, and
/// [`resume`](PartitionedSend::resume) returns another handle of it.
#[must_use = "the message is incomplete until all parts are ready"]
pub struct FillingRequest<'p, T> {
    request: &'p mut PartitionedSend<T>,
}

impl<T> FillingRequest<'_, T> {
    /// Returns the items of a part. At first, they have their values of the previous round.
    ///
    /// # Errors
    /// [`ErrorClass::Arg`] if there is no such part; [`ErrorClass::Request`] if it is ready already, or if another
    /// [`PartMut`] of it exists.
    pub fn part(&self, part: usize) -> Result<PartMut<'_, T>> {
        const CALL: &str = "part";
        let PartitionedSend { raw, buffer, taken } = &*self.request;
        let Some(taken) = taken.get(part) else {
            let why = format!("part {part} is out of range: the message has {} parts", taken.len());
            return Err(raw.named(Error::new(ErrorClass::Arg, CALL, why)));
        };
        let parts = self.request.taken.len();
        if taken.swap(true, Ordering::Acquire) {
            let why = format!("part {part} of {parts} is ready already, or another `PartMut` of it exists");
            return Err(raw.named(Error::new(ErrorClass::Request, CALL, why)));
        }
        // A part that was ready before the round was resumed.
        if !raw.is_unready(part) {
            let why = format!("part {part} of {parts} is ready already");
            return Err(raw.named(Error::new(ErrorClass::Request, CALL, why)));
        }
        Ok(PartMut { raw, taken, part, items: buffer.part(part), borrow: PhantomData })
    }

    /// Waits until all parts have been sent (MPI_Wait).
    ///
    /// # Errors
    /// [`ErrorClass::Request`] if a part is not ready; [`resume`](PartitionedSend::resume) returns another handle of the
    /// round. [`ErrorClass::Request`] if [`test`](Self::test) has returned the outcome. Otherwise the first error of a
    /// part.
    pub fn wait(self) -> Result<()> {
        self.check_pending("wait")?;
        self.request.raw.wait().map(drop)
    }

    /// Makes progress once; returns the outcome if all parts have been sent (MPI_Test).
    ///
    /// # Errors
    /// As [`wait`](Self::wait), so a part that is not ready is an error. [`ErrorClass::Request`] if an earlier call has
    /// returned the outcome.
    pub fn test(&mut self) -> Option<Result<()>> {
        if let Err(error) = self.check_pending("test") {
            return Some(Err(error));
        }
        Some(self.request.raw.test().transpose()?.map(drop))
    }

    /// Returns an error if the round has no outcome to wait for: a part is not ready, or the outcome was returned.
    fn check_pending(&self, call: &'static str) -> Result<()> {
        if self.request.raw.is_active() {
            check_ready(call, &self.request.raw)
        } else {
            Err(consumed_error(call))
        }
    }
}

impl<T> Waitable for FillingRequest<'_, T> {
    type Outcome = Result<()>;

    fn wait(self) -> Self::Outcome {
        FillingRequest::wait(self)
    }

    fn test(&mut self) -> Option<Self::Outcome> {
        FillingRequest::test(self)
    }

    fn request_ref(&self) -> RequestRef<'_> {
        RequestRef::persistent(self.check_pending("wait").is_ok().then_some(&self.request.raw))
    }
}

/// The items of one part of a [`PartitionedSend`]. It can be sent to another thread. If it is dropped, the part is not
/// ready, and can be taken again.
#[must_use = "the part is not sent before it is ready"]
pub struct PartMut<'a, T> {
    raw: &'a raw::PersistentOperation,
    taken: &'a AtomicBool,
    part: usize,
    items: NonNull<[T]>,
    borrow: PhantomData<&'a mut [T]>,
}

// SAFETY: it is a mutable borrow of items, and the request can be shared.
unsafe impl<T: Send> Send for PartMut<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for PartMut<'_, T> {}

impl<T> PartMut<'_, T> {
    /// Sends the part (MPI_Pready).
    ///
    /// # Errors
    /// As [`Intracomm::send`](crate::Intracomm::send).
    pub fn ready(self) -> Result<()> {
        // The part stays taken.
        let part = std::mem::ManuallyDrop::new(self);
        // SAFETY: the items are initialised. They are not written again in this round: this value is gone, and the part
        // cannot be taken, because it is ready. The next round starts after the operation has completed. If the request
        // is dropped earlier, the operation keeps the buffer.
        unsafe { part.raw.pready(part.part) }
    }
}

impl<T> Drop for PartMut<'_, T> {
    fn drop(&mut self) {
        self.taken.store(false, Ordering::Release);
    }
}

impl<T> Deref for PartMut<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: invariant 2 of the buffer: while this value exists, nobody else accesses the items.
        unsafe { self.items.as_ref() }
    }
}

impl<T> DerefMut for PartMut<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`.
        unsafe { self.items.as_mut() }
    }
}

/// A partitioned receive: [`Intracomm::precv_init`](crate::Intracomm::precv_init) creates it, and
/// [`start`](Self::start) starts a round. See the example of [`PartitionedSend`].
pub struct PartitionedRecv<T> {
    raw: raw::PersistentOperation,
    buffer: Arc<PartBuffer<T>>,
    status: Status,
}

impl<T: Receivable> PartitionedRecv<T> {
    pub(crate) fn new(raw: raw::PersistentOperation, buffer: Arc<PartBuffer<T>>) -> Self {
        PartitionedRecv { raw, buffer, status: Status::empty() }
    }

    /// Starts a round (MPI_Start).
    ///
    /// # Errors
    /// The error of the previous round if its handle was dropped or forgotten; [`ErrorClass::Request`] if that round has
    /// not completed: [`resume`](Self::resume) it; the communicator was freed.
    pub fn start(&mut self) -> Result<ArrivingRequest<'_, T>> {
        if self.raw.is_active() && self.raw.test()?.is_none() {
            let why = "the previous round is active: resume the request, and wait for it";
            return Err(self.raw.named(Error::new(ErrorClass::Request, "precv_init", why)));
        }
        // SAFETY: the operation keeps the buffer. Nobody accesses a part before it has arrived: only handles of the
        // active round and of its end give access.
        unsafe { self.raw.start()? };
        Ok(ArrivingRequest { request: Some(self) })
    }

    /// Returns a handle of the active round, if its handle was dropped or forgotten.
    pub fn resume(&mut self) -> Option<ArrivingRequest<'_, T>> {
        self.raw.is_active().then_some(ArrivingRequest { request: Some(self) })
    }

    /// Returns the status of the last round whose items `wait` or `test` has returned; an empty status before.
    pub fn status(&self) -> Status {
        self.status
    }
}

/// An active round of a [`PartitionedRecv`]. If it is dropped or forgotten, the round continues, and
/// [`resume`](PartitionedRecv::resume) returns another handle of it.
#[must_use = "wait for it: an error of the round is returned only by this request or by the next start"]
pub struct ArrivingRequest<'p, T> {
    /// `None` after [`test`](Self::test) has returned the outcome.
    request: Option<&'p mut PartitionedRecv<T>>,
}

impl<'p, T: Receivable> ArrivingRequest<'p, T> {
    /// Returns whether a part has arrived, and makes progress if it has not (MPI_Parrived). If the sender has another
    /// number of parts, all of its parts that overlap this one must have arrived.
    ///
    /// # Errors
    /// [`ErrorClass::Arg`] if there is no such part; [`ErrorClass::Request`] if [`test`](Self::test) has returned the
    /// outcome; the error of a receive, such as another type or length.
    pub fn has_arrived(&self, part: usize) -> Result<bool> {
        self.active("parrived")?.raw.parrived(part)
    }

    fn active(&self, call: &'static str) -> Result<&PartitionedRecv<T>> {
        self.request.as_deref().ok_or_else(|| consumed_error(call))
    }

    /// Returns the items of a part if it [has arrived](Self::has_arrived).
    ///
    /// # Errors
    /// As [`has_arrived`](Self::has_arrived).
    pub fn part(&self, part: usize) -> Result<Option<&[T]>> {
        if !self.has_arrived(part)? {
            return Ok(None);
        }
        let items = self.active("parrived")?.buffer.part(part);
        // SAFETY: the part is in range and has arrived, so the operation does not access its items any more in this
        // round, and the next one starts after this borrow.
        Ok(Some(unsafe { items.as_ref() }))
    }

    /// Waits until all parts have arrived, and returns the items (MPI_Wait).
    ///
    /// # Errors
    /// The first error of a part; [`ErrorClass::Truncate`] if the sender's message has another length;
    /// [`ErrorClass::Type`] if its parts are not whole `T`s; [`ErrorClass::Request`] if [`test`](Self::test) has
    /// returned the outcome.
    pub fn wait(self) -> Result<&'p mut [T]> {
        let request = self.request.ok_or_else(|| consumed_error("wait"))?;
        request.status = request.raw.wait()?;
        // SAFETY: no operation accesses the items, and the next one starts after this borrow.
        Ok(unsafe { request.buffer.all().as_mut() })
    }

    /// Makes progress once; returns the items if all parts have arrived (MPI_Test).
    ///
    /// # Errors
    /// As [`wait`](Self::wait). [`ErrorClass::Request`] if an earlier call has returned the outcome.
    pub fn test(&mut self) -> Option<Result<&'p mut [T]>> {
        let Some(request) = &mut self.request else { return Some(Err(consumed_error("test"))) };
        let status = request.raw.test().transpose()?;
        let request = self.request.take()?;
        Some(status.map(|status| {
            request.status = status;
            // SAFETY: as in `wait`.
            unsafe { request.buffer.all().as_mut() }
        }))
    }
}

impl<'p, T: Receivable> Waitable for ArrivingRequest<'p, T> {
    type Outcome = Result<&'p mut [T]>;

    fn wait(self) -> Self::Outcome {
        ArrivingRequest::wait(self)
    }

    fn test(&mut self) -> Option<Self::Outcome> {
        ArrivingRequest::test(self)
    }

    fn request_ref(&self) -> RequestRef<'_> {
        RequestRef::persistent(self.request.as_ref().map(|request| &request.raw))
    }
}

macro_rules! debug_by_name {
    ($([$($life:lifetime)?] $type:ident),*) => {$(
        impl<T> fmt::Debug for $type<$($life,)? T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(stringify!($type))
            }
        }
    )*};
}

debug_by_name!([] PartitionedSend, ['_] FillingRequest, ['_] PartMut, [] PartitionedRecv, ['_] ArrivingRequest);
