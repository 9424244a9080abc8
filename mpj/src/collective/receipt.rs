//! What a rank has got against what it was to get: a message of a collective fits exactly, or is an error.

use mpj_devices::{Fault, Outcome};

use super::course::{CallId, other_call};
use super::label::CallDigest;
use crate::error::{Error, ErrorClass, Result};

/// A message that must come: from this rank, so long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    pub(crate) from: u32,
    pub(crate) bytes: usize,
}

/// Judges how an operation of a call ended; what a receive got was matched by number alone.
#[inline]
pub(crate) fn check_outcome(call: &CallId, expected: Option<Expected>, outcome: &Outcome) -> Result<()> {
    match (outcome, expected) {
        (Ok(_), None) => Ok(()),
        (Ok(message), Some(expected))
            if message.tag == call.label.tag(call.number) && message.bytes == expected.bytes =>
        {
            Ok(())
        }
        _ => Err(explain(call, expected, outcome)),
    }
}

#[cold]
fn explain(call: &CallId, expected: Option<Expected>, outcome: &Outcome) -> Error {
    let (source, tag) = match outcome {
        Ok(message) => (message.source, message.tag),
        Err(
            Fault::Truncated { source, tag, .. }
            | Fault::TypeMismatch { source, tag, .. }
            | Fault::InvalidValue { source, tag },
        ) => (*source, *tag),
        Err(fault) => return Error::fault(call.name, fault.clone()),
    };
    let room = expected.map_or(0, |expected| expected.bytes);
    let label = CallDigest::of(tag);
    let is_as_long = outcome.as_ref().is_ok_and(|message| message.bytes == room);
    // Of one operation, the lengths say more than that something differs.
    if label != call.label && (is_as_long || !label.is_like(call.label)) {
        return other_call(call, source, label);
    }
    let (class, why) = match outcome {
        Err(Fault::TypeMismatch { sent, expected, .. }) => {
            (ErrorClass::Type, format!("rank {source} sent {sent} where {expected} is expected"))
        }
        Err(Fault::InvalidValue { .. }) => {
            (ErrorClass::Type, format!("rank {source} sent a bool or char that is none"))
        }
        Err(Fault::Truncated { sent, .. }) => {
            (ErrorClass::Truncate, format!("rank {source} sent {sent} bytes where {room} are expected"))
        }
        _ => {
            let sent = outcome.as_ref().map_or(0, |message| message.bytes);
            (ErrorClass::Count, format!("rank {source} sent {sent} bytes where {room} are expected"))
        }
    };
    Error::new(class, call.name, why)
}
