//! Memory that a device knows.

use core::ptr::NonNull;
use std::fmt;
use std::io;
use std::sync::Arc;

use super::abi;
use super::context::{Context, check, made};

/// What queue pairs and memory belong to: those of one domain know each other.
pub(crate) struct Domain {
    pub(super) raw: NonNull<abi::Pd>,
    pub(super) context: Arc<Context>,
}

// SAFETY: the library's objects may be used by any thread, and by several at once.
unsafe impl Send for Domain {}
// SAFETY: as above.
unsafe impl Sync for Domain {}

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Domain({})", self.context.name())
    }
}

impl Domain {
    /// Makes one.
    ///
    /// # Errors
    /// What the system said.
    pub(crate) fn new(context: Arc<Context>) -> io::Result<Arc<Self>> {
        // SAFETY: the context is open.
        let raw = made(unsafe { (context.functions.alloc_pd)(context.raw.as_ptr()) })?;
        Ok(Arc::new(Domain { raw, context }))
    }

    /// Returns the device.
    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: what was made in it holds it, and so is gone.
        unsafe { (self.context.functions.dealloc_pd)(self.raw.as_ptr()) };
    }
}

/// What a device may do with memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Use {
    /// Read it for sends of this process and for peers.
    Read,
    /// Write what this process receives or gets, and read it as well.
    Write,
}

/// Registered memory: pinned, and known to the device by keys.
pub(crate) struct Mr {
    /// `None` once it was given back.
    raw: Option<NonNull<abi::Mr>>,
    domain: Arc<Domain>,
    lkey: u32,
    rkey: u32,
}

// SAFETY: the library's objects may be used by any thread, and by several at once.
unsafe impl Send for Mr {}
// SAFETY: as above.
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
    /// What the system said: ENOMEM if no more memory may be locked, EFAULT if there is none, or none to write.
    ///
    /// # Safety
    /// The bytes stay mapped, and for [`Use::Write`] writable, until it is dropped or released. What is posted in its name
    /// says when they are used.
    pub(crate) unsafe fn new(domain: &Arc<Domain>, base: *mut u8, len: usize, what: Use) -> io::Result<Self> {
        let access = match what {
            Use::Read => abi::ACCESS_REMOTE_READ,
            Use::Write => abi::ACCESS_LOCAL_WRITE | abi::ACCESS_REMOTE_READ,
        };
        let functions = domain.context.functions;
        // SAFETY: the caller's promise.
        let raw = made(unsafe { (functions.reg_mr)(domain.raw.as_ptr(), base.cast(), len, access) })?;
        // SAFETY: it was made just now.
        let (lkey, rkey) = unsafe { raw.as_ref() }.keys();
        Ok(Mr { raw: Some(raw), domain: Arc::clone(domain), lkey, rkey })
    }

    /// Returns what names the memory in work requests of this process.
    pub(crate) fn lkey(&self) -> u32 {
        self.lkey
    }

    /// Returns what names the memory in work requests of peers.
    pub(crate) fn rkey(&self) -> u32 {
        self.rkey
    }

    /// Takes the registration back.
    ///
    /// # Errors
    /// What the system said: the device may still use the memory, and the registration stays.
    pub(crate) fn release(&mut self) -> io::Result<()> {
        let Some(raw) = self.raw else { return Ok(()) };
        // SAFETY: it is the library's, and was not given back.
        check(unsafe { (self.domain.context.functions.dereg_mr)(raw.as_ptr()) })?;
        self.raw = None;
        Ok(())
    }
}

impl abi::Mr {
    fn keys(&self) -> (u32, u32) {
        (self.lkey, self.rkey)
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        // The memory is its owner's; who must know whether the device has let go of it calls `release`.
        let _ = self.release();
    }
}
