//! Intercommunicators that are created from an intercommunicator.

use crate::common::ranks;
use crate::intercomm::{SHAPES, connect};
use mpj::{ErrorClass, Group, Intercomm, SplitType, World};

/// Returns the world ranks of both groups of the intercommunicator.
fn groups(inter: &Intercomm, world: &World) -> mpj::Result<[Vec<usize>; 2]> {
    let members = |group: Group| {
        let ranks: Vec<usize> = (0..group.size()).collect();
        group.translate(&ranks, &world.group()).map(|all| all.into_iter().flatten().collect())
    };
    Ok([members(inter.group())?, members(inter.remote_group())?])
}

/// Each rank receives the world ranks of the remote group, by messages and by a collective.
fn assert_connected(inter: &Intercomm, world: &World) -> mpj::Result<()> {
    let [own, remote] = groups(inter, world)?;
    assert_eq!(own[inter.rank()], world.rank());
    let mut all = vec![usize::MAX; remote.len()];
    inter.allgather(&[world.rank()], &mut all)?;
    assert_eq!(all, remote);
    for (at, from) in remote.iter().enumerate() {
        let mut got = [usize::MAX];
        inter.sendrecv(&[world.rank()], at, 7, &mut got, at, 7)?;
        assert_eq!(got, [*from]);
    }
    Ok(())
}

#[test]
fn split_connects_the_ranks_of_both_groups_with_the_same_color() {
    for (first, size) in SHAPES {
        ranks(size, |world| {
            let inter = connect(&world, first)?;
            let me = world.rank();
            for colors in 1..=3 {
                let color = |rank: usize| rank % colors;
                let part = inter.split(Some(color(me) as u32), -(me as i32))?;
                let of = |range: std::ops::Range<usize>| -> Vec<usize> {
                    range.rev().filter(|rank| color(*rank) == color(me)).collect()
                };
                let (own, remote) = match me < first {
                    true => (of(0..first), of(first..size)),
                    false => (of(first..size), of(0..first)),
                };
                let Some(part) = part else {
                    assert!(remote.is_empty(), "{colors} colors");
                    continue;
                };
                assert_eq!(groups(&part, &world)?, [own, remote], "{colors} colors");
                assert_connected(&part, &world)?;
            }
            // The original stays usable, and a rank without a color gets nothing.
            let part = inter.split((me != 0).then_some(5), 0)?;
            assert_eq!(part.is_some(), me != 0 && first > 1);
            inter.barrier()
        });
    }
}

#[test]
fn split_by_host_keeps_all_ranks() {
    ranks(5, |world| {
        let inter = connect(&world, 2)?;
        let part = inter.split_type(SplitType::Host, 0)?.expect("all ranks have one host");
        assert_eq!(groups(&part, &world)?, groups(&inter, &world)?);
        assert_connected(&part, &world)
    });
}

#[test]
fn create_connects_the_groups_that_both_sides_pass() {
    ranks(5, |world| {
        let inter = connect(&world, 2)?;
        let me = world.rank();
        // Rank 1 of the world; ranks 3 and 4 in the reverse order of the group, which is 4, 3, 2.
        let group = inter.group().include(if me < 2 { &[1] } else { &[1, 0] })?;
        let part = inter.create(&group)?;
        assert_eq!(part.is_some(), [1, 3, 4].contains(&me));
        if let Some(part) = part {
            let [own, remote] = groups(&part, &world)?;
            let expected = if me == 1 { (vec![1], vec![3, 4]) } else { (vec![3, 4], vec![1]) };
            assert_eq!((own, remote), expected);
            assert_connected(&part, &world)?;
        }
        // One side passes no rank.
        let group = if me < 2 { Group::empty() } else { inter.group() };
        assert!(inter.create(&group)?.is_none());
        // Rank 3 of the world passes another group than the other ranks of its side.
        let group = inter.group().include(if me == 3 { &[0] } else { &[0, 1] })?;
        let error = inter.create(&group).expect_err("an error on all ranks of both groups");
        assert_eq!(error.class(), ErrorClass::Group, "{error}");
        // Each member passes a group of its own.
        let group = inter.group().include(&[if me < 2 { 0 } else { 4 - me }])?;
        let error = inter.create(&group).expect_err("an error on all ranks of both groups");
        assert!(error.to_string().contains("different groups"), "{error}");
        inter.barrier()?;
        // A process of the other group.
        let error = inter.create(&inter.remote_group()).expect_err("not in this group");
        assert_eq!(error.class(), ErrorClass::Group, "{error}");
        Ok(())
    });
}
