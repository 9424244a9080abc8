//! `mpjrun --params`: lists the run-time parameters in groups.

use std::io::Write;
use std::process::ExitCode;

use mpj::config::{PREFIX, Parameter};

use crate::environment::{FIRST, groups};

pub(crate) fn print() -> ExitCode {
    match std::io::stdout().write_all(list().as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn list() -> String {
    let mut parts: Vec<(&str, Vec<&dyn Parameter>)> = vec![("most important", FIRST.to_vec())];
    let is_first = |parameter: &dyn Parameter| FIRST.iter().any(|first| first.name() == parameter.name());
    for group in groups() {
        let others = group.parameters.iter().copied().filter(|parameter| !is_first(*parameter));
        match parts.iter_mut().find(|(name, _)| *name == group.name) {
            Some((_, parameters)) => parameters.extend(others),
            None => parts.push((group.name, others.collect())),
        }
    }
    let assignment =
        |parameter: &dyn Parameter| format!("{PREFIX}{}={}", parameter.name(), parameter.default());
    let mut text = String::from(
        "Run-time parameters (environment variables): NAME=default, meaning [allowed values]. Set them with -x NAME=VALUE \
         or in the environment.\n",
    );
    for (name, parameters) in parts {
        text += &format!("\n{name}\n");
        let width = parameters.iter().map(|parameter| assignment(*parameter).len()).max().unwrap_or(0);
        for parameter in parameters {
            let (help, range) = (parameter.help(), parameter.range());
            text += &format!("  {:width$}  {help} [{range}]\n", assignment(parameter));
        }
    }
    text
}
