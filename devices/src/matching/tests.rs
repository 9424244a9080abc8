//! Random actions on several channels, each of which is compared with two plain lists that are searched from the front.
//! Long queues are checked for bins and released memory.

use std::sync::Arc;

use mpj_datatypes::{Primitive, Signature};
use proptest::prelude::*;

use super::{ANY_SOURCE, ANY_TAG, Matching, Pattern, Posted, Unexpected, UnexpectedBody};
use crate::buf::Buf;
use crate::completion::{Completion, Receive, pair};
use crate::device::PeerId;
use crate::message::{Envelope, Source, Target};

/// A random source and tag. For a receive or probe, each can be a wildcard.
#[derive(Clone, Copy, Debug)]
struct Choice {
    source: i32,
    tag: i32,
}

#[derive(Clone, Debug)]
enum Action {
    /// Posts this number of receives with ascending tags.
    Post(Choice, u8),
    /// Delivers this number of messages with descending tags.
    Arrive(Choice, u8),
    SendToSelf(i32),
    Probe(Choice),
    /// Takes this number of unexpected messages, as a matched probe does.
    Take(Choice, u8),
    /// Cancels a posted receive, or a message of the rank to itself.
    Cancel(usize),
    /// Takes the first message of an odd length among this number of unexpected messages.
    TakeOdd(usize),
    DrainPosted(i32),
}

#[derive(Debug)]
struct Channel {
    matching: Matching,
    posted: Vec<(Pattern, Arc<Completion>)>,
    early: Vec<(Envelope, Option<Arc<Completion>>)>,
    /// All operations that were ever queued.
    operations: Vec<Arc<Completion>>,
    sent: usize,
}

fn no_memory() -> Buf {
    Buf::new(std::ptr::dangling_mut(), 0, Primitive::U8)
}

fn target() -> Target {
    // SAFETY: it has no bytes.
    #[expect(unsafe_code, reason = "see above")]
    unsafe { Target::new(no_memory(), None) }.expect("0 bytes do not overflow")
}

fn source() -> Source {
    // SAFETY: it has no bytes.
    #[expect(unsafe_code, reason = "see above")]
    unsafe { Source::new(no_memory(), None) }.expect("0 bytes do not overflow")
}

impl Channel {
    fn new() -> Self {
        let matching = Matching::new(Arc::default());
        Channel { matching, posted: vec![], early: vec![], operations: vec![], sent: 0 }
    }

    fn matches(&self, pattern: Pattern, message: &Envelope) -> bool {
        let Pattern { source, tag } = pattern;
        (source == ANY_SOURCE || source == message.source.cast_signed())
            && (tag == ANY_TAG || tag == message.tag)
    }

    /// Creates a message whose length is its number.
    fn message(&mut self, choice: Choice) -> Envelope {
        self.sent += 1;
        let (source, code) = (choice.source.max(0).cast_unsigned(), Primitive::U8 as u8);
        let (tag, immediate) = (choice.tag, self.sent as u32);
        Envelope { source, tag, immediate, code, signature: Signature::EMPTY, bytes: self.sent }
    }

    /// Posts a receive as the engine does: if an unexpected message matches, it takes that instead.
    fn post(&mut self, pattern: Pattern) {
        if self.take(pattern) {
            return;
        }
        let Receive { receiving, completion } = Receive::new(target());
        self.matching.post(Posted::new(pattern, receiving));
        let completion = Arc::new(completion);
        self.posted.push((pattern, Arc::clone(&completion)));
        self.operations.push(completion);
    }

    fn take(&mut self, pattern: Pattern) -> bool {
        let expected = self.early.iter().position(|(message, _)| self.matches(pattern, message));
        let expected = expected.map(|at| self.early.remove(at));
        let got = self.matching.take_unexpected(pattern);
        assert_eq!(got.as_ref().map(|early| early.message), expected.map(|(message, _)| message));
        got.is_some()
    }

    fn arrive(&mut self, message: Envelope, body: UnexpectedBody, completion: Option<Arc<Completion>>) {
        let expected = self.posted.iter().position(|(pattern, _)| self.matches(*pattern, &message));
        match (self.matching.take_posted(&message), expected) {
            (Some(posted), Some(at)) => {
                let (pattern, completion) = self.posted.remove(at);
                assert_eq!(posted.pattern, pattern);
                assert!(posted.is_for(&completion), "another receive with {pattern:?} matched {message:?}");
            }
            (None, None) => {
                let early = Unexpected { message, from: PeerId(0), body, sync_op: None };
                assert!(self.matching.push_unexpected(early).is_none());
                self.operations.extend(completion.clone());
                self.early.push((message, completion));
            }
            (got, expected) => panic!("{message:?} matched {got:?}; expected the receive {expected:?}"),
        }
    }

    fn cancel(&mut self, number: usize) {
        let Some(completion) = self.operations.get(number % self.operations.len().max(1)) else { return };
        let completion = Arc::clone(completion);
        let is_it = |other: &Arc<Completion>| Arc::ptr_eq(other, &completion);
        let expected = self.posted.iter().position(|(_, other)| is_it(other));
        let got = self.matching.take_posted_of(&completion);
        assert_eq!(got.is_some(), expected.is_some());
        assert!(got.is_none_or(|posted| posted.is_for(&completion)));
        expected.map(|at| self.posted.remove(at));
        let expected = self.early.iter().position(|(_, other)| other.as_ref().is_some_and(is_it));
        let got = self.matching.take_self_send_of(&completion).map(|early| early.message);
        assert_eq!(got, expected.map(|at| self.early.remove(at).0));
    }

    fn act(&mut self, action: &Action) {
        match *action {
            Action::Post(Choice { source, tag }, count) => {
                let one = |i: u8| if tag == ANY_TAG { tag } else { tag + i32::from(i) };
                (0..count).for_each(|i| self.post(Pattern { source, tag: one(i) }));
            }
            Action::Arrive(choice, count) => {
                for i in (0..count).rev() {
                    let tag = choice.tag.max(0) + i32::from(i);
                    let message = self.message(Choice { tag, ..choice });
                    self.arrive(message, UnexpectedBody::Empty, None);
                }
            }
            Action::SendToSelf(tag) => {
                let message = self.message(Choice { source: 0, tag });
                let (completer, completion) = pair();
                let body = UnexpectedBody::SelfSend { source: Box::new(source()), completer };
                self.arrive(message, body, Some(Arc::new(completion)));
            }
            Action::Probe(Choice { source, tag }) => {
                let pattern = Pattern { source, tag };
                let expected = self.early.iter().find(|(message, _)| self.matches(pattern, message));
                let expected = expected.map(|(message, _)| *message);
                assert_eq!(self.matching.peek(pattern).map(|early| early.message), expected);
            }
            Action::Take(Choice { source, tag }, count) => {
                (0..count).for_each(|_| _ = self.take(Pattern { source, tag }));
            }
            Action::Cancel(number) => self.cancel(number),
            Action::TakeOdd(most) => {
                let is_odd = |message: &Envelope| message.bytes % 2 == 1;
                let expected = self.early.iter().take(most).position(|(message, _)| is_odd(message));
                let got = self.matching.take_unexpected_where(most, |early| is_odd(&early.message));
                assert_eq!(got.map(|early| early.message), expected.map(|at| self.early.remove(at).0));
            }
            Action::DrainPosted(source) => {
                let ended = self.matching.drain_posted(|posted| posted.pattern.source == source);
                let (expected, left) =
                    self.posted.drain(..).partition::<Vec<_>, _>(|(pattern, _)| pattern.source == source);
                self.posted = left;
                assert_eq!(ended.len(), expected.len());
                assert!(ended.iter().zip(&expected).all(|(posted, (_, own))| posted.is_for(own)));
            }
        }
    }

    fn check(&self) {
        let early = self.matching.iter_unexpected().map(|early| early.message);
        assert!(early.eq(self.early.iter().map(|(message, _)| *message)), "the order of unexpected messages");
        assert_eq!(self.matching.counts.read().queued as usize, self.early.len());
        assert_eq!(self.matching.posted.len(), self.posted.len());
    }
}

fn source_rank() -> impl Strategy<Value = i32> {
    prop_oneof![6 => 0..5i32, 1 => Just(ANY_SOURCE)]
}

fn choice() -> impl Strategy<Value = Choice> {
    let tag = prop_oneof![8 => 0..100i32, 2 => -4..4i32, 1 => Just(ANY_TAG)];
    (source_rank(), tag).prop_map(|(source, tag)| Choice { source, tag })
}

fn action() -> impl Strategy<Value = Action> {
    let count = || prop_oneof![2 => 1..4u8, 1 => 1..100u8];
    prop_oneof![
        6 => (choice(), count()).prop_map(|(choice, count)| Action::Post(choice, count)),
        6 => (choice(), count()).prop_map(|(choice, count)| Action::Arrive(choice, count)),
        1 => (-4..100i32).prop_map(Action::SendToSelf),
        2 => choice().prop_map(Action::Probe),
        3 => (choice(), count()).prop_map(|(choice, count)| Action::Take(choice, count)),
        3 => any::<usize>().prop_map(Action::Cancel),
        1 => (0..40usize).prop_map(Action::TakeOdd),
        1 => source_rank().prop_map(Action::DrainPosted),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 4 } else { 256 }, ..ProptestConfig::default() })]

    #[test]
    fn bins_match_like_plain_lists(actions in prop::collection::vec((0..3usize, action()), 0..200)) {
        let mut channels = [(); 3].map(|()| Channel::new());
        for (channel, action) in &actions {
            let channel = &mut channels[*channel];
            channel.act(action);
            channel.check();
        }
    }
}

const ENTRIES: i32 = 3000;

/// The receives name a tag, a source, or both. The later half is matched in reverse order, the earlier half cancelled.
#[test]
fn long_queues_of_receives_are_binned_and_shrink_again() {
    let mut channel = Channel::new();
    let choose = |i: i32| match i % 4 {
        0 => Choice { source: i, tag: ANY_TAG },
        1 => Choice { source: ANY_SOURCE, tag: i },
        _ => Choice { source: 0, tag: i },
    };
    (0..ENTRIES).for_each(|i| channel.act(&Action::Post(choose(i), 1)));
    assert!(!channel.matching.posted.is_binned(), "no deep search yet");
    for i in (ENTRIES / 2..ENTRIES).rev() {
        let Choice { source, tag } = choose(i);
        let message = channel.message(Choice { source, tag: tag.max(0) });
        channel.arrive(message, UnexpectedBody::Empty, None);
    }
    assert!(channel.matching.posted.is_binned());
    (0..ENTRIES as usize).rev().for_each(|operation| channel.cancel(operation));
    assert_eq!(channel.matching.posted.len(), 0);
    let posted = &channel.matching.posted;
    assert!(!posted.is_binned() && posted.capacity() < ENTRIES as usize / 2);
}

#[test]
fn long_queues_of_messages_are_binned_and_shrink_again() {
    let mut channel = Channel::new();
    (0..ENTRIES).for_each(|i| channel.act(&Action::Arrive(Choice { source: i, tag: i }, 1)));
    assert!(!channel.matching.unexpected.is_binned(), "no deep search yet");
    for i in (0..ENTRIES).rev() {
        let choice = match i % 3 {
            0 => Choice { source: i, tag: i },
            1 => Choice { source: ANY_SOURCE, tag: i },
            _ => Choice { source: i, tag: ANY_TAG },
        };
        channel.act(&Action::Take(choice, 1));
        assert!(i != ENTRIES / 2 || channel.matching.unexpected.is_binned());
    }
    assert_eq!(channel.matching.unexpected.len(), 0);
    let (is_binned, places) =
        (channel.matching.unexpected.is_binned(), channel.matching.unexpected.capacity());
    assert!(!is_binned && places < ENTRIES as usize / 2, "{places}");
}

/// 100 of 20,000 messages stay queued, in bins, while the others are taken.
#[test]
#[cfg_attr(miri, ignore = "20,000 messages take too long")]
fn binned_queue_releases_memory() {
    let mut channel = Channel::new();
    (0..20_000).for_each(|i| channel.act(&Action::Arrive(Choice { source: 0, tag: i }, 1)));
    for i in (100..20_000).rev() {
        channel.matching.take_unexpected(Pattern { source: 0, tag: i }).expect("it was queued");
    }
    assert!(channel.matching.unexpected.is_binned());
    assert!(channel.matching.unexpected.capacity() < 5_000, "{}", channel.matching.unexpected.capacity());
    channel.early.truncate(100);
    channel.check();
    (0..100).rev().for_each(|i| channel.act(&Action::Take(Choice { source: 0, tag: i }, 1)));
}

#[test]
fn receives_matched_in_order_are_not_binned() {
    let mut channel = Channel::new();
    (0..ENTRIES).for_each(|i| channel.act(&Action::Post(Choice { source: 0, tag: i }, 1)));
    for tag in 0..ENTRIES {
        channel.act(&Action::Arrive(Choice { source: 0, tag }, 1));
        assert!(!channel.matching.posted.is_binned());
    }
}
