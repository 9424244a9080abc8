//! Comparators: general allocators, allocators within one region, and pools of one size.

use std::alloc::{GlobalAlloc, Layout};
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};

use buddy_system_allocator::LockedHeap;
use opool::{PoolAllocator, RefGuard};
use rlsf::Tlsf;
use spin::Mutex;
use talc::TalcLock;
use talc::source::Manual;

use super::contender::{Block, BlockSource, Contender, Kind, Name, PoolContender};
use super::heaps;
use super::patterns::AllocPattern;
use crate::perf::Failure;
use mpj_pool::{Heap, Pages, Storage};

const REGION: usize = 256 << 20;

const GENERAL: [&str; 2] = ["mimalloc", "jemalloc"];
const ARENAS: [&str; 4] = ["buddy_system", "talc", "rlsf", "offset"];

/// Returns the names of all comparators except pools of one size.
pub(super) fn names() -> impl Iterator<Item = Name> {
    let general = GENERAL.map(|strategy| Name { strategy, storage: "heap", kind: Kind::General });
    let arenas = ARENAS.map(|strategy| Name { strategy, storage: "pages", kind: Kind::Arena });
    general.into_iter().chain(arenas)
}

/// Makes the named comparator. Its region, if it has one, is on `Pages` if `prefaulted` is true, otherwise on `Heap`.
pub(super) fn make(name: Name, prefaulted: bool) -> Result<Box<dyn Contender + Send>, Failure> {
    static MIMALLOC: mimalloc::MiMalloc = mimalloc::MiMalloc;
    static JEMALLOC: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;
    Ok(match name.strategy {
        "mimalloc" => heaps::contender(name, &MIMALLOC),
        "jemalloc" => heaps::contender(name, &JEMALLOC),
        "buddy_system" => heaps::contender(name, buddy_system(region(prefaulted)?)),
        "talc" => heaps::contender(name, talc(region(prefaulted)?)),
        "rlsf" => heaps::contender(name, rlsf(region(prefaulted)?)),
        "offset" => Box::new(PoolContender::new(name, Offsets::over(region(prefaulted)?))),
        other => return Err(format!("no contender {other:?}").into()),
    })
}

pub(super) fn fixed() -> impl Iterator<Item = Box<dyn Contender + Send>> {
    AllocPattern::Fixed.sizes().into_iter().map(|bytes| {
        let name = Name { strategy: "opool", storage: "heap", kind: Kind::Fixed };
        let pool = Box::leak(Box::new(opool::Pool::new_prefilled(64, Maker(bytes))));
        Box::new(PoolContender::new(name, Objects { bytes, pool })) as Box<dyn Contender + Send>
    })
}

/// Returns memory that is never freed: on `Pages`, which are faulted in early, if `prefaulted` is true, otherwise on
/// `Heap`.
fn region(prefaulted: bool) -> Result<&'static mut [MaybeUninit<u8>], Failure> {
    let storage: Box<dyn Storage> =
        if prefaulted { Box::new(Pages::create(REGION)?) } else { Box::new(Heap::create(REGION)?) };
    let storage = Box::leak(storage);
    // SAFETY: the contract of Storage: its bytes are its own, and it is neither used again nor dropped.
    Ok(unsafe { std::slice::from_raw_parts_mut(storage.base().as_ptr().cast(), storage.size()) })
}

fn buddy_system(region: &'static mut [MaybeUninit<u8>]) -> &'static LockedHeap<32> {
    let heap: &LockedHeap<32> = Box::leak(Box::default());
    // SAFETY: only this heap uses the memory, for ever.
    unsafe { heap.lock().init(region.as_mut_ptr().expose_provenance(), region.len()) };
    heap
}

type Talc = TalcLock<Mutex<()>, Manual>;

fn talc(region: &'static mut [MaybeUninit<u8>]) -> &'static Talc {
    let heap: &Talc = Box::leak(Box::new(TalcLock::new(Manual)));
    // SAFETY: only this heap uses the memory, for ever.
    unsafe { heap.lock().claim(region.as_mut_ptr().cast(), region.len()) };
    heap
}

/// TLSF behind a spin lock, like the other arenas.
struct Rlsf(Mutex<Tlsf<'static, u32, u16, 28, 16>>);

fn rlsf(region: &'static mut [MaybeUninit<u8>]) -> &'static Rlsf {
    let mut heap = Tlsf::new();
    let _ = heap.insert_free_block(region);
    Box::leak(Box::new(Rlsf(Mutex::new(heap))))
}

// SAFETY: Tlsf returns blocks that fit the layout and do not overlap, and `alloc` and `dealloc` pass the same
// alignment.
unsafe impl GlobalAlloc for Rlsf {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.0.lock().allocate(layout).map_or(ptr::null_mut(), NonNull::as_ptr)
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        if let Some(at) = NonNull::new(at) {
            // SAFETY: the caller's promise: `alloc` returned it for this layout, and it is live.
            unsafe { self.0.lock().deallocate(at, layout.align()) };
        }
    }
}

/// An allocator of offsets in units of a cache line, and the memory at these offsets.
struct Offsets {
    region: NonNull<u8>,
    allocator: &'static Mutex<offset_allocator::Allocator>,
}

/// # Invariants
/// 1. `at..at + len` lies in the units of `allocation`, which belong to this handle alone.
struct OffsetBlock {
    at: NonNull<u8>,
    len: usize,
    allocation: offset_allocator::Allocation,
    allocator: &'static Mutex<offset_allocator::Allocator>,
}

impl Offsets {
    const UNIT: usize = 64;

    fn over(region: &'static mut [MaybeUninit<u8>]) -> Offsets {
        let allocator = offset_allocator::Allocator::new((region.len() / Self::UNIT) as u32);
        let allocator = Box::leak(Box::new(Mutex::new(allocator)));
        Offsets { region: NonNull::from(region).cast(), allocator }
    }
}

// SAFETY: the region is accessed only through blocks, each of which owns its units; the allocator of the units is
// behind a lock.
unsafe impl Send for Offsets {}
// SAFETY: as above.
unsafe impl Sync for Offsets {}
// SAFETY: invariant 1: the handle owns its bytes.
unsafe impl Send for OffsetBlock {}

impl BlockSource for Offsets {
    type Block = OffsetBlock;

    #[inline(always)]
    fn alloc(&self, len: usize) -> Option<OffsetBlock> {
        let units = u32::try_from(len.div_ceil(Self::UNIT)).ok()?;
        let allocation = self.allocator.lock().allocate(units)?;
        // SAFETY: the allocator knows only offsets within the region.
        let at = unsafe { self.region.add(allocation.offset as usize * Self::UNIT) };
        Some(OffsetBlock { at, len, allocation, allocator: self.allocator })
    }
}

impl Block for OffsetBlock {
    #[inline(always)]
    fn bytes(&mut self) -> &mut [MaybeUninit<u8>] {
        // SAFETY: invariant 1, and `&mut self` makes this the only view.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr().cast(), self.len) }
    }
}

impl Drop for OffsetBlock {
    #[inline(always)]
    fn drop(&mut self) {
        self.allocator.lock().free(self.allocation);
    }
}

struct Objects {
    bytes: usize,
    pool: &'static opool::Pool<Maker, Bytes>,
}

type Bytes = Box<[MaybeUninit<u8>]>;

struct Maker(usize);

impl PoolAllocator<Bytes> for Maker {
    fn allocate(&self) -> Bytes {
        Box::new_uninit_slice(self.0)
    }
}

impl BlockSource for Objects {
    type Block = Object;

    #[inline(always)]
    fn alloc(&self, len: usize) -> Option<Self::Block> {
        (len == self.bytes).then(|| Object(self.pool.get()))
    }
}

struct Object(RefGuard<'static, Maker, Bytes>);

impl Block for Object {
    #[inline(always)]
    fn bytes(&mut self) -> &mut [MaybeUninit<u8>] {
        &mut self.0
    }
}
