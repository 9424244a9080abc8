//! Command lines in the style of other launchers. `mpjrun` accepts its own long options with a single dash. It rejects
//! options of other launchers with a message that says what to use instead.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, Command};

/// Options of other launchers for one purpose.
struct ForeignOption {
    /// Without dashes.
    names: &'static [&'static str],
    instead: &'static str,
}

const FOREIGN: &[ForeignOption] = &[
    ForeignOption { names: &["c", "ntasks", "N", "procs"], instead: "-n sets the number of ranks" },
    ForeignOption {
        names: &["H", "f", "host", "hosts", "hostfile", "machine", "machinefile", "nodes", "nodefile"],
        instead: "mpjrun starts ranks on this host only",
    },
    ForeignOption {
        names: &[
            "ppn",
            "npernode",
            "npersocket",
            "map-by",
            "rank-by",
            "oversubscribe",
            "nooversubscribe",
            "use-hwthread-cpus",
        ],
        instead: "not needed: each rank gets a share of the cores, and oversubscription is allowed",
    },
    ForeignOption {
        names: &["bind-to", "bind-to-core", "cpu-bind", "cpu-set", "report-bindings"],
        instead: "use --bind auto, core or none; taskset limits the cores of all ranks",
    },
    ForeignOption {
        names: &["env", "genv", "envlist", "genvlist", "envall", "genvall", "envnone", "export"],
        instead: "ranks inherit the environment of mpjrun, and -x NAME=VALUE sets a variable",
    },
    ForeignOption {
        names: &["mca", "gmca", "prtemca", "pmixmca", "iface"],
        instead: "-x MPJ_NAME=VALUE sets a parameter (mpjrun --params lists them), and --devices selects devices",
    },
    ForeignOption { names: &["wd", "wdir"], instead: "ranks start in the working directory of mpjrun" },
    ForeignOption {
        names: &["tag-output", "prepend-rank"],
        instead: "-l prefixes each output line with the rank, or the ranks, of its process",
    },
    ForeignOption { names: &["allow-run-as-root"], instead: "not needed" },
];

/// Gives long options of `mpjrun` that begin with one dash (`-np 4`, `-dev niodev`) their second dash.
///
/// # Errors
/// The command line has a known option of another launcher that `mpjrun` does not have, or a `:` that is followed by
/// `-n` or `-np` (several programs).
pub(crate) fn normalize_args(
    args: impl IntoIterator<Item = OsString>,
    mut mpjrun: Command,
) -> Result<Vec<OsString>, String> {
    // Adds `--help` and `--version`.
    mpjrun.build();
    let mut args = args.into_iter();
    let mut out: Vec<OsString> = args.next().into_iter().collect();
    while let Some(arg) = args.next() {
        let Some(word) =
            arg.to_str().and_then(|text| text.strip_prefix('-')).filter(|word| !["", "-"].contains(word))
        else {
            // The program, or `--`. All later arguments belong to the program.
            out.push(arg);
            break;
        };
        let name = word.strip_prefix('-').unwrap_or(word).split('=').next().unwrap_or_default();
        if let Some(option) = mpjrun.get_arguments().find(|option| is_named(option, name)) {
            let value = takes_value(option) && !word.contains('=');
            out.push(format!("--{}", word.strip_prefix('-').unwrap_or(word)).into());
            out.extend(if value { args.next() } else { None });
            continue;
        }
        if let Some(foreign) = FOREIGN.iter().find(|foreign| foreign.names.contains(&name)) {
            return Err(format!(
                "unsupported option -{}: {}",
                word.split('=').next().unwrap_or(word),
                foreign.instead
            ));
        }
        // The value is a separate argument if its option is the last letter, as in `-ln 4` but not in `-n4`.
        let short = |letter| mpjrun.get_arguments().find(|option| option.get_short() == Some(letter));
        let letter_with_value =
            word.char_indices().find(|(_, letter)| short(*letter).is_some_and(takes_value));
        let value = letter_with_value.is_some_and(|(at, letter)| at + letter.len_utf8() == word.len());
        out.push(arg);
        out.extend(if value { args.next() } else { None });
    }
    let rest: Vec<OsString> = args.collect();
    if rest.windows(2).any(|pair| pair[0] == ":" && (pair[1] == "-n" || pair[1] == "-np")) {
        return Err("':' (several programs in one job) is not supported".into());
    }
    out.extend(rest);
    Ok(out)
}

/// Returns the first argument of the program, before any `--`, that is a long option of `mpjrun` and therefore might be
/// misplaced.
pub(crate) fn misplaced_option<'a>(args: &'a [OsString], mpjrun: &Command) -> Option<&'a str> {
    let is_ours = |arg: &&str| {
        let name = arg.strip_prefix("--").and_then(|name| name.split('=').next());
        name.is_some_and(|name| mpjrun.get_arguments().any(|option| is_named(option, name)))
    };
    args.iter().filter_map(|arg| arg.to_str()).take_while(|arg| *arg != "--").find(is_ours)
}

/// Returns whether `name` is the long name of an option, or one of its aliases.
fn is_named(option: &Arg, name: &str) -> bool {
    option.get_long() == Some(name) || option.get_all_aliases().is_some_and(|aliases| aliases.contains(&name))
}

fn takes_value(option: &Arg) -> bool {
    matches!(option.get_action(), ArgAction::Set | ArgAction::Append)
}

/// Returns an error of `clap` as one line.
pub(crate) fn usage_error(error: &clap::Error) -> String {
    if error.kind() == ErrorKind::MissingRequiredArgument {
        return format!("expected a number of ranks and a program: {}; see mpjrun --help", crate::USAGE);
    }
    let text = error.to_string();
    // The first paragraph contains the error.
    let lines = text.lines().map(str::trim).take_while(|line| !line.is_empty());
    let message = lines.collect::<Vec<_>>().join(" ").trim_start_matches("error: ").to_owned();
    let meant = [ContextKind::SuggestedArg, ContextKind::SuggestedValue].into_iter().find_map(|kind| {
        match error.get(kind)? {
            ContextValue::String(meant) => Some(meant.as_str()),
            ContextValue::Strings(all) => all.first().map(String::as_str),
            _ => None,
        }
    });
    match meant {
        Some(meant) => format!("{message}: did you mean '{meant}'?"),
        None => format!("{message}; see mpjrun --help"),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::Cli;

    fn normalized(line: &str) -> Result<String, String> {
        let args = line.split(' ').map(OsString::from);
        let args = normalize_args(args, Cli::command())?;
        Ok(args.iter().map(|arg| arg.to_str().unwrap()).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn single_dash_long_options_work() {
        for (typed, ours) in [
            ("mpjrun -np 4 p", "mpjrun --np 4 p"),
            ("mpjrun -np=4 p", "mpjrun --np=4 p"),
            ("mpjrun --np 4 -dev niodev p -np 7 -H x", "mpjrun --np 4 --dev niodev p -np 7 -H x"),
            ("mpjrun -x -np -label p -dev", "mpjrun -x -np --label p -dev"),
            ("mpjrun -devices niodev -path=auto p", "mpjrun --devices niodev --path=auto p"),
            ("mpjrun -ln 4 p", "mpjrun -ln 4 p"),
            ("mpjrun -n4 -lx A=-np p", "mpjrun -n4 -lx A=-np p"),
            ("mpjrun -n 2 -- -np", "mpjrun -n 2 -- -np"),
            ("mpjrun -frobnicate p", "mpjrun -frobnicate p"),
            ("mpjrun -h", "mpjrun -h"),
            ("mpjrun -help", "mpjrun --help"),
            ("mpjrun -version", "mpjrun --version"),
            ("mpjrun", "mpjrun"),
        ] {
            assert_eq!(normalized(typed).as_deref(), Ok(ours), "{typed}");
        }
    }

    #[test]
    fn options_after_the_program_are_found() {
        let find = |args: &str| {
            let args: Vec<OsString> = args.split(' ').map(OsString::from).collect();
            misplaced_option(&args, &Cli::command()).map(str::to_owned)
        };
        assert_eq!(find("4 --timeout 4").as_deref(), Some("--timeout"));
        assert_eq!(find("--dev=smdev").as_deref(), Some("--dev=smdev"));
        for args in ["-l -n 2", "--size 4", "-- --timeout 4", "timeout"] {
            assert_eq!(find(args), None, "{args}");
        }
    }

    #[test]
    fn foreign_options_get_a_hint() {
        for (typed, error) in [
            ("mpjrun -H a,b p", "unsupported option -H: mpjrun starts ranks on this host only"),
            ("mpjrun -n 2 --hostfile=x p", "unsupported option --hostfile: mpjrun starts"),
            ("mpjrun -hostfile x p", "unsupported option -hostfile: mpjrun starts"),
            ("mpjrun -N 2 p", "unsupported option -N: -n sets the number"),
            ("mpjrun --bind-to none p", "use --bind auto"),
            ("mpjrun --mca btl tcp p", "--devices selects devices"),
            ("mpjrun -genv A 1 p", "-x NAME=VALUE"),
            ("mpjrun -n 1 a : -n 2 b", "':' (several programs in one job) is not supported"),
        ] {
            assert!(normalized(typed).unwrap_err().contains(error), "{typed}: {:?}", normalized(typed));
        }
    }
}
