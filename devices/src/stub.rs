//! A device that reaches no peer, as the template for a new one. The [checklist](crate#adding-a-device) describes the
//! optional operations that access memory.

use crate::config::Config;
use crate::device::{
    Address, Affinity, Caps, Device, Driver, Endpoint, Inlet, OpenError, Opened, PeerId, Sink,
};
use crate::site::Site;

const NAME: &str = "stub";

/// The driver of the stub.
#[derive(Debug)]
pub struct StubDriver;

// SAFETY: the device starts no operations, and its inlet reports none.
#[expect(unsafe_code, reason = "the trait's contract")]
unsafe impl Driver for StubDriver {
    fn name(&self) -> &'static str {
        NAME
    }

    fn open(&self, _site: &Site, _config: &Config) -> Result<Opened, OpenError> {
        let caps = Caps::frames(0, 1);
        Ok(Opened { device: Box::new(Stub { caps }), inlet: Box::new(StubInlet) })
    }
}

#[derive(Debug)]
struct Stub {
    caps: Caps,
}

// SAFETY: it does not access user memory.
#[expect(unsafe_code, reason = "the trait's contract")]
unsafe impl Device for Stub {
    fn name(&self) -> &'static str {
        NAME
    }

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn address(&self) -> Address {
        Address(Vec::new())
    }

    fn affinity(&self, _peer: &Address) -> Option<Affinity> {
        None
    }

    fn connect(&self, peer: PeerId, _at: &Address) -> Result<Box<dyn Endpoint>, OpenError> {
        Err(OpenError {
            device: NAME,
            why: format!("the stub does not reach {peer:?}: choose a real device"),
        })
    }
}

#[derive(Debug)]
struct StubInlet;

// SAFETY: it never begins a body.
#[expect(unsafe_code, reason = "the trait's contract")]
unsafe impl Inlet for StubInlet {
    fn progress(&mut self, _sink: &mut dyn Sink) -> usize {
        0
    }
}
