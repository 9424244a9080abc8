//! Registrations of user memory, and the keys by which a peer reads it.
//!
//! Each operation registers the user memory that it needs, and deregisters it at its end. A longer registration would
//! still name the old pages after the program has mapped others at their address (README.md compares the alternatives).
//! Blocks of a pool share the registration of their region, which ends before the region is unmapped.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use mpj_pool::{Access, Region, RegionRegistration, RegisterError};

use super::field_reader::FieldReader;
use super::memlock::{MemlockBudget, MemlockShare};
use super::verbs::{Mr, MrAccess, ProtectionDomain};
use crate::device::{MemoryDesc, Registration, RemoteKey};
use crate::sys;

/// The error number for memory that cannot be locked because of the limit.
const NO_MEMORY: i32 = sys::Errno::NOMEM.raw_os_error();

/// Registers memory with the device, and reuses the registrations of pool regions.
#[derive(Debug)]
pub(super) struct Registrar {
    domain: Arc<ProtectionDomain>,
    budget: Arc<MemlockBudget>,
    /// The registrations of regions. A region can outlive this device.
    regions: Mutex<Vec<Weak<RegionMr>>>,
    /// The number that identifies the device in the registrations of a region.
    device: u64,
    /// The number of the next registration.
    next: AtomicU64,
    has_warned: AtomicBool,
}

#[derive(Debug)]
struct MrRecord {
    /// The number by which the keys of this registration are revoked.
    number: u64,
    base: *mut u8,
    len: usize,
    lkey: u32,
    rkey: u32,
    /// Keeps the registration and its keys valid.
    _hold: MrHold,
}

// SAFETY: the pointer is used as an address only, and never dereferenced.
unsafe impl Send for MrRecord {}
// SAFETY: as for `Send`.
unsafe impl Sync for MrRecord {}

#[derive(Debug)]
enum MrHold {
    Own {
        // Dropped first: the memory counts as locked until it is deregistered.
        _mr: Mr,
        _locked: MemlockShare,
    },
    Region {
        _region: Arc<dyn RegionRegistration>,
    },
}

#[derive(Debug)]
struct RegionMr {
    mr: Mutex<Option<(Mr, MemlockShare)>>,
    lkey: u32,
    rkey: u32,
}

// SAFETY: 1: the registration covers exactly the region, and work requests use it only for blocks of the region. 2:
// `deregister` returns `Ok` only if `ibv_dereg_mr` has succeeded, after which the device does not access the region;
// otherwise the registration stays and `deregister` can be called again. 3: an `Mr` keeps the device open.
unsafe impl RegionRegistration for RegionMr {
    fn deregister(&self) -> Result<(), RegisterError> {
        let mut held = self.mr.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((mr, _)) = &mut *held {
            mr.release().map_err(|e| error("ibv_dereg_mr", &e))?;
            *held = None;
        }
        Ok(())
    }

    fn has_ended(&self) -> bool {
        self.mr.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }
}

fn error(call: &'static str, error: &io::Error) -> RegisterError {
    RegisterError { call, errno: error.raw_os_error().unwrap_or(sys::NOT_SUPPORTED) }
}

impl Registrar {
    pub(super) fn new(domain: Arc<ProtectionDomain>, budget: Arc<MemlockBudget>) -> Self {
        static DEVICES: AtomicU64 = AtomicU64::new(1);
        // The devices of a region must have different numbers, and another driver might also count from 1. No number
        // repeats before 2^48 devices have been opened.
        let device = u64::from_le_bytes(*b"ibvdev\0\0") ^ DEVICES.fetch_add(1, Ordering::Relaxed) << 16;
        let regions = Mutex::default();
        Registrar {
            domain,
            budget,
            regions,
            device,
            next: AtomicU64::new(1),
            has_warned: AtomicBool::new(false),
        }
    }

    /// Registers the memory of an operation.
    ///
    /// # Safety
    /// The caller upholds the contract of [`Device::register`](crate::Device::register).
    pub(super) unsafe fn register(
        &self,
        memory: &MemoryDesc,
        region: Option<&Region>,
        access: Access,
    ) -> Result<Registration, RegisterError> {
        let unable = RegisterError { call: "register", errno: sys::NOT_SUPPORTED };
        let base =
            memory.contiguous().filter(|_| !access.remote_write && !access.remote_atomic).ok_or(unable)?;
        let own = || {
            // Memory that only peers read need not be writable.
            let what = if access.remote_read { MrAccess::Read } else { MrAccess::Write };
            let locked = self.lock(base, memory.bytes())?;
            // SAFETY: the caller's promise.
            let mr = unsafe { Mr::new(&self.domain, base, memory.bytes(), what) };
            let mr = mr.map_err(|e| error("ibv_reg_mr", &e))?;
            Ok((mr.lkey(), mr.rkey(), MrHold::Own { _mr: mr, _locked: locked }, memory.bytes()))
        };
        let registered = match region.map(|region| self.region(region)) {
            // The region might be too long for the limit although the block is not: register the block alone.
            None | Some(Err(RegisterError { errno: NO_MEMORY, .. })) => own(),
            Some(registered) => registered,
        };
        let (lkey, rkey, hold, registered) = registered.inspect_err(|refused| self.warn(refused))?;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let len = memory.bytes();
        Ok(Registration::new(MrRecord { number, base, len, lkey, rkey, _hold: hold }, registered))
    }

    fn lock(&self, base: *mut u8, len: usize) -> Result<MemlockShare, RegisterError> {
        self.budget.reserve(base.addr(), len).ok_or(RegisterError { call: "ibv_reg_mr", errno: NO_MEMORY })
    }

    /// Logs once that messages are sent in frames because their memory cannot be locked.
    #[cold]
    fn warn(&self, refused: &RegisterError) {
        if refused.errno == NO_MEMORY && !self.has_warned.swap(true, Ordering::Relaxed) {
            let name = self.domain.context().name();
            log::warn!(
                "ibvdev: {name}: {refused}: the limit of locked memory is reached, messages are copied instead: raise `ulimit -l`"
            );
        }
    }

    fn regions(&self) -> MutexGuard<'_, Vec<Weak<RegionMr>>> {
        self.regions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn region(&self, region: &Region) -> Result<(u32, u32, MrHold, usize), RegisterError> {
        let mut registered = 0;
        let known = region.registrations.get_or_register(self.device, || {
            let locked = self.lock(region.base.as_ptr(), region.len)?;
            // SAFETY: the region releases the registration before it is unmapped.
            let mr = unsafe { Mr::new(&self.domain, region.base.as_ptr(), region.len, MrAccess::Write) };
            let mr = mr.map_err(|e| error("ibv_reg_mr", &e))?;
            let (lkey, rkey) = (mr.lkey(), mr.rkey());
            registered = region.len;
            let region_mr = Arc::new(RegionMr { mr: Mutex::new(Some((mr, locked))), lkey, rkey });
            let mut regions = self.regions();
            regions.retain(|region_mr| region_mr.strong_count() > 0);
            regions.push(Arc::downgrade(&region_mr));
            Ok(region_mr)
        })?;
        let region_mr: &dyn std::any::Any = &*known;
        // Only this device uses the number, so the downcast succeeds.
        let RegionMr { lkey, rkey, .. } =
            region_mr.downcast_ref().ok_or(RegisterError { call: "register", errno: sys::NOT_SUPPORTED })?;
        let (lkey, rkey) = (*lkey, *rkey);
        Ok((lkey, rkey, MrHold::Region { _region: known }, registered))
    }
}

impl Drop for Registrar {
    /// Releases the registrations of pool regions, which would otherwise last until the regions are unmapped. If that
    /// fails, the region tries again before it is unmapped.
    fn drop(&mut self) {
        for region_mr in self.regions().drain(..).filter_map(|region_mr| region_mr.upgrade()) {
            let _ = region_mr.deregister();
        }
    }
}

/// Returns the local key of a registration, for work requests of this process.
pub(super) fn lkey(registration: &Registration) -> Option<u32> {
    registration.record::<MrRecord>().map(|record| record.lkey)
}

pub(super) fn key_number(registration: &Registration) -> Option<u64> {
    registration.record::<MrRecord>().map(|record| record.number)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RdmaKey {
    pub(super) number: u64,
    pub(super) addr: u64,
    pub(super) len: u64,
    pub(super) rkey: u32,
}

impl RdmaKey {
    /// Returns the key to `len` bytes of registered memory, from byte `at` on, or `None` if the memory is shorter. The
    /// device does not check that: the registration might cover a whole region.
    pub(super) fn of(registration: &Registration, at: usize, len: usize) -> Option<Self> {
        let MrRecord { number, base, len: registered, rkey, .. } = registration.record()?;
        at.checked_add(len).filter(|end| end <= registered)?;
        let addr = base.wrapping_add(at).expose_provenance() as u64;
        Some(RdmaKey { number: *number, addr, len: len as u64, rkey: *rkey })
    }

    pub(super) fn pack(&self) -> Option<RemoteKey> {
        let RdmaKey { number, addr, len, rkey } = self;
        let words = [number.to_le_bytes(), addr.to_le_bytes(), len.to_le_bytes()].concat();
        RemoteKey::new(&[&words[..], &rkey.to_le_bytes()].concat())
    }

    pub(super) fn unpack(key: &RemoteKey) -> Option<Self> {
        let mut reader = FieldReader(key.as_bytes());
        let mut word = || reader.take().map(u64::from_le_bytes);
        let (number, addr, len) = (word()?, word()?, word()?);
        let rkey = u32::from_le_bytes(reader.take()?);
        reader.0.is_empty().then_some(RdmaKey { number, addr, len, rkey })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Nothing;

    // SAFETY: no device has this registration.
    unsafe impl RegionRegistration for Nothing {
        fn deregister(&self) -> Result<(), RegisterError> {
            Ok(())
        }
    }

    #[test]
    fn key_covers_only_registered_memory() {
        let mut memory = [0u8; 100];
        let base = memory.as_mut_ptr();
        let hold = MrHold::Region { _region: Arc::new(Nothing) };
        let record = MrRecord { number: 5, base, len: memory.len(), lkey: 6, rkey: 7, _hold: hold };
        let registration = Registration::new(record, 0);
        for (at, len) in [(0, 100), (40, 60), (100, 0)] {
            let key = RdmaKey::of(&registration, at, len).unwrap();
            let addr = base.addr() as u64 + at as u64;
            assert_eq!(key, RdmaKey { number: 5, addr, len: len as u64, rkey: 7 });
        }
        for (at, len) in [(0, 101), (1, 100), (101, 0), (usize::MAX, 2), (2, usize::MAX)] {
            assert_eq!(RdmaKey::of(&registration, at, len), None, "{len} bytes at {at}");
        }
    }

    #[test]
    fn keys_round_trip_and_other_lengths_are_refused() {
        let key = RdmaKey { number: 1 << 40, addr: u64::MAX, len: 3, rkey: 0xdead_beef };
        let packed = key.pack().unwrap();
        assert_eq!(RdmaKey::unpack(&packed), Some(key));
        for bytes in [&packed.as_bytes()[1..], &[packed.as_bytes(), &[0]].concat()] {
            assert_eq!(RdmaKey::unpack(&RemoteKey::new(bytes).unwrap()), None);
        }
    }
}
