//! Models of a slot that threads take one after the other.

use std::sync::Arc as Counted;

use loom::sync::Arc;
use loom::thread;

use super::Slot;

type Value = Counted<usize>;

/// Keeps a value for a moment, if the slot is free, and finds nothing but that.
fn pass_through(slot: &Slot<Value>, value: &Value) -> bool {
    let held = slot.hold(Counted::clone(value));
    if held.is_ok() {
        // SAFETY: `hold` made us the holder.
        unsafe { slot.see(|seen| assert_eq!(seen, Some(value))) };
        // SAFETY: as above.
        unsafe { slot.free() };
    }
    held.is_ok()
}

/// Some threads use a slot: it has one holder at a time, who finds what it put there, and every value is dropped.
///
/// That it is free again can be asked only before there are others: loom may order a `hold` that failed after the `free`
/// that it did not see.
fn one_holder_at_a_time(threads: usize, times: usize) {
    loom::model(move || {
        let slot = Arc::new(Slot::new());
        let mine = Value::new(0);
        assert!(pass_through(&slot, &mine) && pass_through(&slot, &mine), "it is free when nobody holds it");
        let others: Vec<_> = (1..threads)
            .map(|me| {
                let slot = Arc::clone(&slot);
                thread::spawn(move || {
                    let value = Value::new(me);
                    for _ in 0..times {
                        pass_through(&slot, &value);
                    }
                    value
                })
            })
            .collect();
        for _ in 0..times {
            pass_through(&slot, &mine);
        }
        for value in others.into_iter().map(|other| other.join().unwrap()) {
            assert_eq!(Counted::strong_count(&value), 1, "the slot has dropped it");
        }
        assert_eq!(Counted::strong_count(&mine), 1);
    });
}

#[test]
fn two_threads_hold_it_in_turn() {
    one_holder_at_a_time(2, 2);
}

#[test]
fn three_threads_hold_it_in_turn() {
    one_holder_at_a_time(3, 1);
}

/// The holder lets another thread look, frees the slot when that is done, and a third that tries meanwhile finds it held
/// or free.
#[test]
fn who_was_lent_the_right_to_look_sees_the_value() {
    loom::model(|| {
        let slot = Arc::new(Slot::new());
        let value = Value::new(0);
        assert!(slot.hold(Counted::clone(&value)).is_ok());
        let looker = {
            let slot = Arc::clone(&slot);
            // SAFETY: the holder lends the right until it has joined this thread.
            thread::spawn(move || unsafe { slot.see(|seen| seen.map(|value| **value)) })
        };
        let other = {
            let slot = Arc::clone(&slot);
            thread::spawn(move || pass_through(&slot, &Value::new(1)))
        };
        // SAFETY: `hold` made us the holder.
        unsafe { slot.see(|seen| assert_eq!(seen, Some(&value))) };
        assert_eq!(looker.join().unwrap(), Some(0));
        // SAFETY: as above; nobody looks any more.
        unsafe { slot.free() };
        other.join().unwrap();
        assert_eq!(Counted::strong_count(&value), 1);
    });
}

/// A holder that forgets the slot leaves the value to who ends all of them.
#[test]
fn what_its_holder_forgot_is_taken_out() {
    loom::model(|| {
        let slot = Arc::new(Slot::new());
        let value = Value::new(0);
        let other = {
            let (slot, value) = (Arc::clone(&slot), Counted::clone(&value));
            thread::spawn(move || slot.hold(value).is_ok())
        };
        let mine = pass_through(&slot, &Value::new(1));
        let forgotten = other.join().unwrap();
        assert!(mine || forgotten, "one of two finds it free");
        // SAFETY: both have gone.
        assert_eq!(unsafe { slot.take() }.is_some(), forgotten);
        assert_eq!(Counted::strong_count(&value), 1);
    });
}
