//! Operations under way, typed: owned and scoped. See `README.md` beside this file for why they are sound.

mod desk;
mod owned;
mod scope;

pub(crate) use owned::OwnedCell;
pub use owned::{Failed, Request, wait_all, wait_any};
pub use scope::{Scope, ScopedRecv, ScopedSend};
