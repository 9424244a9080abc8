//! The variables in which a PMIx server passes a process its address.

use std::net::{IpAddr, SocketAddr};

/// The names of the variable with the address, from new to old versions of PMIx.
const ADDRESSES: [&str; 5] =
    ["PMIX_SERVER_URI41", "PMIX_SERVER_URI4", "PMIX_SERVER_URI3", "PMIX_SERVER_URI21", "PMIX_SERVER_URI2"];

/// A server, and the process that it expects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ServerAddress {
    /// The address as in the variable.
    pub(super) uri: String,
    pub(super) address: SocketAddr,
    /// The name of the job.
    pub(super) namespace: String,
    pub(super) rank: u32,
    /// The version of the server.
    pub(super) version: String,
}

impl ServerAddress {
    /// Reads the variables, which `get` returns. Returns `None` if no PMIx server has started this process.
    ///
    /// # Errors
    /// A variable is missing or invalid, or the server requires what this client does not have.
    pub(super) fn from_variables(
        get: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<ServerAddress>, String> {
        let Some(namespace) = get("PMIX_NAMESPACE") else { return Ok(None) };
        let missing = |name: &str| format!("PMIX_NAMESPACE is set, but not {name}; {LEFT_OVER}");
        let rank = get("PMIX_RANK").ok_or_else(|| missing("PMIX_RANK"))?;
        let rank = rank.parse().map_err(|_| format!("PMIX_RANK={rank} is not a number; {LEFT_OVER}"))?;
        let found = ADDRESSES.iter().find_map(|name| Some((*name, get(name)?)));
        let (name, uri) = found.ok_or_else(|| missing("PMIX_SERVER_URI4 or another version of it"))?;
        let address = parse_address(&uri).ok_or_else(|| {
            format!("{name}={uri} is not an address of a PMIx server, such as name.0;tcp4://127.0.0.1:5000")
        })?;
        if let Some(modes) = get("PMIX_SECURITY_MODE")
            && !modes.split(',').any(|mode| mode == "native")
        {
            return Err(format!(
                "the PMIx server requires the security module {modes} (PMIX_SECURITY_MODE), but mpj supports \
                 only native: start the server with PMIX_MCA_psec=native, or use mpjrun"
            ));
        }
        let version = get("PMIX_VERSION").unwrap_or_else(|| "2.1.0".into());
        Ok(Some(ServerAddress { uri, address, namespace, rank, version }))
    }
}

/// The advice about variables of another job.
pub(super) const LEFT_OVER: &str = "if the variables PMIX_* are left over from another job, unset them, or set \
                                    MPJ_LAUNCHER=none to run this process as a job of its own";

/// Parses `NAME;tcp4://ADDRESS:PORT` or `NAME;tcp6://ADDRESS:PORT`.
pub fn parse_address(uri: &str) -> Option<SocketAddr> {
    let (_, transport) = uri.split_once(';')?;
    let address = transport.strip_prefix("tcp4://").or_else(|| transport.strip_prefix("tcp6://"))?;
    let (address, port) = address.rsplit_once(':')?;
    let address = address.trim_start_matches('[').trim_end_matches(']');
    Some(SocketAddr::new(address.parse::<IpAddr>().ok()?, port.parse().ok()?))
}
