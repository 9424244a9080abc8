//! Every storage, one line each.

#![allow(unsafe_code, reason = "files are for unsafe functions; these files are the tests' own")]

mod suite;

use mpj_pool::{Backing, File, Heap, Huge, Pages, Shared, Storage};

#[test]
fn heap() {
    suite::storage(Heap::create);
}

#[test]
fn pages() {
    suite::storage(Pages::create);
}

#[test]
fn shared() {
    suite::storage(Shared::create);
}

#[test]
fn huge() {
    suite::storage(Huge::create);
}

#[test]
fn file() {
    suite::storage(|len| {
        static COUNT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("mpj-pool-{}-suite{count}", std::process::id()));
        // SAFETY: nobody else knows the file.
        let file = unsafe { File::create(&path, len) };
        if file.is_ok() {
            std::fs::remove_file(path).unwrap();
        }
        file
    });
}

#[test]
fn each_says_what_it_is() {
    assert_eq!(Heap::create(1).unwrap().backing(), Backing::Heap);
    assert_eq!(Shared::create(1).unwrap().backing(), Backing::Shared);
    let pages = Pages::create(1).unwrap();
    assert!(matches!(pages.backing(), Backing::Pages { .. }));
    assert_eq!(pages.base().addr().get() % (2 << 20), 0);
}
