//! Run-time parameters. Each is declared once, in the module that uses it, with its default, its range and its help
//! text.
//!
//! To add a parameter, declare a constant there and list it in [`GROUPS`], or in the groups of a crate above this one.
//! Hot paths do not read a [`Config`]: a component reads its values when it is opened.

mod file;
mod groups;
mod parameter;
mod spelling;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::Path;

pub use file::CONFIG_FILE;
pub use groups::*;
pub use parameter::{Choice, Number, Parameter, Text, Value};
pub use spelling::{ParameterNames, closest_name};

/// The prefix of all environment variables of this library.
pub const PREFIX: &str = "MPJ_";

/// Parameters of one part of the stack, in the order in which they are listed.
#[derive(Clone, Copy, Debug)]
pub struct ParameterGroup {
    /// The name of the part.
    pub name: &'static str,
    /// Its parameters.
    pub parameters: &'static [&'static dyn Parameter],
}

/// Returns all parameters of these groups.
pub fn all(groups: &[ParameterGroup]) -> Vec<&'static dyn Parameter> {
    groups.iter().flat_map(|group| group.parameters.iter().copied()).collect()
}

/// An invalid value, variable name or configuration file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigError {
    /// The text for the user, which names the invalid part and says what is permitted or was probably meant.
    pub why: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for ConfigError {}

/// The values of the parameters for one rank. A parameter that was not set has its default value.
#[derive(Clone, Default, Debug)]
pub struct Config {
    set: BTreeMap<&'static str, Value>,
}

impl Config {
    /// Reads `MPJ_<NAME>` of each of these parameters from the environment. Parameters that are not set there are read
    /// from the file of [`CONFIG_FILE`].
    ///
    /// # Errors
    /// An invalid value; a variable with a misspelt or former name of a parameter; a file that cannot be read or has an
    /// invalid line.
    pub fn from_env(parameters: &[&'static dyn Parameter]) -> Result<Self, ConfigError> {
        ParameterNames::of(parameters).check(
            "in the environment",
            std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()),
        )?;
        Self::from_vars(parameters, |name| std::env::var_os(name))
    }

    /// Reads the parameters as [`from_env`](Self::from_env) does, from variables whose names were checked already.
    ///
    /// # Errors
    /// An invalid value; a file that cannot be read or has an invalid line.
    pub fn from_vars(
        parameters: &[&'static dyn Parameter],
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, ConfigError> {
        let set = |parameter: &dyn Parameter| variable(&format!("{PREFIX}{}", parameter.name()));
        let mut config = Config::default();
        if let Some(path) = set(&CONFIG_FILE).filter(|path| !path.is_empty()) {
            file::read(&mut config, parameters, Path::new(&path))?;
        }
        for parameter in parameters {
            if let Some(text) = set(*parameter) {
                // A value that is not UTF-8 is read with replacement characters. Most parameters reject these.
                config.set_text(*parameter, &text.to_string_lossy())?;
            }
        }
        Ok(config)
    }

    /// Sets a number.
    ///
    /// # Errors
    /// If the value is outside the parameter's range.
    pub fn set(&mut self, parameter: &Number, value: u64) -> Result<(), ConfigError> {
        let checked = parameter.check(value);
        self.store(parameter, checked, &value)
    }

    /// Sets a parameter to a value that a user has written.
    ///
    /// # Errors
    /// If the parameter does not accept the value.
    pub fn set_text(&mut self, parameter: &dyn Parameter, text: &str) -> Result<(), ConfigError> {
        self.store(parameter, parameter.parse(text), &text)
    }

    fn store(
        &mut self,
        parameter: &dyn Parameter,
        value: Result<Value, String>,
        given: &dyn fmt::Display,
    ) -> Result<(), ConfigError> {
        let (name, help) = (parameter.name(), parameter.help());
        let invalid = |why: String| ConfigError { why: format!("{PREFIX}{name}={given} {why} ({help})") };
        self.set.insert(name, value.map_err(invalid)?);
        Ok(())
    }

    /// Resets a parameter to its default value.
    pub fn reset(&mut self, parameter: &dyn Parameter) {
        self.set.remove(parameter.name());
    }

    /// Returns whether a parameter was set explicitly, even if to its default value.
    pub fn is_set(&self, parameter: &dyn Parameter) -> bool {
        self.set.contains_key(parameter.name())
    }

    /// Returns the value of a parameter that was set.
    pub fn value(&self, parameter: &dyn Parameter) -> Option<&Value> {
        self.set.get(parameter.name())
    }

    /// Returns a number.
    pub fn number(&self, parameter: &Number) -> u64 {
        match self.set.get(parameter.name) {
            Some(Value::Number(value)) => *value,
            _ => parameter.default,
        }
    }

    /// Returns a number as a size.
    pub fn size(&self, parameter: &Number) -> usize {
        usize::try_from(self.number(parameter)).unwrap_or(usize::MAX)
    }

    /// Returns a text.
    pub fn text<'a>(&'a self, parameter: &Text) -> &'a str {
        match self.set.get(parameter.name) {
            Some(Value::Text(value)) => value,
            _ => parameter.default,
        }
    }

    /// Returns the selected value of a choice.
    ///
    /// # Panics
    /// If the parameter has no values.
    pub fn choice<T: Copy>(&self, parameter: &Choice<T>) -> T {
        let chosen = match self.set.get(parameter.name) {
            Some(Value::Choice(chosen)) => *chosen,
            _ => 0,
        };
        parameter.values[chosen].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEVEL: Number = Number { name: "LEVEL", default: 3, range: (1, 9), help: "how high" };
    const WHERE: Text = Text {
        name: "WHERE",
        default: "here",
        form: "a word",
        accepts: |text| !text.is_empty(),
        help: "where",
    };
    const WAY: Choice<u8> =
        Choice { name: "WAY", values: &[("auto", 0), ("left", 1), ("right", 2)], help: "how" };

    #[test]
    fn parameters_have_their_defaults_until_they_are_set() {
        let mut config = Config::default();
        assert_eq!((config.number(&LEVEL), config.text(&WHERE), config.choice(&WAY)), (3, "here", 0));
        assert!(!config.is_set(&WAY));
        for (parameter, text) in [(&LEVEL as &dyn Parameter, "9"), (&WHERE, "there"), (&WAY, "right")] {
            config.set_text(parameter, text).unwrap();
        }
        assert_eq!((config.size(&LEVEL), config.text(&WHERE), config.choice(&WAY)), (9, "there", 2));
        assert!(config.is_set(&WAY));
    }

    #[test]
    fn invalid_value_is_refused_and_changes_nothing() {
        let mut config = Config::default();
        for (parameter, text, why) in [
            (&LEVEL as &dyn Parameter, "10", "MPJ_LEVEL=10 is not a number from 1 to 9 (how high)"),
            (&LEVEL, "high", "MPJ_LEVEL=high is not a number from 1 to 9 (how high)"),
            (&LEVEL, "8k", "MPJ_LEVEL=8k is not a number from 1 to 9 (how high)"),
            (&LEVEL, "-1", "MPJ_LEVEL=-1 is not a number from 1 to 9 (how high)"),
            (&WHERE, "", "MPJ_WHERE= is not a word (where)"),
            (&WAY, "up", "MPJ_WAY=up is not one of auto, left, right (how)"),
            (&WAY, "LEFT", "MPJ_WAY=LEFT is not one of auto, left, right (how)"),
        ] {
            assert_eq!(config.set_text(parameter, text).unwrap_err().why, why);
        }
        assert_eq!(
            config.set(&LEVEL, 0).unwrap_err().why,
            "MPJ_LEVEL=0 is not a number from 1 to 9 (how high)"
        );
        assert!([&LEVEL as &dyn Parameter, &WHERE, &WAY].iter().all(|parameter| !config.is_set(*parameter)));
    }
}
