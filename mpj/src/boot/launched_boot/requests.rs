//! The requests of this process that its launcher has not answered.

use std::collections::HashMap;
use std::fmt;

use mpj_devices::Callback;

#[derive(Debug, Default)]
pub(super) struct PendingRequests {
    pub(super) next: u64,
    pub(super) waiting: HashMap<u64, PendingRequest>,
    pub(super) disconnect_reason: Option<String>,
}

pub(super) enum PendingRequest {
    Value(Callback<Vec<u8>>),
    Fence(Callback<()>),
}

impl fmt::Debug for PendingRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PendingRequest::Value(..) => "Value",
            PendingRequest::Fence(_) => "Fence",
        })
    }
}

impl PendingRequest {
    pub(super) fn fail(self, why: String) {
        match self {
            // By the contract of `Boot::get`, the callback of a failed request is not called.
            PendingRequest::Value(..) => (),
            PendingRequest::Fence(then) => then(Err(why)),
        }
    }
}
