use core::any::Any;
use core::fmt;
use core::mem::ManuallyDrop;
use core::ops::Deref;
use core::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use crate::Storage;

/// The access of peers to registered memory, in addition to local reads for sends and local writes for receives.
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
    /// Access by sends and receives of this process only.
    pub const LOCAL: Access = Access { remote_read: false, remote_write: false, remote_atomic: false };
    /// Access by get operations of peers.
    pub const READ: Access = Access { remote_read: true, remote_write: false, remote_atomic: false };
    /// Access by put operations of peers.
    pub const WRITE: Access = Access { remote_read: false, remote_write: true, remote_atomic: false };
    /// Access by put and get operations of peers.
    pub const REMOTE: Access = Access { remote_read: true, remote_write: true, remote_atomic: false };
    /// All kinds of access.
    pub const ALL: Access = Access { remote_read: true, remote_write: true, remote_atomic: true };
}

/// A failed registration or deregistration of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegisterError {
    /// The call that failed, such as `ibv_reg_mr`.
    pub call: &'static str,
    /// The error number. ENOMEM (12) usually means that `ulimit -l`, the limit on locked memory, is too low.
    pub errno: i32,
}

impl fmt::Display for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.call, std::io::Error::from_raw_os_error(self.errno))
    }
}

impl core::error::Error for RegisterError {}

/// The registration of a region with a device, such as an `ibv_mr`.
///
/// # Safety
/// 1. Until [`deregister`](Self::deregister) is called, the device accesses no byte outside of the region, and accesses
///    the region only for work that was posted with this registration.
/// 2. When `deregister` returns `Ok`, the device is quiesced: it will not read or write the region again, whatever was
///    posted and whatever a peer still sends. If that cannot be guaranteed, `deregister` returns an error.
/// 3. The value keeps the parts of the device that it needs open.
#[expect(unsafe_code, reason = "a region is unmapped when it reports that the device is quiesced")]
pub unsafe trait RegionRegistration: Any + Send + Sync + fmt::Debug {
    /// Deregisters the region and quiesces the device. Dropping the region calls this, even if both have been done.
    ///
    /// # Errors
    /// If the device may still access the memory, for example by a bound memory window. The memory then stays mapped
    /// until the process ends.
    fn deregister(&self) -> Result<(), RegisterError>;

    /// Returns whether [`deregister`](Self::deregister) has succeeded, for example because the device was closed. The
    /// region then drops the value when it is next registered with another device.
    fn has_ended(&self) -> bool {
        false
    }
}

/// The registrations of a region, at most one for each device. Registering is slow, because it pins pages.
#[derive(Debug, Default)]
pub struct Registrations {
    list: Mutex<Vec<(u64, Arc<dyn RegionRegistration>)>>,
}

impl Registrations {
    /// Returns the registration with a device; `register` makes it on the first call.
    ///
    /// `device` identifies the device in this process. Calls for other devices wait while `register` runs.
    ///
    /// # Errors
    /// The error of `register`; the next call runs it again.
    pub fn get_or_register(
        &self,
        device: u64,
        register: impl FnOnce() -> Result<Arc<dyn RegionRegistration>, RegisterError>,
    ) -> Result<Arc<dyn RegionRegistration>, RegisterError> {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = list.iter().find(|(id, _)| *id == device) {
            return Ok(Arc::clone(known));
        }
        let made = register()?;
        list.retain(|(_, known)| !known.has_ended());
        list.push((device, Arc::clone(&made)));
        Ok(made)
    }

    /// Deregisters the region with every device, even after one has failed. Returns whether every device is quiesced.
    fn deregister_all(&mut self) -> bool {
        let list = self.list.get_mut().unwrap_or_else(PoisonError::into_inner);
        list.drain(..).fold(true, |quiesced, (_, known)| known.deregister().is_ok() && quiesced)
    }
}

/// The memory of a region, and its registrations.
#[derive(Debug)]
pub struct Region {
    /// The address of the first byte.
    pub base: NonNull<u8>,
    /// The length in bytes.
    pub len: usize,
    /// The page size in bytes.
    pub page: usize,
    /// The registrations of the region.
    pub registrations: Registrations,
}

// SAFETY: it only describes memory, and gives no access to it.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

/// Storages that a device could not deregister; they stay mapped until the process ends.
static LEAKED: Mutex<Vec<Box<dyn Storage>>> = Mutex::new(Vec::new());

/// A storage and its registrations.
///
/// If a device cannot deregister the storage on drop, the storage is [leaked](LEAKED): the device might still write,
/// and must not hit a later mapping at the same address.
#[derive(Debug)]
pub(crate) struct RegisteredStorage<S: Storage> {
    storage: ManuallyDrop<S>,
    region: Region,
}

impl<S: Storage> RegisteredStorage<S> {
    pub(crate) fn new(storage: S) -> RegisteredStorage<S> {
        let (base, len, page) = (storage.base(), storage.size(), storage.page_size());
        let region = Region { base, len, page, registrations: Registrations::default() };
        RegisteredStorage { storage: ManuallyDrop::new(storage), region }
    }

    pub(crate) fn as_region(&self) -> &Region {
        &self.region
    }

    /// As [`Storage::discard`]. Returns false if the region is registered: the device would use the old pages.
    ///
    /// # Safety
    /// As for [`Storage::discard`].
    pub(crate) unsafe fn discard_unregistered(&self, at: usize, len: usize) -> bool {
        // Held meanwhile, so that no device registers the region.
        let Ok(list) = self.region.registrations.list.try_lock() else { return false };
        // SAFETY: the caller's promise.
        list.is_empty() && unsafe { self.storage.discard(at, len) }
    }
}

impl<S: Storage> Deref for RegisteredStorage<S> {
    type Target = S;

    #[inline]
    fn deref(&self) -> &S {
        &self.storage
    }
}

impl<S: Storage> Drop for RegisteredStorage<S> {
    fn drop(&mut self) {
        // If `deregister` panics, the storage is not taken below, and so is leaked too.
        let is_quiesced = self.region.registrations.deregister_all();
        // SAFETY: this is the only place that takes it, and it runs once.
        let storage = unsafe { ManuallyDrop::take(&mut self.storage) };
        if !is_quiesced {
            LEAKED.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(storage));
        }
    }
}
