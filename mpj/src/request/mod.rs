//! Typed requests: owned, scoped and persistent. `README.md` in this folder explains why they are sound.

mod owned;
mod persistent;
mod scope;
mod scope_ops;
mod slots;
mod wait_many;

pub(crate) use owned::OwnedCell;
pub use owned::{Request, RequestError};
pub use persistent::{ActiveRequest, PersistentRequest};
pub(crate) use persistent::{BufsFn, CallBufs};
pub use scope::{Scope, ScopedRecv, ScopedSend};
pub use wait_many::{RequestRef, Waitable, test_all, test_any, test_some, wait_all, wait_any, wait_some};
