//! Stream sockets, which this platform does not have. Every call fails or has no effect.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};

use super::Errno;
use crate::sys::OwnedFd;

macro_rules! refused {
    ($($name:ident($($arg:ty),*) -> $ok:ty;)*) => {$(
        pub(crate) fn $name($(_: $arg),*) -> Result<$ok, Errno> {
            Err(Errno::UNSUPPORTED)
        }
    )*};
}

refused! {
    listen(SocketAddr, i32) -> (OwnedFd, SocketAddr);
    listen_again(SocketAddr, i32) -> (OwnedFd, SocketAddr);
    reach(IpAddr) -> ();
    connect(&SocketAddr) -> OwnedFd;
    is_connected(&OwnedFd) -> bool;
    accept(&OwnedFd) -> OwnedFd;
    send(&OwnedFd, &[u8]) -> usize;
    send_parts(&OwnedFd, &[IoSlice<'_>]) -> usize;
    recv(&OwnedFd, &mut [u8]) -> usize;
    recv_uninit(&OwnedFd, &mut [MaybeUninit<u8>]) -> usize;
}

pub(crate) fn spare() -> Option<OwnedFd> {
    None
}

pub(crate) fn no_delay(_socket: &OwnedFd) {}

pub(crate) fn acknowledge(_socket: &OwnedFd) {}

pub(crate) fn shut(_socket: &OwnedFd) {}

pub(crate) fn shut_writing(_socket: &OwnedFd) {}

pub(crate) fn unacknowledged<T>(_socket: &T) -> usize {
    0
}

/// # Errors
/// Always: this platform has no such call.
pub fn peer_of_unix<T>(_socket: &T) -> io::Result<(u32, i32)> {
    Err(io::ErrorKind::Unsupported.into())
}
