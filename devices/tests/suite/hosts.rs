//! The map of ranks to hosts, compared with a list of the host of each rank.

use mpj_devices::{HostId, Hosts, HostsError};
use proptest::prelude::*;

fn runs(runs: &[(u32, u32)]) -> Result<Hosts, HostsError> {
    Hosts::from_runs(runs.iter().map(|(host, len)| (HostId(*host), *len)))
}

/// Generates valid runs: each new host has the next free number.
fn any_runs() -> impl Strategy<Value = Vec<(u32, u32)>> {
    prop::collection::vec((any::<u32>(), 1u32..9), 0..40).prop_map(|raw| {
        let mut count = 0;
        let mut number = |any: u32| {
            let host = any % (count + 1);
            count = count.max(host + 1);
            host
        };
        raw.into_iter().map(|(any, len)| (number(any), len)).collect()
    })
}

proptest! {
    #[test]
    fn map_equals_the_list_of_its_runs(runs_of in any_runs()) {
        let hosts = runs(&runs_of).unwrap();
        let list: Vec<u32> =
            runs_of.iter().flat_map(|(host, len)| std::iter::repeat_n(*host, *len as usize)).collect();
        let count = list.iter().max().map_or(0, |last| last + 1);
        prop_assert_eq!((hosts.size() as usize, hosts.count()), (list.len(), count));
        for (rank, host) in list.iter().enumerate() {
            let index = list[..rank].iter().filter(|other| *other == host).count() as u32;
            let rank = rank as u32;
            prop_assert_eq!((hosts.host_of(rank), hosts.index_of(rank)), (Some(HostId(*host)), Some(index)));
        }
        for host in 0..count {
            let ranks = hosts.ranks_of(HostId(host));
            let wanted: Vec<u32> = (0..hosts.size()).filter(|rank| list[*rank as usize] == host).collect();
            prop_assert_eq!(ranks.iter().collect::<Vec<_>>(), wanted.clone());
            prop_assert_eq!(ranks.len() as usize, wanted.len());
            for (index, rank) in wanted.iter().enumerate() {
                prop_assert_eq!(ranks.rank(index as u32), Some(*rank));
            }
            for rank in 0..hosts.size() {
                let index = wanted.iter().position(|of_host| *of_host == rank);
                prop_assert_eq!(ranks.index_of(rank), index.map(|index| index as u32));
            }
            for none in [ranks.len(), ranks.len() + 7, u32::MAX] {
                prop_assert_eq!(ranks.rank(none), None);
            }
        }
        for none in [hosts.size(), u32::MAX] {
            prop_assert_eq!((hosts.host_of(none), hosts.index_of(none)), (None, None));
        }
        for none in [count, u32::MAX] {
            let ranks = hosts.ranks_of(HostId(none));
            prop_assert_eq!((ranks.len(), ranks.rank(0), ranks.iter().next()), (0, None, None));
        }
        let again = Hosts::from_runs(hosts.runs().map(|(host, ranks)| (host, ranks.len() as u32)));
        prop_assert_eq!(again.as_ref(), Ok(&hosts));
        prop_assert!(hosts.runs().count() <= runs_of.len());
    }

    #[test]
    fn accepted_runs_map_each_rank_to_its_host_and_back(
        raw in prop::collection::vec((0u32..4, prop_oneof![0u32..3, any::<u32>()]), 0..6),
        rank: u32,
    ) {
        if let Ok(hosts) = runs(&raw) {
            prop_assert_eq!(u64::from(hosts.size()), raw.iter().map(|(_, len)| u64::from(*len)).sum::<u64>());
            let place = hosts.host_of(rank).zip(hosts.index_of(rank));
            let back = place.and_then(|(host, index)| hosts.ranks_of(host).rank(index));
            prop_assert_eq!(back, (rank < hosts.size()).then_some(rank));
        }
    }
}

#[test]
fn invalid_runs_are_refused() {
    let host = HostId(2);
    for (wrong, why) in [
        (&[(0, 2), (1, 0)][..], HostsError::Empty { run: 1 }),
        (&[(0, 1), (2, 1)], HostsError::HostGap { run: 1, host, known: 1 }),
        (&[(1, 1)], HostsError::HostGap { run: 0, host: HostId(1), known: 0 }),
        (&[(0, u32::MAX), (1, 1)], HostsError::TooManyRanks),
        (&[(0, u32::MAX), (0, 1)], HostsError::TooManyRanks),
    ] {
        assert_eq!(runs(wrong), Err(why));
    }
    assert_eq!(
        HostsError::HostGap { run: 1, host, known: 1 }.to_string(),
        "run 1 of the host map names host 2; the next new host must be 1"
    );
}

#[test]
fn adjacent_runs_of_one_host_are_merged() {
    let hosts = runs(&[(0, 3), (0, 2), (1, 1), (0, 4)]).unwrap();
    assert_eq!(hosts, runs(&[(0, 5), (1, 1), (0, 4)]).unwrap());
    assert_eq!(hosts.runs().collect::<Vec<_>>(), [(HostId(0), 0..5), (HostId(1), 5..6), (HostId(0), 6..10)]);
    assert_eq!(Hosts::single_host(7), runs(&[(0, 7)]).unwrap());
    assert_eq!(Hosts::single_host(0), runs(&[]).unwrap());
    assert_eq!((Hosts::single_host(0).size(), Hosts::single_host(0).count()), (0, 0));
}

#[test]
fn map_of_four_billion_ranks_has_two_runs() {
    let hosts = runs(&[(0, u32::MAX - 1), (1, 1)]).unwrap();
    assert_eq!(hosts.runs().count(), 2);
    assert_eq!(hosts.ranks_of(HostId(0)).rank(u32::MAX - 2), Some(u32::MAX - 2));
    assert_eq!(hosts.ranks_of(HostId(1)).index_of(u32::MAX - 1), Some(0));
}
