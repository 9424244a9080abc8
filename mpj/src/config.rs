//! Run-time parameters of a program, in groups: `mpjrun --params` prints them.
//!
//! Each parameter is a constant of the module that uses it. A rank reads them from the environment when it starts, and
//! an invalid value, or a name that is nearly one of these, is an error then.

pub use mpj_devices::config::{
    Choice, Config, ConfigError, GROUPS, Number, PREFIX, Parameter, ParameterGroup, ParameterNames, Text,
    Value, all, closest_name,
};

use crate::boot::LAUNCHER;
use crate::collective::tuning;
pub use crate::run::{TIMEOUT, timeout};
use crate::testing::TEST_TIMEOUT;
use crate::world::STATS;

/// Which devices messages may go by.
pub const DEVICES: Text = Text {
    name: "DEVICES",
    default: "auto",
    form: "devices, such as auto or shmdev,niodev",
    accepts: |text| devices(text).is_ok(),
    help: "the devices that messages may go by, separated by commas, or auto for all there are; mpjrun --dev overrides it",
};

/// Returns the names of the devices that a value of [`DEVICES`] lists, or `None` for all available ones. The names are
/// not checked: a program may register its own devices.
///
/// # Errors
/// A text that cannot be the name of a device; `auto` in a list.
pub fn devices(text: &str) -> Result<Option<Vec<String>>, String> {
    if text == "auto" {
        return Ok(None);
    }
    let names: Vec<String> = text.split(',').map(str::to_owned).collect();
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
    match names.iter().find(|name| name.is_empty() || *name == "auto" || !name.chars().all(is_part)) {
        None => Ok(Some(names)),
        Some(name) if name == "auto" => Err(format!("{text}: auto stands alone")),
        Some(name) => Err(format!("{text}: '{name}' cannot be the name of a device")),
    }
}

/// Returns every parameter by group: those of the engine, of the devices, and of this crate.
pub fn groups() -> Vec<ParameterGroup> {
    const OWN: &[ParameterGroup] = &[
        ParameterGroup { name: "general", parameters: &[&DEVICES] },
        ParameterGroup { name: "collectives", parameters: tuning::PARAMETERS },
        ParameterGroup { name: "start-up", parameters: &[&LAUNCHER] },
        ParameterGroup { name: "reports", parameters: &[&TIMEOUT, &STATS, &TEST_TIMEOUT] },
    ];
    [GROUPS, OWN].concat()
}

/// Returns every parameter.
pub fn parameters() -> Vec<&'static dyn Parameter> {
    all(&groups())
}

/// Reads the parameters from the environment.
///
/// # Errors
/// A parameter has an invalid value, or a variable's name is nearly that of a parameter.
pub fn from_env() -> Result<Config, ConfigError> {
    Config::from_env(&parameters())
}
