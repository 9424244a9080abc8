//! Which devices there are: an ordered value, no link-time magic, so that a test makes its own.

use crate::config::Config;
use crate::device::{Driver, OpenError, Opened};
use crate::site::Site;

/// An ordered list of drivers.
#[derive(Clone, Debug)]
pub struct Registry {
    drivers: Vec<&'static dyn Driver>,
}

impl Registry {
    /// Returns the devices of this crate.
    pub fn builtin() -> Self {
        Registry {
            drivers: vec![&crate::smdev::SmDriver, &crate::shmdev::ShmDriver, &crate::niodev::NioDriver],
        }
    }

    /// Returns a registry without any device.
    pub fn empty() -> Self {
        Registry { drivers: Vec::new() }
    }

    /// Adds a device.
    #[must_use]
    pub fn with(mut self, driver: &'static dyn Driver) -> Self {
        self.drivers.push(driver);
        self
    }

    /// Keeps the devices of these names, in this order.
    ///
    /// # Errors
    /// A name that no device has, with the names there are.
    pub fn only(self, names: &[&str]) -> Result<Self, OpenError> {
        let find = |name: &&str| {
            self.drivers.iter().find(|d| d.name() == *name).copied().ok_or_else(|| OpenError {
                device: "registry",
                why: format!("no device is named '{name}'; there are: {}", self.names().join(", ")),
            })
        };
        Ok(Registry { drivers: names.iter().map(find).collect::<Result<_, _>>()? })
    }

    /// Returns the names of the devices, in order.
    pub fn names(&self) -> Vec<&'static str> {
        self.drivers.iter().map(|d| d.name()).collect()
    }

    /// Opens every device that the site allows.
    ///
    /// # Errors
    /// What each device said, if none could be opened.
    pub fn open(&self, site: &Site, config: &Config) -> Result<Vec<Opened>, OpenError> {
        let (opened, refused): (Vec<_>, Vec<_>) =
            self.drivers.iter().map(|d| d.open(site, config)).partition(Result::is_ok);
        if opened.is_empty() {
            let why: Vec<String> =
                refused.into_iter().filter_map(Result::err).map(|e| e.to_string()).collect();
            return Err(OpenError {
                device: "registry",
                why: format!("no device could be opened: {}", why.join("; ")),
            });
        }
        Ok(opened.into_iter().filter_map(Result::ok).collect())
    }
}
