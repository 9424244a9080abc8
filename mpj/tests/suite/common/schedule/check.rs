//! Checks which message each receive of a schedule gets.

use std::collections::{HashMap, VecDeque};

use super::calls::{Call, Pattern};
use super::lane::{Lane, Outcome, Record};
use super::phase::Phase;

/// The messages to one thread that no receive has got, by communicator and source, in the order of their sends.
///
/// If a receive gets a message of a source, MPI fixes which one: the first that it accepts and that no receive posted
/// earlier has got. This follows from two rules: a posted receive gets the first matching message of a source in the
/// order of sends, and a message goes to the first posted receive that accepts it. A probe returns the message that a
/// receive in its place would get.
pub(super) struct Unreceived {
    by_source: HashMap<(usize, usize), VecDeque<usize>>,
}

impl Unreceived {
    pub(super) fn new(phase: &Phase, me: usize, lane: usize) -> Self {
        let mut by_source: HashMap<_, VecDeque<usize>> = HashMap::new();
        for program in phase.programs.iter().map(|lanes| &lanes[lane]) {
            for call in program {
                let (Call::Send { message: sent, .. } | Call::Exchange { send: sent, .. }) = *call else {
                    continue;
                };
                let message = &phase.messages[sent];
                if message.receiver == me {
                    by_source.entry((message.comm, message.from)).or_default().push_back(sent);
                }
            }
        }
        Unreceived { by_source }
    }

    /// Checks the records of a thread, in the order in which it has posted the receives.
    pub(super) fn check(mut self, lane: &Lane<'_>, records: &[Record]) -> Result<(), String> {
        for (at, record) in records.iter().enumerate() {
            self.check_record(lane, record)
                .map_err(|why| format!("receive {at}, {:?}: {why}", record.pattern))?;
        }
        match self.by_source.values().flatten().next() {
            Some(left) => Err(format!("no receive has got {:?}", lane.phase.messages[*left])),
            None => Ok(()),
        }
    }

    fn check_record(&mut self, lane: &Lane<'_>, record: &Record) -> Result<(), String> {
        let (status, data) = match &record.outcome {
            Outcome::Received(status, data) => (status, Some(data)),
            Outcome::Seen(status) => (status, None),
            Outcome::Pending(op) => return Err(format!("operation {op} has not completed")),
        };
        let Pattern { comm, source, tag, .. } = record.pattern;
        let from = status.source().filter(|from| source.is_none_or(|source| source == *from));
        let from = from.ok_or_else(|| format!("{status:?} has another source"))?;
        let messages = &lane.phase.messages;
        let queue = self.by_source.entry((comm, from)).or_default();
        let found = queue.iter().position(|sent| tag.is_none_or(|tag| tag == messages[*sent].tag));
        let found =
            found.ok_or_else(|| format!("{status:?}, but rank {from} has sent no more such messages"))?;
        let expected = &messages[queue[found]];
        let lens = (status.bytes(), status.count::<u8>());
        let has_len = expected.is_object || lens == (expected.len, Some(expected.len));
        if status.tag() != expected.tag || !has_len {
            return Err(format!("{status:?} instead of that of {expected:?}"));
        }
        let Some(data) = data else { return Ok(()) };
        let sent = lane.payload(queue.remove(found).expect("it is in the queue"));
        let rest = data.get(sent.len()..).ok_or_else(|| format!("{} bytes of {expected:?}", data.len()))?;
        match data.iter().zip(&sent).position(|(got, sent)| got != sent) {
            Some(at) => Err(format!("another byte {at} of {expected:?}")),
            None if rest.iter().any(|byte| *byte != 0) => {
                Err(format!("bytes after {expected:?} are overwritten"))
            }
            None => Ok(()),
        }
    }
}
