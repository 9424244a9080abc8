#![allow(unsafe_code, reason = "bytes of a mapping are read and written by address")]

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::LazyLock;

use mpj_devices::Segment;
use mpj_devices::config::Config;
use mpj_pool::{SharedStorage, StorageError};
use rustix::fs::{MemfdFlags, SealFlags};

use crate::input::Input;

const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);
const HEADER: usize = 4096;

/// Creates a file like a segment, with some fields changed, and attaches it as a segment of a pool or of a job. Invalid
/// files are rejected, and accepted memory lies within the file.
pub fn shared(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let job = input.flag();
    let len = if job { JOB.bytes() as u64 + HEADER as u64 } else { 8192 };
    let len = match input.below(8) {
        0 => input.u64() % 20_000,
        1 => len - input.below(3) as u64,
        2 => len + input.u64() % 9000,
        _ => len,
    };
    let mut seals = SEALS;
    if input.below(8) == 7 {
        seals = SealFlags::from_bits_truncate(u32::from(input.byte()) & SEALS.bits());
    }
    let mut header = header(job, len);
    for _ in 0..input.below(4) {
        let (at, value) = (input.below(if job { 72 } else { 40 }), input.edge().to_le_bytes());
        // The words of the header, then those of the job's layout.
        let (at, width) = if at < 40 { (at / 4 * 4, 8) } else { (HEADER + (at - 40) / 4 * 4, 4) };
        header[at..at + width].copy_from_slice(&value[..width]);
    }
    let fd = file(&header, len, seals);
    let good = seals == SEALS && len > HEADER as u64 && word(&header, 16) == len - HEADER as u64;
    let good = good && header[..16] == *b"MPJPOOL\0\x01\0\0\0\x00\x10\0\0";
    if job {
        // SAFETY: nothing else has the file.
        if let Ok(segment) = unsafe { Segment::attach(fd, 2) } {
            assert!(good && segment.bytes() as u64 <= len - HEADER as u64);
        }
        return;
    }
    match SharedStorage::attach(fd) {
        Err(error) => {
            assert!(!good && !error.to_string().is_empty(), "{error}");
            let short = len <= HEADER as u64 && seals == SEALS;
            assert_eq!(short, matches!(error, StorageError::Short { found, .. } if found == len), "{error}");
        }
        Ok(view) => {
            assert!(good && view.size() as u64 == len - HEADER as u64);
            assert_eq!((view.epoch(), view.size() > 0), (word(&header, 24), true));
            let (offset, count) = (input.edge() as usize, input.edge() as usize);
            let inside = offset as u128 + count as u128 <= view.size() as u128;
            assert_eq!(view.ptr_at(offset, count).is_some(), inside);
            for at in [0, view.size() - 1] {
                let byte = view.ptr_at(at, 1).expect("inside");
                // SAFETY: `ptr_at` has checked the range, and nothing else has the file.
                unsafe { byte.write_volatile(7) };
                // SAFETY: as above.
                assert_eq!(unsafe { byte.read_volatile() }, 7);
            }
        }
    }
}

static JOB: LazyLock<Segment> = LazyLock::new(|| Segment::create(2, &Config::default()).expect("memory"));

/// Returns the beginning of a valid file: its header and, for a job, the layout of the segment.
fn header(job: bool, len: u64) -> Vec<u8> {
    static GOOD: LazyLock<Vec<u8>> = LazyLock::new(|| {
        // SAFETY: the duplicate is only read, and no rank uses the memory.
        let fd = unsafe { JOB.descriptor() }.try_clone_to_owned();
        let file = File::from(fd.expect("a descriptor"));
        let mut bytes = vec![0; HEADER + 64];
        file.read_exact_at(&mut bytes, 0).expect("a header");
        bytes
    });
    let mut header = GOOD.clone();
    if !job {
        header[HEADER..].fill(0);
    }
    header[16..24].copy_from_slice(&len.saturating_sub(HEADER as u64).to_le_bytes());
    header
}

fn file(header: &[u8], len: u64, seals: SealFlags) -> OwnedFd {
    let fd = rustix::fs::memfd_create("forged", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING);
    let file = File::from(fd.expect("a file"));
    file.write_all_at(&header[..header.len().min(len as usize)], 0).expect("room");
    file.set_len(len).expect("room");
    rustix::fs::fcntl_add_seals(&file, seals).expect("seals");
    file.into()
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].try_into().map(u64::from_le_bytes).expect("eight bytes")
}
