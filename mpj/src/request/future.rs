//! Requests as futures.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use mpj_datatypes::Receivable;
use mpj_devices::{AsyncWait, Listener, fence_listeners};
use serde::de::DeserializeOwned;

use super::owned::Request;
use super::partitioned::{ArrivingRequest, FillingRequest};
use super::persistent::ActiveRequest;
use super::promise::PromisedRequest;
use super::scope::{ScopedRecv, ScopedSend};
use super::wait_many::Waitable;
use crate::comm::{DupRequest, ObjectRequest};

/// A request as a future, which any executor can poll. Its output is the outcome of [`wait`](Waitable::wait).
///
/// `await` converts a request into this type. The future needs no particular executor, and several futures can be
/// combined:
/// ```
/// use std::future::IntoFuture;
/// use std::pin::pin;
/// use std::sync::Arc;
/// use std::task::{Context, Poll, Wake};
/// use std::thread::Thread;
///
/// /// The smallest executor: the thread of the task parks until the task is woken.
/// struct Unpark(Thread);
///
/// impl Wake for Unpark {
///     fn wake(self: Arc<Self>) {
///         self.0.unpark();
///     }
/// }
///
/// fn block_on<F: IntoFuture>(future: F) -> F::Output {
///     let waker = Arc::new(Unpark(std::thread::current())).into();
///     let mut future = pin!(future.into_future());
///     loop {
///         match future.as_mut().poll(&mut Context::from_waker(&waker)) {
///             Poll::Ready(value) => return value,
///             Poll::Pending => std::thread::park(),
///         }
///     }
/// }
///
/// # mpj::threads(2, |world| {
/// let other = 1 - world.rank();
/// block_on(async {
///     let receiving = world.irecv([0u32; 3], other, 0)?;
///     world.isend([world.rank() as u32; 3], other, 0)?.await?;
///     let (received, _status) = receiving.await?;
///     assert_eq!(received, [other as u32; 3]);
///     Ok::<(), mpj::Error>(())
/// })?;
/// # Ok::<(), mpj::Error>(()) }).unwrap();
/// ```
/// # Progress
/// Each poll makes progress once. If the operation is then pending, the task is woken by the thread that completes the
/// operation: a thread of this rank that waits or tests, the owner of a [`DriverFd`](crate::DriverFd), or the progress
/// thread. If the rank has neither a driver nor a progress thread (`MPJ_PROGRESS=thread`), the first future that is
/// pending starts a progress thread, which sleeps whenever no future is pending.
///
/// # Errors
/// The future returns the error of the operation, for example if the rank that it needs has died. A future that is
/// polled after it has returned the outcome returns an error of [`ErrorClass::Request`](crate::ErrorClass::Request).
///
/// Dropping the future has the effect of dropping the request.
#[derive(Debug)]
#[must_use = "a future makes progress only when it is polled"]
pub struct RequestFuture<O> {
    operation: O,
    /// The waker that was registered last, if the operation is sure to see it.
    waker: Option<Waker>,
    wait: Option<AsyncWait>,
}

/// The operation is not pinned: a request can be moved while it is pending.
impl<O> Unpin for RequestFuture<O> {}

impl<O: Waitable> RequestFuture<O> {
    fn new(operation: O) -> Self {
        RequestFuture { operation, waker: None, wait: None }
    }

    fn take_outcome(&mut self) -> Option<O::Outcome> {
        let outcome = self.operation.test()?;
        // The waker stays: its `drop` might panic, and the outcome would be lost.
        self.wait = None;
        Some(outcome)
    }

    /// Registers the waker, unless it is registered already. Returns whether the task will be woken.
    fn register(&mut self, waker: &Waker) -> bool {
        let operation = self.operation.request_ref();
        if operation.is_listening() && self.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            return true;
        }
        let can_notify = operation.listen(Listener::Task(waker.clone()));
        self.waker = (fence_listeners() && can_notify).then(|| waker.clone());
        self.waker.is_some()
    }
}

impl<O: Waitable> Future for RequestFuture<O> {
    type Output = O::Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<O::Outcome> {
        let this = &mut *self;
        if let Some(outcome) = this.take_outcome() {
            return Poll::Ready(outcome);
        }
        let is_registered = this.register(context.waker());
        // The operation might have completed before the waker was registered.
        if this.operation.request_ref().is_complete()
            && let Some(outcome) = this.take_outcome()
        {
            return Poll::Ready(outcome);
        }
        if this.wait.is_none() {
            let operation = this.operation.request_ref();
            let wait = operation.engine().zip(operation.wait_reason());
            this.wait = wait.and_then(|(engine, what)| AsyncWait::begin(engine, what));
        }
        // A partitioned message might wait for another part by now.
        let is_listening = is_registered && this.operation.request_ref().is_listening();
        if !is_listening || this.wait.is_none() {
            // Nothing is sure to wake the task, so it must poll.
            context.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

macro_rules! futures {
    ($([$($generics:tt)*] $request:ty)*) => {$(
        /// The future can be moved to another thread if the request can.
        impl<$($generics)*> IntoFuture for $request {
            type Output = <$request as Waitable>::Outcome;
            type IntoFuture = RequestFuture<$request>;

            fn into_future(self) -> RequestFuture<$request> {
                RequestFuture::new(self)
            }
        }
    )*};
}

futures! {
    [B] Request<B>
    ['p, B] ActiveRequest<'p, B>
    ['scope] ScopedSend<'scope>
    ['scope, B: ?Sized] ScopedRecv<'scope, B>
    ['p, T] FillingRequest<'p, T>
    ['p, T: Receivable] ArrivingRequest<'p, T>
    [T: DeserializeOwned] ObjectRequest<T>
    [T] PromisedRequest<T>
    [K] DupRequest<K>
}
