//! Parameters in a file of lines `MPJ_NAME=VALUE`. Empty lines, and comment lines, which begin with `#`, are ignored.

use std::path::Path;

use super::{Config, ConfigError, PREFIX, Parameter, ParameterNames, Text};

/// The path of a file that sets parameters which the environment does not set.
pub const CONFIG_FILE: Text = Text {
    name: "CONFIG_FILE",
    default: "",
    form: "a path",
    accepts: |_| true,
    help: "file of lines MPJ_NAME=VALUE and comment lines (#), for parameters that are not set otherwise; the same file for all ranks",
};

/// Reads the parameters of a file. Unknown names that resemble no parameter are ignored: they might belong to another
/// program, such as the launcher.
///
/// # Errors
/// The file cannot be read, or contains an invalid line, an invalid value, a misspelt or former name of a parameter, or
/// a reference to another file.
pub(super) fn read(
    config: &mut Config,
    parameters: &[&'static dyn Parameter],
    path: &Path,
) -> Result<(), ConfigError> {
    let invalid =
        |why: String| ConfigError { why: format!("{PREFIX}{}: {}: {why}", CONFIG_FILE.name, path.display()) };
    let text = std::fs::read_to_string(path).map_err(|error| invalid(error.to_string()))?;
    let names = ParameterNames::of(parameters);
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let assignment = line.split_once('=').filter(|(name, _)| name.trim_end().starts_with(PREFIX));
        let (name, value) = assignment
            .ok_or_else(|| invalid(format!("line {number} is not {PREFIX}NAME=VALUE: {line}")))
            .map(|(name, value)| (name.trim_end(), value.trim_start()))?;
        let place = format!("line {number}");
        if name.strip_prefix(PREFIX) == Some(CONFIG_FILE.name) {
            return Err(invalid(format!("{place} sets {name}: a configuration file cannot include another")));
        }
        names.check(&place, std::iter::once(name.to_owned())).map_err(|error| invalid(error.why))?;
        let known = parameters.iter().find(|parameter| name.strip_prefix(PREFIX) == Some(parameter.name()));
        if let Some(parameter) = known {
            let comment = if value.contains(" #") { "; write the comment on a line of its own" } else { "" };
            config
                .set_text(*parameter, value)
                .map_err(|error| invalid(format!("{place}: {}{comment}", error.why)))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::ffi::OsString;

    use super::super::{GROUPS, SPIN_US, YIELD_US, all};
    use super::*;

    fn config(file: &str, variables: &[(&str, &str)]) -> Result<Config, String> {
        let name = format!("mpj-conf-{}-{:p}", std::process::id(), file);
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, file).unwrap();
        let mut set: HashMap<String, OsString> =
            variables.iter().map(|(name, value)| ((*name).to_owned(), value.into())).collect();
        set.insert("MPJ_CONFIG_FILE".to_owned(), path.clone().into());
        let config = Config::from_vars(&all(GROUPS), |name| set.get(name).cloned());
        std::fs::remove_file(&path).unwrap();
        config.map_err(|error| error.why.replace(&path.display().to_string(), "FILE"))
    }

    #[test]
    fn parameters_not_set_otherwise_are_read_from_the_file() {
        let file = "# of this machine\n\nMPJ_SPIN_US=7\n  MPJ_YIELD_US = 9  \nMPJ_COLOUR=red\n";
        let alone = config(file, &[]).unwrap();
        assert_eq!((alone.number(&SPIN_US), alone.number(&YIELD_US)), (7, 9));
        let both = config(file, &[("MPJ_SPIN_US", "8")]).unwrap();
        assert_eq!((both.number(&SPIN_US), both.number(&YIELD_US)), (8, 9));
    }

    #[test]
    fn invalid_line_is_refused_with_its_number() {
        for (file, why) in [
            ("MPJ_SPIN_US=7\nSPIN=7", "MPJ_CONFIG_FILE: FILE: line 2 is not MPJ_NAME=VALUE: SPIN=7"),
            ("MPJ_SPIN_US", "line 1 is not MPJ_NAME=VALUE: MPJ_SPIN_US"),
            ("MPJ_SPIN_SU=7", "line 1, no parameter is named MPJ_SPIN_SU: did you mean MPJ_SPIN_US?"),
            ("\nMPJ_SPIN_US=fast", "line 2: MPJ_SPIN_US=fast is not a number"),
            ("MPJ_SPIN_US=7 # short", "; write the comment on a line of its own"),
            (
                "MPJ_SPIN_US=7\nMPJ_CONFIG_FILE=more",
                "line 2 sets MPJ_CONFIG_FILE: a configuration file cannot include another",
            ),
        ] {
            let error = config(file, &[]).unwrap_err();
            assert!(error.contains(why), "{file}: {error}");
        }
        let nowhere = |name: &str| (name == "MPJ_CONFIG_FILE").then(|| OsString::from("/nowhere/at/all"));
        let error = Config::from_vars(&all(GROUPS), nowhere).unwrap_err().why;
        assert!(error.starts_with("MPJ_CONFIG_FILE: /nowhere/at/all: "), "{error}");
    }
}
