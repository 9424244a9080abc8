//! Typed requests: owned, scoped and persistent; alone, as futures and in sets. `README.md` in this folder explains why
//! they are sound.

mod future;
mod owned;
mod part_buffer;
mod partitioned;
mod persistent;
mod promise;
mod scope;
mod scope_ops;
mod set;
mod slots;
mod wait_many;

pub use future::RequestFuture;
pub(crate) use owned::{OwnedCell, consumed_error};
pub use owned::{Request, RequestError};
pub(crate) use part_buffer::PartBuffer;
pub use partitioned::{ArrivingRequest, FillingRequest, PartMut, PartitionedRecv, PartitionedSend};
pub use persistent::{ActiveRequest, PersistentRequest, start_all};
pub(crate) use persistent::{BufsFn, CallBufs, MessageStartFn, StartFn};
pub use promise::{Promise, PromisedRequest};
pub use scope::{Scope, ScopedRecv, ScopedSend};
pub use set::RequestSet;
pub use wait_many::{
    RequestRef, Waitable, test_all, test_any, test_some, wait_all, wait_all_timeout, wait_any,
    wait_any_timeout, wait_some,
};
