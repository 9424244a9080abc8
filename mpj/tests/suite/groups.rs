//! Compares groups with models that use lists, and tests invalid arguments.

use std::time::{Duration, Instant};

use mpj::raw::{self, RankRange};
use mpj::{Comparison, ErrorClass, Group, World};
use proptest::collection::vec;
use proptest::prelude::*;

/// Lists of distinct processes in any order. Some lists are consecutive, so that both variants of `raw::Group` occur.
fn processes() -> impl Strategy<Value = Vec<u32>> {
    let run = (0u32..30, 0u32..20).prop_map(|(first, len)| (first..first + len).collect::<Vec<_>>());
    let any = vec(0u32..40, 0..20).prop_map(|mut all| {
        let mut seen = [false; 40];
        all.retain(|process| !std::mem::replace(&mut seen[*process as usize], true));
        all
    });
    prop_oneof![run, any]
}

fn group(processes: &[u32]) -> raw::Group {
    processes.iter().copied().collect()
}

fn members(group: &raw::Group) -> Vec<u32> {
    group.iter().map(|peer| peer.0).collect()
}

/// Returns the ranks of a range as MPI defines them, or `None` if the range is invalid for a group of `size` ranks.
fn ranks_of(range: &RankRange, size: i32) -> Option<Vec<i32>> {
    let RankRange { first, last, stride } = *range;
    let leads = stride != 0 && (first == last || (first < last) == (stride > 0));
    let is_before_end = |rank: i32| if stride > 0 { rank <= last } else { rank >= last };
    let ranks: Vec<i32> = match leads {
        true => (0..).map(|i| first + i * stride).take_while(|rank| is_before_end(*rank)).collect(),
        false => return None,
    };
    ranks.iter().all(|rank| (0..size).contains(rank)).then_some(ranks)
}

fn ranges() -> impl Strategy<Value = Vec<RankRange>> {
    let range = (-1i32..20, -1i32..30, -5i32..6);
    vec(range.prop_map(|(first, last, stride)| RankRange { first, last, stride }), 0..4)
}

fn has_duplicates(ranks: &[i32]) -> bool {
    ranks.iter().enumerate().any(|(at, rank)| ranks[..at].contains(rank))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn set_operations_equal_those_of_lists(a in processes(), b in processes()) {
        let (one, two) = (group(&a), group(&b));
        let with = |keep: bool| a.iter().copied().filter(|it| b.contains(it) == keep).collect::<Vec<_>>();
        let union: Vec<u32> =
            a.iter().chain(b.iter().filter(|it| !a.contains(it))).copied().collect();
        prop_assert_eq!(members(&raw::group_union(&one, &two)), union);
        prop_assert_eq!(members(&raw::group_intersection(&one, &two)), with(true));
        prop_assert_eq!(members(&raw::group_difference(&one, &two)), with(false));
        let sorted = |list: &[u32]| { let mut list = list.to_vec(); list.sort_unstable(); list };
        let expected = if a == b {
            Comparison::Identical
        } else if sorted(&a) == sorted(&b) {
            Comparison::Similar
        } else {
            Comparison::Unequal
        };
        prop_assert_eq!(raw::group_compare(&one, &two), expected);
        prop_assert_eq!(one == two, a == b);
        let translated = raw::group_translate(&one, 0..a.len() as i32, &two).expect("valid ranks");
        for (rank, process) in translated.into_iter().zip(&a) {
            let expected = b.iter().position(|it| it == process).map_or(raw::UNDEFINED, |at| at as i32);
            prop_assert_eq!(rank, expected);
        }
    }

    #[test]
    fn selections_equal_those_of_lists(all in processes(), ranks in vec(-1i32..25, 0..8), dedup in any::<bool>()) {
        let mut ranks = ranks;
        if dedup {
            ranks.dedup();
        }
        let size = all.len() as i32;
        let is_valid = ranks.iter().all(|rank| (0..size).contains(rank)) && !has_duplicates(&ranks);
        let chosen: Vec<u32> = ranks.iter().filter_map(|rank| all.get(*rank as usize)).copied().collect();
        let others: Vec<u32> =
            all.iter().zip(0..).filter(|(_, rank)| !ranks.contains(rank)).map(|(process, _)| *process).collect();
        for (result, expected) in [
            (raw::group_include(&group(&all), ranks.iter().copied()), chosen),
            (raw::group_exclude(&group(&all), ranks.iter().copied()), others),
        ] {
            match result {
                Ok(result) => prop_assert!(is_valid && members(&result) == expected),
                Err(error) => prop_assert!(!is_valid && error.class() == ErrorClass::Rank, "{}", error),
            }
        }
    }

    #[test]
    fn range_selections_equal_those_of_lists(all in processes(), ranges in ranges()) {
        let ranks: Option<Vec<Vec<i32>>> =
            ranges.iter().map(|range| ranks_of(range, all.len() as i32)).collect();
        let ranks = ranks.map(|ranks| ranks.concat()).filter(|ranks| !has_duplicates(ranks));
        let include = raw::group_include_ranges(&group(&all), &ranges);
        let exclude = raw::group_exclude_ranges(&group(&all), &ranges);
        let Some(ranks) = ranks else {
            prop_assert!(include.is_err() && exclude.is_err());
            return Ok(());
        };
        let chosen: Vec<u32> = ranks.iter().map(|rank| all[*rank as usize]).collect();
        let others: Vec<u32> =
            all.iter().zip(0..).filter(|(_, rank)| !ranks.contains(rank)).map(|(process, _)| *process).collect();
        prop_assert_eq!(members(&include.expect("valid")), chosen);
        prop_assert_eq!(members(&exclude.expect("valid")), others);
    }
}

#[mpj::test(ranks = 4)]
fn group_of_a_communicator_has_its_processes_in_order(world: World) -> mpj::Result<()> {
    let me = world.rank();
    let reversed = world.split(Some(0), -(me as i32))?.expect("has a color");
    let (all, back) = (world.group(), reversed.group());
    assert_eq!((all.size(), all.rank(), back.rank()), (4, Some(me), Some(3 - me)));
    assert_eq!(all.translate(&[0, 1, 2, 3], &back)?, [Some(3), Some(2), Some(1), Some(0)]);
    assert_eq!((all.compare(&back), all == back), (Comparison::Similar, false));
    let odd = all.include_ranges(&[(1, 3, 2)])?;
    assert_eq!(odd.rank(), [None, Some(0), None, Some(1)][me]);
    assert_eq!(all.translate(&[0, 1], &odd)?, [None, Some(0)]);
    assert_eq!(format!("{odd:?}"), "Group of world ranks [1, 3]");
    let empty = Group::empty();
    assert!(empty.is_empty() && empty.rank().is_none() && all.exclude(&[0, 1, 2, 3])? == empty);
    assert_eq!(empty.union(&odd).rank(), odd.rank());
    // A group outlives its communicator.
    reversed.free()?;
    drop(reversed);
    assert_eq!(back.size(), 4);
    Ok(())
}

#[test]
fn invalid_ranks_and_ranges_are_described() {
    let group: raw::Group = [4, 7, 9].into_iter().collect();
    let range = |first, last, stride| [RankRange { first, last, stride }];
    let single = raw::Group::Range { first: 3, len: 1 };
    for (result, class, text) in [
        (
            raw::group_include(&group, [0, 3].into_iter()),
            ErrorClass::Rank,
            "include: rank 3 is out of range: the group has ranks 0 to 2",
        ),
        (
            raw::group_exclude(&single, [-1].into_iter()),
            ErrorClass::Rank,
            "exclude: rank -1 is out of range: the group has only rank 0",
        ),
        (
            raw::group_include(&raw::group_difference(&group, &group), [0].into_iter()),
            ErrorClass::Rank,
            "include: rank 0 is out of range: the group is empty",
        ),
        (
            raw::group_include(&group, [1, 0, 1].into_iter()),
            ErrorClass::Rank,
            "include: rank 1 occurs twice; the group has 3 ranks",
        ),
        (
            raw::group_include_ranges(&group, &range(0, i32::MAX, 1)),
            ErrorClass::Rank,
            "include_ranges: rank 2147483647 is out of range: the group has ranks 0 to 2",
        ),
        (
            raw::group_exclude_ranges(&group, &range(2, 0, 1)),
            ErrorClass::Arg,
            "exclude_ranges: stride 1 does not lead from rank 2 to rank 0",
        ),
        (
            raw::group_exclude_ranges(&group, &range(i32::MIN, i32::MAX, 0)),
            ErrorClass::Arg,
            "exclude_ranges: stride 0 does not lead from rank -2147483648 to rank 2147483647",
        ),
    ] {
        let error = result.expect_err("invalid");
        assert_eq!((error.class(), error.to_string().as_str()), (class, text));
    }
    let error = raw::group_translate(&group, [3].into_iter(), &group).expect_err("invalid");
    assert_eq!(error.class(), ErrorClass::Rank);
    let null = raw::group_translate(&group, [raw::PROC_NULL].into_iter(), &group).expect("valid");
    assert_eq!(null, [raw::PROC_NULL]);
}

/// Linear algorithms take milliseconds, quadratic ones minutes.
#[test]
fn operations_on_many_ranks_are_not_quadratic() {
    let begun = Instant::now();
    let all = raw::Group::Range { first: 0, len: 300_000 };
    let even = raw::group_include_ranges(&all, &[RankRange { first: 0, last: i32::MAX - 1, stride: 2 }])
        .unwrap_err();
    assert_eq!(even.class(), ErrorClass::Rank);
    let even = raw::group_include_ranges(&all, &[RankRange { first: 0, last: 299_999, stride: 2 }]).unwrap();
    let odd = raw::group_exclude_ranges(&all, &[RankRange { first: 299_998, last: 0, stride: -2 }]).unwrap();
    let back = raw::group_include_ranges(&all, &[RankRange { first: 299_999, last: 0, stride: -1 }]).unwrap();
    assert_eq!((even.size(), odd.size()), (150_000, 150_000));
    assert_eq!(raw::group_difference(&back, &odd).size(), 150_000);
    assert_eq!(raw::group_compare(&raw::group_union(&odd, &even), &back), Comparison::Similar);
    assert_eq!(raw::group_translate(&back, 0..300_000, &all).unwrap()[0], 299_999);
    let tail = raw::group_exclude(&all, 0..5).unwrap();
    assert!(matches!(tail, raw::Group::Range { first: 5, len: 299_995 }));
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}
