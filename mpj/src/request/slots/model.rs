//! Models of a place that one thread takes and others give up.

use std::sync::Arc as Counted;

use loom::sync::Arc;
use loom::thread;

use super::{Room, Slots};

type Value = Counted<usize>;
type Slot = Slots<'static, Value, 1>;

/// A place whose room is never given back: loom's threads borrow nothing.
fn slot() -> Arc<Slot> {
    Arc::new(Slots::new(Box::leak(Box::new(Room::new()))))
}

/// The right to free a place, which goes to another thread with what it should find there.
struct Held(Arc<Slot>, Value);

impl Held {
    fn give_up(self) {
        // SAFETY: who held the place has passed it on.
        unsafe { self.0.see(0, |seen| assert_eq!(seen, &self.1)) };
        // SAFETY: as above.
        unsafe { self.0.free(0) };
    }
}

/// One thread takes a place as often as it is free, up to `times`, and others give it up: what they find there is what was
/// put there last, and every value is dropped.
fn taken_and_given_up(times: usize) {
    loom::model(move || {
        let slot = slot();
        let values: Vec<_> = (0..times).map(Value::new).collect();
        let mut others = Vec::new();
        for value in &values {
            if slot.is_free(0) {
                // SAFETY: it is free, and this thread alone takes it.
                unsafe { slot.hold(0, Counted::clone(value)) };
                let held = Held(Arc::clone(&slot), Counted::clone(value));
                others.push(thread::spawn(move || held.give_up()));
            }
        }
        assert!(!others.is_empty(), "it was free at first");
        for other in others {
            other.join().unwrap();
        }
        for value in values {
            assert_eq!(Counted::strong_count(&value), 1, "it was dropped");
        }
    });
}

#[test]
fn another_thread_gives_it_up() {
    taken_and_given_up(1);
}

#[test]
fn it_is_taken_again_while_others_give_it_up() {
    taken_and_given_up(3);
}

#[test]
fn one_thread_takes_it_and_gives_it_up_again_and_again() {
    loom::model(|| {
        let slot = slot();
        for number in 0..3 {
            let value = Value::new(number);
            assert!(slot.is_free(0));
            // SAFETY: it is free, and this thread alone takes it.
            unsafe { slot.hold(0, Counted::clone(&value)) };
            assert!(!slot.is_free(0));
            Held(Arc::clone(&slot), Counted::clone(&value)).give_up();
            assert_eq!(Counted::strong_count(&value), 1);
        }
    });
}
