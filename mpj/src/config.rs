//! Run-time parameters of a program, in groups: `mpjrun --params` prints them.
//!
//! Values come from the environment, otherwise from the file `MPJ_CONFIG_FILE`. An invalid value or a misspelt name is
//! an error.

pub use mpj_devices::config::{
    Choice, Config, ConfigError, GROUPS, Number, PREFIX, Parameter, ParameterGroup, ParameterNames, Text,
    Value, all, closest_name,
};

use crate::boot::{LAUNCHER, RENDEZVOUS_TIMEOUT};
use crate::collective::parameters;
pub use crate::run::{TIMEOUT, timeout};
use crate::testing::TEST_TIMEOUT;
use crate::world::STATS;

/// The devices that the ranks may use.
pub const DEVICES: Text = Text {
    name: "DEVICES",
    default: "auto",
    form: "auto, or names separated by commas",
    accepts: |text| devices(text).is_ok(),
    help: "devices to use, separated by commas, or auto for all available ones; mpjrun --devices overrides it",
};

/// Returns the device names in a value of [`DEVICES`], or `None` for `auto`: all available devices. A name need not be
/// known, because a program may register its own devices.
///
/// # Errors
/// A name is empty or has invalid characters, or `auto` is in a list.
pub fn devices(text: &str) -> Result<Option<Vec<String>>, String> {
    if text == "auto" {
        return Ok(None);
    }
    let names: Vec<String> = text.split(',').map(str::to_owned).collect();
    let is_valid = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
    match names.iter().find(|name| name.is_empty() || *name == "auto" || !name.chars().all(is_valid)) {
        None => Ok(Some(names)),
        Some(name) if name == "auto" => Err(format!("{text}: auto cannot be combined with other devices")),
        Some(name) => Err(format!("{text}: '{name}' is not a valid device name")),
    }
}

/// Returns every parameter of the engine, the devices, and this crate, by group.
pub fn groups() -> Vec<ParameterGroup> {
    const OWN: &[ParameterGroup] = &[
        ParameterGroup { name: "general", parameters: &[&DEVICES] },
        ParameterGroup { name: "collectives", parameters: parameters::PARAMETERS },
        ParameterGroup { name: "start-up", parameters: &[&LAUNCHER, &RENDEZVOUS_TIMEOUT] },
        ParameterGroup { name: "reports", parameters: &[&TIMEOUT, &STATS, &TEST_TIMEOUT] },
    ];
    [GROUPS, OWN].concat()
}

/// Returns every parameter.
pub fn parameters() -> Vec<&'static dyn Parameter> {
    all(&groups())
}

/// Reads the parameters from the environment, and those not set there from the file `MPJ_CONFIG_FILE`.
///
/// # Errors
/// A parameter has an invalid value, the name of a variable is misspelt, or the file cannot be read or has an invalid
/// line.
pub fn from_env() -> Result<Config, ConfigError> {
    Config::from_env(&parameters())
}
