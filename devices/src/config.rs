//! Run-time parameters: each declared once, with its default and its help.

mod spelling;

use std::collections::BTreeMap;
use std::fmt;

pub use spelling::{near, unknown};

/// What the names of all variables of ours begin with.
pub const PREFIX: &str = "MPJ_";

/// One parameter: `MPJ_<NAME>` in the environment, `-x NAME=VALUE` at the launcher.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Its name, in capitals.
    pub name: &'static str,
    /// Its value when nothing is said.
    pub default: u64,
    /// The values it may have.
    pub range: (u64, u64),
    /// What it does, in a sentence, with its unit.
    pub help: &'static str,
}

/// Every parameter of the devices and the engine.
pub const PARAMETERS: &[Parameter] =
    &[SPIN, YIELD, SM_EAGER, SM_FRAGMENTS, SHM_EAGER, SHM_FRAGMENTS, NIO_EAGER, NIO_FRAGMENT, CREDIT, STATS];

/// A variable that is no number.
#[derive(Clone, Copy, Debug)]
pub struct Text {
    /// Its name, in capitals, without the prefix.
    pub name: &'static str,
    /// Its value when nothing is said.
    pub default: &'static str,
    /// What it says, in a few words.
    pub help: &'static str,
}

/// What may be set beside the [`PARAMETERS`].
pub const TEXTS: &[Text] = &[Text {
    name: "NIO_HOST",
    default: "127.0.0.1",
    help: "the address of this host that niodev listens on",
}];

/// What a launcher tells the processes of a job by, and where a test wants a rank to be killed.
const OTHERS: &[&str] = &["CONTROL", "RANK", "SIZE", "KILL_AT"];

/// How long a waiting rank polls before it yields.
pub const SPIN: Parameter = Parameter {
    name: "SPIN",
    default: 20,
    range: (0, 1_000_000),
    help: "microseconds a waiting rank polls before it yields its core; 0 unless set when ranks outnumber cores",
};

/// How long a waiting rank yields before it sleeps.
pub const YIELD: Parameter = Parameter {
    name: "YIELD",
    default: 1000,
    range: (0, 10_000_000),
    help: "microseconds a waiting rank polls and yields before it sleeps on its doorbell",
};

/// The eager limit of smdev.
pub const SM_EAGER: Parameter = Parameter {
    name: "SM_EAGER",
    default: 16 << 10,
    range: (48, 16 << 10),
    help: "bytes up to which smdev copies a message through a fragment; longer ones are copied once, from buffer to buffer",
};

/// The number of fragments a rank of smdev owns.
pub const SM_FRAGMENTS: Parameter = Parameter {
    name: "SM_FRAGMENTS",
    default: 64,
    range: (2, 65_536),
    help: "fragments of 16 KiB a rank of smdev has for messages on their way",
};

/// The eager limit of shmdev.
pub const SHM_EAGER: Parameter = Parameter {
    name: "SHM_EAGER",
    default: 32 << 10,
    range: (48, 32 << 10),
    help: "bytes up to which shmdev sends a message at once; longer ones are announced and go in pieces of 32 KiB",
};

/// The number of fragments a rank of shmdev owns.
pub const SHM_FRAGMENTS: Parameter = Parameter {
    name: "SHM_FRAGMENTS",
    default: 64,
    range: (2, 65_536),
    help: "fragments of 32 KiB a rank of shmdev has for messages on their way; read by the launcher",
};

/// The eager limit of niodev.
pub const NIO_EAGER: Parameter = Parameter {
    name: "NIO_EAGER",
    default: 64 << 10,
    range: (48, 4 << 20),
    help: "bytes up to which niodev sends a message at once; longer ones are announced and go when they are received",
};

/// The longest piece of an announced message on niodev.
pub const NIO_FRAGMENT: Parameter = Parameter {
    name: "NIO_FRAGMENT",
    default: 256 << 10,
    range: (1 << 10, 16 << 20),
    help: "bytes of the pieces that niodev sends announced messages in",
};

/// The eager room a receiver grants each sender.
pub const CREDIT: Parameter = Parameter {
    name: "CREDIT",
    default: 8 << 20,
    range: (1 << 16, 1 << 40),
    help: "bytes of eager messages a sender may have outstanding at one receiver before it waits for a matching receive",
};

/// Whether ranks say what they have moved.
pub const STATS: Parameter = Parameter {
    name: "STATS",
    default: 0,
    range: (0, 1),
    help: "1: each rank says on standard error, when it ends, what it has moved, by device and way",
};

/// A value that is not one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigError {
    /// What was set and what may be.
    pub why: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for ConfigError {}

/// The values of all parameters for one rank.
#[derive(Clone, Default, Debug)]
pub struct Config {
    set: BTreeMap<&'static str, u64>,
}

impl Config {
    /// Reads `MPJ_<NAME>` of every parameter from the environment.
    ///
    /// # Errors
    /// A value that is no number or lies outside the parameter's range; a variable whose name is nearly one of ours.
    pub fn from_env() -> Result<Self, ConfigError> {
        spelling::check(std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()))?;
        let mut config = Config::default();
        for parameter in PARAMETERS {
            let name = format!("{PREFIX}{}", parameter.name);
            let Ok(text) = std::env::var(&name) else { continue };
            let value = text.parse().map_err(|_| ConfigError {
                why: format!("{name}={text} is not a number ({})", parameter.help),
            })?;
            config.set(parameter, value)?;
        }
        Ok(config)
    }

    /// Sets one parameter.
    ///
    /// # Errors
    /// A value outside the parameter's range.
    pub fn set(&mut self, parameter: &Parameter, value: u64) -> Result<(), ConfigError> {
        let (low, high) = parameter.range;
        if !(low..=high).contains(&value) {
            return Err(ConfigError {
                why: format!(
                    "{PREFIX}{}={value} is outside {low}..={high} ({})",
                    parameter.name, parameter.help
                ),
            });
        }
        self.set.insert(parameter.name, value);
        Ok(())
    }

    /// Returns whether a parameter was set by the user.
    pub fn is_set(&self, parameter: &Parameter) -> bool {
        self.set.contains_key(parameter.name)
    }

    /// Returns the value of a parameter.
    pub fn get(&self, parameter: &Parameter) -> u64 {
        self.set.get(parameter.name).copied().unwrap_or(parameter.default)
    }

    /// Returns the value of a parameter as a size.
    pub fn size(&self, parameter: &Parameter) -> usize {
        usize::try_from(self.get(parameter)).unwrap_or(usize::MAX)
    }
}
