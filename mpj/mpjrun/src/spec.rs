//! The specification of a job: which process hosts which ranks, and how the processes are started.

use std::ffi::OsString;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use mpj::config::{Config, DEVICES, PREFIX, Parameter, devices, timeout};
use mpj_devices::config::DATA_PATH;
use mpj_devices::cores::{BIND, Cores};
use mpj_devices::trace::TRACE;
use mpj_devices::{HostId, ShmDriver, SmDriver};

use crate::environment::Environment;
use crate::job::KILL_AFTER;
use crate::placement::{Placement, SIMULATED_HOSTS};
use crate::verdict::LaunchError;
use crate::{Cli, OnFailure};

#[derive(Debug)]
pub(crate) struct JobSpec {
    pub(crate) size: u32,
    pub(crate) placement: Placement,
    /// The ranks of each process, all on one host.
    pub(crate) process_ranks: Vec<Range<u32>>,
    /// The devices to use; `None` for all available ones.
    pub(crate) devices: Option<Vec<String>>,
    pub(crate) environment: Environment,
    /// The cores of each rank, if ranks are bound.
    pub(crate) cores: Option<Vec<Cores>>,
    pub(crate) trace: Option<PathBuf>,
    pub(crate) label: bool,
    pub(crate) timeout: Option<Duration>,
    /// Time between a failure and SIGTERM.
    pub(crate) grace: Duration,
    /// Time between SIGTERM and SIGKILL.
    pub(crate) kill_after: Duration,
    pub(crate) continue_on_failure: bool,
    pub(crate) program: OsString,
    pub(crate) args: Vec<OsString>,
}

const MAX_RANKS: u32 = 1 << 16;

fn environment(cli: &Cli) -> Result<Environment, String> {
    let options: [(&str, &dyn Parameter, &Option<String>); 3] = [
        ("--data-path", &DATA_PATH, &cli.data_path),
        ("--bind", &BIND, &cli.bind),
        ("--kill-after", &KILL_AFTER, &cli.kill_after),
    ];
    let mut set = cli.set.clone();
    for (option, parameter, value) in options {
        let Some(value) = value else { continue };
        Config::default().set_text(parameter, value).map_err(|e| format!("{option} {value}: {e}"))?;
        set.push(format!("{PREFIX}{}={value}", parameter.name()));
    }
    set.extend(cli.stats.then(|| format!("{PREFIX}STATS=1")));
    Environment::new(&set)
}

impl JobSpec {
    pub(crate) fn new(cli: Cli) -> Result<JobSpec, LaunchError> {
        let usage = |why: String| LaunchError { why, code: 2 };
        let size = cli.ranks.unwrap_or(0);
        if !(1..=MAX_RANKS).contains(&size) {
            return Err(usage(format!("-n {size}: expected 1 to {MAX_RANKS} ranks")));
        }
        let environment = environment(&cli).map_err(usage)?;
        let named = cli.devices.as_deref().unwrap_or_else(|| environment.config.text(&DEVICES));
        let devices = devices(named).map_err(|why| usage(format!("--devices {why}")))?;
        let threads = devices.as_ref().is_some_and(|names| names.iter().all(|name| name == SmDriver::NAME));
        let per_process = cli.ranks_per_process.unwrap_or(if threads { size } else { 1 });
        if per_process == 0 {
            return Err(usage("--ranks-per-process 0: expected at least 1".into()));
        }
        if threads && per_process < size {
            return Err(usage(format!(
                "smdev connects only threads of one process: omit --ranks-per-process {per_process}"
            )));
        }
        let placement = Placement::new(environment.config.text(&SIMULATED_HOSTS), size).map_err(usage)?;
        // A device that the program defines might connect hosts.
        let within_one_host = [SmDriver::NAME, ShmDriver::NAME];
        let connects_hosts =
            |names: &Vec<String>| names.iter().any(|name| !within_one_host.contains(&name.as_str()));
        if placement.hosts.count() > 1 && !devices.as_ref().is_none_or(connects_hosts) {
            return Err(usage(format!(
                "{named} cannot connect hosts, and MPJ_{} has {} hosts: add niodev or ibvdev",
                SIMULATED_HOSTS.name,
                placement.hosts.count()
            )));
        }
        let trace = cli.trace.unwrap_or_else(|| environment.config.text(&TRACE).to_owned());
        let cores = environment.config.choice(&BIND).cores(size as usize).map_err(usage)?;
        let mut program = cli.program.into_iter();
        Ok(JobSpec {
            size,
            process_ranks: process_ranks(&placement, per_process),
            placement,
            devices,
            cores,
            trace: (!trace.is_empty()).then(|| trace.into()),
            label: cli.label,
            timeout: cli.timeout.map_or_else(
                || timeout(&environment.config),
                |limit| Some(limit).filter(|limit| !limit.is_zero()),
            ),
            grace: cli.grace,
            kill_after: Duration::from_secs(environment.config.number(&KILL_AFTER)),
            environment,
            continue_on_failure: cli.on_failure == OnFailure::Continue,
            program: program.next().unwrap_or_default(),
            args: program.collect(),
        })
    }

    pub(crate) fn process_of(&self, rank: u32) -> usize {
        self.process_ranks.partition_point(|ranks| ranks.end <= rank)
    }

    /// Returns whether the ranks of a host can use `shmdev`: it is named, or no device is named and the host has
    /// several processes.
    pub(crate) fn needs_segment(&self, host: HostId) -> bool {
        match &self.devices {
            Some(names) => names.iter().any(|name| name == ShmDriver::NAME),
            None => {
                let ranks = self.placement.hosts.ranks_of(host);
                let process = |index| ranks.rank(index).map(|rank| self.process_of(rank));
                process(0) != process(ranks.len() - 1)
            }
        }
    }
}

/// Assigns ranks to processes, in blocks of at most `per_process` ranks on one host.
fn process_ranks(placement: &Placement, per_process: u32) -> Vec<Range<u32>> {
    let blocks = |ranks: Range<u32>| {
        let block = move |first: u32| first..first.saturating_add(per_process).min(ranks.end);
        ranks.clone().step_by(per_process as usize).map(block)
    };
    placement.hosts.runs().flat_map(|(_, ranks)| blocks(ranks)).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use mpj_devices::DataPath;

    use super::*;

    fn spec(args: &[&str]) -> Result<JobSpec, String> {
        let cli = Cli::try_parse_from([&["mpjrun"], args].concat()).map_err(|e| e.to_string())?;
        JobSpec::new(cli).map_err(|error| error.why)
    }

    #[test]
    fn processes_get_blocks_of_ranks() {
        let blocks = |args: &[&str]| {
            spec(args).unwrap().process_ranks.iter().map(|r| (r.start, r.end)).collect::<Vec<_>>()
        };
        assert_eq!(blocks(&["-n", "3", "p"]), [(0, 1), (1, 2), (2, 3)]);
        assert_eq!(blocks(&["-n", "5", "--ranks-per-process", "2", "p"]), [(0, 2), (2, 4), (4, 5)]);
        assert_eq!(blocks(&["-n", "5", "--ranks-per-process", "9", "p"]), [(0, 5)]);
        assert_eq!(blocks(&["-n", "4", "--devices", "smdev", "p", "-n", "7"]), [(0, 4)]);
        let on_hosts = ["-n", "8", "-x", "MPJ_SIMULATED_HOSTS=a:3,b:4,a:1", "--ranks-per-process", "2", "p"];
        assert_eq!(blocks(&on_hosts), [(0, 2), (2, 3), (3, 5), (5, 7), (7, 8)]);
        let spec = spec(&on_hosts).unwrap();
        let process_of: Vec<usize> = (0..8).map(|rank| spec.process_of(rank)).collect();
        assert_eq!(process_of, [0, 0, 1, 2, 2, 3, 3, 4]);
    }

    #[test]
    fn only_hosts_that_need_a_segment_get_one() {
        let shared = |hosts: &str, more: &[&str]| {
            let set = format!("MPJ_SIMULATED_HOSTS={hosts}");
            let spec = spec(&[&["-n", "6", "-x", &set], more, &["p"]].concat()).unwrap();
            spec.placement.ids().map(|host| spec.needs_segment(host)).collect::<Vec<_>>()
        };
        assert_eq!(shared("a", &[]), [true]);
        assert_eq!(shared("a", &["--ranks-per-process", "6"]), [false]);
        assert_eq!(shared("a:1,b:5", &[]), [false, true]);
        assert_eq!(shared("a:1,b:4,a:1", &["--ranks-per-process", "4"]), [true, false]);
        assert_eq!(shared("a:1,b:5", &["--devices", "niodev"]), [false, false]);
        assert_eq!(shared("a:1,b:5", &["--devices", "niodev,shmdev"]), [true, true]);
    }

    #[test]
    fn former_spellings_of_options_work() {
        let spec = |args: &str| {
            let args: Vec<&str> = args.split(' ').collect();
            let spec = spec(&args).unwrap();
            (spec.devices, spec.environment.config.choice(&DATA_PATH), spec.continue_on_failure)
        };
        let new = spec("-n 2 --devices niodev --data-path buffered --on-failure terminate p");
        assert_eq!(new, spec("-n 2 --dev niodev --path buffered --on-failure end p"));
        assert_eq!(new, (Some(vec!["niodev".to_owned()]), DataPath::Buffered, false));
    }

    #[test]
    fn kill_after_sets_the_parameter() {
        let kill_after = |args: &[&str]| spec(&[&["-n", "2"], args, &["p"]].concat()).unwrap().kill_after;
        assert_eq!(kill_after(&[]), Duration::from_secs(2));
        assert_eq!(kill_after(&["--kill-after", "5"]), Duration::from_secs(5));
        assert_eq!(kill_after(&["-x", "MPJ_KILL_AFTER=7"]), Duration::from_secs(7));
    }

    #[test]
    fn invalid_command_lines_are_rejected() {
        for (args, why) in [
            (&["-n", "0", "p"][..], "-n 0: expected 1 to 65536 ranks"),
            (&["-n", "70000", "p"], "-n 70000: expected 1 to 65536 ranks"),
            (&["-n", "2", "--devices", "shmdev,,niodev", "p"], "'' is not a valid device name"),
            (&["-n", "2", "--devices", "shmdev niodev", "p"], "'shmdev niodev' is not a valid device name"),
            (&["-n", "2", "--devices", "auto,niodev", "p"], "--devices auto,niodev: auto cannot be combined"),
            (
                &["-n", "2", "--devices", "smdev", "--ranks-per-process", "1", "p"],
                "smdev connects only threads of one process",
            ),
            (&["-n", "2", "--ranks-per-process", "0", "p"], "expected at least 1"),
            (&["-n", "2", "-x", "=A", "p"], "expected NAME=VALUE or NAME"),
            (&["-n", "2", "-x", "MPJ_SPIN_US=x", "p"], "not a number"),
            (&["-n", "2", "-x", "MPJ_SIMULATED_HOSTS=a:1,b:2", "p"], "has 3 ranks, but -n is 2"),
            (
                &["-n", "2", "-x", "MPJ_SIMULATED_HOSTS=a:1,b", "--devices", "shmdev", "p"],
                "shmdev cannot connect hosts, and MPJ_SIMULATED_HOSTS has 2 hosts: add niodev or ibvdev",
            ),
            (
                &["-n", "2", "-x", "MPJ_SIMULATED_HOSTS=a:1,b", "--devices", "smdev", "p"],
                "smdev cannot connect hosts",
            ),
            (&["-n", "2", "--grace=-1", "p"], "expected a number of seconds"),
            (
                &["-n", "2", "--kill-after", "soon", "p"],
                "--kill-after soon: MPJ_KILL_AFTER=soon is not a number",
            ),
            (&["-n", "2", "--flag", "p"], "unexpected argument '--flag'"),
            (&["-n", "2"], "required"),
            (&["p"], "required"),
        ] {
            let error = spec(args).unwrap_err();
            assert!(error.contains(why), "{args:?}: {error}");
        }
    }
}
