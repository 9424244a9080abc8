use mpj_datatypes::{Primitive, Signature};
use mpj_devices::{Fault, Pattern};

use crate::device::Step;
use crate::fixture::{Fixture, Posted, WORLD};
use crate::head_encoding::{bind, head};
use crate::input::Input;
use crate::model::Model;
use crate::types::choose;

/// The kind of an eager message. If all its elements have one primitive type, a head of 8 bytes is sufficient.
const EAGER: u8 = 2;

/// Sends an eager message to a receive of the same or another type. If the type in the message's head fits the
/// receive, the message is received, and invalid values are reported. Otherwise the receive writes nothing.
pub fn envelopes(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let Some((spec, count)) = choose(&mut input, 600) else { return };
    let datatype = spec.build().expect("small numbers");
    let model = spec.model().items(count);
    let (low, high) = model.touched();
    if low < 0 || high > 8000 {
        return;
    }
    // The primitives of the receive, possibly changed, or one primitive repeated.
    let mut sent: Vec<Primitive> = model.leaves.iter().map(|leaf| leaf.1).collect();
    match input.below(6) {
        0 => sent.truncate(input.below(sent.len() + 1)),
        1 => sent.push(input.pick(&Primitive::ALL)),
        2 if !sent.is_empty() => {
            let at = input.below(sent.len());
            sent[at] = input.pick(&Primitive::ALL);
        }
        3 => sent = vec![input.pick(&Primitive::ALL); input.below(40)],
        _ => (),
    }
    let signature = sent.iter().fold(Signature::EMPTY, |all, p| all.concat(Signature::of(*p)));
    let mut body: Vec<u8> = (0..sent.iter().map(|p| p.size()).sum::<usize>()).map(|i| i as u8 & 1).collect();
    let uniform = sent.first().filter(|first| sent.iter().all(|p| p == *first)).copied();
    let mut code = uniform.map_or(0, |p| p as u8);
    let mut words = [signature.hash, signature.count, 0, 0];
    let mut is_truthful = true;
    match input.below(12) {
        0 => {
            words[input.below(2)] = input.edge();
            is_truthful = code != 0 || words[..2] == [signature.hash, signature.count];
        }
        1 => {
            let other = input.byte();
            is_truthful = other == code;
            code = other;
        }
        2 => {
            let len = input.below(body.len() + 20);
            is_truthful = len == body.len();
            body.resize(len, 1);
        }
        _ => (),
    }
    if body.len() > 8000 {
        return;
    }
    let fixture = Fixture::new();
    let posted = fixture.post(&fixture.world, Pattern { source: 1, tag: 1 }, datatype, high as usize, count);
    let mut message = head(EAGER, code, 0, 1, words);
    if code != 0 && input.flag() {
        message.truncate(8);
    }
    fixture.play([Step::Frame(1, bind(0, WORLD, 1), vec![]), Step::Frame(1, message, body.clone())]);
    check_outcome(posted, &model, &body, is_truthful.then_some(&sent));
    assert_eq!(fixture.death(), None, "a message of another type must not fail the peer");
    fixture.engine.close();
    drop(fixture.sent());
}

/// Checks the outcome of the receive. `sent` contains the primitives of the message if its head is correct.
fn check_outcome(posted: Posted, model: &Model, body: &[u8], sent: Option<&Vec<Primitive>>) {
    let (outcome, memory) = posted.finish().expect("an eager message completes the receive");
    let mut expected = vec![0xaa; memory.len()];
    let capacity = model.bytes().len();
    let leaves = model.leaves.iter().map(|leaf| leaf.1);
    let packed = |p: &Primitive| *p == Primitive::Packed;
    let is_untyped = sent.is_some_and(|sent| !sent.is_empty() && sent.iter().all(packed))
        || (!model.leaves.is_empty() && model.leaves.iter().all(|leaf| packed(&leaf.1)));
    let fits = sent.is_some_and(|sent| leaves.clone().take(sent.len()).eq(sent.iter().copied()));
    match outcome {
        Ok(envelope) => {
            assert!(body.len() <= capacity);
            assert_eq!(envelope.bytes, body.len());
            if sent.is_some() {
                assert!(fits || is_untyped || body.is_empty(), "{sent:?} into {:?}", model.leaves);
            }
            for (at, byte) in model.bytes().iter().zip(body) {
                expected[*at as usize] = *byte;
            }
        }
        Err(Fault::Truncated { sent, room: there, .. }) => assert_eq!((sent, there), (body.len(), capacity)),
        Err(Fault::TypeMismatch { .. }) => {
            assert!(!fits && !is_untyped && !body.is_empty(), "a message of the right type is rejected")
        }
        // The body has an invalid `bool` or `char`, which was replaced; the rest of the body was received.
        Err(Fault::InvalidValue { .. }) => return,
        Err(other) => panic!("{other}"),
    }
    assert_eq!(memory, expected);
}
