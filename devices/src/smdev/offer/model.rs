//! Models of an offer that is taken back while it is read.

use loom::sync::Arc;
use loom::thread;

use super::Offers;
use crate::device::RemoteKey;

const OLD: u8 = 7;
const NEW: u8 = 9;

/// Reads one byte of an offer, if it still stands.
fn read(offers: &Offers, key: RemoteKey) -> Option<u8> {
    let mut byte = 0;
    // SAFETY: one byte is copied, to a local.
    unsafe { offers.get(key, &raw mut byte, 1) }.ok().map(|()| byte)
}

/// `readers` threads read while the owner takes the offer back and writes over the byte.
fn reads_beside_a_revoke(readers: usize) {
    loom::model(move || {
        let offers = Arc::new(Offers::default());
        let byte = Box::into_raw(Box::new(OLD));
        // SAFETY: the byte is written only after the revoke below, and freed at the end.
        let key = unsafe { offers.offer(byte, 1) };
        let readers: Vec<_> = (0..readers)
            .map(|_| {
                let offers = Arc::clone(&offers);
                thread::spawn(move || read(&offers, key))
            })
            .collect();
        offers.revoke(key);
        // SAFETY: what the model is about: nobody reads it any more.
        unsafe { byte.write(NEW) };
        for reader in readers {
            assert_ne!(reader.join().unwrap(), Some(NEW), "read after the owner had it back");
        }
        assert_eq!(read(&offers, key), None);
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
