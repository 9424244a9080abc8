//! Every storage in the conformance suite, and the kind of memory of some.

#![allow(unsafe_code, reason = "functions on files are unsafe; no other code uses these files")]

use mpj_pool::{Backing, Heap, Huge, Pages, Storage};

#[test]
fn heap_conforms() {
    crate::contracts::storage(Heap::create);
}

#[test]
fn pages_conforms() {
    crate::contracts::storage(Pages::create);
}

#[cfg(all(target_os = "linux", not(mpj_portable)))]
#[test]
fn shared_conforms() {
    crate::contracts::storage(mpj_pool::SharedStorage::create);
}

#[test]
fn huge_conforms() {
    crate::contracts::storage(Huge::create);
}

#[cfg(all(any(target_os = "linux", target_os = "macos"), not(mpj_portable)))]
#[test]
fn file_conforms() {
    crate::contracts::storage(|len| {
        static COUNT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("mpj-pool-{}-suite{count}", std::process::id()));
        // SAFETY: no other code knows the file.
        let file = unsafe { mpj_pool::FileStorage::create(&path, len) };
        if file.is_ok() {
            std::fs::remove_file(path).unwrap();
        }
        file
    });
}

#[test]
fn storages_report_their_backing() {
    assert_eq!(Heap::create(1).unwrap().backing(), Backing::Heap);
    #[cfg(all(target_os = "linux", not(mpj_portable)))]
    assert_eq!(mpj_pool::SharedStorage::create(1).unwrap().backing(), Backing::Shared);
    let pages = Pages::create(1).unwrap();
    assert!(matches!(pages.backing(), Backing::Pages { .. }));
    assert_eq!(pages.base().addr().get() % (2 << 20), 0);
}
