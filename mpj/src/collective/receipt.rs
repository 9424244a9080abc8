//! The check of a received message against the expected one: a message of a collective fits exactly, or is an error.

use mpj_devices::{Fault, Outcome};

use super::course::{CallId, other_call};
use super::label::CallDigest;
use crate::error::{Error, ErrorClass, Result};

/// The message that a receive expects: its sender and its length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExpectedMessage {
    pub(crate) from: u32,
    pub(crate) bytes: usize,
}

/// Checks the outcome of an operation of a call. A receive was matched by number alone, so the digest and the length
/// are checked here.
#[inline]
pub(crate) fn check_outcome(
    call: &CallId,
    expected: Option<ExpectedMessage>,
    outcome: &Outcome,
) -> Result<()> {
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
fn explain(call: &CallId, expected: Option<ExpectedMessage>, outcome: &Outcome) -> Error {
    let (source, tag) = match outcome {
        Ok(message) => (message.source, message.tag),
        Err(
            Fault::Truncated { source, tag, .. }
            | Fault::TypeMismatch { source, tag, .. }
            | Fault::InvalidValue { source, tag },
        ) => (*source, *tag),
        Err(fault) => return Error::from_fault(call.name, fault.clone()),
    };
    let room = expected.map_or(0, |expected| expected.bytes);
    let label = CallDigest::of(tag);
    let is_as_long = outcome.as_ref().is_ok_and(|message| message.bytes == room);
    // For the same operation, a difference in length makes a better error than a difference of the digests.
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
