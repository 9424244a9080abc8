//! The network interfaces of this host.

use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ptr;

use rustix::io::Errno;

use crate::sys::Interface;

/// Returns each address of each network interface of this host.
pub(crate) fn interfaces() -> Result<Vec<Interface>, Errno> {
    let mut list: *mut libc::ifaddrs = ptr::null_mut();
    // SAFETY: the pointer is valid for writes.
    let rc = unsafe { libc::getifaddrs(&raw mut list) };
    if rc != 0 {
        let error = std::io::Error::last_os_error();
        return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO));
    }
    let mut found = Vec::new();
    let mut next = list;
    // SAFETY: `next` is null or an entry of the list, which exists until `freeifaddrs`.
    while let Some(entry) = unsafe { next.as_ref() } {
        next = entry.ifa_next;
        // SAFETY: the address of an entry is null or valid, and matches its family.
        let address = unsafe { ip(entry.ifa_addr) };
        // SAFETY: the same holds for the mask.
        let mask = unsafe { ip(entry.ifa_netmask) };
        let Some(address) = address else { continue };
        // SAFETY: the name of an entry is a string that ends with a zero byte.
        let name = unsafe { CStr::from_ptr(entry.ifa_name) };
        let has = |flag: libc::c_int| entry.ifa_flags & flag as libc::c_uint != 0;
        found.push(Interface {
            name: name.to_string_lossy().into_owned(),
            address,
            prefix: mask.map_or(0, |mask| match mask {
                IpAddr::V4(mask) => mask.to_bits().leading_ones(),
                IpAddr::V6(mask) => mask.to_bits().leading_ones(),
            }),
            // The kernel clears `IFF_RUNNING` for an interface without a carrier, such as a bridge without ports.
            is_up: has(libc::IFF_UP) && has(libc::IFF_RUNNING),
        });
    }
    // SAFETY: `getifaddrs` has returned this list, and nothing refers to it any more.
    unsafe { libc::freeifaddrs(list) };
    Ok(found)
}

/// Returns the address, if it belongs to IP.
///
/// # Safety
/// `address` is null, or points to a socket address of the length that its family requires.
unsafe fn ip(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: the caller guarantees null or a valid address.
    let family = libc::c_int::from(unsafe { address.as_ref() }?.sa_family);
    match family {
        libc::AF_INET => {
            // SAFETY: by its family, this is an IPv4 address. It might be unaligned for the type.
            let address = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(IpAddr::V4(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr))))
        }
        libc::AF_INET6 => {
            // SAFETY: by its family, this is an IPv6 address. It might be unaligned for the type.
            let address = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(IpAddr::V6(Ipv6Addr::from(address.sin6_addr.s6_addr)))
        }
        _ => None,
    }
}
