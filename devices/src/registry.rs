//! The list of available devices. It is an ordinary value, so that a test or a program can create its own.

use std::sync::Arc;

use crate::config::{Config, closest_name};
use crate::device::{Driver, OpenError, Opened};
use crate::site::Site;

/// An ordered list of drivers.
#[derive(Clone, Default, Debug)]
pub struct Registry {
    drivers: Vec<Arc<dyn Driver>>,
}

/// The result of opening the devices of a registry.
#[derive(Debug)]
pub struct OpenedDevices {
    /// The devices, in order.
    pub opened: Vec<Opened>,
    /// The devices that could not be opened, with the reasons.
    pub failed: Vec<OpenError>,
}

impl Registry {
    /// Returns a registry without any device.
    pub fn empty() -> Self {
        Registry::default()
    }

    /// Adds a device, or replaces the one with the same name.
    #[must_use]
    pub fn with(self, driver: impl Driver + 'static) -> Self {
        self.with_shared(Arc::new(driver))
    }

    /// Adds a device whose driver is shared, or replaces the one with the same name.
    #[must_use]
    pub fn with_shared(mut self, driver: Arc<dyn Driver>) -> Self {
        match self.drivers.iter_mut().find(|other| other.name() == driver.name()) {
            Some(other) => *other = driver,
            None => self.drivers.push(driver),
        }
        self
    }

    /// Adds a device that is unavailable here: opening it fails with the reason `why`.
    #[must_use]
    pub fn with_unavailable(self, name: &'static str, why: &'static str) -> Self {
        self.with(Unavailable(OpenError { device: name, why: why.into() }))
    }

    /// Keeps only the devices with these names, in this order.
    ///
    /// # Errors
    /// If a name does not match a device; the error lists the known names.
    pub fn select(self, names: &[impl AsRef<str>]) -> Result<Self, OpenError> {
        let find = |name: &_| {
            let name: &str = AsRef::as_ref(name);
            let unknown = || OpenError { device: "", why: self.unknown(name) };
            self.get(name).cloned().ok_or_else(unknown)
        };
        Ok(Registry { drivers: names.iter().map(find).collect::<Result<_, _>>()? })
    }

    fn unknown(&self, name: &str) -> String {
        let known = self.names();
        let mut longer = known.iter().copied().filter(|known| name.len() > 1 && known.starts_with(name));
        // Suggest the only name that begins with `name`.
        let short = longer.next().filter(|_| longer.next().is_none());
        let meant = short.or_else(|| closest_name(&name.to_lowercase(), known.iter().copied()));
        let meant = meant.map_or(String::new(), |meant| format!(" (did you mean {meant}?)"));
        format!("no device is named '{name}'{meant}; available: {}", known.join(", "))
    }

    /// Returns the driver with this name.
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Driver>> {
        self.drivers.iter().find(|driver| driver.name() == name)
    }

    /// Returns the names of the devices, in order.
    pub fn names(&self) -> Vec<&'static str> {
        self.drivers.iter().map(|driver| driver.name()).collect()
    }

    /// Opens every device that can be opened.
    ///
    /// # Errors
    /// If no device could be opened; the error contains the reason of each.
    pub fn open(&self, site: &Site, config: &Config) -> Result<OpenedDevices, OpenError> {
        let mut devices = OpenedDevices { opened: Vec::new(), failed: Vec::new() };
        for driver in &self.drivers {
            match driver.open(site, config) {
                Ok(opened) => {
                    log::debug!("rank {}: {} is open", site.rank, driver.name());
                    devices.opened.push(opened);
                }
                Err(error) => {
                    log::info!("rank {}: not opened: {error}", site.rank);
                    devices.failed.push(error);
                }
            }
        }
        if devices.opened.is_empty() {
            let why: Vec<String> = devices.failed.iter().map(ToString::to_string).collect();
            let why = format!("no device could be opened: {}", why.join("; "));
            return Err(OpenError { device: "", why });
        }
        Ok(devices)
    }
}

#[derive(Debug)]
struct Unavailable(OpenError);

// SAFETY: it opens nothing.
#[expect(unsafe_code, reason = "the trait's contract")]
unsafe impl Driver for Unavailable {
    fn name(&self) -> &'static str {
        self.0.device
    }

    fn open(&self, _site: &Site, _config: &Config) -> Result<Opened, OpenError> {
        Err(self.0.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doorbell::Doorbell;
    use crate::stub::StubDriver;

    #[test]
    fn failed_devices_are_listed_with_reasons() {
        let site = Site::new(0, 1, Arc::new(Doorbell::new().unwrap()));
        let registry = Registry::empty().with(StubDriver).with_unavailable("far", "it is far away");
        assert_eq!(registry.names(), ["stub", "far"]);
        let OpenedDevices { opened, failed: refused } = registry.open(&site, &Config::default()).unwrap();
        assert_eq!((opened.len(), refused.len()), (1, 1));
        assert_eq!(refused[0].to_string(), "far: it is far away");
        let none = registry.clone().select(&["far"]).unwrap().open(&site, &Config::default()).unwrap_err();
        assert_eq!(none.why, "no device could be opened: far: it is far away");
    }

    #[test]
    fn unknown_device_name_is_refused_with_the_known_ones() {
        let registry = ["smdev", "shmdev", "niodev"]
            .into_iter()
            .fold(Registry::empty(), |registry, name| registry.with_unavailable(name, "it is not here"));
        for (name, expected) in [
            ("mailbox", "no device is named 'mailbox'; available: smdev, shmdev, niodev"),
            ("shmdv", "no device is named 'shmdv' (did you mean shmdev?); available:"),
            ("nio", "no device is named 'nio' (did you mean niodev?); available:"),
            ("s", "no device is named 's'; available:"),
        ] {
            let why = registry.clone().select(&["niodev", name]).unwrap_err().why;
            assert!(why.starts_with(expected), "{why}");
        }
    }

    #[test]
    fn driver_replaces_another_of_its_name() {
        let site = Site::new(0, 1, Arc::new(Doorbell::new().unwrap()));
        let registry = Registry::empty().with_unavailable("stub", "nobody needs it").with(StubDriver);
        assert_eq!(registry.names(), ["stub"]);
        assert!(registry.open(&site, &Config::default()).unwrap().failed.is_empty());
    }
}
