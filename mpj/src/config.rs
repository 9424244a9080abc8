//! Run-time parameters of a program, in one table: `mpjrun --params` prints it.
//!
//! Each parameter is a constant of the module that uses it. A rank reads them from the environment when it starts, and a
//! value that makes no sense, or a name that is nearly one of these, is an error then.

pub use mpj_devices::config::{
    Choice, Config, ConfigError, Names, Number, PREFIX, Parameter, Text, Value, near,
};

use crate::boot::LAUNCHER;
use crate::collective::tuning;
use crate::run::TIMEOUT;
pub use crate::run::timeout;
use crate::testing::TEST_TIMEOUT;
use crate::world::STATS;

/// Returns every parameter: the engine's and the devices', and those of this crate.
pub fn parameters() -> Vec<&'static dyn Parameter> {
    let own: &[&dyn Parameter] = &[&LAUNCHER, &TIMEOUT, &STATS, &TEST_TIMEOUT];
    [mpj_devices::config::PARAMETERS, tuning::PARAMETERS, own].concat()
}

/// Reads the parameters from the environment.
///
/// # Errors
/// A value that a parameter may not have; a variable whose name is nearly that of one.
pub fn from_env() -> Result<Config, ConfigError> {
    Config::from_env(&parameters())
}
