//! Models of memory that is revoked while it is read.

use loom::sync::Arc;
use loom::thread;

use mpj_datatypes::Datatype;

use super::ExposedTable;
use crate::device::{MemoryDesc, QuiesceStatus};

const OLD: u8 = 7;
const NEW: u8 = 9;

fn bytes(at: *mut u8) -> MemoryDesc {
    MemoryDesc::new(at, 1, Datatype::of::<u8>()).unwrap()
}

/// Reads one byte of an entry, if the entry is still valid.
fn read(offers: &ExposedTable, number: u64) -> Option<u8> {
    let mut byte = 0;
    let to = bytes(&raw mut byte);
    // SAFETY: one byte is copied, to a local variable.
    let copy = |from: *const u8, to: *mut u8, _: usize| unsafe { to.write(from.read()) };
    // SAFETY: the byte is writable, and ours.
    unsafe { offers.get(number, 0, to.part(0, 1, None), copy) }.ok().map(|()| byte)
}

/// `readers` threads read while the owner revokes the entry and writes to the byte.
fn reads_beside_a_revoke(readers: usize) {
    loom::model(move || {
        let offers = Arc::new(ExposedTable::default());
        let byte = Box::into_raw(Box::new(OLD));
        // SAFETY: the byte is written only after the revoke below, and freed at the end.
        let number = unsafe { offers.expose(bytes(byte), None) };
        let readers: Vec<_> = (0..readers)
            .map(|_| {
                let offers = Arc::clone(&offers);
                thread::spawn(move || read(&offers, number))
            })
            .collect();
        offers.revoke(number);
        // SAFETY: this is what the model checks: nobody reads the byte any more.
        unsafe { byte.write(NEW) };
        for reader in readers {
            assert_ne!(reader.join().unwrap(), Some(NEW), "read after the owner had it back");
        }
        assert_eq!(read(&offers, number), None);
        // SAFETY: made by `Box::into_raw` above.
        drop(unsafe { Box::from_raw(byte) });
    });
}

#[test]
fn a_revoke_waits_for_the_reader() {
    reads_beside_a_revoke(1);
}

#[test]
fn a_revoke_waits_for_all_readers() {
    reads_beside_a_revoke(2);
}

/// The owner writes to the byte when it is told that nobody reads it any more.
#[test]
fn the_last_reader_tells_that_it_is_quiet() {
    loom::model(|| {
        let offers = Arc::new(ExposedTable::default());
        let byte = Box::into_raw(Box::new(OLD));
        let at = byte.expose_provenance();
        // SAFETY: the byte is written only when it is quiesced, and freed at the end.
        let number = unsafe { offers.expose(bytes(byte), None) };
        let reader = {
            let offers = Arc::clone(&offers);
            thread::spawn(move || read(&offers, number))
        };
        let write = move || {
            // SAFETY: this is what the model checks: nobody reads the byte any more.
            unsafe { std::ptr::with_exposed_provenance_mut::<u8>(at).write(NEW) };
        };
        if offers.quiesce(number, write) == QuiesceStatus::Done {
            write();
        }
        assert_ne!(reader.join().unwrap(), Some(NEW), "read after the owner had it back");
        assert_eq!(read(&offers, number), None);
        offers.revoke(number);
        // SAFETY: made by `Box::into_raw` above.
        let byte = unsafe { Box::from_raw(byte) };
        assert_eq!(*byte, NEW, "the owner was told");
    });
}
