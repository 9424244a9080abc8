//! Models of memory that is revoked while it is read.

use loom::sync::Arc;
use loom::thread;

use mpj_datatypes::Datatype;

use super::SmExposedTable;
use crate::device::{MemoryDesc, QuiesceStatus};

const OLD: u8 = 7;
const NEW: u8 = 9;

fn bytes(at: *mut u8) -> MemoryDesc {
    MemoryDesc::new(at, 1, Datatype::of::<u8>()).unwrap()
}

fn read(table: &SmExposedTable, number: u64) -> Option<u8> {
    let mut byte = 0;
    let to = bytes(&raw mut byte);
    // SAFETY: the byte is writable, and ours.
    unsafe { table.get(number, 0, to.part(0, 1, None)) }.ok().map(|()| byte)
}

/// `readers` threads read while the owner revokes the entry and writes to the byte.
fn reads_during_a_revoke(readers: usize) {
    loom::model(move || {
        let table = Arc::new(SmExposedTable::default());
        let byte = Box::into_raw(Box::new(OLD));
        // SAFETY: the byte is written only after the revoke below, and freed at the end.
        let number = unsafe { table.expose(bytes(byte), None) };
        let readers: Vec<_> = (0..readers)
            .map(|_| {
                let table = Arc::clone(&table);
                thread::spawn(move || read(&table, number))
            })
            .collect();
        table.revoke(number);
        // SAFETY: this is what the model checks: nobody reads the byte any more.
        unsafe { byte.write(NEW) };
        for reader in readers {
            assert_ne!(reader.join().unwrap(), Some(NEW), "the byte was read after the owner had it back");
        }
        assert_eq!(read(&table, number), None);
        // SAFETY: made by `Box::into_raw` above.
        drop(unsafe { Box::from_raw(byte) });
    });
}

#[test]
fn revoke_waits_for_the_reader() {
    reads_during_a_revoke(1);
}

#[test]
fn revoke_waits_for_all_readers() {
    reads_during_a_revoke(2);
}

/// The owner writes to the byte when the byte is quiesced.
#[test]
fn last_reader_reports_the_quiesce() {
    loom::model(|| {
        let table = Arc::new(SmExposedTable::default());
        let byte = Box::into_raw(Box::new(OLD));
        let at = byte.expose_provenance();
        // SAFETY: the byte is written only when it is quiesced, and freed at the end.
        let number = unsafe { table.expose(bytes(byte), None) };
        let reader = {
            let table = Arc::clone(&table);
            thread::spawn(move || read(&table, number))
        };
        let write = move || {
            // SAFETY: this is what the model checks: nobody reads the byte any more.
            unsafe { std::ptr::with_exposed_provenance_mut::<u8>(at).write(NEW) };
        };
        if table.quiesce(number, write) == QuiesceStatus::Done {
            write();
        }
        assert_ne!(reader.join().unwrap(), Some(NEW), "the byte was read after the owner had it back");
        assert_eq!(read(&table, number), None);
        table.revoke(number);
        // SAFETY: made by `Box::into_raw` above.
        let byte = unsafe { Box::from_raw(byte) };
        assert_eq!(*byte, NEW, "the owner was notified");
    });
}
