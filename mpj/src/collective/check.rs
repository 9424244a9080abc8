//! The check of a received message: its digest and its length must be the expected ones.

use mpj_devices::{Fault, Outcome};

use super::call_id::{CallDigest, CallId};
use super::state::mismatch_error;
use crate::error::{Error, ErrorClass, Result};

#[derive(Clone, Copy, Debug)]
pub(crate) struct ExpectedMessage {
    pub(crate) from: u32,
    pub(crate) bytes: usize,
}

/// Checks the outcome of an operation of a call; `expected` is `None` for a send.
#[inline]
pub(crate) fn check_outcome(
    call: &CallId,
    expected: Option<ExpectedMessage>,
    outcome: &Outcome,
) -> Result<()> {
    match (outcome, expected) {
        (Ok(_), None) => Ok(()),
        (Ok(message), Some(expected))
            if message.immediate == call.digest.bits() && message.bytes == expected.bytes =>
        {
            Ok(())
        }
        _ => Err(outcome_error(call, expected, outcome)),
    }
}

#[cold]
fn outcome_error(call: &CallId, expected: Option<ExpectedMessage>, outcome: &Outcome) -> Error {
    let (source, immediate) = match outcome {
        Ok(message) => (message.source, message.immediate),
        Err(
            Fault::Truncated { source, immediate, .. }
            | Fault::TypeMismatch { source, immediate, .. }
            | Fault::InvalidValue { source, immediate, .. },
        ) => (*source, *immediate),
        Err(fault) => return Error::from_fault(call.name, fault.clone()),
    };
    let sender = call.name_of(source);
    let expected_bytes = expected.map_or(0, |expected| expected.bytes);
    let digest = CallDigest::from_bits(immediate);
    let has_expected_length = outcome.as_ref().is_ok_and(|message| message.bytes == expected_bytes);
    // For the same collective, an error about the type or the length is more helpful than one about the digest.
    if digest != call.digest && (has_expected_length || !digest.same_operation(call.digest)) {
        return mismatch_error(call, source, digest);
    }
    let (class, why) = match outcome {
        Err(Fault::TypeMismatch { sent, expected, .. }) => {
            (ErrorClass::Type, format!("{sender} sent {sent}, expected {expected}"))
        }
        Err(Fault::InvalidValue { .. }) => {
            (ErrorClass::Type, format!("{sender} sent an invalid bool or char"))
        }
        Err(Fault::Truncated { sent, .. }) => {
            (ErrorClass::Truncate, format!("{sender} sent {sent} bytes, expected {expected_bytes}"))
        }
        _ => {
            let sent = outcome.as_ref().map_or(0, |message| message.bytes);
            (ErrorClass::Count, format!("{sender} sent {sent} bytes, expected {expected_bytes}"))
        }
    };
    Error::new(class, call.name, why)
}
