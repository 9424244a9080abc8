//! Registrations of regions, with mock devices that only record the calls.
#![allow(unsafe_code, reason = "the devices promise to keep their hands off")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use mpj_pool::{
    Access, Heap, Magazine, Pages, Pool, RawBuffer, Region, RegionRegistration, RegisterError, Unpooled,
};

/// Notes which ranges are registered.
#[derive(Debug, Default)]
struct Notes {
    ranges: Mutex<BTreeMap<usize, (usize, Access)>>,
    /// More bytes than this cannot be pinned.
    limit: Option<usize>,
    /// Registrations are not released: a window is bound to them.
    busy: bool,
}

#[derive(Debug)]
struct Noted {
    of: Arc<Notes>,
    base: usize,
}

// SAFETY: it accesses no memory at all.
unsafe impl RegionRegistration for Noted {
    fn release(&self) -> Result<(), RegisterError> {
        if self.of.busy {
            return Err(RegisterError { call: "ibv_dereg_mr", errno: 16 });
        }
        assert!(self.of.ranges.lock().unwrap().remove(&self.base).is_some(), "released once");
        Ok(())
    }
}

/// Registers a block as a device does before it sends: returns its number for the region, found or made.
fn register(notes: &Arc<Notes>, device: u64, block: &impl RawBuffer) -> Result<usize, RegisterError> {
    let Region { base, len, page, registrations } = block.region().expect("pools have regions");
    let (len, page) = (*len, *page);
    let known = registrations.get_or_register(device, || {
        let base = base.addr().get();
        assert!(base.is_multiple_of(page) && len.is_multiple_of(page), "whole pages");
        let mut ranges = notes.ranges.lock().unwrap();
        let pinned: usize = ranges.values().map(|range| range.0).sum();
        if notes.limit.is_some_and(|limit| pinned + len > limit) {
            return Err(RegisterError { call: "ibv_reg_mr", errno: 12 });
        }
        assert!(ranges.insert(base, (len, Access::REMOTE)).is_none(), "registered once");
        Ok(Arc::new(Noted { of: Arc::clone(notes), base }))
    })?;
    let known: &dyn std::any::Any = &*known;
    Ok(known.downcast_ref::<Noted>().expect("what this device has made").base)
}

#[test]
fn a_region_is_registered_once_with_each_device() {
    let devices = [Arc::new(Notes::default()), Arc::new(Notes::default())];
    let pool = Magazine::growing(Default::default(), Heap::create);
    let blocks: Vec<_> = (0..100).map(|_| pool.alloc(5000).unwrap()).collect();
    for block in &blocks {
        let at = block.as_ptr().addr().get();
        for (id, notes) in devices.iter().enumerate() {
            let base = register(notes, id as u64, block).unwrap();
            assert!((base..base + (1 << 20)).contains(&at), "the block lies in what was registered");
        }
    }
    let registered = |device: &Arc<Notes>| device.ranges.lock().unwrap().len();
    assert_eq!((pool.stats().regions, registered(&devices[0]), registered(&devices[1])), (1, 1, 1));
    drop(pool);
    assert_eq!(registered(&devices[0]), 1, "registered as long as a block lives");
    drop(blocks);
    assert_eq!((registered(&devices[0]), registered(&devices[1])), (0, 0));
}

#[test]
fn a_block_without_a_pool_is_a_region() {
    let notes = Arc::new(Notes::default());
    let block = Unpooled::new(usize::MAX, Pages::create).alloc(10_000).unwrap();
    assert_eq!(register(&notes, 1, &block).unwrap(), block.as_ptr().addr().get());
    drop(block);
    assert!(notes.ranges.lock().unwrap().is_empty());
}

#[test]
fn what_a_device_does_not_take_is_an_error_and_is_asked_for_again() {
    let (small, large) =
        (Arc::new(Notes { limit: Some(64 << 10), ..Notes::default() }), Arc::new(Notes::default()));
    let pool = Magazine::growing(Default::default(), Heap::create);
    let block = pool.alloc(100).unwrap();
    let error = RegisterError { call: "ibv_reg_mr", errno: 12 };
    assert_eq!(register(&small, 1, &block), Err(error));
    assert!(error.to_string().starts_with("ibv_reg_mr: "), "{error}");
    assert!(register(&large, 1, &block).is_ok(), "a refusal is not kept");
}

#[test]
fn memory_that_a_device_does_not_let_go_stays_mapped() {
    let [stuck, free] = [true, false].map(|busy| Arc::new(Notes { busy, ..Notes::default() }));
    let block = Unpooled::new(usize::MAX, Pages::create).alloc(4096).unwrap();
    let base = block.as_ptr();
    register(&stuck, 1, &block).unwrap();
    register(&free, 2, &block).unwrap();
    drop(block);
    assert!(free.ranges.lock().unwrap().is_empty(), "the other device has let go");
    // SAFETY: the mapping is there for good, which is what this test is about.
    unsafe { base.write_volatile(1) };
}
