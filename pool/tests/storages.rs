//! Every storage, one line each.

#![allow(unsafe_code, reason = "files are for unsafe functions; these files are the tests' own")]

mod suite;

use mpj_pool::{Backing, Heap, Huge, Pages, Storage};

#[test]
fn heap() {
    suite::storage(Heap::create);
}

#[test]
fn pages() {
    suite::storage(Pages::create);
}

#[cfg(all(target_os = "linux", not(mpj_portable)))]
#[test]
fn shared() {
    suite::storage(mpj_pool::Shared::create);
}

#[test]
fn huge() {
    suite::storage(Huge::create);
}

#[cfg(all(any(target_os = "linux", target_os = "macos"), not(mpj_portable)))]
#[test]
fn file() {
    suite::storage(|len| {
        static COUNT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("mpj-pool-{}-suite{count}", std::process::id()));
        // SAFETY: nobody else knows the file.
        let file = unsafe { mpj_pool::File::create(&path, len) };
        if file.is_ok() {
            std::fs::remove_file(path).unwrap();
        }
        file
    });
}

#[test]
fn each_says_what_it_is() {
    assert_eq!(Heap::create(1).unwrap().backing(), Backing::Heap);
    #[cfg(all(target_os = "linux", not(mpj_portable)))]
    assert_eq!(mpj_pool::Shared::create(1).unwrap().backing(), Backing::Shared);
    let pages = Pages::create(1).unwrap();
    assert!(matches!(pages.backing(), Backing::Pages { .. }));
    assert_eq!(pages.base().addr().get() % (2 << 20), 0);
}
