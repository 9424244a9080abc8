//! The hosts of a job. A single host can act as several, so that programs and devices can be tested as on a cluster.

use mpj::config::Text;
use mpj_devices::{HostId, Hosts};

/// Which ranks run on which host.
pub(crate) const SIMULATED_HOSTS: Text = Text {
    name: "SIMULATED_HOSTS",
    default: "here",
    form: "hosts and how many ranks each has in turn, such as a:2,b:3, of which the last may leave the number out",
    accepts: |text| parse_hosts(text).is_ok(),
    help: "hosts that this one plays: a pair on two of them goes by ibvdev or niodev; read by mpjrun",
};

/// The hosts and their names.
#[derive(Debug)]
pub(crate) struct Placement {
    pub(crate) hosts: Hosts,
    names: Vec<String>,
}

impl Placement {
    /// Places `size` ranks according to the text of the parameter.
    ///
    /// # Errors
    /// The text is invalid, or is for another number of ranks.
    pub(crate) fn new(text: &str, size: u32) -> Result<Placement, String> {
        let words = parse_hosts(text)?;
        let refuse =
            |what: &str| format!("MPJ_{}={text} {what}, and there are {size} (-n)", SIMULATED_HOSTS.name);
        let placed: u64 = words.iter().map(|(_, ranks)| u64::from(ranks.unwrap_or(0))).sum();
        let has_rest = words.last().is_some_and(|(_, ranks)| ranks.is_none());
        let rest = match u64::from(size).checked_sub(placed) {
            Some(0) if has_rest => return Err(refuse("leaves no rank for the last host")),
            Some(rest) if rest == 0 || has_rest => rest as u32,
            _ => return Err(refuse(&format!("places {placed} ranks"))),
        };
        let mut names: Vec<String> = Vec::new();
        let mut runs = Vec::new();
        for (name, ranks) in words {
            let host = names.iter().position(|known| known == name).unwrap_or_else(|| {
                names.push(name.to_owned());
                names.len() - 1
            });
            runs.push((HostId(host as u32), ranks.unwrap_or(rest)));
        }
        let hosts = Hosts::from_runs(runs).map_err(|e| e.to_string())?;
        Ok(Placement { hosts, names })
    }

    /// Returns the ids of the hosts, in order.
    pub(crate) fn ids(&self) -> impl Iterator<Item = HostId> + use<> {
        (0..self.hosts.count()).map(HostId)
    }

    /// Returns the host of a rank of the job.
    pub(crate) fn host_of(&self, rank: u32) -> HostId {
        self.hosts.host_of(rank).unwrap_or(HostId(0))
    }

    /// Returns a host's name for messages, such as " of host a"; empty if there is only one host.
    pub(crate) fn of_host(&self, host: HostId) -> String {
        match self.names.get(host.0 as usize) {
            Some(name) if self.names.len() > 1 => format!(" of host {name}"),
            _ => String::new(),
        }
    }
}

/// Returns the host names and their numbers of ranks. Only the last host may omit its number.
fn parse_hosts(text: &str) -> Result<Vec<(&str, Option<u32>)>, String> {
    let wrong = || format!("{text} is not {}", SIMULATED_HOSTS.form);
    let words: Vec<(&str, Option<u32>)> = text
        .split(',')
        .map(|word| match word.split_once(':') {
            None => Some((word, None)),
            Some((name, ranks)) => Some((name, Some(ranks.parse().ok().filter(|ranks| *ranks > 0)?))),
        })
        .collect::<Option<_>>()
        .ok_or_else(wrong)?;
    let (_, first) = words.split_last().ok_or_else(wrong)?;
    // Host names occur in one-line messages.
    let is_name =
        |name: &str| !name.is_empty() && !name.contains(|c: char| c.is_whitespace() || c.is_control());
    let is_whole = words.iter().all(|(name, _)| is_name(name)) && first.iter().all(|(_, n)| n.is_some());
    if is_whole { Ok(words) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(text: &str, size: u32) -> Result<Vec<(u32, u32)>, String> {
        let placement = Placement::new(text, size)?;
        Ok(placement.hosts.runs().map(|(host, ranks)| (host.0, ranks.len() as u32)).collect())
    }

    #[test]
    fn ranks_are_placed_in_turn() {
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
        assert_eq!(placement.of_host(placement.host_of(4)), " of host b");
        assert_eq!(Placement::new("here", 5).unwrap().of_host(HostId(0)), "");
    }

    #[test]
    fn what_places_nobody_is_refused() {
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
            assert!(runs(text, 5).unwrap_err().contains("is not hosts and how many ranks"), "{text}");
        }
        for (text, what) in [
            ("a:2,b:2", "places 4 ranks"),
            ("a:2,b:4", "places 6 ranks"),
            ("a:6,b", "places 6 ranks"),
            ("a:4294967295,b:4294967295", "places 8589934590 ranks"),
            ("a:5,b", "leaves no rank for the last host"),
        ] {
            let why = runs(text, 5).unwrap_err();
            assert_eq!(why, format!("MPJ_SIMULATED_HOSTS={text} {what}, and there are 5 (-n)"));
        }
    }
}
