//! Attributes, hints, names and error handlers of communicators.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::common::ranks;
use mpj::raw::{Attribute, AttributeKey};
use mpj::{ErrorClass, Info, Intracomm, Key, Op, World};

/// Counts its drops.
struct Counted(Arc<AtomicUsize>, usize);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[mpj::test(ranks = 2)]
fn attributes_are_set_replaced_and_removed(world: World) -> mpj::Result<()> {
    let comm = world.dup()?;
    let (number, text, unset) = (Key::<usize>::new(), Key::<String>::new(), Key::<usize>::new());
    assert!(comm.set_attribute(&number, world.rank())?.is_none());
    assert!(comm.set_attribute(&text, "one".to_owned())?.is_none());
    assert_eq!(comm.set_attribute(&number, 7)?, Some(Arc::new(world.rank())));
    assert_eq!((comm.attribute(&number), comm.attribute(&unset)), (Some(Arc::new(7)), None));
    // Clones of a key are the same key, and handles of a communicator have the same attributes.
    let handle = comm.clone();
    assert_eq!(handle.attribute(&text.clone()).as_deref().map(String::as_str), Some("one"));
    assert_eq!(handle.remove_attribute(&number), Some(Arc::new(7)));
    assert_eq!((comm.attribute(&number), comm.remove_attribute(&number)), (None, None));
    // An attribute without a copy hook belongs to one communicator: neither its parent nor a duplicate has it.
    assert_eq!((world.attribute(&text), comm.dup()?.attribute(&text)), (None, None));
    comm.free()?;
    assert_eq!(comm.set_attribute(&number, 1).expect_err("freed").class(), ErrorClass::Comm);
    assert_eq!(comm.attribute(&text), None, "freeing removes the attributes");
    world.barrier()
}

#[mpj::test(ranks = 2)]
fn values_are_dropped_when_they_are_replaced_removed_or_their_communicator_is_freed(
    world: World,
) -> mpj::Result<()> {
    let drops = Arc::new(AtomicUsize::new(0));
    let count = || drops.load(Ordering::Relaxed);
    let value = |number| Counted(Arc::clone(&drops), number);
    let (key, other) = (Key::new(), Key::new());
    let comm = world.dup()?;
    drop(comm.set_attribute(&key, value(1))?);
    assert_eq!(count(), 0);
    drop(comm.set_attribute(&key, value(2))?);
    assert_eq!(count(), 1);
    drop(comm.remove_attribute(&key));
    assert_eq!(count(), 2);
    comm.set_attribute(&key, value(3))?;
    comm.set_attribute(&other, value(4))?;
    let kept = comm.attribute(&other).expect("was set");
    comm.free()?;
    assert_eq!(count(), 3, "one value is still in use");
    assert_eq!(kept.1, 4);
    drop(kept);
    assert_eq!(count(), 4);
    // Without `free`, the last handle drops them.
    let comm = world.dup()?;
    comm.set_attribute(&key, value(5))?;
    let handle = comm.clone();
    drop(comm);
    assert_eq!(count(), 4);
    drop(handle);
    assert_eq!(count(), 5);
    Ok(())
}

/// Records its number when it is dropped.
struct Noted(Arc<Mutex<Vec<usize>>>, usize);

impl Drop for Noted {
    fn drop(&mut self) {
        self.0.lock().expect("no panic").push(self.1);
    }
}

#[mpj::test(ranks = 1)]
fn values_are_dropped_in_the_reverse_order(world: World) -> mpj::Result<()> {
    let order = Arc::new(Mutex::new(Vec::new()));
    let comm = world.dup()?;
    for number in 0..4 {
        comm.set_attribute(&Key::new(), Noted(Arc::clone(&order), number))?;
    }
    comm.free()?;
    assert_eq!(*order.lock().expect("no panic"), [3, 2, 1, 0]);
    Ok(())
}

#[mpj::test(ranks = 3)]
fn copy_hooks_decide_what_a_duplicate_gets(world: World) -> mpj::Result<()> {
    let comm = world.dup()?;
    let counted = Key::with_copy(|depth: &usize| Some(depth + 1));
    let (refused, shared) = (Key::with_copy(|_: &usize| None), Key::shared());
    comm.set_attribute(&counted, 10 * world.rank())?;
    comm.set_attribute(&refused, 1)?;
    comm.set_attribute(&shared, vec![world.rank()])?;
    // The hook of `counted` runs on ranks 0 and 1 although rank 2 does not have the attribute.
    if world.rank() == 2 {
        comm.remove_attribute(&counted);
    }
    let expected = |depth: usize| (world.rank() < 2).then(|| Arc::new(10 * world.rank() + depth));
    let check = |twin: &Intracomm, depth| {
        assert_eq!((twin.attribute(&counted), twin.attribute(&refused)), (expected(depth), None));
        let (one, two) = (twin.attribute(&shared), comm.attribute(&shared));
        assert!(one.zip(two).is_some_and(|(one, two)| Arc::ptr_eq(&one, &two)));
    };
    let twin = comm.dup()?;
    check(&twin, 1);
    check(&twin.dup_with_info(&Info::new())?, 2);
    // A request copies the values that the attributes have when it starts.
    let request = comm.idup()?;
    comm.set_attribute(&counted, 99)?;
    check(&request.wait()?, 1);
    // A split does not inherit attributes.
    assert_eq!(comm.split(Some(0), 0)?.expect("has a color").attribute(&shared), None);
    Ok(())
}

#[mpj::test(ranks = 3)]
fn panicking_copy_hook_fails_the_duplication_and_the_original_stays_usable(world: World) -> mpj::Result<()> {
    let me = world.rank();
    let comm = world.dup()?;
    let key = Key::with_copy(|panics: &bool| {
        assert!(!panics, "deliberate");
        Some(false)
    });
    comm.set_attribute(&key, me == 1)?;
    for starts in [false, true] {
        let twin = if starts { comm.idup()?.wait() } else { comm.dup() };
        match twin {
            Err(error) => {
                assert_eq!(me, 1, "{error}");
                assert!(error.to_string().contains("the copy hook of an attribute panicked"), "{error}");
            }
            // On the other ranks the duplication succeeds, and the first collective on the duplicate fails.
            Ok(twin) => {
                let error = twin.barrier().expect_err("rank 1 has no duplicate");
                assert!(error.to_string().contains("the copy hook of an attribute panicked"), "{error}");
            }
        }
        let mut sum = [0usize];
        comm.allreduce(&[me], &mut sum, Op::Sum)?;
        assert_eq!(sum, [3]);
    }
    comm.set_attribute(&key, false)?;
    comm.dup()?.barrier()
}

#[mpj::test(ranks = 2)]
fn panic_of_a_drop_leaves_the_communicator_freed(world: World) -> mpj::Result<()> {
    struct Panics(Arc<AtomicUsize>);
    impl Drop for Panics {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
            panic!("deliberate");
        }
    }
    let drops = Arc::new(AtomicUsize::new(0));
    let comm = world.dup()?;
    let key = Key::new();
    comm.set_attribute(&Key::new(), Counted(Arc::clone(&drops), 0))?;
    comm.set_attribute(&key, Panics(Arc::clone(&drops)))?;
    assert!(catch_unwind(AssertUnwindSafe(|| comm.free())).is_err());
    assert_eq!(drops.load(Ordering::Relaxed), 2, "the other value is dropped, too");
    assert_eq!(comm.barrier().expect_err("freed").class(), ErrorClass::Comm);
    world.barrier()
}

/// Hooks use the communicator for which they run, and others.
#[test]
fn hooks_can_call_the_library() {
    ranks(2, |world| {
        struct BarrierOnDrop(Intracomm, Key<usize>);
        impl Drop for BarrierOnDrop {
            fn drop(&mut self) {
                // The other rank drops its value at the same point.
                self.0.barrier().expect("both ranks are here");
                let _ = self.0.attribute(&self.1);
            }
        }
        let (comm, other, number) = (world.dup()?, world.dup()?, Key::new());
        let inner = comm.clone();
        let copied = number.clone();
        let key = Key::with_copy(move |_: &BarrierOnDrop| {
            let mut sum = [0usize];
            inner.allreduce(&[inner.rank() + 1], &mut sum, Op::Sum).expect("both ranks duplicate");
            inner.set_attribute(&copied, sum[0]).expect("not freed");
            None
        });
        comm.set_attribute(&key, BarrierOnDrop(other, number.clone()))?;
        let twin = comm.dup()?;
        assert_eq!((comm.attribute(&number), twin.attribute(&number)), (Some(Arc::new(3)), None));
        comm.free()
    });
}

#[mpj::test(ranks = 2)]
fn raw_hook_gets_the_original_and_its_error_fails_the_duplication(world: World) -> mpj::Result<()> {
    let comm = world.as_raw().dup()?;
    let key = AttributeKey::with_copy(|original, value| {
        let limit = value.downcast_ref::<u32>().copied().unwrap_or(0);
        original.size().checked_sub(limit).map_or_else(
            || Err(mpj::Error::from(mpj::View::new(&[0u8], 0, &mpj::Datatype::of::<u8>(), 2).unwrap_err())),
            |rest| Ok(Some(Arc::new(rest) as Attribute)),
        )
    });
    comm.set_attribute(&key, Arc::new(2u32))?;
    let copied = comm.dup()?.attribute(&key).expect("copied");
    assert_eq!(copied.downcast_ref::<u32>(), Some(&0));
    comm.set_attribute(&key, Arc::new(3u32))?;
    let error = comm.dup().expect_err("the hook fails");
    assert_eq!((error.class(), error.call()), (ErrorClass::Buffer, "dup"));
    // `raw` stores the error handler for other interfaces, and derived communicators inherit it.
    comm.set_error_handler(Arc::new("handler"));
    let handler = comm.split(0, 0)?.expect("has a color").error_handler().expect("inherited");
    assert_eq!(handler.downcast_ref::<&str>(), Some(&"handler"));
    assert!(world.as_raw().error_handler().is_none());
    Ok(())
}

#[mpj::test(ranks = 2)]
fn hints_are_stored_and_a_duplicate_has_its_own(world: World) -> mpj::Result<()> {
    let comm = world.dup()?;
    assert!(comm.info().is_empty());
    let mut info = Info::new();
    info.set("b", "2")?;
    info.set("a", "1")?;
    assert_eq!(info.set("b", "3")?.as_deref(), Some("2"));
    comm.set_info(info.clone());
    assert_eq!(comm.info().iter().collect::<Vec<_>>(), [("a", "1"), ("b", "3")]);
    assert!(comm.dup()?.info().is_empty());
    let twin = comm.dup_with_info(&info)?;
    assert_eq!((twin.info(), info.remove("a"), info.len()), (comm.info(), Some("1".to_owned()), 1));
    let long = "x".repeat(1024);
    assert_eq!(info.set("", "1").expect_err("empty").class(), ErrorClass::InfoKey);
    assert_eq!(info.set(&long[..256], "1").expect_err("too long").class(), ErrorClass::InfoKey);
    let error = info.set("key", &long).expect_err("too long");
    assert_eq!(error.to_string(), "info: the value of key has 1024 bytes, expected at most 1023");
    info.set(&long[..255], &long[..1023])?;
    Ok(())
}

#[mpj::test(ranks = 2)]
fn names_are_used_in_errors_and_for_children(world: World) -> mpj::Result<()> {
    let comm = world.dup()?;
    assert_eq!((&*world.name(), &*comm.name()), ("world", "world.dup 1"));
    let unnamed = comm.send(&[1u8], 9, 0).expect_err("no such rank").to_string();
    assert_eq!(unnamed, "send on \"world.dup 1\": rank 9 is out of range: the communicator has ranks 0 to 1");
    comm.set_name("halo");
    let named = comm.clone().send(&[1u8], 9, 0).expect_err("no such rank").to_string();
    assert_eq!(named, "send on \"halo\": rank 9 is out of range: the communicator has ranks 0 to 1");
    let names = [comm.dup()?, comm.dup()?, comm.create_group(&comm.group(), 5)?].map(|child| child.name());
    assert_eq!(names.each_ref().map(|name| &**name), ["halo.dup 1", "halo.dup 2", "halo.create_group tag 5"]);
    comm.set_name(&"x".repeat(65));
    assert_eq!(&*comm.split(Some(3), 0)?.expect("has a color").name(), "….split 1 color 3");
    Ok(())
}
