//! Pooled, aligned, registrable memory for messages.
//!
//! A [`Storage`] is a stable range of bytes. A [`Pool`] allocates blocks from storages. A block is a [`RawBuffer`];
//! dropping it, on any thread, frees it. [`Pool::alloc`] does not zero blocks. Each block is aligned to the largest
//! power of two ≤ min(requested length, 4096), at least 64.
//!
//! # Which storage?
//! | storage | memory | use it |
//! |---|---|---|
//! | [`Pages`] | anonymous pages, huge if possible; the first 4 MiB faulted in at creation, the rest by a thread | by default |
//! | [`Heap`] | the global allocator | for small pools, and under tools that check allocations |
//! | [`Huge`] | huge pages of the system's reserve, or [`Pages`] if it has none | for regions of gigabytes |
//! | [`FileStorage`] | a named file; its functions are unsafe | for pools larger than the main memory, or found by name |
//! | [`SharedStorage`] | a sealed memfd that other processes can map | to pass blocks to other processes of the host by offset |
//!
//! A device registers the [region](RawBuffer::region) of a block at its first use, once for all blocks of the region
//! ([`Registrations`]). Blocks of [`Buddy1`] and [`Buddy2`] cannot be registered.
//!
//! # Which pool?
//! | pool | description | use it |
//! |---|---|---|
//! | [`global()`] | the [`DefaultPool`] of the process | by default |
//! | [`Magazine::growing`] | a separate pool, with or without a limit | to limit or to separate memory |
//! | [`Magazine::fixed`] | a pool over one storage | for a shared segment, or a region registered in advance |
//! | [`Buddy1`], [`Buddy2`], [`Unpooled`] | the pools of the mpjbuf paper, and no pool | for comparisons; see [`strategy::with_pool`] |
//! | [`Buddy`] | one lock, no caches; blocks that share a region have a power of two as their size | for small pools, in which caches would hold too much |
//!
//! # Cost
//! | | time | memory |
//! |---|---|---|
//! | a block that the thread has cached | a few ns, the same at 64 B and 8 MiB; no lock | the size class. Above 256 B: at most +25 %, or +75 % in a block that was cached for a larger class |
//! | a block freed on another thread | a lock per batch of up to 64 blocks; above 512 KiB, a lock per block | the same |
//! | a block that is not cached | usually one or two locks | the same |
//! | the first block of a region | the system's time to allocate the pages, once | regions double, 1 MiB to 16 MiB by default |
//! | a block above half the largest region | a region of its own; at most eight idle ones are kept | a multiple of 4096 bytes |
//! | the cache of a thread | | at most 8 MiB in blocks up to 512 KiB, and 8 MiB in larger ones; each at most a 32nd of the limit of the pool |
//! | the depot | | at most 8 MiB, and a 32nd of the limit |
//! | large blocks in the caches of all threads, in addition | | a quarter of the largest total size of the regions that blocks share; with [`Growth::return_after`], of the live bytes |
//! | bookkeeping | | 0.8 % of a region, outside it; up to 75 KiB per thread and pool |
//!
//! `cargo run --release -p mpj-pool --example pool_timings` prints times and peak memory.
//!
//! # Examples
//! A server: one thread receives into blocks, other threads process and drop them.
//!
//! ```
//! use std::sync::mpsc::sync_channel;
//! use mpj_pool::{Growth, Magazine, Pages, Pool, FilledBlock};
//!
//! let pool = Magazine::growing(Growth::default().limit(64 << 20), Pages::create);
//! let (send, receive) = sync_channel::<FilledBlock<_>>(8);
//! let worker = std::thread::spawn(move || receive.iter().map(|message| message.as_ref().len()).sum::<usize>());
//! for request in 0..100usize {
//!     let mut message = FilledBlock::new(pool.alloc(10_000)?);
//!     message.extend_from_slice(&request.to_le_bytes())?; // or read from a socket
//!     send.send(message)?;
//! }
//! drop(send);
//! assert_eq!(worker.join().unwrap(), 800);
//! assert_eq!(pool.stats().live_blocks, 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! For collections in a pool, see [`PoolAllocator`](crate#features); for a block that is passed to another process by
//! its offset, see `examples/two_processes.rs`.
//!
//! # Features
//! * `allocator-api2`: `PoolAllocator`, an allocator for `allocator_api2::vec::Vec` and hashbrown's maps.
//! * `bytes`: [`FilledBlock`] is a `bytes::BufMut` and becomes a `bytes::Bytes` without a copy.
//!
//! Neither is on by default. The crate compiles no C.
//!
//! # Platforms
//! The README lists the storages of each system. The crate supports 32-bit and 64-bit CPUs of either byte order, with
//! 64-bit atomics or (by `portable-atomic`) without. With 32-bit addresses, a block of a [`Magazine`] or [`Buddy`] has
//! at most 1 GiB.
//!
//! # Safety model
//! * The bytes of a block belong to its handle alone. `unsafe` code that accesses them through the pointer must keep
//!   the handle alive and borrowed accordingly.
//! * Except in [`Buddy1`], free blocks are recorded outside the memory, so a late write to a freed block does not
//!   corrupt the pool.
//! * `SharedStorage::attach` rejects a segment that is not sealed, so no peer can truncate a segment while it is read.
//! * Peers that map a segment are trusted not to write into blocks that were not sent to them: one user on one host is
//!   one trust domain. Readers must still check everything that peers write.

mod buddy;
mod cache;
mod class;
mod error;
mod raw;
mod stats;
mod storage;
pub mod strategy;

#[allow(unsafe_code, reason = "blocks point to their arena without a reference count")]
mod arena;
#[allow(unsafe_code, reason = "a block owns its bytes")]
mod block;
#[allow(unsafe_code, reason = "reads bytes that are known to be written")]
mod filled_block;
#[cfg(feature = "allocator-api2")]
#[allow(unsafe_code, reason = "keeps a handle in front of a collection's bytes")]
mod pool_allocator;
#[allow(unsafe_code, reason = "drops a storage unless a device might still write to it")]
mod registration;
#[allow(unsafe_code, reason = "the cell under the lock")]
mod sync;

use std::sync::OnceLock;
use std::time::Duration;

pub use block::Block;
pub use class::{MAX_ALIGN, MIN_BLOCK, alignment};
pub use error::{AllocError, AllocErrorKind};
pub use filled_block::{FilledBlock, Overflow};
#[cfg(feature = "allocator-api2")]
pub use pool_allocator::PoolAllocator;
pub use raw::{Pool, RawBuffer, ReadBlock, RegionKey};
pub use registration::{Access, Region, RegionRegistration, RegisterError, Registrations};
pub use stats::PoolStats;
#[cfg(all(target_os = "linux", not(mpj_portable)))]
pub use storage::SharedStorage;
pub use storage::{Backing, Heap, Huge, Pages, Storage, StorageError};
#[cfg(all(any(target_os = "linux", target_os = "macos"), not(mpj_portable)))]
pub use storage::{FileStorage, SegmentView};
pub use strategy::{Buddy, Buddy1, Buddy2, Growth, Magazine, PrivateStorage, Unpooled};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// The type of the [`global`] pool, which may change in a later version.
pub type DefaultPool = Magazine<Pages>;

/// A block of a [`DefaultPool`].
pub type DefaultBlock = <DefaultPool as Pool>::Block;

/// Returns the pool of this process, which is created on first use and has no limit. The pool returns pages that have
/// been free for about a second to the system; see [`Growth::return_after`].
///
/// ```
/// use mpj_pool::{Pool, RawBuffer};
/// assert_eq!(mpj_pool::global().alloc(4096)?.as_ptr().addr().get() % 4096, 0);
/// # Ok::<(), mpj_pool::AllocError>(())
/// ```
pub fn global() -> &'static DefaultPool {
    const IDLE: Duration = Duration::from_secs(1);
    static POOL: OnceLock<DefaultPool> = OnceLock::new();
    POOL.get_or_init(|| Magazine::growing(Growth::DEFAULT.return_after(IDLE), Pages::create))
}
