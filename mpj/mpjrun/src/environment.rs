//! The environment of the ranks: variables that are set, passed on or removed, and checks of their names and values.

use std::ffi::{OsStr, OsString};

use mpj::boot::wire::CONTROL_VAR;
use mpj::config::{Config, DEVICES, PREFIX, Parameter, ParameterGroup, ParameterNames, TIMEOUT, all};
use mpj_devices::config::CORES;
use mpj_devices::cores::BIND;
use mpj_devices::trace::TRACE;

use crate::job::KILL_AFTER;
use crate::placement::SIMULATED_HOSTS;

pub(crate) type Variable = (String, OsString);

// Variables for wrapper scripts: the first rank of the process, and the number of ranks of the job.
const RANK: &str = "MPJ_RANK";
const SIZE: &str = "MPJ_SIZE";

pub(crate) fn parameters() -> Vec<&'static dyn Parameter> {
    all(&groups())
}

/// The parameters that `--params` lists first.
pub(crate) const FIRST: [&dyn Parameter; 3] = [&DEVICES, &TIMEOUT, &TRACE];

const OWN: &[ParameterGroup] =
    &[ParameterGroup { name: "start-up", parameters: &[&BIND, &SIMULATED_HOSTS, &KILL_AFTER] }];

pub(crate) fn groups() -> Vec<ParameterGroup> {
    [&mpj::config::groups(), OWN].concat()
}

/// The changes to the environment that the ranks inherit.
#[derive(Debug)]
pub(crate) struct Environment {
    set: Vec<Variable>,
    /// The values of the parameters, as the ranks will read them.
    pub(crate) config: Config,
}

impl Environment {
    /// Parses the arguments of `-x` (`NAME=VALUE` or `NAME`), and checks the parameters in the environment.
    pub(crate) fn new(set: &[String]) -> Result<Environment, String> {
        let parameters = parameters();
        let names = ParameterNames::of(&parameters);
        let set = set.iter().map(|text| variable(text, &names)).collect::<Result<Vec<_>, _>>()?;
        let mut config = Config::from_env(&parameters).map_err(|e| e.to_string())?;
        for (name, value) in &set {
            let parameter = parameters.iter().find(|p| name.strip_prefix(PREFIX) == Some(p.name()));
            if let Some(parameter) = parameter {
                config.set_text(*parameter, &value.to_string_lossy()).map_err(|e| format!("-x {e}"))?;
            }
        }
        // Read all parameters again, now with the variables of `-x`: they can name the parameter file.
        let last = |name: &str| set.iter().rev().find(|(set, _)| set == name).map(|(_, value)| value.clone());
        let config = Config::from_vars(&parameters, |name| last(name).or_else(|| std::env::var_os(name)));
        Ok(Environment { config: config.map_err(|e| e.to_string())?, set })
    }

    /// Returns the names of the variables that the ranks must not inherit: those of `mpjrun`, of a rendezvous, and of
    /// PMI and PMIx.
    pub(crate) fn withheld(&self) -> impl Iterator<Item = OsString> + use<> {
        std::env::vars_os().map(|(name, _)| name).filter(|name| is_launcher_variable(name))
    }

    pub(crate) fn for_process(&self, first: u32, size: u32) -> impl Iterator<Item = Variable> {
        let identity =
            [(RANK, first), (SIZE, size)].map(|(name, number)| (name.to_owned(), number.to_string().into()));
        // A bound rank cannot count the cores of the job.
        let usable = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let cores = (!self.config.is_set(&CORES))
            .then(|| (format!("{PREFIX}{}", CORES.name()), usable.to_string().into()));
        self.set.iter().cloned().chain(identity).chain(cores)
    }
}

fn is_launcher_variable(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    [CONTROL_VAR, RANK, SIZE, "MPJ_RENDEZVOUS", "MPJ_SECRET", "MPJ_SECRET_FILE"].contains(&name)
        || name.starts_with("PMI_")
        || name.starts_with("PMIX_")
}

fn variable(text: &str, names: &ParameterNames) -> Result<Variable, String> {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, Some(OsString::from(value))),
        None => (text, std::env::var_os(text)),
    };
    if name.is_empty() {
        return Err(format!("-x {text}: expected NAME=VALUE or NAME"));
    }
    if is_launcher_variable(OsStr::new(name)) {
        return Err(format!("-x {text}: {name} is reserved for launchers"));
    }
    if let Some(meant) = name.strip_prefix(PREFIX).and_then(|name| names.suggestion(name)) {
        let hint = meant
            .map_or("mpjrun --params lists them".into(), |meant| format!("did you mean {PREFIX}{meant}?"));
        return Err(format!("-x {text}: no parameter is named {name}: {hint}"));
    }
    let missing = || format!("-x {text}: no such variable in the environment; use NAME=VALUE to set it");
    Ok((name.to_owned(), value.ok_or_else(missing)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(set: &str) -> String {
        Environment::new(&[set.to_owned()]).unwrap_err()
    }

    #[test]
    fn variables_are_set_or_passed_on() {
        let path = std::env::var_os("PATH").unwrap();
        let set = ["A=", "B=x=y", "PATH", "MPJ_SPIN_US=7", "MPJ_NIO_LISTEN_ADDRESS=::1", "MPJ_KILL_AT=x"]
            .map(String::from);
        let variables: Vec<_> = Environment::new(&set).unwrap().for_process(3, 8).collect();
        let usable = std::thread::available_parallelism().unwrap();
        let wanted = [
            ("A", "".into()),
            ("B", "x=y".into()),
            ("PATH", path),
            ("MPJ_SPIN_US", "7".into()),
            ("MPJ_NIO_LISTEN_ADDRESS", "::1".into()),
            ("MPJ_KILL_AT", "x".into()),
            ("MPJ_RANK", "3".into()),
            ("MPJ_SIZE", "8".into()),
            ("MPJ_CORES", usable.to_string().into()),
        ];
        assert_eq!(variables, wanted.map(|(name, value): (&str, OsString)| (name.to_owned(), value)));
    }

    #[test]
    fn ranks_do_not_reject_parameters_of_mpjrun_as_misspelt() {
        let of_ranks = ParameterNames::of(&mpj::config::parameters());
        for parameter in all(OWN) {
            assert_eq!(of_ranks.suggestion(parameter.name()), Some(None), "{}", parameter.name());
        }
    }

    #[test]
    fn invalid_arguments_of_x_are_rejected() {
        for (set, why) in [
            (
                "MPJ_SPIN_SU=3",
                "-x MPJ_SPIN_SU=3: no parameter is named MPJ_SPIN_SU: did you mean MPJ_SPIN_US?",
            ),
            ("MPJ_spin_us=3", "no parameter is named MPJ_spin_us: did you mean MPJ_SPIN_US?"),
            ("MPJ_SHM_FRAGMENT=3", "did you mean MPJ_SHM_FRAGMENTS?"),
            ("MPJ_NIO_LISTEN_ADRESS=::1", "did you mean MPJ_NIO_LISTEN_ADDRESS?"),
            ("MPJ_COLOUR=3", "no parameter is named MPJ_COLOUR: mpjrun --params lists them"),
            ("MPJ_RANK=3", "MPJ_RANK is reserved for launchers"),
            ("PMI_RANK=3", "PMI_RANK is reserved for launchers"),
            ("MPJ_SPIN_US=fast", "-x MPJ_SPIN_US=fast is not a number"),
            ("MPJ_SPIN_US=99999999", "-x MPJ_SPIN_US=99999999 is not a number from 0 to "),
            ("MPJ_SPIN_US=-1", "-x MPJ_SPIN_US=-1 is not a number from 0 to "),
            (
                "MPJ_NIO_LISTEN_ADDRESS=localhost",
                "-x MPJ_NIO_LISTEN_ADDRESS=localhost is not an address, such as 10.0.0.1",
            ),
            (
                "MPJ_COLL_ALLREDUCE=rings",
                "-x MPJ_COLL_ALLREDUCE=rings has the unknown algorithm 'rings'; allreduce has linear, ",
            ),
            ("MPJ_COLL_ALLREDUC=ring", "did you mean MPJ_COLL_ALLREDUCE?"),
            ("MPJ_ALLREDUCE_RING_MIN=3", "did you mean MPJ_COLL_ALLREDUCE?"),
            (
                "MPJ_DEVICES=token,,ring",
                "-x MPJ_DEVICES=token,,ring is not auto, or names separated by commas",
            ),
            (
                "MPJ_SIMULATED_HOSTS=a,b",
                "-x MPJ_SIMULATED_HOSTS=a,b is not a list of hosts and their numbers of ranks",
            ),
            ("MPJ_CONFIG_FILE=/nowhere/at/all", "MPJ_CONFIG_FILE: /nowhere/at/all: No such file"),
            ("MPJ_KILL_AFTR=3", "did you mean MPJ_KILL_AFTER?"),
            ("=3", "expected NAME=VALUE or NAME"),
            ("NO_SUCH_NAME", "no such variable in the environment"),
        ] {
            let error = error(set);
            assert!(error.contains(why), "{set}: {error}");
        }
    }
}
