//! Models of a slot that one thread takes and others give up.

use std::sync::Arc as Counted;

use loom::sync::Arc;
use loom::thread;

use super::Slot;

type Value = Counted<usize>;

/// The right to free a slot, which goes to another thread with what it should find there.
struct Held(Arc<Slot<Value>>, Value);

impl Held {
    fn give_up(self) {
        // SAFETY: who held the slot has passed it on.
        unsafe { self.0.see(|seen| assert_eq!(seen, Some(&self.1))) };
        // SAFETY: as above.
        unsafe { self.0.free() };
    }
}

/// One thread takes a slot as often as it is free, up to `times`, and others give it up: what they find there is what was
/// put there last, and every value is dropped.
fn taken_and_given_up(times: usize) {
    loom::model(move || {
        let slot = Arc::new(Slot::new());
        let values: Vec<_> = (0..times).map(Value::new).collect();
        let mut others = Vec::new();
        for value in &values {
            // SAFETY: this thread alone takes it.
            let held = unsafe { slot.hold(Counted::clone(value)) };
            if held.is_ok() {
                let held = Held(Arc::clone(&slot), Counted::clone(value));
                others.push(thread::spawn(move || held.give_up()));
            }
        }
        assert!(!others.is_empty(), "it was free at first");
        for other in others {
            other.join().unwrap();
        }
        for value in values {
            assert_eq!(Counted::strong_count(&value), 1, "the slot has dropped it");
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
        let slot = Arc::new(Slot::new());
        for number in 0..3 {
            let value = Value::new(number);
            // SAFETY: this thread alone takes it.
            assert!(unsafe { slot.hold(Counted::clone(&value)) }.is_ok());
            // SAFETY: as above.
            assert!(unsafe { slot.hold(Counted::clone(&value)) }.is_err(), "it is not free");
            Held(Arc::clone(&slot), Counted::clone(&value)).give_up();
            assert_eq!(Counted::strong_count(&value), 1);
        }
    });
}
