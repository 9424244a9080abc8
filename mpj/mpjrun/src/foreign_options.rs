//! Options of other launchers. An option that means the same here works. Any other is rejected with a message that
//! names the option to use here.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, Command};

/// Options of other launchers for one purpose, without their dashes, and the message that says what to use here.
struct ForeignOption {
    words: &'static [&'static str],
    here: &'static str,
}

const FOREIGN: &[ForeignOption] = &[
    ForeignOption { words: &["c", "ntasks", "N", "procs"], here: "-n is the number of ranks" },
    ForeignOption {
        words: &["H", "f", "host", "hosts", "hostfile", "machine", "machinefile", "nodes", "nodefile"],
        here: "all ranks of a job run on this host, and there is no way yet to name others",
    },
    ForeignOption {
        words: &[
            "ppn",
            "npernode",
            "npersocket",
            "map-by",
            "rank-by",
            "oversubscribe",
            "nooversubscribe",
            "use-hwthread-cpus",
        ],
        here: "leave it out: each rank gets a share of the cores of this host, and ranks may outnumber them",
    },
    ForeignOption {
        words: &["bind-to", "bind-to-core", "cpu-bind", "cpu-set", "report-bindings"],
        here: "--bind says which cores a rank runs on: auto, core or none; taskset limits all of them",
    },
    ForeignOption {
        words: &["env", "genv", "envlist", "genvlist", "envall", "genvall", "envnone", "export"],
        here: "ranks have the environment of mpjrun, and -x NAME=VALUE sets a variable for them",
    },
    ForeignOption {
        words: &["mca", "gmca", "prtemca", "pmixmca", "iface"],
        here: "-x MPJ_NAME=VALUE sets a parameter (mpjrun --params lists them), and --dev chooses devices",
    },
    ForeignOption { words: &["wd", "wdir"], here: "ranks start in the directory that mpjrun is started in" },
    ForeignOption {
        words: &["tag-output", "prepend-rank"],
        here: "-l begins each line with the rank it is from",
    },
    ForeignOption { words: &["allow-run-as-root"], here: "leave it out: anybody may start a job" },
];

/// Returns the command line in the spelling of `mpjrun`: long options may begin with one dash (`-np 4`, `-dev niodev`).
///
/// # Errors
/// The command line has an option of another launcher that `mpjrun` does not have.
pub(crate) fn normalize_args(
    args: impl IntoIterator<Item = OsString>,
    ours: &Command,
) -> Result<Vec<OsString>, String> {
    let mut args = args.into_iter();
    let mut out: Vec<OsString> = args.next().into_iter().collect();
    while let Some(arg) = args.next() {
        let Some(word) =
            arg.to_str().and_then(|text| text.strip_prefix('-')).filter(|word| !["", "-"].contains(word))
        else {
            // This is the program, or the end of the options. All further arguments belong to the program.
            out.push(arg);
            break;
        };
        let name = word.strip_prefix('-').unwrap_or(word).split('=').next().unwrap_or_default();
        if let Some(option) = ours.get_arguments().find(|option| option.get_long() == Some(name)) {
            let value = takes_value(option) && !word.contains('=');
            out.push(format!("--{}", word.strip_prefix('-').unwrap_or(word)).into());
            out.extend(if value { args.next() } else { None });
            continue;
        }
        if let Some(foreign) = FOREIGN.iter().find(|foreign| foreign.words.contains(&name)) {
            return Err(format!("there is no -{}: {}", word.split('=').next().unwrap_or(word), foreign.here));
        }
        // `-l -n 4`, `-ln 4`, `-n4`: the value is a separate argument only if the option that takes it is the last
        // letter.
        let short = |letter| ours.get_arguments().find(|option| option.get_short() == Some(letter));
        let taker = word.char_indices().find(|(_, letter)| short(*letter).is_some_and(takes_value));
        let value = taker.is_some_and(|(at, letter)| at + letter.len_utf8() == word.len());
        out.push(arg);
        out.extend(if value { args.next() } else { None });
    }
    let rest: Vec<OsString> = args.collect();
    if rest.windows(2).any(|pair| pair[0] == ":" && (pair[1] == "-n" || pair[1] == "-np")) {
        return Err("all ranks of a job run the same program: there is no ':'".into());
    }
    out.extend(rest);
    Ok(out)
}

/// Returns the first argument of a program that is a long option of `mpjrun`: it may be misplaced.
pub(crate) fn misplaced<'a>(args: &'a [OsString], ours: &Command) -> Option<&'a str> {
    let is_ours = |arg: &&str| {
        let name = arg.strip_prefix("--").and_then(|name| name.split('=').next());
        name.is_some_and(|name| ours.get_arguments().any(|option| option.get_long() == Some(name)))
    };
    args.iter().filter_map(|arg| arg.to_str()).take_while(|arg| *arg != "--").find(is_ours)
}

fn takes_value(option: &Arg) -> bool {
    matches!(option.get_action(), ArgAction::Set | ArgAction::Append)
}

/// Returns the error of a command line as one sentence.
pub(crate) fn sentence(wrong: &clap::Error) -> String {
    if wrong.kind() == ErrorKind::MissingRequiredArgument {
        return format!("say how many ranks of which program: {}; see mpjrun --help", crate::USAGE);
    }
    let text = wrong.to_string();
    // The first paragraph contains the error.
    let lines = text.lines().map(str::trim).take_while(|line| !line.is_empty());
    let said = lines.collect::<Vec<_>>().join(" ").trim_start_matches("error: ").to_owned();
    let meant = [ContextKind::SuggestedArg, ContextKind::SuggestedValue].into_iter().find_map(|kind| {
        match wrong.get(kind)? {
            ContextValue::String(meant) => Some(meant.as_str()),
            ContextValue::Strings(all) => all.first().map(String::as_str),
            _ => None,
        }
    });
    match meant {
        Some(meant) => format!("{said}: did you mean '{meant}'?"),
        None => format!("{said}; see mpjrun --help"),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::Cli;

    fn translated(line: &str) -> Result<String, String> {
        let args = line.split(' ').map(OsString::from);
        let args = normalize_args(args, &Cli::command())?;
        Ok(args.iter().map(|arg| arg.to_str().unwrap()).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn one_dash_or_two() {
        for (typed, ours) in [
            ("mpjrun -np 4 p", "mpjrun --np 4 p"),
            ("mpjrun -np=4 p", "mpjrun --np=4 p"),
            ("mpjrun --np 4 -dev niodev p -np 7 -H x", "mpjrun --np 4 --dev niodev p -np 7 -H x"),
            ("mpjrun -x -np -label p -dev", "mpjrun -x -np --label p -dev"),
            ("mpjrun -ln 4 p", "mpjrun -ln 4 p"),
            ("mpjrun -n4 -lx A=-np p", "mpjrun -n4 -lx A=-np p"),
            ("mpjrun -n 2 -- -np", "mpjrun -n 2 -- -np"),
            ("mpjrun -frobnicate p", "mpjrun -frobnicate p"),
            ("mpjrun -h", "mpjrun -h"),
            ("mpjrun", "mpjrun"),
        ] {
            assert_eq!(translated(typed).as_deref(), Ok(ours), "{typed}");
        }
    }

    #[test]
    fn an_option_behind_the_program_is_found() {
        let find = |args: &str| {
            let args: Vec<OsString> = args.split(' ').map(OsString::from).collect();
            misplaced(&args, &Cli::command()).map(str::to_owned)
        };
        assert_eq!(find("4 --timeout 4").as_deref(), Some("--timeout"));
        assert_eq!(find("--dev=smdev").as_deref(), Some("--dev=smdev"));
        for args in ["-l -n 2", "--size 4", "-- --timeout 4", "timeout"] {
            assert_eq!(find(args), None, "{args}");
        }
    }

    #[test]
    fn what_there_is_not_is_told() {
        for (typed, said) in [
            ("mpjrun -H a,b p", "there is no -H: all ranks of a job run on this host"),
            ("mpjrun -n 2 --hostfile=x p", "there is no --hostfile: all ranks"),
            ("mpjrun -hostfile x p", "there is no -hostfile: all ranks"),
            ("mpjrun -N 2 p", "there is no -N: -n is the number"),
            ("mpjrun --bind-to none p", "--bind says which cores"),
            ("mpjrun --mca btl tcp p", "--dev chooses devices"),
            ("mpjrun -genv A 1 p", "-x NAME=VALUE"),
            ("mpjrun -n 1 a : -n 2 b", "there is no ':'"),
        ] {
            assert!(translated(typed).unwrap_err().contains(said), "{typed}: {:?}", translated(typed));
        }
    }
}
