//! Detection of misspelt variables, which would otherwise be ignored silently.

use super::{ConfigError, PREFIX, Parameter};

/// Variables that are not parameters: users set them for processes that they start without `mpjrun`.
const JOB_VARIABLES: &[&str] = &["RANK", "SIZE", "RENDEZVOUS", "SECRET", "SECRET_FILE", "HOST"];

/// Variables that no user sets: `mpjrun` sets `CONTROL`, and tests set `KILL_AT` to kill a rank.
const INTERNAL: &[&str] = &["CONTROL", "KILL_AT"];

/// Former parameters, and the present ones that replace them.
const RENAMED: &[(&str, &str)] = &[
    ("SPIN", "SPIN_US"),
    ("YIELD", "YIELD_US"),
    ("CREDIT", "EAGER_CREDIT"),
    ("BUDGET", "EAGER_CREDIT_TOTAL"),
    ("CONF", "CONFIG_FILE"),
    ("PATH", "DATA_PATH"),
    ("DEV", "DEVICES"),
    ("HOST_ID", "SIMULATED_HOSTS"),
    ("TRACE_EVENTS", "TRACE_MAX_EVENTS"),
    ("ALLREDUCE", "COLL_ALLREDUCE"),
    ("ALLREDUCE_ALGORITHM", "COLL_ALLREDUCE"),
    ("ALLREDUCE_RING_MIN", "COLL_ALLREDUCE"),
    ("ALLGATHER", "COLL_ALLGATHER"),
    ("ALLGATHER_ALGORITHM", "COLL_ALLGATHER"),
    ("ALLGATHER_LINEAR_MAX", "COLL_ALLGATHER"),
    ("ALLTOALL", "COLL_ALLTOALL"),
    ("ALLTOALL_ALGORITHM", "COLL_ALLTOALL"),
    ("ALLTOALL_LINEAR_MAX", "COLL_ALLTOALL"),
    ("LINEAR_MAX_RANKS", "COLL_BCAST"),
    ("LINEAR_MAX_BYTES", "COLL_BCAST"),
    ("SM_EAGER", "SM_EAGER_LIMIT"),
    ("SHM_EAGER", "SHM_EAGER_LIMIT"),
    ("NIO_EAGER", "NIO_EAGER_LIMIT"),
    ("IBV_EAGER", "IBV_EAGER_LIMIT"),
    ("SHM_RINGS", "SHM_RING_KIB"),
    ("SHM_POOL", "SHM_POOL_MIB"),
    ("NIO_FRAGMENT", "NIO_MAX_SEND_SIZE"),
    ("NIO_HOST", "NIO_LISTEN_ADDRESS"),
    ("IBV_READ", "IBV_RDMA_READ_MIN"),
    ("IBV_REGISTER", "IBV_REGISTER_MIN"),
    ("IBV_DEPTH", "IBV_SEND_WINDOW"),
    ("IBV_GID", "IBV_GID_INDEX"),
    ("IBV_PKEY", "IBV_PKEY_INDEX"),
];

/// Returns the name that was probably meant: the one that differs least from `typed`, if it differs by at most two
/// typos, or one typo if `typed` has fewer than five letters.
pub fn closest_name<'a>(typed: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let max_typos = if typed.len() < 5 { 1 } else { 2 };
    let distance = |name: &str| strsim::osa_distance(typed, name);
    names.into_iter().min_by_key(|name| distance(name)).filter(|name| distance(name) <= max_typos)
}

/// The names of parameters.
#[derive(Clone, Debug)]
pub struct ParameterNames(Vec<&'static str>);

impl ParameterNames {
    /// Returns the names of these parameters.
    pub fn of(parameters: &[&'static dyn Parameter]) -> Self {
        ParameterNames(parameters.iter().map(|parameter| parameter.name()).collect())
    }

    /// Returns `None` if `name`, which lacks the prefix, is a variable of this library; otherwise the name that was
    /// probably meant, if any.
    pub fn suggestion(&self, name: &str) -> Option<Option<&'static str>> {
        if [&self.0[..], JOB_VARIABLES, INTERNAL].iter().any(|names| names.contains(&name)) {
            return None;
        }
        let renamed = RENAMED.iter().find(|(old, _)| *old == name).map(|(_, new)| *new);
        let names = self.0.iter().chain(JOB_VARIABLES).copied();
        Some(renamed.or_else(|| closest_name(&name.to_uppercase(), names)))
    }

    /// Rejects a set of variables if one has a misspelt or former name; `place` names the source of the variables in
    /// the message. Any other unknown name is accepted, because it may belong to another program.
    pub(super) fn check(&self, place: &str, names: impl Iterator<Item = String>) -> Result<(), ConfigError> {
        for name in names {
            let meant = name.strip_prefix(PREFIX).and_then(|name| self.suggestion(name)).flatten();
            if let Some(meant) = meant {
                let why = format!("{place}, no parameter is named {name}: did you mean {PREFIX}{meant}?");
                return Err(ConfigError { why });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{GROUPS, all};

    #[test]
    fn closest_name_has_at_most_two_typos() {
        let names = ["SPIN", "YIELD", "SHM_FRAGMENTS"];
        assert_eq!(closest_name("SPINN", names), Some("SPIN"));
        assert_eq!(closest_name("SPNI", names), Some("SPIN"));
        assert_eq!(closest_name("SHM_FRAGMENST", names), Some("SHM_FRAGMENTS"));
        assert_eq!(closest_name("SIZE", names), None);
        assert_eq!(closest_name("HOME", names), None);
        assert_eq!(closest_name("", names), None);
    }

    #[test]
    fn misspelt_variables_are_refused_and_foreign_ones_ignored() {
        let names = ParameterNames::of(&all(GROUPS));
        let check = |name: &str| {
            names.check("in the environment", [name.to_owned()].into_iter()).map_err(|error| error.why)
        };
        for name in [
            "MPJ_SPIN_US",
            "MPJ_NIO_LISTEN_ADDRESS",
            "MPJ_RANK",
            "MPJ_KILL_AT",
            "MPJ_CONTROL",
            "MPJ_CONTROLS",
            "MPJ_COLOUR",
            "MPJ_HOME",
            "SPINN",
            "MPJ_",
        ] {
            assert_eq!(check(name), Ok(()), "{name}");
        }
        for (name, meant) in [
            ("MPJ_SPIN_SU", "MPJ_SPIN_US"),
            ("MPJ_eager_credit", "MPJ_EAGER_CREDIT"),
            ("MPJ_NIO_FRAGMENT", "MPJ_NIO_MAX_SEND_SIZE"),
            ("MPJ_DEV", "MPJ_DEVICES"),
            ("MPJ_RENDEZVOUZ", "MPJ_RENDEZVOUS"),
            ("MPJ_RANDEZVOUS", "MPJ_RENDEZVOUS"),
            ("MPJ_SECRETFILE", "MPJ_SECRET_FILE"),
            ("MPJ_SIZES", "MPJ_SIZE"),
            ("MPJ_RNAK", "MPJ_RANK"),
        ] {
            let why = format!("in the environment, no parameter is named {name}: did you mean {meant}?");
            assert_eq!(check(name), Err(why));
        }
    }
    #[test]
    fn no_parameter_has_a_former_name_of_another() {
        let names = ParameterNames::of(&all(GROUPS));
        for (old, new) in RENAMED {
            assert_eq!(names.suggestion(old), Some(Some(*new)));
            assert!(RENAMED.iter().all(|(old, _)| old != new), "{new}");
        }
    }
}
