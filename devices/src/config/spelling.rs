//! Names of variables that are nearly ours: who misspells a parameter must not be left to think that it is set.

use super::{ConfigError, OTHERS, PARAMETERS, PREFIX, TEXTS};

/// Returns the name that was probably meant, if one is so near that it is no other word.
pub fn near<'a>(typed: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let slips = if typed.len() < 5 { 1 } else { 2 };
    let distance = |name: &str| strsim::osa_distance(typed, name);
    names.into_iter().min_by_key(|name| distance(name)).filter(|name| distance(name) <= slips)
}

/// Returns `None` for the name of a variable of ours, without the prefix; else what may have been meant.
pub fn unknown(name: &str) -> Option<Option<&'static str>> {
    let settable = || PARAMETERS.iter().map(|p| p.name).chain(TEXTS.iter().map(|text| text.name));
    if settable().chain(OTHERS.iter().copied()).any(|ours| ours == name) {
        return None;
    }
    Some(near(&name.to_uppercase(), settable()))
}

/// Refuses a set of variables of which one is misspelt. What is far from any name of ours may belong to another program.
pub(super) fn check(names: impl Iterator<Item = String>) -> Result<(), ConfigError> {
    for name in names {
        if let Some(meant) = name.strip_prefix(PREFIX).and_then(unknown).flatten() {
            let why =
                format!("in the environment, no parameter is named {name}: did you mean {PREFIX}{meant}?");
            return Err(ConfigError { why });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_is_a_slip_or_two() {
        let names = ["SPIN", "YIELD", "SHM_FRAGMENTS"];
        assert_eq!(near("SPINN", names), Some("SPIN"));
        assert_eq!(near("SPNI", names), Some("SPIN"));
        assert_eq!(near("SHM_FRAGMENST", names), Some("SHM_FRAGMENTS"));
        assert_eq!(near("SIZE", names), None);
        assert_eq!(near("HOME", names), None);
        assert_eq!(near("", names), None);
    }

    #[test]
    fn misspelt_variables_are_refused_and_those_of_others_are_not() {
        let said = |name: &str| check([name.to_owned()].into_iter()).map_err(|error| error.why);
        for name in ["MPJ_SPIN", "MPJ_NIO_HOST", "MPJ_RANK", "MPJ_KILL_AT", "MPJ_COLOUR", "SPINN", "MPJ_"] {
            assert_eq!(said(name), Ok(()), "{name}");
        }
        for (name, meant) in
            [("MPJ_SPINN", "MPJ_SPIN"), ("MPJ_credit", "MPJ_CREDIT"), ("MPJ_NIO_HOTS", "MPJ_NIO_HOST")]
        {
            let why = format!("in the environment, no parameter is named {name}: did you mean {meant}?");
            assert_eq!(said(name), Err(why));
        }
    }
}
