//! The specification of a job: which process gets which ranks, and how it is started.

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

/// The specification of a job.
#[derive(Debug)]
pub(crate) struct JobSpec {
    pub(crate) size: u32,
    /// The host of each rank.
    pub(crate) placement: Placement,
    /// The ranks of each process, in order. All ranks of a process run on one host.
    pub(crate) processes: Vec<Range<u32>>,
    /// The devices to use; `None` for all available ones.
    pub(crate) devices: Option<Vec<String>>,
    pub(crate) environment: Environment,
    /// The cores of each rank, if ranks are bound.
    pub(crate) cores: Option<Vec<Cores>>,
    /// The trace file of the job.
    pub(crate) trace: Option<PathBuf>,
    pub(crate) label: bool,
    pub(crate) timeout: Option<Duration>,
    pub(crate) grace: Duration,
    /// How long processes have after SIGTERM before they get SIGKILL.
    pub(crate) kill_after: Duration,
    pub(crate) continue_on_failure: bool,
    pub(crate) program: OsString,
    pub(crate) args: Vec<OsString>,
}

/// Maximum number of ranks of a job.
const RANKS: u32 = 1 << 16;

impl JobSpec {
    /// Builds the specification from the command line and the environment.
    pub(crate) fn new(cli: Cli) -> Result<JobSpec, LaunchError> {
        let usage = |why: String| LaunchError { why, code: 2 };
        let size = cli.ranks.unwrap_or(0);
        if !(1..=RANKS).contains(&size) {
            return Err(usage(format!("-n {size} is no number of ranks (1 to {RANKS})")));
        }
        if let Some(path) = &cli.path {
            Config::default().read(&DATA_PATH, path).map_err(|e| usage(format!("--path {path}: {e}")))?;
        }
        if let Some(bind) = &cli.bind {
            Config::default().read(&BIND, bind).map_err(|e| usage(format!("--bind {bind}: {e}")))?;
        }
        let path = cli.path.as_ref().map(|path| format!("{PREFIX}{}={path}", DATA_PATH.name()));
        let bind = cli.bind.as_ref().map(|bind| format!("{PREFIX}{}={bind}", BIND.name()));
        let stats = cli.stats.then(|| format!("{PREFIX}STATS=1"));
        let set: Vec<String> = cli.set.iter().cloned().chain(path).chain(bind).chain(stats).collect();
        let environment = Environment::new(&set).map_err(usage)?;
        let named = cli.devices.as_deref().unwrap_or_else(|| environment.config.text(&DEVICES));
        let devices = devices(named).map_err(|why| usage(format!("--dev {why}")))?;
        let threads = devices.as_ref().is_some_and(|names| names.iter().all(|name| name == SmDriver::NAME));
        let per_process = cli.ranks_per_process.unwrap_or(if threads { size } else { 1 });
        if per_process == 0 {
            return Err(usage("--ranks-per-process 0: a process has at least one rank".into()));
        }
        if threads && per_process < size {
            return Err(usage(format!(
                "--dev smdev joins threads of one process: leave out --ranks-per-process {per_process}"
            )));
        }
        let placement = Placement::new(environment.config.text(&SIMULATED_HOSTS), size).map_err(usage)?;
        // A device of the program may connect hosts, so only the names of these two are rejected.
        let near = [SmDriver::NAME, ShmDriver::NAME];
        let crosses = |names: &Vec<String>| names.iter().any(|name| !near.contains(&name.as_str()));
        if placement.hosts.count() > 1 && !devices.as_ref().is_none_or(crosses) {
            return Err(usage(format!(
                "--dev {named} reaches no rank on another host, and MPJ_{} names {}: add niodev or ibvdev",
                SIMULATED_HOSTS.name,
                placement.hosts.count()
            )));
        }
        let trace = cli.trace.unwrap_or_else(|| environment.config.text(&TRACE).to_owned());
        let cores = environment.config.choice(&BIND).cores(size as usize).map_err(usage)?;
        let mut program = cli.program.into_iter();
        Ok(JobSpec {
            size,
            processes: processes(&placement, per_process),
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

    /// Returns the index of the process of a rank.
    pub(crate) fn process_of(&self, rank: u32) -> usize {
        self.processes.partition_point(|ranks| ranks.end <= rank)
    }

    /// Returns whether the processes of a host share memory.
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

/// Assigns ranks to processes in blocks of at most `most` ranks. No process has ranks of two hosts.
fn processes(placement: &Placement, most: u32) -> Vec<Range<u32>> {
    let deal = |ranks: Range<u32>| {
        let block = move |first: u32| first..first.saturating_add(most).min(ranks.end);
        ranks.clone().step_by(most as usize).map(block)
    };
    placement.hosts.runs().flat_map(|(_, ranks)| deal(ranks)).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn spec(args: &[&str]) -> Result<JobSpec, String> {
        let cli = Cli::try_parse_from([&["mpjrun"], args].concat()).map_err(|e| e.to_string())?;
        JobSpec::new(cli).map_err(|refused| refused.why)
    }

    #[test]
    fn ranks_are_dealt_in_blocks() {
        let deal = |args: &[&str]| {
            spec(args).unwrap().processes.iter().map(|r| (r.start, r.end)).collect::<Vec<_>>()
        };
        assert_eq!(deal(&["-n", "3", "p"]), [(0, 1), (1, 2), (2, 3)]);
        assert_eq!(deal(&["-n", "5", "--ranks-per-process", "2", "p"]), [(0, 2), (2, 4), (4, 5)]);
        assert_eq!(deal(&["-n", "5", "--ranks-per-process", "9", "p"]), [(0, 5)]);
        assert_eq!(deal(&["-n", "4", "--dev", "smdev", "p", "-n", "7"]), [(0, 4)]);
        let on_hosts = ["-n", "8", "-x", "MPJ_SIMULATED_HOSTS=a:3,b:4,a:1", "--ranks-per-process", "2", "p"];
        assert_eq!(deal(&on_hosts), [(0, 2), (2, 3), (3, 5), (5, 7), (7, 8)]);
        let spec = spec(&on_hosts).unwrap();
        let process_of: Vec<usize> = (0..8).map(|rank| spec.process_of(rank)).collect();
        assert_eq!(process_of, [0, 0, 1, 2, 2, 3, 3, 4]);
    }

    #[test]
    fn processes_of_one_host_share_memory_if_there_are_several() {
        let shared = |hosts: &str, more: &[&str]| {
            let set = format!("MPJ_SIMULATED_HOSTS={hosts}");
            let spec = spec(&[&["-n", "6", "-x", &set], more, &["p"]].concat()).unwrap();
            spec.placement.ids().map(|host| spec.needs_segment(host)).collect::<Vec<_>>()
        };
        assert_eq!(shared("a", &[]), [true]);
        assert_eq!(shared("a", &["--ranks-per-process", "6"]), [false]);
        assert_eq!(shared("a:1,b:5", &[]), [false, true]);
        assert_eq!(shared("a:1,b:4,a:1", &["--ranks-per-process", "4"]), [true, false]);
        assert_eq!(shared("a:1,b:5", &["--dev", "niodev"]), [false, false]);
        assert_eq!(shared("a:1,b:5", &["--dev", "niodev,shmdev"]), [true, true]);
    }

    #[test]
    fn nonsense_is_refused() {
        for (args, why) in [
            (&["-n", "0", "p"][..], "-n 0 is no number of ranks"),
            (&["-n", "70000", "p"], "is no number of ranks"),
            (&["-n", "2", "--dev", "shmdev,,niodev", "p"], "'' is not a valid device name"),
            (&["-n", "2", "--dev", "shmdev niodev", "p"], "'shmdev niodev' is not a valid device name"),
            (&["-n", "2", "--dev", "auto,niodev", "p"], "auto cannot be combined"),
            (&["-n", "2", "--dev", "smdev", "--ranks-per-process", "1", "p"], "threads of one process"),
            (&["-n", "2", "--ranks-per-process", "0", "p"], "at least one rank"),
            (&["-n", "2", "-x", "=A", "p"], "neither NAME=VALUE nor NAME"),
            (&["-n", "2", "-x", "MPJ_SPIN_US=x", "p"], "not a number"),
            (&["-n", "2", "-x", "MPJ_SIMULATED_HOSTS=a:1,b:2", "p"], "places 3 ranks, and there are 2"),
            (
                &["-n", "2", "-x", "MPJ_SIMULATED_HOSTS=a:1,b", "--dev", "shmdev", "p"],
                "--dev shmdev reaches no rank on another host, and MPJ_SIMULATED_HOSTS names 2: add niodev or ibvdev",
            ),
            (
                &["-n", "2", "-x", "MPJ_SIMULATED_HOSTS=a:1,b", "--dev", "smdev", "p"],
                "reaches no rank on another host",
            ),
            (&["-n", "2", "--grace=-1", "p"], "not a number of seconds"),
            (&["-n", "2", "--flag", "p"], "unexpected argument '--flag'"),
            (&["-n", "2"], "required"),
            (&["p"], "required"),
        ] {
            let said = spec(args).unwrap_err();
            assert!(said.contains(why), "{args:?}: {said}");
        }
    }
}
