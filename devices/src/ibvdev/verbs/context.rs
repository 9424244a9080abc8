//! Devices, opened; their ports and addresses.

use core::ffi::{CStr, c_int};
use core::mem::MaybeUninit;
use core::ptr::NonNull;
use std::fmt;
use std::io;
use std::sync::Arc;

use super::abi;
use super::library::{Functions, functions};
use crate::sys::{self, BorrowedFd};

/// A device of this host, opened.
pub(crate) struct Context {
    pub(super) raw: NonNull<abi::Context>,
    pub(super) functions: &'static Functions,
    name: String,
}

// SAFETY: the library's objects may be used by any thread, and by several at once.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Context({})", self.name)
    }
}

/// What a device has room for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Work requests of a queue.
    pub(crate) queue: usize,
    /// Entries of a completion queue.
    pub(crate) completions: usize,
    /// Work requests of a shared receive queue.
    pub(crate) shared_queue: usize,
    /// Reads of one queue pair at once, as the one who reads and as the one who is read.
    pub(crate) reads: u8,
    /// Ports.
    pub(crate) ports: u8,
}

/// A port, as it is now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Port {
    /// Its number, from 1 on.
    pub(crate) number: u8,
    /// Whether it has a link.
    pub(crate) is_active: bool,
    /// Whether that is an Ethernet, where addresses are GIDs alone.
    pub(crate) is_ethernet: bool,
    /// Its code for the bytes of a packet: 1 stands for 256, 5 for 4096.
    pub(crate) mtu: u8,
    /// Its address in the subnet.
    pub(crate) lid: u16,
    /// Entries of its table of GIDs.
    pub(crate) gids: u32,
    /// Entries of its table of partition keys.
    pub(crate) pkeys: u16,
    /// The bytes of the longest message.
    pub(crate) message: usize,
}

/// What has happened to a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    /// It, or a queue of it, does nothing any more.
    Failed,
    /// The port of a number has lost its link.
    LinkLost(u8),
    /// The port of a number has a link again.
    LinkBack(u8),
}

/// The list of devices.
struct List {
    raw: NonNull<*mut abi::Device>,
    count: usize,
    functions: &'static Functions,
}

impl List {
    fn new() -> Result<Self, String> {
        let functions = functions()?;
        let mut count = 0;
        // SAFETY: `count` is written before the call returns.
        let raw = unsafe { (functions.get_device_list)(&mut count) };
        let none = |why: &str| format!("this host has no InfiniBand or RoCE device{why}");
        let raw = NonNull::new(raw).ok_or_else(|| none(&format!(" ({})", io::Error::last_os_error())))?;
        let list = List { raw, count: usize::try_from(count).unwrap_or(0), functions };
        if list.count == 0 { Err(none("")) } else { Ok(list) }
    }

    fn device(&self, at: usize) -> *mut abi::Device {
        assert!(at < self.count, "a device of the list");
        // SAFETY: the list has so many entries.
        let entry = unsafe { self.raw.add(at) };
        // SAFETY: each is a device.
        unsafe { entry.read() }
    }

    fn name(&self, at: usize) -> String {
        // SAFETY: the device is one of the list.
        let name = unsafe { (self.functions.get_device_name)(self.device(at)) };
        // SAFETY: names are C strings, and live as long as the list.
        unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: the list is the library's, and given back once.
        unsafe { (self.functions.free_device_list)(self.raw.as_ptr()) }
    }
}

/// Returns the names of the devices of this host.
///
/// # Errors
/// No library, or no device.
pub(crate) fn names() -> Result<Vec<String>, String> {
    let list = List::new()?;
    Ok((0..list.count).map(|at| list.name(at)).collect())
}

impl Context {
    /// Opens the device of a name.
    ///
    /// # Errors
    /// There is none, or it is not to be used by us.
    pub(crate) fn open(name: &str) -> Result<Arc<Self>, String> {
        let list = List::new()?;
        let at = (0..list.count).find(|at| list.name(*at) == name);
        let at = at.ok_or_else(|| format!("this host has no device '{name}'"))?;
        // SAFETY: the device is one of the list.
        let raw = unsafe { (list.functions.open_device)(list.device(at)) };
        let raw = NonNull::new(raw).ok_or_else(|| {
            let error = io::Error::last_os_error();
            format!("{name} cannot be opened ({error}): see who may use /dev/infiniband/uverbs*")
        })?;
        let context = Context { raw, functions: list.functions, name: name.to_owned() };
        let events = context.events().ok_or("this system cannot wait for the events of a device")?;
        sys::unblock(events).map_err(|e| format!("{name}: {}", io::Error::from(e)))?;
        Ok(Arc::new(context))
    }

    /// Returns the name of the device.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns what the device has room for.
    ///
    /// # Errors
    /// What the system said.
    pub(crate) fn limits(&self) -> io::Result<Limits> {
        let mut attr = MaybeUninit::<abi::DeviceAttr>::zeroed();
        // SAFETY: there is room for the answer.
        check(unsafe { (self.functions.query_device)(self.raw.as_ptr(), attr.as_mut_ptr()) })?;
        // SAFETY: all zero is a value, and the library has written another.
        let attr = unsafe { attr.assume_init() };
        let size = |value: c_int| usize::try_from(value).unwrap_or(0);
        let reads = attr.max_qp_rd_atom.min(attr.max_qp_init_rd_atom).clamp(0, 255);
        Ok(Limits {
            queue: size(attr.max_qp_wr),
            completions: size(attr.max_cqe),
            shared_queue: size(attr.max_srq_wr),
            reads: u8::try_from(reads).unwrap_or(0),
            ports: attr.ports,
        })
    }

    /// Returns a port.
    ///
    /// # Errors
    /// What the system said: there is no such port.
    pub(crate) fn port(&self, number: u8) -> io::Result<Port> {
        let mut attr = MaybeUninit::<abi::PortAttr>::zeroed();
        // SAFETY: there is room for the answer.
        check(unsafe { (self.functions.query_port)(self.raw.as_ptr(), number, attr.as_mut_ptr()) })?;
        // SAFETY: all zero is a value, and the library has written another.
        let attr = unsafe { attr.assume_init() };
        Ok(Port {
            number,
            is_active: attr.state == abi::PORT_ACTIVE,
            is_ethernet: attr.link_layer == abi::LINK_ETHERNET,
            mtu: attr.active_mtu.clamp(1, 5) as u8,
            lid: attr.lid,
            gids: u32::try_from(attr.gid_table).unwrap_or(0),
            pkeys: attr.pkey_table,
            message: attr.max_message as usize,
        })
    }

    /// Returns an entry of a port's table of GIDs.
    ///
    /// # Errors
    /// What the system said: there is no such entry.
    pub(crate) fn gid(&self, port: u8, index: u32) -> io::Result<[u8; 16]> {
        let mut gid = abi::Gid::default();
        let index = c_int::try_from(index).map_err(io::Error::other)?;
        // SAFETY: there is room for the answer.
        check(unsafe { (self.functions.query_gid)(self.raw.as_ptr(), port, index, &mut gid) })?;
        Ok(gid.raw)
    }

    /// Returns an entry of a port's table of partition keys, in the order of the network.
    ///
    /// # Errors
    /// What the system said: there is no such entry.
    pub(crate) fn pkey(&self, port: u8, index: u16) -> io::Result<u16> {
        let mut pkey = 0;
        // SAFETY: there is room for the answer.
        check(unsafe { (self.functions.query_pkey)(self.raw.as_ptr(), port, index.into(), &mut pkey) })?;
        Ok(pkey)
    }

    /// Returns what is readable when something has happened to the device.
    fn events(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the context is open.
        let context = unsafe { self.raw.as_ref() };
        // SAFETY: its descriptor is open as long as it is.
        unsafe { sys::descriptor(context.async_fd) }
    }

    /// Returns what has happened since this was asked last, one after the other; never blocks.
    pub(crate) fn next_event(&self) -> Option<Event> {
        loop {
            let mut event = abi::AsyncEvent { element: 0, kind: 0 };
            // SAFETY: there is room for the event; the descriptor does not block.
            if unsafe { (self.functions.get_async_event)(self.raw.as_ptr(), &mut event) } != 0 {
                return None;
            }
            // SAFETY: the event has come, and is acknowledged once.
            unsafe { (self.functions.ack_async_event)(&mut event) };
            return Some(match event.kind {
                abi::EVENT_DEVICE_FATAL | abi::EVENT_CQ_ERROR | abi::EVENT_SRQ_ERROR => Event::Failed,
                abi::EVENT_PORT_ERROR => Event::LinkLost(event.port()),
                abi::EVENT_PORT_ACTIVE => Event::LinkBack(event.port()),
                // A queue pair that breaks says so by its completions.
                _ => continue,
            });
        }
    }

    /// Has the device tell of the events that are written to the pipe, each a word of 8 bytes, the port, and one of 4, the kind,
    /// and 4 of nothing: what the system would write.
    #[cfg(all(test, target_os = "linux", not(mpj_portable)))]
    pub(crate) fn tell(&self) -> io::PipeWriter {
        let (events, writer) = io::pipe().unwrap();
        sys::replace(self.events().unwrap(), events.into()).unwrap();
        writer
    }

    /// Returns the words for the status of a completion.
    pub(crate) fn explain(&self, status: u32) -> String {
        // SAFETY: any number has words.
        let words = unsafe { (self.functions.wc_status_str)(status) };
        if words.is_null() {
            return format!("status {status}");
        }
        // SAFETY: they are a C string for ever.
        unsafe { CStr::from_ptr(words) }.to_string_lossy().into_owned()
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: what was made of it holds it, and so is gone.
        unsafe { (self.functions.close_device)(self.raw.as_ptr()) };
    }
}

/// Makes an error of a number that is not 0.
pub(super) fn check(errno: c_int) -> io::Result<()> {
    match errno {
        0 => Ok(()),
        -1 => Err(io::Error::last_os_error()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// Makes an error of a pointer that is null.
pub(super) fn made<T>(raw: *mut T) -> io::Result<NonNull<T>> {
    NonNull::new(raw).ok_or_else(io::Error::last_os_error)
}
