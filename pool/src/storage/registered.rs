//! Memory that a device knows: registered once, when it is made.

use core::fmt;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use std::sync::Arc;

use super::{Backing, Storage, StorageError};
use crate::RegionKey;

/// What a device may do with registered memory, besides reading it for this process's sends and writing its receives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
#[non_exhaustive]
pub struct Access {
    /// Peers may read it.
    pub remote_read: bool,
    /// Peers may write it.
    pub remote_write: bool,
    /// Peers may update words of it atomically.
    pub remote_atomic: bool,
}

impl Access {
    /// For sends and receives of this process only.
    pub const LOCAL: Access = Access { remote_read: false, remote_write: false, remote_atomic: false };
    /// For puts and gets too.
    pub const REMOTE: Access = Access { remote_read: true, remote_write: true, remote_atomic: false };
    /// For all that there is.
    pub const ALL: Access = Access { remote_read: true, remote_write: true, remote_atomic: true };
}

/// How a device calls a registered region: an lkey and an rkey.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DeviceKeys {
    /// The key that goes with an address in this process's own work requests.
    pub local: u32,
    /// The key that a peer needs.
    pub remote: u32,
}

/// Why a device did not take or did not give back a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegisterError {
    /// The call that failed, such as `ibv_reg_mr`.
    pub call: &'static str,
    /// Its error number. ENOMEM (12) commonly means that `ulimit -l`, the limit on locked memory, is too low.
    pub errno: i32,
}

impl fmt::Display for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.call, std::io::Error::from_raw_os_error(self.errno))
    }
}

impl core::error::Error for RegisterError {}

/// A device, or its protection domain, that memory can be registered with.
///
/// Registering pins pages and tells the device where they are: 1 to 3 ms for 64 MiB. So it is done once a region, and
/// every block of the region inherits the keys.
///
/// # Safety
/// 1. Between `register` and a `deregister` that returned `Ok`, the device accesses no byte outside of the range, and
///    none at all but for work that was posted with one of the keys.
/// 2. When `deregister` returns `Ok`, the device is quiet: it will not read or write the range again, whatever was
///    posted and whatever a peer still sends. If that cannot be promised it returns an error.
/// 3. A registration keeps what it needs of the device open by itself.
pub unsafe trait Registrar: Send + Sync + fmt::Debug + 'static {
    /// What a registration is to the device: an `ibv_mr`.
    type Region: Send + Sync + fmt::Debug + 'static;

    /// Registers `len` bytes from `base`, whole pages of `page` bytes each.
    ///
    /// # Errors
    /// What the device, or the system in its name, said.
    ///
    /// # Safety
    /// The range is mapped, readable and writable, until `deregister` has returned `Ok`, and for ever if it never does.
    unsafe fn register(
        &self,
        base: NonNull<u8>,
        len: usize,
        page: usize,
        access: Access,
    ) -> Result<(Self::Region, DeviceKeys), RegisterError>;

    /// Takes a registration back, once the device is quiet.
    ///
    /// # Errors
    /// If the device may still access the memory, for example as a memory window is bound to it. The memory then stays
    /// mapped for ever.
    fn deregister(&self, region: Self::Region) -> Result<(), RegisterError>;
}

/// A storage that a device knows for as long as it lives.
///
/// Blocks of a pool over it answer with the remote key and their offset ([`RawBuffer::region`](crate::RawBuffer::region))
/// and with the local key ([`RawBuffer::local_key`](crate::RawBuffer::local_key)).
///
/// If the device does not let go of the memory when this is dropped, the memory is leaked: a write that comes late must
/// not hit what somebody else has mapped there since.
#[derive(Debug)]
pub struct Registered<S: Storage, R: Registrar> {
    // Neither is dropped by itself: `drop` says in which order, and whether.
    storage: ManuallyDrop<S>,
    region: ManuallyDrop<R::Region>,
    registrar: Arc<R>,
    keys: DeviceKeys,
}

impl<S: Storage, R: Registrar> Registered<S, R> {
    /// Registers a storage.
    ///
    /// # Errors
    /// [`StorageError::Refused`] with the device's call and error number.
    pub fn create(storage: S, registrar: Arc<R>, access: Access) -> Result<Registered<S, R>, StorageError> {
        let (base, size, page) = (storage.base(), storage.size(), storage.page_size());
        // SAFETY: by the contract of Storage the range stays mapped as long as `storage` lives, which `drop` leaks unless
        // `deregister` returns `Ok`; until the value is made, nothing drops `storage` after a success.
        let made = unsafe { registrar.register(base, size, page, access) };
        let (region, keys) = made.map_err(|error| StorageError::Refused {
            asked: size,
            call: error.call,
            errno: error.errno,
        })?;
        let (storage, region) = (ManuallyDrop::new(storage), ManuallyDrop::new(region));
        Ok(Registered { storage, region, registrar, keys })
    }

    /// Returns the storage.
    pub fn storage(&self) -> &S {
        &self.storage
    }

    /// Returns what the registration is to the device.
    pub fn region(&self) -> &R::Region {
        &self.region
    }

    /// Returns the device's names for the memory.
    pub fn keys(&self) -> DeviceKeys {
        self.keys
    }
}

impl<S: Storage, R: Registrar> Drop for Registered<S, R> {
    fn drop(&mut self) {
        // SAFETY: this is the only place that takes it, and it runs once.
        let region = unsafe { ManuallyDrop::take(&mut self.region) };
        if self.registrar.deregister(region).is_ok() {
            // SAFETY: this is the only place that drops it, and it runs once.
            unsafe { ManuallyDrop::drop(&mut self.storage) }
        }
    }
}

// SAFETY: all as `S` does; the device writes what the owners of blocks asked for, by promise 1 of Registrar.
unsafe impl<S: Storage, R: Registrar> Storage for Registered<S, R> {
    fn base(&self) -> NonNull<u8> {
        self.storage.base()
    }

    fn size(&self) -> usize {
        self.storage.size()
    }

    fn page_size(&self) -> usize {
        self.storage.page_size()
    }

    fn backing(&self) -> Backing {
        self.storage.backing()
    }

    fn key(&self) -> Option<RegionKey> {
        Some(RegionKey(u64::from(self.keys.remote)))
    }

    fn local_key(&self) -> Option<u32> {
        Some(self.keys.local)
    }
}
