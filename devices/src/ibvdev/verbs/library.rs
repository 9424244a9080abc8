//! Loads libibverbs at first use, so that a program also starts on a system without the library.

use core::ffi::{c_char, c_int, c_uint, c_void};
use std::fmt;
use std::sync::OnceLock;

use libloading::Library;

use super::abi::{
    Ah, AhAttr, AsyncEvent, CompChannel, Cq, DeviceAttr, Gid, Pd, PortAttr, QpAttr, QpInitAttr, RawContext,
    RawDevice, RawMr, RawQp, Srq, SrqInitAttr,
};

const NAME: &str = "libibverbs.so.1";

macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions of the library.
        pub(super) struct Functions {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Functions {
            fn bind(library: &Library) -> Result<Self, libloading::Error> {
                Ok(Functions {
                    $($name: {
                        // SAFETY: the symbol is the function that the header declares with this type.
                        let symbol = unsafe { library.get(concat!("ibv_", stringify!($name), "\0").as_bytes()) }?;
                        *symbol
                    },)*
                })
            }
        }
    };
}

functions! {
    fork_init: fn() -> c_int;
    get_device_list: fn(*mut c_int) -> *mut *mut RawDevice;
    free_device_list: fn(*mut *mut RawDevice);
    get_device_name: fn(*mut RawDevice) -> *const c_char;
    open_device: fn(*mut RawDevice) -> *mut RawContext;
    close_device: fn(*mut RawContext) -> c_int;
    query_device: fn(*mut RawContext, *mut DeviceAttr) -> c_int;
    query_port: fn(*mut RawContext, u8, *mut PortAttr) -> c_int;
    query_gid: fn(*mut RawContext, u8, c_int, *mut Gid) -> c_int;
    query_pkey: fn(*mut RawContext, u8, c_int, *mut u16) -> c_int;
    get_async_event: fn(*mut RawContext, *mut AsyncEvent) -> c_int;
    ack_async_event: fn(*mut AsyncEvent);
    alloc_pd: fn(*mut RawContext) -> *mut Pd;
    dealloc_pd: fn(*mut Pd) -> c_int;
    reg_mr: fn(*mut Pd, *mut c_void, usize, c_int) -> *mut RawMr;
    dereg_mr: fn(*mut RawMr) -> c_int;
    create_comp_channel: fn(*mut RawContext) -> *mut CompChannel;
    destroy_comp_channel: fn(*mut CompChannel) -> c_int;
    create_cq: fn(*mut RawContext, c_int, *mut c_void, *mut CompChannel, c_int) -> *mut Cq;
    destroy_cq: fn(*mut Cq) -> c_int;
    get_cq_event: fn(*mut CompChannel, *mut *mut Cq, *mut *mut c_void) -> c_int;
    ack_cq_events: fn(*mut Cq, c_uint);
    create_srq: fn(*mut Pd, *mut SrqInitAttr) -> *mut Srq;
    destroy_srq: fn(*mut Srq) -> c_int;
    create_qp: fn(*mut Pd, *mut QpInitAttr) -> *mut RawQp;
    modify_qp: fn(*mut RawQp, *mut QpAttr, c_int) -> c_int;
    destroy_qp: fn(*mut RawQp) -> c_int;
    create_ah: fn(*mut Pd, *mut AhAttr) -> *mut Ah;
    destroy_ah: fn(*mut Ah) -> c_int;
    wc_status_str: fn(c_uint) -> *const c_char;
}

impl fmt::Debug for Functions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(NAME)
    }
}

/// Returns the functions of the library, which stays loaded.
///
/// # Errors
/// The reason why the library cannot be used.
pub(super) fn functions() -> Result<&'static Functions, &'static str> {
    static FUNCTIONS: OnceLock<Result<Functions, String>> = OnceLock::new();
    FUNCTIONS.get_or_init(load).as_ref().map_err(String::as_str)
}

fn load() -> Result<Functions, String> {
    // SAFETY: the initialisers of the library only set up the library itself.
    let library = unsafe { Library::new(NAME) };
    let library = library.map_err(|e| {
        format!("libibverbs is not installed ({e}): install libibverbs1 and ibverbs-providers")
    })?;
    let functions = Functions::bind(&library).map_err(|e| format!("{NAME} lacks a function: {e}"));
    if let Ok(functions) = &functions {
        // This must precede all registrations; see "Children" in `ibvdev/README.md`.
        // SAFETY: it may be called at any time.
        let errno = unsafe { (functions.fork_init)() };
        if errno != 0 {
            log::warn!(
                "ibvdev: ibv_fork_init failed: {}: it is not safe to fork",
                std::io::Error::from_raw_os_error(errno)
            );
        }
    }
    // The bound functions are valid while the library is loaded, so never unload it.
    std::mem::forget(library);
    functions
}
