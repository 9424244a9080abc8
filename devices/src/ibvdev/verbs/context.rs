//! Open devices, their ports and addresses.

use core::ffi::{CStr, c_int};
use core::mem::MaybeUninit;
use core::ptr::NonNull;
use std::fmt;
use std::io;
use std::sync::Arc;

use super::abi;
use super::library::{Functions, functions};
use crate::sys::{self, BorrowedFd};

/// An open device of this host.
pub(crate) struct Context {
    pub(super) raw: NonNull<abi::RawContext>,
    pub(super) functions: &'static Functions,
    name: String,
}

// SAFETY: any thread may use the objects of the library, and several threads may do so at once.
unsafe impl Send for Context {}
// SAFETY: as for `Send`.
unsafe impl Sync for Context {}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Context({})", self.name)
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) max_work_requests: usize,
    pub(crate) max_completions: usize,
    pub(crate) max_shared_receives: usize,
    /// The maximum number of reads in progress on one queue pair, both as initiator and as target.
    pub(crate) max_reads: u8,
    pub(crate) ports: u8,
}

/// The state of a port at the time of the query.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Port {
    /// Its number, starting at 1.
    pub(crate) number: u8,
    pub(crate) is_active: bool,
    /// Whether its link layer is Ethernet, where GIDs are the only addresses.
    pub(crate) is_ethernet: bool,
    /// The verbs code of its MTU: 1 for 256 bytes to 5 for 4096 bytes.
    pub(crate) mtu: u8,
    pub(crate) lid: u16,
    /// The number of entries in its table of GIDs.
    pub(crate) gids: u32,
    /// The number of entries in its table of partition keys.
    pub(crate) pkeys: u16,
    /// The maximum length of a message in bytes.
    pub(crate) max_message: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DeviceEvent {
    /// The device or one of its queues has failed.
    Failed,
    /// The port of this number has lost its link.
    LinkLost(u8),
    /// The port of this number has a link again.
    LinkBack(u8),
}

struct DeviceList {
    raw: NonNull<*mut abi::RawDevice>,
    count: usize,
    functions: &'static Functions,
}

impl DeviceList {
    fn new() -> Result<Self, String> {
        let functions = functions()?;
        let mut count = 0;
        // SAFETY: `count` is written before the call returns.
        let raw = unsafe { (functions.get_device_list)(&mut count) };
        let none = |why: &str| format!("this host has no InfiniBand or RoCE device{why}");
        let raw = NonNull::new(raw).ok_or_else(|| none(&format!(" ({})", io::Error::last_os_error())))?;
        let list = DeviceList { raw, count: usize::try_from(count).unwrap_or(0), functions };
        if list.count == 0 { Err(none("")) } else { Ok(list) }
    }

    fn device(&self, at: usize) -> *mut abi::RawDevice {
        assert!(at < self.count, "device {at} of {}", self.count);
        // SAFETY: the list has `count` entries, and `at` is less.
        let entry = unsafe { self.raw.add(at) };
        // SAFETY: each entry is a device.
        unsafe { entry.read() }
    }

    fn name(&self, at: usize) -> String {
        // SAFETY: the device belongs to the list, which is alive.
        let name = unsafe { (self.functions.get_device_name)(self.device(at)) };
        // SAFETY: names are C strings, and live as long as the list.
        unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
    }
}

impl Drop for DeviceList {
    fn drop(&mut self) {
        // SAFETY: the library made the list, and it is freed once.
        unsafe { (self.functions.free_device_list)(self.raw.as_ptr()) }
    }
}

/// Returns the names of the devices of this host.
///
/// # Errors
/// The library cannot be used, or the host has no device.
pub(crate) fn names() -> Result<Vec<String>, String> {
    let list = DeviceList::new()?;
    Ok((0..list.count).map(|at| list.name(at)).collect())
}

impl Context {
    /// Opens the device of this name.
    ///
    /// # Errors
    /// The library cannot be used, the device does not exist, or this process cannot use it.
    pub(crate) fn open(name: &str) -> Result<Arc<Self>, String> {
        let list = DeviceList::new()?;
        let at = (0..list.count).find(|at| list.name(*at) == name);
        let at = at.ok_or_else(|| format!("this host has no device '{name}'"))?;
        // SAFETY: the device belongs to the list, which is alive.
        let raw = unsafe { (list.functions.open_device)(list.device(at)) };
        let raw = NonNull::new(raw).ok_or_else(|| {
            let error = io::Error::last_os_error();
            format!("{name} cannot be opened ({error}): check the permissions of /dev/infiniband/uverbs*")
        })?;
        let context = Context { raw, functions: list.functions, name: name.to_owned() };
        let events = context.events().ok_or("this system cannot wait for the events of a device")?;
        sys::set_nonblocking(events).map_err(|e| format!("{name}: {}", io::Error::from(e)))?;
        Ok(Arc::new(context))
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn limits(&self) -> io::Result<Limits> {
        let mut attr = MaybeUninit::<abi::DeviceAttr>::zeroed();
        // SAFETY: the pointer for the result is valid for writes.
        check(unsafe { (self.functions.query_device)(self.raw.as_ptr(), attr.as_mut_ptr()) })?;
        // SAFETY: zero is valid for every field, and the library has filled in the result.
        let attr = unsafe { attr.assume_init() };
        let size = |value: c_int| usize::try_from(value).unwrap_or(0);
        let reads = attr.max_qp_rd_atom.min(attr.max_qp_init_rd_atom).clamp(0, 255);
        Ok(Limits {
            max_work_requests: size(attr.max_qp_wr),
            max_completions: size(attr.max_cqe),
            max_shared_receives: size(attr.max_srq_wr),
            max_reads: u8::try_from(reads).unwrap_or(0),
            ports: attr.ports,
        })
    }

    pub(crate) fn port(&self, number: u8) -> io::Result<Port> {
        let mut attr = MaybeUninit::<abi::PortAttr>::zeroed();
        // SAFETY: the pointer for the result is valid for writes.
        check(unsafe { (self.functions.query_port)(self.raw.as_ptr(), number, attr.as_mut_ptr()) })?;
        // SAFETY: zero is valid for every field, and the library has filled in the result.
        let attr = unsafe { attr.assume_init() };
        Ok(Port {
            number,
            is_active: attr.state == abi::PORT_ACTIVE,
            is_ethernet: attr.link_layer == abi::LINK_ETHERNET,
            mtu: attr.active_mtu.clamp(1, 5) as u8,
            lid: attr.lid,
            gids: u32::try_from(attr.gid_table).unwrap_or(0),
            pkeys: attr.pkey_table,
            max_message: attr.max_message as usize,
        })
    }

    pub(crate) fn gid(&self, port: u8, index: u32) -> io::Result<[u8; 16]> {
        let mut gid = abi::Gid::default();
        let index = c_int::try_from(index).map_err(io::Error::other)?;
        // SAFETY: the pointer for the result is valid for writes.
        check(unsafe { (self.functions.query_gid)(self.raw.as_ptr(), port, index, &mut gid) })?;
        Ok(gid.raw)
    }

    /// Returns an entry of a port's table of partition keys, in network byte order.
    pub(crate) fn pkey(&self, port: u8, index: u16) -> io::Result<u16> {
        let mut pkey = 0;
        // SAFETY: the pointer for the result is valid for writes.
        check(unsafe { (self.functions.query_pkey)(self.raw.as_ptr(), port, index.into(), &mut pkey) })?;
        Ok(pkey)
    }

    /// Returns a descriptor that is readable when the device has an event.
    fn events(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the context is open.
        let context = unsafe { self.raw.as_ref() };
        // SAFETY: its descriptor is open as long as the context is.
        unsafe { sys::borrow_fd(context.async_fd) }
    }

    /// Returns the next event that a [`DeviceEvent`] describes, if there is one. Never blocks.
    pub(crate) fn next_event(&self) -> Option<DeviceEvent> {
        loop {
            let mut event = abi::AsyncEvent { element: 0, kind: 0 };
            // SAFETY: the pointer for the event is valid for writes; the descriptor does not block.
            if unsafe { (self.functions.get_async_event)(self.raw.as_ptr(), &mut event) } != 0 {
                return None;
            }
            // SAFETY: the event was received, and is acknowledged once.
            unsafe { (self.functions.ack_async_event)(&mut event) };
            return Some(match event.kind {
                abi::EVENT_DEVICE_FATAL | abi::EVENT_CQ_ERROR | abi::EVENT_SRQ_ERROR => DeviceEvent::Failed,
                abi::EVENT_PORT_ERROR => DeviceEvent::LinkLost(event.port()),
                abi::EVENT_PORT_ACTIVE => DeviceEvent::LinkBack(event.port()),
                // Other events need no action here. The completions of a broken queue pair report it.
                _ => continue,
            });
        }
    }

    /// Makes the device read its events from a pipe, and returns the pipe's writer. Each event has the format of the
    /// kernel: the port in 8 bytes, the kind in 4 bytes, and 4 reserved bytes.
    #[cfg(all(test, target_os = "linux", not(mpj_portable)))]
    pub(crate) fn replace_event_source(&self) -> io::PipeWriter {
        let (events, writer) = io::pipe().unwrap();
        sys::replace_file_of(self.events().unwrap(), events.into()).unwrap();
        writer
    }

    /// Returns the description of a completion status.
    pub(crate) fn explain(&self, status: u32) -> String {
        // SAFETY: the function accepts any number.
        let text = unsafe { (self.functions.wc_status_str)(status) };
        if text.is_null() {
            return format!("status {status}");
        }
        // SAFETY: the text is a static C string.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: all objects that were made from the context hold it, so they have been destroyed.
        unsafe { (self.functions.close_device)(self.raw.as_ptr()) };
    }
}

pub(super) fn check(errno: c_int) -> io::Result<()> {
    match errno {
        0 => Ok(()),
        -1 => Err(io::Error::last_os_error()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

pub(super) fn non_null<T>(raw: *mut T) -> io::Result<NonNull<T>> {
    NonNull::new(raw).ok_or_else(io::Error::last_os_error)
}
