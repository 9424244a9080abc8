//! The devices of a process that a launcher has started.

use std::sync::Arc;

use mpj_devices::{IbvDriver, JobKey, NioDriver, Registry, ShmDriver, SmDriver};

use super::ProcessState;

impl ProcessState {
    /// Returns the drivers of the devices that the ranks of this process may use.
    pub(super) fn registry(&self) -> Registry {
        let ProcessState { welcome, host_ranks, hub, segment, .. } = self;
        let key = Arc::new(JobKey { job: welcome.job, secret: welcome.secret });
        let mut registry = Registry::empty();
        registry = match hub {
            Some(hub) => registry.with(SmDriver::new(Arc::clone(hub))),
            None => registry.with_unavailable(SmDriver::NAME, "this process has only one rank"),
        };
        registry = match segment {
            Some(segment) => registry.with(ShmDriver::new(Arc::clone(segment), host_ranks.clone())),
            None => registry
                .with_unavailable(ShmDriver::NAME, "the launcher has created no shared memory on this host"),
        };
        // Opening `ibvdev` locks memory, and ranks on one host do not need the device.
        let named = welcome.devices.iter().flatten().any(|name| name == IbvDriver::NAME);
        registry = match named || self.hosts.count() > 1 {
            true => registry.with(IbvDriver::new(Arc::clone(&key))),
            false => registry
                .with_unavailable(IbvDriver::NAME, "not used on one host unless it is named (MPJ_DEVICES)"),
        };
        registry.with(NioDriver::new(key))
    }
}
