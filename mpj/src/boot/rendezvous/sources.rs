//! The variables in which launchers and schedulers state the rank of a process, the number of ranks, and the address of
//! rank 0.

use std::fmt;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use super::hostlist::first_host;
use crate::boot::detect::Variables;
use crate::boot::wire::CONTROL_VAR;

pub(super) const RENDEZVOUS: &str = "MPJ_RENDEZVOUS";

/// The port of rank 0 if a source states an address without a port.
const DEFAULT_PORT: u16 = 29_517;

/// Ports for jobs of Slurm without reserved ports: below those that Linux gives to outgoing connections.
const SLURM_PORTS: std::ops::Range<u64> = 20_000..30_000;

/// A source of variables.
struct Source {
    name: &'static str,
    /// The variables that must be set.
    present: &'static [&'static str],
    rank: &'static str,
    /// The number of ranks: the first variable that is set.
    size: &'static [&'static str],
    /// The address of rank 0 if `MPJ_RENDEZVOUS` is not set.
    address: Option<fn(Variables<'_>) -> Result<RendezvousAddress, String>>,
    /// A name that distinguishes the job from others with the same secret.
    job: fn(Variables<'_>) -> String,
    /// Whether the source is used without a request (`MPJ_LAUNCHER=env`).
    is_automatic: fn(Variables<'_>) -> bool,
}

/// The sources. The first one whose variables are set is used; without a request, the first of these that is automatic.
const SOURCES: &[Source] = &[
    Source {
        name: "explicit variables",
        present: &["MPJ_RANK", RENDEZVOUS],
        rank: "MPJ_RANK",
        size: &["MPJ_SIZE"],
        address: None,
        job: |_| String::new(),
        is_automatic: |_| true,
    },
    Source {
        name: "an indexed Job of Kubernetes",
        present: &["JOB_COMPLETION_INDEX", RENDEZVOUS],
        rank: "JOB_COMPLETION_INDEX",
        size: &["MPJ_SIZE"],
        address: None,
        job: |_| String::new(),
        is_automatic: |_| true,
    },
    Source {
        name: "a LeaderWorkerSet of Kubernetes",
        present: &["LWS_WORKER_INDEX", "LWS_GROUP_SIZE", "LWS_LEADER_ADDRESS"],
        rank: "LWS_WORKER_INDEX",
        size: &["LWS_GROUP_SIZE"],
        address: Some(|get| {
            RendezvousAddress::new(&get("LWS_LEADER_ADDRESS").unwrap_or_default(), DEFAULT_PORT)
        }),
        job: |get| get("LWS_LEADER_ADDRESS").unwrap_or_default(),
        is_automatic: |get| get(RENDEZVOUS).is_some(),
    },
    Source {
        name: "a step of Slurm",
        present: &["SLURM_PROCID", "SLURM_STEP_ID"],
        rank: "SLURM_PROCID",
        // The second variable is the number of tasks of the job; a step can use fewer.
        size: &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"],
        address: Some(slurm_address),
        job: slurm_step,
        // Launchers that use `srun` start their processes with the variables of its tasks.
        is_automatic: |get| OTHER_LAUNCHERS.iter().all(|name| get(name).is_none()),
    },
    Source {
        name: "variables of torchrun",
        present: &["RANK", "WORLD_SIZE", "MASTER_ADDR"],
        rank: "RANK",
        size: &["WORLD_SIZE"],
        address: Some(torch_address),
        job: |_| String::new(),
        // Shells and containers often have these variables although nothing is started in several processes.
        is_automatic: |_| false,
    },
];

const OTHER_LAUNCHERS: &[&str] = &[
    "PMI_RANK",
    "PMI_ID",
    "PMIX_RANK",
    "OMPI_COMM_WORLD_RANK",
    "MV2_COMM_WORLD_RANK",
    "FLUX_TASK_RANK",
    "JSM_NAMESPACE_RANK",
];

/// Variables that `mpjrun` sets. The programs that its ranks start inherit them, but not the socket of the first one.
const OF_MPJRUN: [&str; 2] = [CONTROL_VAR, "MPJ_CORES"];

/// The rank of a process and its rendezvous.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// The rank of the process.
    pub rank: u32,
    /// The number of ranks.
    pub size: u32,
    /// `None` if the job has one rank.
    pub address: Option<RendezvousAddress>,
    /// A name that distinguishes the job from others with the same secret.
    pub job: String,
}

/// Returns the rank of this process according to its variables; `None` if no source applies.
///
/// # Errors
/// A variable is missing or invalid.
pub fn find(get: Variables<'_>, is_requested: bool) -> Result<Option<Found>, String> {
    let is_present = |source: &&Source| source.present.iter().all(|name| get(name).is_some());
    let mut present = SOURCES.iter().filter(is_present);
    let Some(source) = present.find(|source| is_requested || (source.is_automatic)(get)) else {
        if let (false, None) = (is_requested, get(RENDEZVOUS)) {
            return reject_without_rendezvous(get).map(|()| None);
        }
        let known: Vec<String> = SOURCES
            .iter()
            .map(|source| format!("{} ({}, {})", source.name, source.present.join(", "), source.size[0]))
            .collect();
        return Err(format!(
            "no variables state the rank of this process; expected those of one of: {}",
            known.join("; ")
        ));
    };
    let number = |name: &str| {
        let text = get(name).ok_or_else(|| format!("{name} is not set, but {} is", source.present[0]))?;
        text.trim().parse::<u32>().map_err(|_| format!("{name}={text} is not a number"))
    };
    let size_name = source.size.iter().find(|name| get(name).is_some()).unwrap_or(&source.size[0]);
    let (rank, size) = (number(source.rank)?, number(size_name)?);
    if rank >= size {
        return Err(format!("{}={rank} is not a rank of {size} ranks ({size_name})", source.rank));
    }
    let job = (source.job)(get);
    if size == 1 {
        return Ok(Some(Found { rank, size, address: None, job }));
    }
    let address = match (get(RENDEZVOUS), source.address) {
        (Some(text), _) => {
            RendezvousAddress::parse(&text).map_err(|why| format!("{RENDEZVOUS}={text} {why}"))?
        }
        (None, Some(address)) => address(get).map_err(|why| {
            format!("started by {} ({}={rank}): {why}; set {RENDEZVOUS}=HOST:PORT", source.name, source.rank)
        })?,
        (None, None) => return Err(format!("set {RENDEZVOUS}=HOST:PORT")),
    };
    Ok(Some(Found { rank, size, address: Some(address), job }))
}

/// Rejects a process whose variables state that it is one of several ranks, if nothing states where they meet: each of
/// them would be a job of its own.
fn reject_without_rendezvous(get: Variables<'_>) -> Result<(), String> {
    let rank = ["MPJ_RANK", "JOB_COMPLETION_INDEX"].into_iter().find_map(|name| Some((name, get(name)?)));
    let size = get("MPJ_SIZE").filter(|size| size.trim() != "1");
    match (rank, size) {
        (Some((name, rank)), Some(size)) if OF_MPJRUN.iter().all(|name| get(name).is_none()) => Err(format!(
            "{name}={rank} and MPJ_SIZE={size} are set, but not {RENDEZVOUS}: set it to HOST:PORT of rank 0; to run \
             this process as a job of its own, unset MPJ_SIZE, or set MPJ_LAUNCHER=none"
        )),
        _ => Ok(()),
    }
}

fn slurm_step(get: Variables<'_>) -> String {
    let part = |name: &str| get(name).unwrap_or_default();
    format!("slurm {}.{}", part("SLURM_JOB_ID"), part("SLURM_STEP_ID"))
}

/// Rank 0 runs on the first node of a step.
fn slurm_address(get: Variables<'_>) -> Result<RendezvousAddress, String> {
    let nodes = get("SLURM_STEP_NODELIST").ok_or("SLURM_STEP_NODELIST is not set")?;
    let node =
        first_host(&nodes).ok_or_else(|| format!("SLURM_STEP_NODELIST={nodes} is not a list of nodes"))?;
    let reserved = get("SLURM_STEP_RESV_PORTS");
    let first = reserved.as_ref().and_then(|ports| ports.split(['-', ',']).next()?.parse().ok());
    let port = first.unwrap_or_else(|| {
        let hash = super::fnv1a(slurm_step(get).as_bytes());
        (SLURM_PORTS.start + hash % (SLURM_PORTS.end - SLURM_PORTS.start)) as u16
    });
    RendezvousAddress::new(&node, port)
}

fn torch_address(get: Variables<'_>) -> Result<RendezvousAddress, String> {
    let host = get("MASTER_ADDR").unwrap_or_default();
    let port = match get("MASTER_PORT") {
        None => DEFAULT_PORT,
        Some(text) => text.parse().map_err(|_| format!("MASTER_PORT={text} is not a port"))?,
    };
    RendezvousAddress::new(&host, port)
}

/// A host and a port. The name of the host need not be known yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RendezvousAddress {
    pub(super) host: String,
    pub(super) port: u16,
}

impl RendezvousAddress {
    /// Parses `host:port`, `address:port` or `[address]:port`.
    ///
    /// # Errors
    /// The text has another form. The reason follows the text in a message.
    pub fn parse(text: &str) -> Result<RendezvousAddress, String> {
        let expected = || "is not HOST:PORT, such as node1:7000 or [fd00::1]:7000".to_owned();
        let (host, port) = text.rsplit_once(':').ok_or_else(expected)?;
        let port: u16 = port.parse().ok().filter(|port| *port > 0).ok_or_else(expected)?;
        let is_v6 = host.starts_with('[') && host.ends_with(']') && host.len() > 2;
        let host = if is_v6 { &host[1..host.len() - 1] } else { host };
        if !is_v6 && host.contains(':') {
            return Err(expected());
        }
        RendezvousAddress::new(host, port).map_err(|_| expected())
    }

    fn new(host: &str, port: u16) -> Result<RendezvousAddress, String> {
        let is_valid = |letter: char| letter.is_ascii_alphanumeric() || "-_.:%".contains(letter);
        if host.is_empty() || host.len() > 255 || !host.chars().all(is_valid) {
            return Err(format!("'{}' is not the name of a host", host.escape_debug()));
        }
        Ok(RendezvousAddress { host: host.to_owned(), port })
    }

    /// Returns whether the text itself names the loopback. A system can also resolve its own name to the loopback.
    pub(super) fn is_loopback(&self) -> bool {
        self.host == "localhost" || self.host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    }

    /// Resolves the name.
    ///
    /// # Errors
    /// The name is unknown now; it might become known later.
    pub(super) fn resolve(&self) -> Result<impl Iterator<Item = SocketAddr>, String> {
        (self.host.as_str(), self.port).to_socket_addrs().map_err(|e| format!("{}: {e}", self.host))
    }
}

impl fmt::Display for RendezvousAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

#[cfg(test)]
mod tests;
