//! Protection domains and registered memory.

use core::ptr::NonNull;
use std::fmt;
use std::io;
use std::sync::Arc;

use super::abi;
use super::context::{Context, check, non_null};

/// A protection domain. Queue pairs can use only memory that is registered in their own domain.
pub(crate) struct ProtectionDomain {
    pub(super) raw: NonNull<abi::Pd>,
    pub(super) context: Arc<Context>,
}

// SAFETY: any thread may use the objects of the library, and several threads may do so at once.
unsafe impl Send for ProtectionDomain {}
// SAFETY: as for `Send`.
unsafe impl Sync for ProtectionDomain {}

impl fmt::Debug for ProtectionDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProtectionDomain({})", self.context.name())
    }
}

impl ProtectionDomain {
    pub(crate) fn new(context: Arc<Context>) -> io::Result<Arc<Self>> {
        // SAFETY: the context is open.
        let raw = non_null(unsafe { (context.functions.alloc_pd)(context.raw.as_ptr()) })?;
        Ok(Arc::new(ProtectionDomain { raw, context }))
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }
}

impl Drop for ProtectionDomain {
    fn drop(&mut self) {
        // SAFETY: all objects that were made in the domain hold it, so they have been destroyed.
        unsafe { (self.context.functions.dealloc_pd)(self.raw.as_ptr()) };
    }
}

/// The access that a device has to registered memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MrAccess {
    /// Read access, for sends of this process and for reads of peers.
    Read,
    /// Write access for receives and reads of this process, in addition to read access.
    Write,
}

/// A registration of memory: the memory is pinned, and the device knows it by keys.
pub(crate) struct Mr {
    /// `None` after the deregistration.
    raw: Option<NonNull<abi::RawMr>>,
    domain: Arc<ProtectionDomain>,
    lkey: u32,
    rkey: u32,
}

// SAFETY: any thread may use the objects of the library, and several threads may do so at once.
unsafe impl Send for Mr {}
// SAFETY: as for `Send`.
unsafe impl Sync for Mr {}

impl fmt::Debug for Mr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mr(lkey {:x}, rkey {:x})", self.lkey, self.rkey)
    }
}

impl Mr {
    /// Registers `len` bytes.
    ///
    /// # Errors
    /// For example ENOMEM if the limit of locked memory is reached, and EFAULT if the memory is not mapped, or not
    /// writable as needed.
    ///
    /// # Safety
    /// The bytes stay mapped, and for [`MrAccess::Write`] writable, until this is dropped or released. The contracts of
    /// the calls that post work requests say when the device uses the bytes.
    pub(crate) unsafe fn new(
        domain: &Arc<ProtectionDomain>,
        base: *mut u8,
        len: usize,
        what: MrAccess,
    ) -> io::Result<Self> {
        let access = match what {
            MrAccess::Read => abi::ACCESS_REMOTE_READ,
            MrAccess::Write => abi::ACCESS_LOCAL_WRITE | abi::ACCESS_REMOTE_READ,
        };
        let functions = domain.context.functions;
        // SAFETY: the caller's promise.
        let raw = non_null(unsafe { (functions.reg_mr)(domain.raw.as_ptr(), base.cast(), len, access) })?;
        // SAFETY: the call above has made the object.
        let (lkey, rkey) = unsafe { raw.as_ref() }.keys();
        Ok(Mr { raw: Some(raw), domain: Arc::clone(domain), lkey, rkey })
    }

    /// Returns the key that names the memory in work requests of this process.
    pub(crate) fn lkey(&self) -> u32 {
        self.lkey
    }

    /// Returns the key that names the memory in work requests of peers.
    pub(crate) fn rkey(&self) -> u32 {
        self.rkey
    }

    /// Deregisters the memory.
    ///
    /// # Errors
    /// The error of the system. The registration stays, and the device might still access the memory.
    pub(crate) fn release(&mut self) -> io::Result<()> {
        let Some(raw) = self.raw else { return Ok(()) };
        // SAFETY: the library made it, and it was not deregistered.
        check(unsafe { (self.domain.context.functions.dereg_mr)(raw.as_ptr()) })?;
        self.raw = None;
        Ok(())
    }
}

impl abi::RawMr {
    fn keys(&self) -> (u32, u32) {
        (self.lkey, self.rkey)
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        // A caller that must know whether the device has stopped using the memory calls `release` itself.
        let _ = self.release();
    }
}
