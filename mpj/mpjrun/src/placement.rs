//! The hosts of a job. One host can simulate several, to test programs and devices.

use mpj::config::Text;
use mpj_devices::{HostId, Hosts};

pub(crate) const SIMULATED_HOSTS: Text = Text {
    name: "SIMULATED_HOSTS",
    default: "here",
    form: "a list of hosts and their numbers of ranks, such as a:2,b:3 (the last number may be omitted)",
    accepts: |text| parse_hosts(text).is_ok(),
    help: "simulates several hosts on this one, for tests: ranks of different hosts share no memory; read by mpjrun",
};

#[derive(Debug)]
pub(crate) struct Placement {
    pub(crate) hosts: Hosts,
    names: Vec<String>,
}

impl Placement {
    /// Places `size` ranks according to `text`, the value of [`SIMULATED_HOSTS`].
    ///
    /// # Errors
    /// The text is invalid, or does not place exactly `size` ranks.
    pub(crate) fn new(text: &str, size: u32) -> Result<Placement, String> {
        let entries = parse_hosts(text)?;
        let parameter = format!("MPJ_{}={text}", SIMULATED_HOSTS.name);
        let placed: u64 = entries.iter().map(|(_, ranks)| u64::from(ranks.unwrap_or(0))).sum();
        let has_rest = entries.last().is_some_and(|(_, ranks)| ranks.is_none());
        let rest = match u64::from(size).checked_sub(placed) {
            Some(0) if has_rest => {
                return Err(format!("{parameter}: no rank left for the last host (-n {size})"));
            }
            Some(rest) if rest == 0 || has_rest => rest as u32,
            _ => return Err(format!("{parameter} has {placed} ranks, but -n is {size}")),
        };
        let mut names: Vec<String> = Vec::new();
        let mut runs = Vec::new();
        for (name, ranks) in entries {
            let host = names.iter().position(|known| known == name).unwrap_or_else(|| {
                names.push(name.to_owned());
                names.len() - 1
            });
            runs.push((HostId(host as u32), ranks.unwrap_or(rest)));
        }
        let hosts = Hosts::from_runs(runs).map_err(|e| e.to_string())?;
        Ok(Placement { hosts, names })
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = HostId> + use<> {
        (0..self.hosts.count()).map(HostId)
    }

    pub(crate) fn host_of(&self, rank: u32) -> HostId {
        self.hosts.host_of(rank).unwrap_or(HostId(0))
    }

    /// Returns a text such as " of host a" for messages; empty if there is only one host.
    pub(crate) fn host_suffix(&self, host: HostId) -> String {
        match self.names.get(host.0 as usize) {
            Some(name) if self.names.len() > 1 => format!(" of host {name}"),
            _ => String::new(),
        }
    }
}

fn parse_hosts(text: &str) -> Result<Vec<(&str, Option<u32>)>, String> {
    let invalid = || format!("{text} is not {}", SIMULATED_HOSTS.form);
    let entries: Vec<(&str, Option<u32>)> = text
        .split(',')
        .map(|entry| match entry.split_once(':') {
            None => Some((entry, None)),
            Some((name, ranks)) => Some((name, Some(ranks.parse().ok().filter(|ranks| *ranks > 0)?))),
        })
        .collect::<Option<_>>()
        .ok_or_else(invalid)?;
    let (_, first) = entries.split_last().ok_or_else(invalid)?;
    // A message that contains a host name must have one line.
    let is_name =
        |name: &str| !name.is_empty() && !name.contains(|c: char| c.is_whitespace() || c.is_control());
    let is_valid = entries.iter().all(|(name, _)| is_name(name)) && first.iter().all(|(_, n)| n.is_some());
    if is_valid { Ok(entries) } else { Err(invalid()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(text: &str, size: u32) -> Result<Vec<(u32, u32)>, String> {
        let placement = Placement::new(text, size)?;
        Ok(placement.hosts.runs().map(|(host, ranks)| (host.0, ranks.len() as u32)).collect())
    }

    #[test]
    fn ranks_are_placed_in_order() {
        for (text, size, placed) in [
            ("here", 7, &[(0, 7)][..]),
            ("a:2,b:3", 5, &[(0, 2), (1, 3)]),
            ("a:2,b", 5, &[(0, 2), (1, 3)]),
            ("a:1,b:2,a:1,c", 7, &[(0, 1), (1, 2), (0, 1), (2, 3)]),
            ("a:1,a:2", 3, &[(0, 3)]),
        ] {
            assert_eq!(runs(text, size).as_deref(), Ok(placed), "{text}");
        }
        let placement = Placement::new("a:2,b", 5).unwrap();
        assert_eq!(placement.host_suffix(placement.host_of(4)), " of host b");
        assert_eq!(Placement::new("here", 5).unwrap().host_suffix(HostId(0)), "");
    }

    #[test]
    fn invalid_placements_and_wrong_rank_counts_are_rejected() {
        for text in [
            "",
            ",",
            "a,b",
            "a:0",
            "a:",
            ":3",
            "a:x",
            "a:2,",
            "a:-1",
            "a:2:3",
            "a:99999999999",
            "a\nb",
            "a b:5",
        ] {
            assert!(!(SIMULATED_HOSTS.accepts)(text), "{text}");
            assert!(
                runs(text, 5).unwrap_err().contains("is not a list of hosts and their numbers of ranks"),
                "{text}"
            );
        }
        for (text, what) in [
            ("a:2,b:2", " has 4 ranks, but -n is 5"),
            ("a:2,b:4", " has 6 ranks, but -n is 5"),
            ("a:6,b", " has 6 ranks, but -n is 5"),
            ("a:4294967295,b:4294967295", " has 8589934590 ranks, but -n is 5"),
            ("a:5,b", ": no rank left for the last host (-n 5)"),
        ] {
            let why = runs(text, 5).unwrap_err();
            assert_eq!(why, format!("MPJ_SIMULATED_HOSTS={text}{what}"));
        }
    }
}
