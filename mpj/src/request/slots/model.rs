//! Models of a slot that one thread fills and other threads free.

use std::sync::Arc as Counted;

use loom::sync::Arc;
use loom::thread;

use super::{SlotMemory, Slots};

type Value = Counted<usize>;
type Slot = Slots<'static, Value, 1>;

/// Leaks the storage, because loom's threads cannot borrow.
fn slot() -> Arc<Slot> {
    Arc::new(Slots::new(Box::leak(Box::new(SlotMemory::new()))))
}

/// The right to free a slot, with the expected value.
struct OwnedSlot(Arc<Slot>, Value);

impl OwnedSlot {
    fn free(self) {
        // SAFETY: the thread that filled the slot passed it to this thread.
        unsafe { self.0.with(0, |seen| assert_eq!(seen, &self.1)) };
        // SAFETY: as above.
        unsafe { self.0.remove(0) };
    }
}

/// One thread tries `times` times to fill a slot, and another thread frees each stored value. Each of these threads
/// finds the value that was passed to it, and every value is dropped.
fn check_fill_and_free(times: usize) {
    loom::model(move || {
        let slot = slot();
        let values: Vec<_> = (0..times).map(Value::new).collect();
        let mut others = Vec::new();
        for value in &values {
            if slot.is_free(0) {
                // SAFETY: the slot is free, and only this thread fills it.
                unsafe { slot.insert(0, Counted::clone(value)) };
                let owned = OwnedSlot(Arc::clone(&slot), Counted::clone(value));
                others.push(thread::spawn(move || owned.free()));
            }
        }
        assert!(!others.is_empty(), "the slot is free at first");
        for other in others {
            other.join().unwrap();
        }
        for value in values {
            assert_eq!(Counted::strong_count(&value), 1, "the value is dropped");
        }
    });
}

#[test]
fn slot_filled_by_one_thread_is_freed_by_another() {
    check_fill_and_free(1);
}

#[test]
fn slot_is_refilled_while_other_threads_free_it() {
    check_fill_and_free(3);
}

#[test]
fn one_thread_fills_and_frees_a_slot_repeatedly() {
    loom::model(|| {
        let slot = slot();
        for number in 0..3 {
            let value = Value::new(number);
            assert!(slot.is_free(0));
            // SAFETY: the slot is free, and only this thread fills it.
            unsafe { slot.insert(0, Counted::clone(&value)) };
            assert!(!slot.is_free(0));
            OwnedSlot(Arc::clone(&slot), Counted::clone(&value)).free();
            assert_eq!(Counted::strong_count(&value), 1);
        }
    });
}
