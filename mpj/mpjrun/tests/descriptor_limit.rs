//! Descriptors beyond the system's limit are sent later. The test has a process of its own, because it sets a limit of
//! the process.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use mpj::boot::control_plane::{ControlConnection, Unsent};
use mpj::boot::wire::{ToLauncher, ToProcess};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets};

/// The limit applies to threads without the capabilities of root.
#[test]
fn descriptor_beyond_the_limit_is_sent_later() {
    let none = CapabilitySet::empty();
    let test = move || {
        let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
        rustix::thread::set_capabilities(None, sets).unwrap();
        let limit = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(64), ..limit }).unwrap();
        let (socket, _process) = UnixStream::pair().unwrap();
        socket.set_nonblocking(true).unwrap();
        let mut connection = ControlConnection::<ToLauncher>::new(socket);
        let fd: Arc<OwnedFd> = Arc::new(std::fs::File::open("/dev/null").unwrap().into());
        for id in 0..100 {
            connection.send(&ToProcess::Value { id, value: Ok(Vec::new()) }, Some(Arc::clone(&fd)));
        }
        let limited = connection.flush();
        setrlimit(Resource::Nofile, limit).unwrap();
        (limited, connection.flush())
    };
    assert_eq!(std::thread::spawn(test).join().unwrap(), (Unsent::Descriptor, Unsent::Nothing));
}
