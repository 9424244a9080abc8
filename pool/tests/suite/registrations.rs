//! Registrations of regions with mock devices, which record the registered ranges or fail.
#![allow(unsafe_code, reason = "mock devices access no memory")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use mpj_pool::{
    Access, Heap, Magazine, Pages, Pool, RawBuffer, Region, RegionRegistration, RegisterError, Unpooled,
};

#[derive(Debug, Default)]
struct MockDevice {
    ranges: Mutex<BTreeMap<usize, (usize, Access)>>,
    max_pinned_bytes: Option<usize>,
    /// Whether a memory window is bound, so that deregistrations fail.
    has_window: bool,
    /// Whether deregistrations panic.
    panics: bool,
}

#[derive(Debug)]
struct MockRegistration {
    device: Arc<MockDevice>,
    base: usize,
}

// SAFETY: it accesses no memory at all.
unsafe impl RegionRegistration for MockRegistration {
    fn deregister(&self) -> Result<(), RegisterError> {
        assert!(!self.device.panics, "as the test demands");
        if self.device.has_window {
            return Err(RegisterError { call: "ibv_dereg_mr", errno: 16 });
        }
        assert!(self.device.ranges.lock().unwrap().remove(&self.base).is_some(), "deregistered once");
        Ok(())
    }

    fn has_ended(&self) -> bool {
        self.device.ranges.lock().unwrap().is_empty()
    }
}

/// Registers the region of a block as a device does before a send. Returns the registered address.
fn register(device: &Arc<MockDevice>, id: u64, block: &impl RawBuffer) -> Result<usize, RegisterError> {
    let Region { base, len, page, registrations } = block.region().expect("pools have regions");
    let (len, page) = (*len, *page);
    let known = registrations.get_or_register(id, || {
        let base = base.addr().get();
        assert!(base.is_multiple_of(page) && len.is_multiple_of(page), "whole pages");
        let mut ranges = device.ranges.lock().unwrap();
        let pinned: usize = ranges.values().map(|range| range.0).sum();
        if device.max_pinned_bytes.is_some_and(|limit| pinned + len > limit) {
            return Err(RegisterError { call: "ibv_reg_mr", errno: 12 });
        }
        assert!(ranges.insert(base, (len, Access::REMOTE)).is_none(), "registered once");
        Ok(Arc::new(MockRegistration { device: Arc::clone(device), base }))
    })?;
    let known: &dyn std::any::Any = &*known;
    Ok(known.downcast_ref::<MockRegistration>().expect("a registration of this device").base)
}

#[test]
fn a_region_is_registered_once_with_each_device() {
    let devices = [Arc::new(MockDevice::default()), Arc::new(MockDevice::default())];
    let pool = Magazine::growing(Default::default(), Heap::create);
    let blocks: Vec<_> = (0..100).map(|_| pool.alloc(5000).unwrap()).collect();
    for block in &blocks {
        let at = block.as_ptr().addr().get();
        for (id, device) in devices.iter().enumerate() {
            let base = register(device, id as u64, block).unwrap();
            assert!((base..base + (1 << 20)).contains(&at), "the block lies in the registered region");
        }
    }
    let registered = |device: &Arc<MockDevice>| device.ranges.lock().unwrap().len();
    assert_eq!((pool.stats().regions, registered(&devices[0]), registered(&devices[1])), (1, 1, 1));
    drop(pool);
    assert_eq!(registered(&devices[0]), 1, "registered as long as a block lives");
    drop(blocks);
    assert_eq!((registered(&devices[0]), registered(&devices[1])), (0, 0));
}

#[test]
fn an_unpooled_block_is_its_own_region() {
    let device = Arc::new(MockDevice::default());
    let block = Unpooled::new(usize::MAX, Pages::create).alloc(10_000).unwrap();
    assert_eq!(register(&device, 1, &block).unwrap(), block.as_ptr().addr().get());
    drop(block);
    assert!(device.ranges.lock().unwrap().is_empty());
}

#[test]
fn failed_registrations_are_retried() {
    let (small, large) = (
        Arc::new(MockDevice { max_pinned_bytes: Some(64 << 10), ..MockDevice::default() }),
        Arc::new(MockDevice::default()),
    );
    let pool = Magazine::growing(Default::default(), Heap::create);
    let block = pool.alloc(100).unwrap();
    let error = RegisterError { call: "ibv_reg_mr", errno: 12 };
    assert_eq!(register(&small, 1, &block), Err(error));
    assert!(error.to_string().starts_with("ibv_reg_mr: "), "{error}");
    assert!(register(&large, 1, &block).is_ok(), "a failure is not recorded");
}

#[test]
fn memory_that_cannot_be_deregistered_stays_mapped() {
    let [stuck, free] =
        [true, false].map(|has_window| Arc::new(MockDevice { has_window, ..MockDevice::default() }));
    let block = Unpooled::new(usize::MAX, Pages::create).alloc(4096).unwrap();
    let base = block.as_ptr();
    register(&stuck, 1, &block).unwrap();
    register(&free, 2, &block).unwrap();
    drop(block);
    assert!(free.ranges.lock().unwrap().is_empty(), "the other device has deregistered");
    // SAFETY: the mapping stays for good, which is what this test proves.
    unsafe { base.write_volatile(1) };
}

#[test]
#[cfg_attr(miri, ignore = "Miri reports the leaked mapping")]
fn memory_whose_deregistration_panics_stays_mapped() {
    let device = Arc::new(MockDevice { panics: true, ..MockDevice::default() });
    let block = Unpooled::new(usize::MAX, Pages::create).alloc(4096).unwrap();
    let base = block.as_ptr();
    register(&device, 1, &block).unwrap();
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(block))).is_err());
    // SAFETY: the mapping stays for good, which is what this test proves.
    unsafe { base.write_volatile(1) };
}

#[test]
fn registrations_of_closed_devices_are_dropped() {
    let block = Unpooled::new(usize::MAX, Pages::create).alloc(4096).unwrap();
    let closed = Arc::new(MockDevice::default());
    register(&closed, 1, &block).unwrap();
    // Closing the device deregisters its regions.
    closed.ranges.lock().unwrap().clear();
    let open = Arc::new(MockDevice::default());
    register(&open, 2, &block).unwrap();
    assert_eq!(Arc::strong_count(&closed), 1, "nothing of the region refers to it");
    drop(block);
    assert!(open.ranges.lock().unwrap().is_empty());
}
