//! Named files: valid ones, and each defect.
#![allow(unsafe_code, reason = "functions on files are unsafe; no other code uses these files")]
#![cfg(all(any(target_os = "linux", target_os = "macos"), not(mpj_portable)))]

use std::fs;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use mpj_pool::{FileStorage, Growth, Magazine, Pool, RawBuffer, Storage, StorageError};

/// A temporary path. A file there is removed on creation and on drop of this value.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("mpj-pool-{}-{name}", std::process::id()));
        let _ = fs::remove_file(&path);
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn create(path: &Scratch, len: usize) -> Result<FileStorage, StorageError> {
    // SAFETY: no other code knows the file.
    unsafe { FileStorage::create(&path.0, len) }
}

fn attach(path: &Scratch) -> Result<usize, StorageError> {
    // SAFETY: no other code knows the file, and the tests do not truncate it while it is mapped.
    unsafe { FileStorage::attach(&path.0) }.map(|view| view.size())
}

#[test]
fn a_peer_reads_a_block_through_the_named_file() {
    let path = Scratch::new("peer");
    let file = create(&path, 1 << 20).unwrap();
    let key = file.key();
    // SAFETY: as in `attach`.
    let view = unsafe { FileStorage::attach(&path.0) }.unwrap().expect_epoch(file.epoch()).unwrap();
    let pool = Magazine::fixed(file).unwrap();
    let mut block = pool.alloc(5000).unwrap();
    block.as_uninit_mut()[4999].write(7);
    let (found, offset) = block.region_offset().unwrap();
    assert_eq!((Some(found), Some(view.key())), (key, key));
    // SAFETY: `ptr_at` has checked the range, and no other code writes there now.
    assert_eq!(unsafe { view.ptr_at(offset + 4999, 1).unwrap().read_volatile() }, 7);
}

#[test]
fn each_defect_of_a_file_has_its_error() {
    let path = Scratch::new("wrong");
    assert!(matches!(attach(&path), Err(StorageError::Refused { call: "open", errno: 2, .. })), "no file");
    drop(create(&path, 8192).unwrap());
    assert_eq!(attach(&path), Ok(8192));
    assert!(
        matches!(create(&path, 8192), Err(StorageError::Refused { call: "open", errno: 17, .. })),
        "the file exists"
    );
    let file = fs::OpenOptions::new().write(true).open(&path.0).unwrap();
    let (good, mut header) = (fs::read(&path.0).unwrap(), [0; 32]);
    header.copy_from_slice(&good[..32]);
    header[8] = 9;
    file.write_all_at(&header, 0).unwrap();
    assert_eq!(attach(&path), Err(StorageError::Version { needed: 1, found: 9 }));
    file.write_all_at(&[1; 8], 0).unwrap();
    assert_eq!(attach(&path), Err(StorageError::Magic { found: 0x0101_0101_0101_0101 }));
    file.write_all_at(&[0; 32], 0).unwrap();
    assert_eq!(attach(&path), Err(StorageError::Unfinished));
    file.write_all_at(&good[..32], 0).unwrap();
    file.set_len(8192).unwrap();
    assert_eq!(attach(&path), Err(StorageError::Length { header: 8192, file: 4096 }));
    for len in [0, 10, 4096] {
        file.set_len(len).unwrap();
        assert_eq!(attach(&path), Err(StorageError::Short { needed: 4097, found: len }));
    }
    let mut directory = Scratch(std::env::temp_dir());
    assert!(matches!(attach(&directory), Err(StorageError::Refused { .. })));
    directory.0.clear();
}

#[test]
fn files_of_other_users_are_rejected() {
    let path = Scratch::new("user");
    drop(create(&path, 4096).unwrap());
    if std::os::unix::fs::chown(&path.0, Some(65534), None).is_ok() {
        assert_eq!(attach(&path), Err(StorageError::Owner { needed: 0, found: 65534 }));
    } else {
        let _ =
            writeln!(std::io::stderr(), "SKIPPED files_of_other_users_are_rejected: only root can `chown`");
    }
}

#[test]
fn a_pool_can_grow_by_files() {
    let paths: Vec<_> = (0..3).map(|at| Scratch::new(&format!("grow{at}"))).collect();
    let names: Vec<_> = paths.iter().map(|path| path.0.clone()).collect();
    let next = std::sync::atomic::AtomicUsize::new(0);
    let pool = Magazine::growing(Growth::default(), move |len| {
        let at = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        // SAFETY: no other code knows the files.
        unsafe { FileStorage::create(&names[at], len) }
    });
    let blocks: Vec<_> = (0..3).map(|_| pool.alloc(1 << 20).unwrap()).collect();
    assert_eq!(pool.stats().regions, 2);
    drop(blocks);
    pool.validate().unwrap();
}
