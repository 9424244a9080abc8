//! `mpj::buffer` messages between ranks on threads.

use crate::common::alive;
use crate::common::messages::PROGRAMS;

#[test]
fn buffers_arrive_complete_and_invalid_messages_are_rejected() {
    for ranks in [1, 2, 3, 6] {
        for (name, program) in PROGRAMS {
            let outcome = alive(|| mpj::threads(ranks, |world| program(&world)));
            if let Err(error) = outcome {
                panic!("{name} on {ranks} ranks: {error}");
            }
        }
    }
}
