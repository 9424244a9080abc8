//! What devices make of a region: each registers it at most once, and every block of the region inherits that.

use core::any::Any;
use core::fmt;
use core::mem::ManuallyDrop;
use core::ops::Deref;
use core::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use crate::Storage;

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
    /// For peers that get from it.
    pub const READ: Access = Access { remote_read: true, remote_write: false, remote_atomic: false };
    /// For peers that put into it.
    pub const WRITE: Access = Access { remote_read: false, remote_write: true, remote_atomic: false };
    /// For puts and gets.
    pub const REMOTE: Access = Access { remote_read: true, remote_write: true, remote_atomic: false };
    /// For all that there is.
    pub const ALL: Access = Access { remote_read: true, remote_write: true, remote_atomic: true };
}

/// Why a device did not take or did not give back memory.
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

/// What a registered region is to a device: an `ibv_mr`, or whatever it looks up by the address.
///
/// # Safety
/// 1. Until [`release`](Self::release) is called, the device accesses no byte outside of the region that it was made for,
///    and none at all but for work that was posted in its name.
/// 2. When `release` returns `Ok`, the device is quiet: it will not read or write the region again, whatever was posted
///    and whatever a peer still sends. If that cannot be promised it returns an error.
/// 3. It keeps what it needs of the device open by itself.
#[expect(unsafe_code, reason = "a region is unmapped on its word")]
pub unsafe trait RegionRegistration: Any + Send + Sync + fmt::Debug {
    /// Takes the registration back, once the device is quiet; called before the region goes, though the device may have taken it
    /// back by itself.
    ///
    /// # Errors
    /// If the device may still access the memory, for example as a memory window is bound to it. The memory then stays
    /// mapped for ever.
    fn release(&self) -> Result<(), RegisterError>;
}

/// The registrations of a region, one for each device that has asked.
///
/// To register pins pages and tells the device where they are: 1 to 3 ms for 64 MiB. So it is done once a region.
#[derive(Debug, Default)]
pub struct Registrations {
    list: Mutex<Vec<(u64, Arc<dyn RegionRegistration>)>>,
}

impl Registrations {
    /// Returns what a device made of the region, or has it made by `register` at its first call.
    ///
    /// `device` is a number that no other device of this process has. Another device waits meanwhile.
    ///
    /// # Errors
    /// What `register` said; the next call asks it again.
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
        list.push((device, Arc::clone(&made)));
        Ok(made)
    }

    /// Takes all registrations back; returns whether every device is quiet.
    fn release(&mut self) -> bool {
        let list = self.list.get_mut().unwrap_or_else(PoisonError::into_inner);
        // Each is asked, also after one has refused.
        list.drain(..).fold(true, |quiet, (_, known)| known.release().is_ok() && quiet)
    }
}

/// The region that a block lies in, as a device is shown it.
#[derive(Debug)]
pub struct Region {
    /// Its first byte.
    pub base: NonNull<u8>,
    /// Its length in bytes, whole pages.
    pub len: usize,
    /// The size of its pages.
    pub page: usize,
    /// What devices have made of it. It lives as long as what is there says that it is not released.
    pub registrations: Registrations,
}

// SAFETY: it says where memory is; who accesses it answers for that.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

/// The storages that devices have not let go of, for as long as the process lives.
static KEPT: Mutex<Vec<Box<dyn Storage>>> = Mutex::new(Vec::new());

/// A storage, and what devices know of it.
///
/// If a device does not let go of the memory when this is dropped, the memory is [kept](KEPT) for good: a write that comes late must not
/// hit what somebody else has mapped there since.
#[derive(Debug)]
pub(crate) struct RegisteredStorage<S: Storage> {
    // `drop` says what becomes of it.
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
        // SAFETY: this is the only place that takes it, and it runs once.
        let storage = unsafe { ManuallyDrop::take(&mut self.storage) };
        if !self.region.registrations.release() {
            // Where a search for leaks finds it: this one is meant.
            KEPT.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(storage));
        }
    }
}
