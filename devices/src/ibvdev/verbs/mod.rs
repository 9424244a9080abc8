//! InfiniBand verbs: wrappers of libibverbs, which is loaded at run time. Each value destroys its object of the library
//! when it is dropped.
//!
//! ```text
//!      Context ◄── ProtectionDomain ◄── Mr, AddressHandle
//!         ▲                ▲
//!   CompletionQueue   SharedReceiveQueue
//!         ▲                ▲
//!         └────── Qp ──────┘
//! ```
//! An arrow points from a value to one that it holds. So each object is destroyed after those that were made from it. A
//! *posted* work request names memory that the device accesses later. So the calls that post memory are unsafe, and
//! their callers must show that the memory stays valid. Except for these and the registration of memory, all calls are
//! safe. They return those errors of the system and of the library that a caller can handle, for example a full queue.

mod abi;
mod context;
mod library;
mod mr;
mod qp;
mod queues;
#[cfg(all(test, target_os = "linux", not(mpj_portable)))]
mod tests;

pub(crate) use abi::Wc;
pub(crate) use context::{Context, DeviceEvent, Limits, Port, names};
pub(crate) use mr::{Mr, MrAccess, ProtectionDomain};
pub(crate) use qp::{AddressHandle, Qp, QpAttrs, QpSizes, Route, SendSge};
pub(crate) use queues::{BATCH, CompletionQueue, RecvSge, SharedReceiveQueue};

/// Returns whether a completion only reports that its queue pair is broken.
pub(crate) fn is_flushed(status: u32) -> bool {
    status == abi::WC_FLUSHED
}
