//! Exhausted resources: the error contains the request. A thread that cannot be started is not an error.
#![cfg(all(target_os = "linux", not(mpj_portable)))]

use std::io::Write;
use std::process::Command;

use mpj_pool::{
    AllocError, AllocErrorKind, Growth, Heap, Magazine, Pages, Pool, SharedStorage, Storage, StorageError,
};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Runs `body` in a new process with this resource limit; `name` is the name of the calling test.
fn run_limited(name: &str, resource: Resource, limit: u64, body: impl FnOnce()) {
    const CHILD: &str = "MPJ_POOL_REFUSED";
    if std::env::var(CHILD).as_deref() == Ok(name) {
        let maximum = getrlimit(resource).maximum;
        setrlimit(resource, Rlimit { current: Some(limit), maximum }).unwrap();
        return body();
    }
    if std::env::var_os("ASAN_OPTIONS").is_some() {
        let _ = writeln!(std::io::stderr(), "SKIPPED {name}: does not run under the address sanitizer");
        return;
    }
    // Exceeding the file size limit also raises a signal, which must not end the process.
    let output = Command::new("sh")
        .args(["-c", r#"trap "" XFSZ; exec "$0" "$@""#])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", &format!("refused::{name}"), "--test-threads", "1"])
        .env(CHILD, name)
        .stderr(std::process::Stdio::inherit())
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    let has_passed = output.status.success() && printed.contains("test result: ok. 1 passed");
    assert!(has_passed, "{name} in a process with a limit of {limit}: {printed}");
}

/// Checks that a storage, and a pool over it, report the requested size and the system call.
fn fails_with<S: Storage>(create: fn(usize) -> Result<S, StorageError>, len: usize, what: &str, why: Errno) {
    let errno = why.raw_os_error();
    let StorageError::Refused { asked, call, errno: found } = create(len).unwrap_err() else {
        panic!("another error");
    };
    assert_eq!((asked, call, found), (len, what, errno));

    let pool = Magazine::growing(Growth::default().first_region(len).max_region(len), create);
    let error = pool.alloc(len / 4).unwrap_err();
    let AllocError { requested, live_bytes: live, kind: why, .. } = error;
    assert_eq!((requested, live), (len / 4, 0));
    assert_eq!(why, AllocErrorKind::Storage(StorageError::Refused { asked: len, call, errno }));
    let text = format!("{error}: {}", std::error::Error::source(&error).unwrap());
    assert!(
        text.contains(&(len / 4).to_string()) && text.contains(&format!("{what} for {len} bytes")),
        "{text}"
    );
    pool.validate().unwrap();
}

#[test]
fn exhausted_descriptors_are_an_error() {
    run_limited("exhausted_descriptors_are_an_error", Resource::Nofile, 0, || {
        fails_with(SharedStorage::create, 1 << 20, "memfd_create", Errno::MFILE);
    });
}

#[test]
fn exceeded_file_size_limit_is_an_error() {
    run_limited("exceeded_file_size_limit_is_an_error", Resource::Fsize, 1 << 16, || {
        fails_with(SharedStorage::create, 1 << 20, "fallocate", Errno::FBIG);
        assert!(SharedStorage::create(1 << 12).is_ok(), "a smaller one");
    });
}

#[test]
fn exhausted_address_space_is_an_error() {
    run_limited("exhausted_address_space_is_an_error", Resource::As, 256 << 20, || {
        fails_with(Pages::create, 1 << 30, "mmap", Errno::NOMEM);
        assert!(Pages::create(1 << 20).is_ok(), "a smaller one");
    });
}

#[test]
fn exhausted_memory_for_the_map_of_free_blocks_is_an_error() {
    run_limited("exhausted_memory_for_the_map_of_free_blocks_is_an_error", Resource::As, 1 << 30, || {
        const SIZE: usize = 256 << 20;
        let mut rest = Vec::with_capacity(1 << 10);
        // Takes all memory in pieces of 1 MiB. The map of a region of `SIZE` bytes is longer.
        let mut exhaust = || {
            let mut piece = Vec::<u8>::new();
            while piece.try_reserve_exact(1 << 20).is_ok() {
                rest.push(std::mem::take(&mut piece));
            }
        };
        let [first, second] = [(); 2].map(|()| Heap::create(SIZE).unwrap());
        let expected = StorageError::MapMemory { size: SIZE };
        exhaust();
        assert_eq!(Magazine::fixed(first).unwrap_err(), expected);
        // The failed call has freed the first storage.
        exhaust();
        let second = std::sync::Mutex::new(Some(second));
        let growth = Growth::default().first_region(SIZE).max_region(SIZE);
        let pool = Magazine::growing(growth, move |_| Ok(second.lock().unwrap().take().unwrap()));
        assert_eq!(pool.alloc(1).unwrap_err().kind, AllocErrorKind::Storage(expected));
        drop(rest);
        pool.validate().unwrap();
        assert!(expected.to_string().contains("map of the free blocks of a region of 268435456 bytes"));
    });
}

#[test]
#[cfg_attr(target_pointer_width = "32", ignore = "no address space is left for the pool either")]
fn pages_work_without_a_thread_that_faults_them_in() {
    run_limited("pages_work_without_a_thread_that_faults_them_in", Resource::As, 1 << 30, || {
        // No address space is left for a stack, so the rest of the pages are faulted in on access.
        let pages = (1..=1024).rev().find_map(|size| Pages::create(size << 20).ok()).unwrap();
        assert!(pages.size() > 8 << 20);
        let pool = Magazine::fixed(pages).unwrap();
        let mut block = pool.alloc(8 << 20).unwrap();
        mpj_pool::RawBuffer::as_uninit_mut(&mut block).fill(std::mem::MaybeUninit::new(1));
    });
}
