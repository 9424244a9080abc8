//! Registered storages, with a device that only takes notes.
#![allow(unsafe_code, reason = "the device promises to keep its hands off")]

mod suite;

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use mpj_pool::{
    Access, DeviceKeys, Heap, Magazine, Pages, Pool, RawBuffer, RegionKey, RegisterError, Registered,
    Registrar, Storage, StorageError,
};

/// Notes which ranges are registered.
#[derive(Debug, Default)]
struct Notes {
    ranges: Mutex<BTreeMap<usize, (usize, Access)>>,
    /// More bytes than this cannot be pinned.
    limit: Option<usize>,
    /// Registrations are not given back: a window is bound to them.
    busy: bool,
}

// SAFETY: it accesses no memory at all.
unsafe impl Registrar for Notes {
    type Region = usize;

    unsafe fn register(
        &self,
        base: NonNull<u8>,
        len: usize,
        page: usize,
        access: Access,
    ) -> Result<(usize, DeviceKeys), RegisterError> {
        let at = base.addr().get();
        assert!(at.is_multiple_of(page) && len.is_multiple_of(page), "whole pages");
        let mut ranges = self.ranges.lock().unwrap();
        let pinned: usize = ranges.values().map(|range| range.0).sum();
        if self.limit.is_some_and(|limit| pinned + len > limit) {
            return Err(RegisterError { call: "ibv_reg_mr", errno: 12 });
        }
        assert!(ranges.insert(at, (len, access)).is_none(), "once");
        Ok((at, DeviceKeys { local: at as u32, remote: (at >> 12) as u32 }))
    }

    fn deregister(&self, region: usize) -> Result<(), RegisterError> {
        if self.busy {
            return Err(RegisterError { call: "ibv_dereg_mr", errno: 16 });
        }
        assert!(self.ranges.lock().unwrap().remove(&region).is_some());
        Ok(())
    }
}

#[test]
fn registered_heap() {
    suite::storage(|len| Registered::create(Heap::create(len)?, Arc::new(Notes::default()), Access::LOCAL));
}

#[test]
fn registered_pages() {
    suite::storage(|len| Registered::create(Pages::create(len)?, Arc::new(Notes::default()), Access::ALL));
}

#[test]
fn blocks_inherit_keys_and_regions_are_registered_once() {
    let device = Arc::new(Notes::default());
    let source = device.clone();
    let pool = Magazine::growing(Default::default(), move |len| {
        Registered::create(Heap::create(len)?, source.clone(), Access::REMOTE)
    });
    let blocks: Vec<_> = (0..100).map(|_| pool.alloc(5000).unwrap()).collect();
    let ranges = device.ranges.lock().unwrap().clone();
    assert_eq!((ranges.len(), pool.stats().regions), (1, 1));
    let (&base, &(len, access)) = ranges.first_key_value().unwrap();
    assert_eq!((len, access), (1 << 20, Access::REMOTE));
    for block in &blocks {
        let offset = block.as_ptr().addr().get() - base;
        assert_eq!(block.region(), Some((RegionKey(u64::from((base >> 12) as u32)), offset)));
        assert_eq!(block.local_key(), Some(base as u32));
    }
    drop(pool);
    assert_eq!(device.ranges.lock().unwrap().len(), 1, "registered as long as a block lives");
    drop(blocks);
    assert!(device.ranges.lock().unwrap().is_empty());
}

#[test]
fn a_device_that_pins_no_more_is_an_error() {
    let device = Arc::new(Notes { limit: Some(64 << 10), ..Notes::default() });
    let pool = Magazine::growing(Default::default(), move |len| {
        Registered::create(Heap::create(len)?, device.clone(), Access::LOCAL)
    });
    let error = pool.alloc(100).unwrap_err();
    let refused = StorageError::Refused { asked: 1 << 20, call: "ibv_reg_mr", errno: 12 };
    assert_eq!(error.why, mpj_pool::Shortage::Storage(refused));
    assert!(refused.to_string().contains("ibv_reg_mr"));
}

#[test]
fn memory_that_a_device_does_not_let_go_stays_mapped() {
    let device = Arc::new(Notes { busy: true, ..Notes::default() });
    let storage = Registered::create(Pages::create(4096).unwrap(), device, Access::REMOTE).unwrap();
    let base = storage.base();
    drop(storage);
    // SAFETY: the mapping was leaked, which is what this test is about.
    unsafe { base.write_volatile(1) };
}
