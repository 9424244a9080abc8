//! Different types can have the same signature hash. Memory safety must not depend on signatures.

use std::mem::MaybeUninit;

use mpj::{Datatype, ErrorClass, Op};

macro_rules! field {
    (0) => {
        u8
    };
    (1) => {
        bool
    };
}

macro_rules! structure {
    ($name:ident: $($bit:tt)*) => {
        #[repr(C)]
        #[derive(Clone, Copy, mpj::Datatype)]
        struct $name($(field!($bit)),*);
    };
}

// The signatures of these two types sum the same powers of the base, so they are equal. Many fields are `bool` in one
// type and numbers in the other.
structure! {
    One:
     0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
     0 1 0 1 0 0 0 0 0 1 0 1 1 0 1 1 1 0 1 1 1 1 1 1 1 0 0 0 0 1 0 1 1 1 1 1 0 1 0 0
}
structure! {
    Other:
     0 0 0 1 0 0 1 1 1 0 0 0 0 0 1 1 1 0 1 0 1 1 1 1 1 0 0 1 0 0 0 1 0 1 0 0 0 1 0 1
     0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
}

/// Returns whether every `bool` of the item is valid, and sets invalid ones to `false`.
fn is_valid<T: mpj::Receivable>(item: &mut MaybeUninit<T>) -> bool {
    // SAFETY: the item is ours, and every test fills it.
    #[expect(unsafe_code, reason = "the bytes must be validated before they are read as a `bool`")]
    let found = unsafe { T::datatype().validate(item.as_mut_ptr().cast(), 1, size_of::<T>()) };
    found.is_ok()
}

/// Returns an item with all bytes equal to `byte`, except that invalid `bool`s are set to `false`.
fn filled<T: mpj::Receivable>(byte: u8) -> T {
    let mut item = MaybeUninit::<T>::uninit();
    // SAFETY: all of the item is written.
    #[expect(unsafe_code, reason = "eighty fields at once")]
    unsafe {
        item.as_mut_ptr().write_bytes(byte, 1);
    }
    is_valid(&mut item);
    // SAFETY: all bytes are initialised, and `is_valid` has replaced invalid `bool`s.
    #[expect(unsafe_code, reason = "see above")]
    unsafe {
        item.assume_init()
    }
}

#[mpj::test(ranks = 1)]
fn local_copy_rejects_invalid_bools(world: mpj::World) -> mpj::Result<()> {
    assert_eq!(Datatype::of::<One>().signature(), Datatype::of::<Other>().signature(), "equal signatures");
    let mut got = MaybeUninit::new(filled::<Other>(0));
    // SAFETY: it was made from a valid item, and a sound library keeps it valid.
    #[expect(unsafe_code, reason = "if the library is unsound, the check below fails")]
    let outcome = world.allgather(&filled::<One>(7), unsafe { got.assume_init_mut() });
    assert!(is_valid(&mut got), "{outcome:?}, and bools that are neither true nor false");
    assert_eq!(outcome.expect_err("7 is no bool").class(), ErrorClass::Type);
    Ok(())
}

#[mpj::test(ranks = 2)]
fn user_op_is_not_called_with_another_type(world: mpj::World) -> mpj::Result<()> {
    let sent = filled::<One>(7);
    let mut got = sent;
    let op = Op::user(true, |a: &Other, _: &Other| *a);
    let refused = world.dup()?.allreduce(&sent, &mut got, op).expect_err("items of another type");
    assert_eq!(refused.class(), ErrorClass::Op);
    world.allreduce(&sent, &mut got, Op::user(true, |a: &One, _: &One| *a))
}
