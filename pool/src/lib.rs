//! Pooled, aligned, registrable memory for messages.
//!
//! A [`Storage`] is a stable range of bytes; a [`Pool`] hands out blocks of such ranges; a block is a [`RawBuffer`],
//! and dropping it, on any thread, gives it back. Blocks are not zeroed, pages are not returned between messages, and
//! every block is aligned to the largest power of two ≤ min(its length, 4096), at least 64.
//!
//! ```
//! use mpj_pool::{Pool, RawBuffer};
//!
//! let mut block = mpj_pool::global().alloc(1000)?;
//! let bytes = block.as_uninit_mut();
//! assert_eq!(bytes.len(), 1024);
//! bytes[0].write(42);
//! # Ok::<(), mpj_pool::AllocError>(())
//! ```
//!
//! A pool gives a server or a simulation memory for messages that one thread allocates and another frees, megabytes at
//! a time, without a lock, a page fault or a `memset`. The memory is aligned, and registered or shared if needed.
//!
//! # Which storage?
//! | storage | its memory | take it |
//! |---|---|---|
//! | [`Pages`] | anonymous pages, huge if the system lets, faulted in when made, the rest of large ones by a thread | by default |
//! | [`Heap`] | the global allocator, faulted in when touched | for small pools, and under tools that watch the allocator |
//! | [`Huge`] | huge pages of the system's reserve, or [`Pages`] if it has none | for regions of gigabytes |
//! | [`FileStorage`] | a file with a name; its functions are unsafe | for pools larger than memory, to be found by name |
//! | [`SharedStorage`] | a sealed memfd that other processes may map | to send blocks to other processes of the host by offset |
//!
//! A custom one: implement [`Storage`], whose documentation lists the requirements.
//!
//! Devices can register any of them: a device registers the [region](RawBuffer::region) of a block when it is first
//! used with one, once for all blocks of the region and independently of other devices ([`Registrations`]).
//!
//! # Which pool?
//! | pool | what it is | take it |
//! |---|---|---|
//! | [`global()`] | the process's own [`DefaultPool`] | by default |
//! | [`Magazine::growing`] | a pool of your own, with a limit if you like | to bound or to separate memory |
//! | [`Magazine::fixed`] | a pool over one storage | for a shared segment, or a region registered in advance |
//! | [`Buddy1`], [`Buddy2`], [`Unpooled`] | the mpjbuf paper's pools, and none | to compare; see [`strategy::visit`] |
//! | [`Buddy`] | the same without magazines: one lock, nothing kept | where the last byte of a small pool counts |
//!
//! # What it costs
//! | | time | memory |
//! |---|---|---|
//! | a block that the thread has freed before | 2 to 3 ns, the same at 64 B and 8 MiB; no atomic instruction | the size class: +9 % on average, +25 % at most above 256 B, +60 % for one that was kept for another class |
//! | a block freed on another thread | a lock for dozens of blocks | the same |
//! | a block that nobody kept | one lock, some tens of ns, however many live | a run of neighbours, the rest stays free |
//! | the first block of a region | the system's time to hand out the pages, once | regions double, 1 MiB to 16 MiB by default |
//! | a block above half a region | a mapping of its own; the last eight idle ones are kept | whole pages |
//! | what a thread keeps | | 8 MiB in blocks up to 512 KiB, 8 MiB in greater ones; a 32nd of the pool's limit at most, each |
//! | what all threads keep besides | | the same amount in their depot; in blocks above 512 KiB a quarter of the most that regions ever had |
//! | the most that is resident, for 256 blocks of 64 B to 8 MiB at random | | 1.35 times what lives at most on [`Heap`], 1.5 times on [`Pages`] |
//! | bookkeeping | | 0.8 % of a region, outside of it; 40 KiB a thread |
//!
//! `cargo run --release -p mpj-pool --example pool_timings` prints the figures of your machine.
//!
//! # Examples
//! A server: one thread receives into blocks, others work on them and drop them there.
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
//! For collections in a pool see [`PoolAllocator`](crate#features), for a block that is passed to another process by
//! its offset `examples/two_processes.rs`.
//!
//! # Features
//! * `allocator-api2`: `PoolAllocator`, an allocator for `allocator_api2::vec::Vec` and hashbrown's maps.
//! * `bytes`: [`FilledBlock`] is a `bytes::BufMut` and becomes a `bytes::Bytes` without a copy.
//!
//! Neither is on by default. `cargo test` turns them on: `cargo test -p mpj-pool`. Nothing here compiles C.
//!
//! # Platforms
//! | | Linux | macOS | Windows |
//! |---|---|---|---|
//! | [`Heap`] and every pool | yes | yes | yes |
//! | [`Pages`] | huge pages if the system lets, faulted in when made | ordinary pages, the first 4 MiB faulted in | as macOS |
//! | [`Huge`] | huge pages of the reserve | as [`Pages`] | as [`Pages`] |
//! | [`FileStorage`], [`SegmentView`] | yes | yes | no |
//! | [`SharedStorage`] | yes | no | no |
//!
//! Processors of 32 and 64 bits, of either byte order, with atomics of 64 bits or (by `portable-atomic`) without. With
//! 32 bits a block has 1 GiB at most. The tests run on x86-64 under Linux, nearly all of them on i686, too. For macOS,
//! Windows, aarch64 and 32-bit PowerPC the code is type-checked, and what it does without Linux (`--cfg mpj_portable`
//! chooses it) is tested on Linux.
//!
//! # Safety model
//! * A block's bytes belong to its handle alone. `unsafe` code that accesses them through the pointer must keep the
//!   handle alive and borrowed accordingly.
//! * Free memory is recorded outside of the memory that is handed out. So no late, remote or wild write into a block
//!   can corrupt a pool.
//! * A [`SharedStorage`] segment is rejected unless it is sealed: no peer can truncate it while it is read.
//! * Peers that map a segment are trusted not to write into blocks that were not sent to them: one user on one host is
//!   one domain of trust. The reader still checks everything that they write.

mod buddy;
mod cache;
mod class;
mod error;
mod raw;
mod stats;
mod storage;
pub mod strategy;

#[allow(unsafe_code, reason = "blocks point to their arena without counting it")]
mod arena;
#[allow(unsafe_code, reason = "promises that its bytes are its own")]
mod block;
#[allow(unsafe_code, reason = "knows which bytes are written")]
mod filled_block;
#[cfg(feature = "allocator-api2")]
#[allow(unsafe_code, reason = "keeps a handle in front of a collection's bytes")]
mod pool_allocator;
#[allow(unsafe_code, reason = "drops a storage unless a device may still write to it")]
mod registration;
#[allow(unsafe_code, reason = "the cell under the lock")]
mod sync;

use std::sync::OnceLock;

pub use block::Block;
pub use class::{MAX_ALIGN, MIN_BLOCK, alignment};
pub use error::{AllocError, AllocErrorKind};
pub use filled_block::{FilledBlock, Overflow};
#[cfg(feature = "allocator-api2")]
pub use pool_allocator::PoolAllocator;
pub use raw::{Pool, RawBuffer, RegionKey};
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

/// The type of the pool that [`global`] returns; it may become another as better ones appear.
pub type DefaultPool = Magazine<Pages>;

/// A block of a [`DefaultPool`].
pub type DefaultBlock = <DefaultPool as Pool>::Block;

/// Returns the pool of this process, made on first use, without a limit.
///
/// ```
/// use mpj_pool::{Pool, RawBuffer};
/// assert_eq!(mpj_pool::global().alloc(4096)?.as_ptr().addr().get() % 4096, 0);
/// # Ok::<(), mpj_pool::AllocError>(())
/// ```
pub fn global() -> &'static DefaultPool {
    static POOL: OnceLock<DefaultPool> = OnceLock::new();
    POOL.get_or_init(|| Magazine::growing(Growth::DEFAULT, Pages::create))
}
