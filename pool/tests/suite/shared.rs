//! Attaching shared segments: valid ones, and each defect.
#![allow(unsafe_code, reason = "reads and writes through a second mapping, as a peer would")]
#![cfg(all(target_os = "linux", not(mpj_portable)))]

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

use mpj_pool::{Buddy, Pool, RawBuffer, SegmentView, SharedStorage, Storage, StorageError};
use rustix::fs::{MemfdFlags, SealFlags};

fn duplicate(segment: &SharedStorage) -> OwnedFd {
    // SAFETY: the tests attach it, and read the header of its file.
    unsafe { segment.borrow_fd() }.try_clone_to_owned().unwrap()
}

/// Creates a memfd of `len` bytes with `seals`, and with the header of a segment of `like` bytes after `change`.
fn forge(len: u64, like: usize, seals: SealFlags, change: impl FnOnce(&mut [u8])) -> OwnedFd {
    let mut header = [0; 4096];
    File::from(duplicate(&SharedStorage::create(like).unwrap())).read_exact_at(&mut header, 0).unwrap();
    change(&mut header);
    let fd = rustix::fs::memfd_create("forged", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    let file = File::from(fd);
    file.write_all_at(&header[..len.min(4096) as usize], 0).unwrap();
    file.set_len(len).unwrap();
    rustix::fs::fcntl_add_seals(&file, seals).unwrap();
    file.into()
}

const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

fn attach(fd: OwnedFd) -> StorageError {
    SharedStorage::attach(fd).map(|view: SegmentView| view.size()).unwrap_err()
}

#[test]
fn a_peer_reads_and_writes_a_block() {
    let segment = SharedStorage::create(100_000).unwrap();
    let epoch = segment.epoch();
    let view = SharedStorage::attach(duplicate(&segment)).unwrap().expect_epoch(epoch).unwrap();
    assert_eq!((view.size(), Some(view.key())), (segment.size(), segment.key()));
    assert_ne!(view.base(), segment.base(), "a mapping of its own");
    let pool = Buddy::fixed(segment).unwrap();
    let mut block = pool.alloc(1000).unwrap();
    block.as_uninit_mut()[999].write(77);
    let (_, offset) = block.region_offset().unwrap();
    let peer = view.ptr_at(offset + 999, 1).unwrap();
    // SAFETY: `ptr_at` has checked the range; nothing writes the byte meanwhile.
    assert_eq!(unsafe { peer.read_volatile() }, 77);
    // SAFETY: as above; the block is not borrowed.
    unsafe { peer.write_volatile(78) };
    let own = block.as_ptr().as_ptr().wrapping_add(999);
    // SAFETY: the byte lies in the block, and was written above.
    assert_eq!(unsafe { own.read_volatile() }, 78);
    drop((block, pool));
    // SAFETY: the view keeps its own mapping.
    unsafe { peer.write_volatile(79) };
    // SAFETY: as above.
    assert_eq!(unsafe { peer.read_volatile() }, 79);
}

#[test]
fn ptr_at_rejects_ranges_outside_the_segment() {
    let view = SharedStorage::attach(duplicate(&SharedStorage::create(8192).unwrap())).unwrap();
    assert_eq!(view.ptr_at(0, 8192), Some(view.base()));
    assert!(view.ptr_at(8192, 0).is_some());
    for (offset, len) in [(0, 8193), (8192, 1), (8193, 0), (usize::MAX, 1), (1, usize::MAX)] {
        assert_eq!(view.ptr_at(offset, len), None, "{offset} {len}");
    }
}

fn allocated_bytes(view: &SegmentView) -> u64 {
    // SAFETY: the duplicate is only queried for its state.
    let fd = unsafe { view.borrow_fd() }.try_clone_to_owned().unwrap();
    File::from(fd).metadata().map(|file| std::os::unix::fs::MetadataExt::blocks(&file) * 512).unwrap()
}

#[test]
fn only_committed_ranges_have_memory() {
    const MIB: usize = 1 << 20;
    let unbacked = SharedStorage::create_unbacked(16 * MIB).unwrap();
    assert!(allocated_bytes(&unbacked) <= 4096, "its header alone");
    // SAFETY: the duplicate is attached.
    let view = SharedStorage::attach(unsafe { unbacked.borrow_fd() }.try_clone_to_owned().unwrap()).unwrap();
    view.commit(3 * MIB, MIB).unwrap();
    let committed = allocated_bytes(&unbacked);
    assert!((MIB as u64..=MIB as u64 + 2 * 4096).contains(&committed), "{committed}");
    // All mappings see the memory; a second commit changes nothing.
    let byte = unbacked.ptr_at(3 * MIB + 5, 1).unwrap();
    // SAFETY: `ptr_at` has checked the range; nothing else uses the byte.
    unsafe { byte.write_volatile(7) };
    view.commit(3 * MIB, MIB).unwrap();
    view.commit(0, 0).unwrap();
    let seen = view.ptr_at(3 * MIB + 5, 1).unwrap();
    // SAFETY: as above.
    assert_eq!((unsafe { seen.read_volatile() }, allocated_bytes(&view)), (7, committed));
    for (offset, len) in [(16 * MIB, 1), (0, 16 * MIB + 1), (usize::MAX, 1), (1, usize::MAX)] {
        assert_eq!(view.commit(offset, len), Err(StorageError::Range { offset, len, size: 16 * MIB }));
    }
}

#[test]
fn two_processes_share_a_block() {
    // Cargo builds the example with the tests, unless only this test program was requested.
    let tests = std::env::current_exe().unwrap();
    let example = tests.parent().and_then(|deps| deps.parent()).unwrap().join("examples/two_processes");
    if example.exists() {
        let output = std::process::Command::new(example).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stdout).contains("written by another process"));
    } else {
        let _ = writeln!(std::io::stderr(), "SKIPPED two_processes_share_a_block: the example was not built");
    }
}

#[test]
fn sealed_segments_cannot_be_resized() {
    let segment = SharedStorage::create(4096).unwrap();
    let file = File::from(duplicate(&segment));
    assert!(file.set_len(0).is_err(), "cannot shrink");
    assert!(file.set_len(1 << 20).is_err(), "cannot grow");
    assert!(rustix::fs::fcntl_add_seals(&file, SealFlags::WRITE).is_err(), "cannot seal further");
}

#[test]
fn a_copy_of_a_valid_segment_is_accepted() {
    assert!(SharedStorage::attach(forge(8192, 4096, SEALS, |_| {})).is_ok());
}

#[test]
fn an_unsealed_segment_is_rejected() {
    for missing in [SealFlags::SHRINK, SealFlags::GROW, SealFlags::SEAL, SEALS] {
        let fd = forge(8192, 4096, SEALS.difference(missing), |_| {});
        let StorageError::Unsealed { needed, found } = attach(fd) else { panic!("{missing:?}") };
        assert_eq!(needed & !found, missing.bits());
    }
}

#[test]
fn a_short_segment_is_rejected() {
    for len in [0, 1, 31, 32, 4095, 4096] {
        assert_eq!(attach(forge(len, 4096, SEALS, |_| {})), StorageError::Short { needed: 4097, found: len });
    }
}

#[test]
fn a_zero_filled_segment_is_rejected() {
    assert_eq!(attach(forge(8192, 4096, SEALS, |header| header.fill(0))), StorageError::Unfinished);
}

#[test]
fn another_version_is_rejected() {
    let fd = forge(8192, 4096, SEALS, |header| header[8] = 2);
    assert_eq!(attach(fd), StorageError::Version { needed: 1, found: 2 });
}

#[test]
fn a_wrong_size_is_rejected() {
    let fd = forge(8192, 8192, SEALS, |_| {});
    assert_eq!(attach(fd), StorageError::Length { header: 8192, file: 4096 });
    let fd = forge(8192, 4096, SEALS, |header| header[16..24].fill(255));
    assert_eq!(attach(fd), StorageError::Length { header: u64::MAX, file: 4096 });
}

#[test]
fn another_header_length_is_rejected() {
    let fd = forge(8192, 4096, SEALS, |header| header[12] = 64);
    assert_eq!(attach(fd), StorageError::Short { needed: 4096, found: 4160 });
}

#[test]
fn another_epoch_is_rejected() {
    let segment = SharedStorage::create(1).unwrap();
    let (needed, found) = (segment.epoch() ^ 1, segment.epoch());
    let error =
        SharedStorage::attach(duplicate(&segment)).unwrap().expect_epoch(needed).map(|view| view.size());
    assert_eq!(error, Err(StorageError::Epoch { needed, found }));
}

#[test]
fn descriptors_of_other_kinds_are_rejected() {
    let (pipe, _writer) = std::io::pipe().unwrap();
    assert!(matches!(attach(pipe.into()), StorageError::Refused { call: "fcntl", .. }));
    let file = File::open("/proc/self/exe").unwrap();
    assert!(matches!(attach(file.into()), StorageError::Refused { call: "fcntl", .. }));
}

#[test]
fn a_read_only_descriptor_is_rejected() {
    let segment = SharedStorage::create(4096).unwrap();
    let fd = duplicate(&segment);
    let file = File::open(format!("/proc/self/fd/{}", fd.as_raw_fd())).unwrap();
    assert!(matches!(attach(file.into()), StorageError::Refused { call: "mmap", .. }));
}

#[test]
fn error_texts_name_both_values() {
    for (error, text) in [
        (StorageError::Short { needed: 4097, found: 3 }, "segment or its header has 3 bytes, needed 4097"),
        (StorageError::Version { needed: 1, found: 9 }, "segment has version 9, expected 1"),
        (StorageError::Length { header: 5, file: 4 }, "segment header claims 5 bytes, the file has 4"),
    ] {
        assert_eq!(error.to_string(), text);
    }
}
