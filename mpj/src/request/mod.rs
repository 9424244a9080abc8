//! Typed requests of pending operations: owned and scoped. `README.md` in this folder explains why they are sound.

mod desk;
mod owned;
mod prepared;
mod scope;
mod slots;
mod together;

pub(crate) use owned::OwnedCell;
pub use owned::{Request, RequestError};
pub(crate) use prepared::Bufs;
pub use prepared::{ActiveRequest, PersistentRequest};
pub use scope::{Scope, ScopedRecv, ScopedSend};
pub use together::{RequestRef, Waitable, test_all, test_any, test_some, wait_all, wait_any, wait_some};
