//! Memory whose state changes between operations: it is mapped again, moved, shared with a child process, or cannot be
//! locked. Each operation must access the memory that is mapped at its address at that time.
#![cfg(all(target_os = "linux", not(mpj_portable)))]
#![expect(unsafe_code, reason = "memory is mapped, unmapped, and handed to operations by its address")]

use std::io::{Read, Write};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};

use mpj_datatypes::Datatype;
use mpj_devices::config::Config;
use mpj_devices::conformance::{Case, Member, run_threads, unavailable};
use mpj_devices::{Buf, Coalesce, Mode, Pattern, Source, Target, Traffic};
use mpj_pool::{Growth, Heap, Magazine, Pool, RawBuffer, Region};

/// Longer than the eager limits, and than the contiguous messages for which `ibvdev` uses a bounce buffer.
const LEN: usize = 1 << 20;

/// Serialises the jobs, because they change mappings and limits of the whole process.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Whether the host lacks InfiniBand and RoCE devices. If so, the first use prints that to standard error, bypassing
/// the output capture of tests that pass.
static NO_VERBS: LazyLock<bool> = LazyLock::new(|| {
    let missing = unavailable("ibvdev");
    if let Some(why) = &missing {
        let _ = writeln!(std::io::stderr(), "SKIPPED, all tests of ibvdev: {why}");
    }
    missing.is_some()
});

fn run(device: &str, case: &'static Case) {
    if device == "ibvdev" && *NO_VERBS {
        return;
    }
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    start(device, case);
}

fn start(device: &str, case: &'static Case) {
    run_threads(|all| all.select(&[device]).unwrap(), &Config::default(), case.ranks[0], case);
}

/// [`LEN`] bytes of private pages, which are unmapped when this is dropped.
struct Pages(*mut u8);

impl Pages {
    fn new() -> Self {
        Pages::map(ptr::null_mut(), 0)
    }

    fn map(place: *mut u8, fixed: libc::c_int) -> Self {
        let (access, kind) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | fixed);
        // SAFETY: pages are replaced only by their owner.
        let at = unsafe { libc::mmap(place.cast(), LEN, access, kind, -1, 0) };
        assert_ne!(at, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        Pages(at.cast())
    }

    /// Replaces the pages by new ones at the same address, in one call: between two calls, another thread could map
    /// something there.
    fn renew(self) -> Self {
        let pages = Pages::map(self.0, libc::MAP_FIXED);
        std::mem::forget(self);
        pages
    }

    /// Moves the pages to another address, and maps new ones at their old address.
    fn move_away(self) -> (Self, Self) {
        let to = Pages::new();
        let how = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
        // SAFETY: both ranges are this type's own pages, and those at the new address are replaced.
        let moved = unsafe { libc::mremap(self.0.cast(), LEN, LEN, how, to.0) };
        assert_eq!(moved, to.0.cast(), "{}", std::io::Error::last_os_error());
        (self, to)
    }

    /// Discards the contents: the next access finds zeros.
    fn discard(&mut self) {
        // SAFETY: the pages are private and anonymous, and no reference to them exists.
        assert_eq!(unsafe { libc::madvise(self.0.cast(), LEN, libc::MADV_DONTNEED) }, 0);
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the pages are mapped and initially zero; the borrow is the only one.
        unsafe { std::slice::from_raw_parts_mut(self.0, LEN) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: nothing refers to the pages any more.
        unsafe { libc::munmap(self.0.cast(), LEN) };
    }
}

fn content(round: u8) -> impl Iterator<Item = u8> {
    (0..LEN).map(move |at| (at / 4096) as u8 ^ (at as u8).wrapping_mul(round))
}

fn exchange(m: &Member, bytes: &mut [u8], region: Option<&Region>, round: u8) {
    if m.rank == 0 {
        bytes.iter_mut().zip(content(round)).for_each(|(byte, new)| *byte = new);
    } else {
        bytes.fill(0xee);
    }
    let buf = Buf::new(bytes.as_mut_ptr(), bytes.len(), Datatype::of::<u8>()).in_region(region);
    m.barrier();
    if m.rank == 0 {
        // SAFETY: the bytes are borrowed for longer than the operation, which is waited for.
        let source = unsafe { Source::new(buf, None) }.unwrap();
        let sent =
            m.engine.send(&m.world, 1, i32::from(round), source, Mode::Standard, Coalesce::Allowed).unwrap();
        m.engine.wait(sent).unwrap();
    } else {
        // SAFETY: as above, and nothing else accesses them meanwhile.
        let target = unsafe { Target::new(buf, None) }.unwrap();
        let pattern = Pattern { source: 0, tag: round.into() };
        let received = m.engine.recv(&m.world, pattern, target).unwrap();
        m.engine.wait(received).unwrap();
        assert!(bytes.iter().copied().eq(content(round).take(bytes.len())), "round {round}");
    }
}

fn remap(m: &Member) {
    let mut pages = Pages::new();
    exchange(m, pages.bytes(), None, 1);
    exchange(m, pages.bytes(), None, 2);
    let mut pages = pages.renew();
    exchange(m, pages.bytes(), None, 3);
    let (mut pages, mut moved) = pages.move_away();
    exchange(m, pages.bytes(), None, 4);
    assert!(
        m.rank == 0 || moved.bytes().iter().copied().eq(content(3)),
        "the pages that were moved away were written"
    );
    exchange(m, moved.bytes(), None, 5);
    assert!(pages.bytes().iter().copied().eq(content(4)));
    pages.discard();
    exchange(m, pages.bytes(), None, 6);
    m.barrier();
}

/// Fills the first [`LEN`] bytes of a block with zeros and returns them. They are not borrowed from the block, because
/// the callers still use its region.
fn filled<'a>(block: &mut impl RawBuffer) -> &'a mut [u8] {
    let room = &mut block.as_uninit_mut()[..LEN];
    room.fill(std::mem::MaybeUninit::new(0));
    // SAFETY: the bytes are initialised, and the callers keep the block and make no other reference to them.
    unsafe { std::slice::from_raw_parts_mut(room.as_mut_ptr().cast(), LEN) }
}

fn traffic(m: &Member) -> Traffic {
    m.engine.stats().devices[0].1
}

/// Sends from one pool block to another, before and after a fork. `ibvdev` registers the region of a block once, and
/// copies no bodies.
fn pooled(m: &Member) {
    let pool = Magazine::growing(Growth::default(), Heap::create);
    let mut block = pool.alloc(LEN).unwrap();
    let bytes = filled(&mut block);
    let region = block.region();
    exchange(m, bytes, region, 1);
    let registers = m.engine.stats().devices[0].0 == "ibvdev";
    let first = traffic(m);
    assert!(
        !registers || (first.registered.number, first.registered.bytes) == (1, region.unwrap().len as u64)
    );
    for round in 2..6 {
        exchange(m, bytes, region, round);
    }
    let then = traffic(m);
    assert!(!registers || then.registered == first.registered, "a block is registered once: {then:?}");
    assert!(
        !registers || then.copied.bytes - first.copied.bytes < 100,
        "bodies are read, not copied: {then:?}"
    );

    // A child process that shares the memory copy-on-write.
    let child = (m.rank == 0).then(Child::fork);
    exchange(m, bytes, region, 7);
    exchange(m, bytes, region, 8);
    m.barrier();
    drop(child);
}

/// Short and noncontiguous messages go through registered bounce buffers of the global pool. If a receive buffer is
/// longer than its message, only the bytes of the message are registered.
fn short_or_strided(m: &Member) {
    let (mut pages, before) = (Pages::new(), traffic(m));
    for part in 1..4 {
        exchange(m, &mut pages.bytes()[..LEN >> (part + 2)], None, part);
    }
    let known = traffic(m);
    assert!(known.registered.number - before.registered.number <= 1, "only bounce buffers: {known:?}");

    let strided = Datatype::of::<u8>().vector(LEN / 4, 2, 4).unwrap();
    let bytes = pages.bytes();
    bytes.iter_mut().zip(content(4)).for_each(|(byte, new)| *byte = if m.rank == 0 { new } else { 0xee });
    let sent = || content(4).enumerate().map(|(at, byte)| if at % 4 < 2 { byte } else { 0xee });
    let buf = Buf::new(bytes.as_mut_ptr(), 1, strided);
    m.barrier();
    if m.rank == 0 {
        // SAFETY: the bytes are borrowed for longer than the operation, which is waited for.
        let source = unsafe { Source::new(buf, None) }.unwrap();
        let sent = m.engine.send(&m.world, 1, 4, source, Mode::Standard, Coalesce::Allowed).unwrap();
        m.engine.wait(sent).unwrap();
    } else {
        // SAFETY: as above, and nothing else accesses them meanwhile.
        let target = unsafe { Target::new(buf, None) }.unwrap();
        let received = m.engine.recv(&m.world, Pattern { source: 0, tag: 4 }, target).unwrap();
        m.engine.wait(received).unwrap();
        assert!(bytes.iter().copied().eq(sent()));
    }
    let then = traffic(m);
    assert!(then.copied.bytes - known.copied.bytes < 100, "the block was read, not copied: {then:?}");

    let part = LEN / 2;
    if m.rank == 0 {
        let bytes: Vec<u8> = content(5).take(part).collect();
        m.send(1, 5, &bytes);
    } else {
        let bytes = pages.bytes();
        // SAFETY: as above.
        let target = unsafe { Target::new(Buf::new(bytes.as_mut_ptr(), LEN, Datatype::of::<u8>()), None) };
        let received = m.engine.recv(&m.world, Pattern { source: 0, tag: 5 }, target.unwrap()).unwrap();
        m.engine.wait(received).unwrap();
        assert!(bytes[..part].iter().copied().eq(content(5).take(part)));
        let last = traffic(m);
        assert_eq!(last.registered.bytes - then.registered.bytes, part as u64, "{last:?}");
    }
    m.barrier();
}

/// A child process that waits until it is killed or its pipe is closed.
struct Child {
    pid: libc::pid_t,
    /// The write end of the pipe. The exit of the parent closes it.
    _alive: std::io::PipeWriter,
}

impl Child {
    fn fork() -> Self {
        let (mut wait, alive) = std::io::pipe().unwrap();
        // SAFETY: the child only closes a descriptor, reads and exits.
        match unsafe { libc::fork() } {
            0 => {
                drop(alive);
                let _ = wait.read(&mut [0]);
                // SAFETY: the child exits at once.
                unsafe { libc::_exit(0) }
            }
            pid => {
                assert!(pid > 0, "{}", std::io::Error::last_os_error());
                Child { pid, _alive: alive }
            }
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // SAFETY: the child is this process's, and has not been waited for.
        unsafe { libc::kill(self.pid, libc::SIGKILL) };
        // SAFETY: as above.
        unsafe { libc::waitpid(self.pid, ptr::null_mut(), 0) };
    }
}

macro_rules! tests {
    ($($device:ident)*) => {$(
        mod $device {
            use super::*;

            #[test]
            fn remapped_memory_is_sent_and_received() {
                run(stringify!($device), &Case { name: "remap", ranks: &[2], run: remap });
            }

            #[test]
            fn pool_blocks_are_sent_before_and_after_a_fork() {
                run(stringify!($device), &Case { name: "pooled", ranks: &[2], run: pooled });
            }
        }
    )*};
}

tests! { smdev shmdev niodev ibvdev }

#[test]
fn ibvdev_does_not_register_short_or_noncontiguous_memory() {
    run("ibvdev", &Case { name: "short_or_strided", ranks: &[2], run: short_or_strided });
}

/// Counts the warnings about the limit of locked memory.
struct Warnings(AtomicUsize);

static WARNINGS: Warnings = Warnings(AtomicUsize::new(0));

impl log::Log for Warnings {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        if record.args().to_string().contains("ulimit -l") {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn flush(&self) {}
}

/// Sets the limit of locked memory of the process; returns the previous one.
fn limit_locked(to: libc::rlim_t) -> libc::rlim_t {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is a local variable.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) }, 0);
    let before = std::mem::replace(&mut limit.rlim_cur, to);
    // SAFETY: as above.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &limit) }, 0);
    before
}

/// Removes the capability to exceed the limit of locked memory from this thread and from threads that it starts later.
fn drop_lock_capability() {
    const IPC_LOCK: u32 = 14;
    // Version 3 of the capability sets; 0 is the calling thread.
    let mut header = [0x2008_0522_u32, 0];
    let mut sets = [0u32; 6];
    // SAFETY: there is room for two sets of three words.
    assert_eq!(unsafe { libc::syscall(libc::SYS_capget, header.as_mut_ptr(), sets.as_mut_ptr()) }, 0);
    sets[0] &= !(1 << IPC_LOCK);
    // SAFETY: as above.
    assert_eq!(unsafe { libc::syscall(libc::SYS_capset, header.as_mut_ptr(), sets.as_ptr()) }, 0);
}

/// While the process can lock only 64 KiB, messages from user memory and from a pool go in frames. After the limit is
/// raised, the device registers the region of the pool.
fn locked(m: &Member) {
    let pool = Magazine::growing(Growth::default(), Heap::create);
    let mut block = pool.alloc(LEN).unwrap();
    let mut pages = Pages::new();
    exchange(m, pages.bytes(), None, 1);
    m.barrier();
    let before = (m.rank == 0).then(|| limit_locked(64 << 10));
    let registered = traffic(m).registered;
    for round in 2..5 {
        exchange(m, pages.bytes(), None, round);
    }
    let bytes = filled(&mut block);
    exchange(m, bytes, block.region(), 5);
    assert_eq!(traffic(m).registered, registered);
    m.barrier();
    before.map(limit_locked);
    m.barrier();
    exchange(m, bytes, block.region(), 6);
    assert_eq!(traffic(m).registered.number, registered.number + 1);
    m.barrier();
}

#[test]
fn ibvdev_sends_unlockable_memory_in_frames_and_warns_once() {
    log::set_logger(&WARNINGS).unwrap();
    log::set_max_level(log::LevelFilter::Warn);
    let limited = std::thread::spawn(|| {
        drop_lock_capability();
        run("ibvdev", &Case { name: "locked", ranks: &[2], run: locked });
    });
    limited.join().unwrap();
    // Only the sending rank warns: the receiver gets no key, so it registers nothing.
    assert_eq!(WARNINGS.0.load(Ordering::Relaxed), usize::from(!*NO_VERBS));
}

/// The number of ranks. All except the first two connect late.
const LATE_RANKS: u32 = 8;

/// Many concurrent messages through bounce buffers leave enough lockable memory for peers that connect later.
fn late_connections(m: &Member) {
    const MESSAGES: usize = 64;
    let mut all: Vec<Vec<u8>> = (0..MESSAGES).map(|at| vec![at as u8; 64 << 10]).collect();
    match m.rank {
        0 => {
            m.send(1, 1, &[1u8]);
            m.recv::<u8>(1, 1, 1);
        }
        1 => {
            m.recv::<u8>(0, 1, 1);
            m.send(0, 1, &[1u8]);
        }
        _ => (),
    }
    if m.rank < 2 {
        let started: Vec<_> = all
            .iter_mut()
            .map(|bytes| {
                let buf = Buf::new(bytes.as_mut_ptr(), bytes.len(), Datatype::of::<u8>());
                if m.rank == 0 {
                    // SAFETY: the bytes outlive the operation, which is waited for.
                    let source = unsafe { Source::new(buf, None) }.unwrap();
                    m.engine.send(&m.world, 1, 2, source, Mode::Standard, Coalesce::Allowed).unwrap()
                } else {
                    // SAFETY: as above.
                    let target = unsafe { Target::new(buf, None) }.unwrap();
                    m.engine.recv(&m.world, Pattern { source: 0, tag: 2 }, target).unwrap()
                }
            })
            .collect();
        started.into_iter().for_each(|started| assert!(m.engine.wait(started).is_ok()));
        assert!(all.iter().enumerate().all(|(at, bytes)| bytes.iter().all(|byte| *byte == at as u8)));
    }
    if m.rank == 0 {
        for rank in 2..LATE_RANKS {
            m.send(rank, 3, &[rank]);
            assert_eq!(m.recv::<u32>(rank.cast_signed(), 3, 1).1, [rank]);
        }
    } else if m.rank > 1 {
        let (_, rank) = m.recv::<u32>(0, 3, 1);
        m.send(0, 3, &rank);
    }
}

#[test]
fn ibvdev_connects_after_messages_have_locked_memory() {
    if *NO_VERBS {
        return;
    }
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let limited = std::thread::spawn(|| {
        drop_lock_capability();
        let before = limit_locked(8 << 20);
        start("ibvdev", &Case { name: "late_connections", ranks: &[LATE_RANKS], run: late_connections });
        limit_locked(before);
    });
    limited.join().unwrap();
}
