//! Error numbers. Only `UNSUPPORTED` occurs on this platform; the others exist because the devices name them.

use std::{fmt, io};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Errno(u8);

macro_rules! errors {
    ($($name:ident)*) => {
        #[repr(u8)]
        enum Number { Unsupported, $($name),* }

        impl Errno {
            pub(crate) const UNSUPPORTED: Errno = Errno(Number::Unsupported as u8);
            $(pub(crate) const $name: Errno = Errno(Number::$name as u8);)*
        }
    };
}

errors! {
    ACCESS ADDRINUSE ADDRNOTAVAIL AFNOSUPPORT CONNREFUSED CONNRESET HOSTUNREACH INTR MFILE NETDOWN NETUNREACH NFILE
    NOBUFS NOMEM PERM PIPE WOULDBLOCK
}

impl Errno {
    pub(crate) const AGAIN: Errno = Errno::WOULDBLOCK;

    pub(crate) const fn raw_os_error(self) -> i32 {
        self.0 as i32
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        io::Error::from(*self).fmt(f)
    }
}

impl From<Errno> for io::Error {
    fn from(_: Errno) -> io::Error {
        io::ErrorKind::Unsupported.into()
    }
}
