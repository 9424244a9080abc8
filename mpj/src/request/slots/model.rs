//! Models of a slot that one thread fills and other threads free.

use std::sync::Arc as Counted;

use loom::sync::Arc;
use loom::thread;

use super::{SlotMemory, Slots};

type Value = Counted<usize>;
type Slot = Slots<'static, Value, 1>;

/// Returns a slot whose storage is leaked, because loom's threads cannot borrow.
fn slot() -> Arc<Slot> {
    Arc::new(Slots::new(Box::leak(Box::new(SlotMemory::new()))))
}

/// The right to free a slot, which moves to another thread together with the expected value.
struct Held(Arc<Slot>, Value);

impl Held {
    fn give_up(self) {
        // SAFETY: the thread that filled the slot passed it to us.
        unsafe { self.0.see(0, |seen| assert_eq!(seen, &self.1)) };
        // SAFETY: as above.
        unsafe { self.0.free(0) };
    }
}

/// One thread fills a slot whenever it is free, up to `times`, and other threads free it. Each of these finds the value
/// that was stored last, and every value is dropped.
fn taken_and_given_up(times: usize) {
    loom::model(move || {
        let slot = slot();
        let values: Vec<_> = (0..times).map(Value::new).collect();
        let mut others = Vec::new();
        for value in &values {
            if slot.is_free(0) {
                // SAFETY: the slot is free, and only this thread fills it.
                unsafe { slot.insert(0, Counted::clone(value)) };
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
            // SAFETY: the slot is free, and only this thread fills it.
            unsafe { slot.insert(0, Counted::clone(&value)) };
            assert!(!slot.is_free(0));
            Held(Arc::clone(&slot), Counted::clone(&value)).give_up();
            assert_eq!(Counted::strong_count(&value), 1);
        }
    });
}
