//! Grids of ranks: balanced dimensions, coordinates and shifts; communicators with a Cartesian topology.

use std::collections::HashMap;

use proptest::prelude::*;

use mpj::topology::{Cart, CartLayout, Dim};
use mpj::{ErrorClass, Reorder, World};

use crate::common::{ranks, text_of};

/// Returns all lists of `count` numbers in non-increasing order, at most `high`, whose product is `cells`.
fn factorizations(cells: usize, count: usize, high: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return if cells == 1 { vec![vec![]] } else { vec![] };
    }
    let sizes = (1..=high.min(cells)).filter(|size| cells.is_multiple_of(*size));
    let with_rest =
        |size| factorizations(cells / size, count - 1, size).into_iter().map(move |rest| (size, rest));
    sizes.flat_map(with_rest).map(|(size, rest)| [vec![size], rest].concat()).collect()
}

#[test]
fn dims_are_as_balanced_as_possible() {
    for ranks in (1..=260).chain([360, 720, 1024, 1260]) {
        for count in 1..=5 {
            let found = mpj::dims(ranks, &vec![None; count]).expect("free sizes always fit");
            assert_eq!(found.iter().product::<usize>(), ranks);
            assert!(found.is_sorted_by(|one, next| one >= next), "{found:?}");
            let spread = |sizes: &[usize]| sizes[0] - sizes[count - 1];
            let best = factorizations(ranks, count, ranks).iter().map(|sizes| spread(sizes)).min();
            assert_eq!(Some(spread(&found)), best, "{ranks} ranks: {found:?}");
        }
    }
}

#[test]
fn dims_of_the_standard_and_of_large_numbers_are_right() {
    // The examples of MPI_Dims_create (MPJ Express returns [3, 2] for 7 ranks in 2 dimensions), and other numbers.
    for (ranks, fixed, expected) in [
        (6, vec![None, None], vec![3, 2]),
        (7, vec![None, None], vec![7, 1]),
        (6, vec![None, Some(3), None], vec![2, 3, 1]),
        (1, vec![], vec![]),
        (24, vec![Some(4), Some(6)], vec![4, 6]),
        (1 << 20, vec![None; 3], vec![128, 128, 64]),
        (720_720, vec![None; 4], vec![33, 30, 28, 26]),
        (2_147_483_647, vec![None; 2], vec![2_147_483_647, 1]),
        (2_095_133_040, vec![None; 2], vec![46_189, 45_360]),
    ] {
        let found = mpj::dims(ranks, &fixed).expect("they fit");
        assert_eq!(found.iter().product::<usize>(), ranks);
        assert_eq!(found, expected, "{ranks}");
    }
    // Numbers with many divisors, in any number of dimensions.
    for ranks in [2_095_133_040usize, 1_102_701_600, 698_377_680, 1 << 30, 720_720] {
        for count in (1..=33).chain([100_000]) {
            let found = mpj::dims(ranks, &vec![None; count]).expect("free sizes always fit");
            assert_eq!(found.iter().product::<usize>(), ranks);
        }
    }
}

#[test]
fn sizes_that_do_not_fit_are_refused() {
    for (ranks, fixed, why) in [
        (6, vec![Some(4), None], "6 ranks are not a multiple of the fixed sizes' product, 4"),
        (6, vec![Some(2), Some(2)], "6 ranks are not a multiple of the fixed sizes' product, 4"),
        (6, vec![Some(3)], "all sizes are fixed, and their product is 3, not 6"),
        (2, vec![], "all sizes are fixed, and their product is 1, not 2"),
        (6, vec![None, Some(0)], "dimension 1 has size 0; expected at least 1, or None for a free dimension"),
        (0, vec![None], "expected 1 to 2147483647 ranks, found 0"),
        (1 << 31, vec![None], "expected 1 to 2147483647 ranks, found 2147483648"),
        (
            8,
            vec![Some(usize::MAX), Some(usize::MAX)],
            "8 ranks are not a multiple of the fixed sizes' product, above 2^64",
        ),
    ] {
        let error = mpj::dims(ranks, &fixed).expect_err("they do not fit");
        assert_eq!((error.class(), error.to_string()), (ErrorClass::Dims, format!("dims: {why}")));
    }
}

fn grids() -> impl Strategy<Value = Vec<Dim>> {
    let dim = (1usize..6, any::<bool>()).prop_map(|(size, periodic)| Dim { size, periodic });
    prop::collection::vec(dim, 0..5)
}

fn signed(coords: &[usize]) -> Vec<isize> {
    coords.iter().map(|coord| *coord as isize).collect()
}

proptest! {
    #[test]
    fn ranks_and_coordinates_are_inverse(dims in grids()) {
        let grid = CartLayout::new(&dims).expect("a small grid");
        let all: Vec<Vec<usize>> = (0..grid.size()).map(|rank| grid.coords_of(rank).expect("a cell")).collect();
        prop_assert!(all.is_sorted(), "the last coordinate changes fastest");
        prop_assert_eq!(grid.size(), dims.iter().map(|dim| dim.size).product::<usize>());
        for (rank, coords) in all.iter().enumerate() {
            prop_assert_eq!(grid.rank_of(&signed(coords)).expect("right number"), Some(rank));
        }
    }

    #[test]
    fn shift_moves_one_coordinate(dims in grids(), by in prop_oneof![-9isize..9, Just(isize::MIN), Just(isize::MAX)]) {
        let grid = CartLayout::new(&dims).expect("a small grid");
        for rank in 0..grid.size() {
            for dim in 0..dims.len() {
                let Dim { size, periodic } = dims[dim];
                // Coordinates by 128-bit arithmetic, in which nothing overflows.
                let moved = |by: i128| {
                    let mut coords = grid.coords_of(rank).expect("a cell");
                    let to = coords[dim] as i128 + by;
                    let to = if periodic { to.rem_euclid(size as i128) } else { to };
                    coords[dim] = usize::try_from(to).ok().filter(|to| *to < size)?;
                    grid.rank_of(&signed(&coords)).expect("right number")
                };
                prop_assert_eq!(
                    grid.shift(rank, dim, by).expect("a dimension"),
                    (moved(-(by as i128)), moved(by as i128))
                );
            }
        }
    }

    #[test]
    fn neighbours_are_symmetric(dims in grids()) {
        let grid = CartLayout::new(&dims).expect("a small grid");
        let mut edges = HashMap::<(usize, usize, usize), i32>::new();
        for rank in 0..grid.size() {
            let neighbors = grid.neighbors(rank).expect("a cell");
            prop_assert_eq!(neighbors.len(), 2 * dims.len());
            for (block, other) in neighbors.into_iter().enumerate() {
                let Some(other) = other else { continue };
                // Each dimension has two blocks: the even one is for the previous rank, the odd one for the next rank.
                // The previous rank receives the even block as its odd block.
                *edges.entry((rank, other, block)).or_default() += 1;
                *edges.entry((other, rank, block ^ 1)).or_default() -= 1;
            }
        }
        prop_assert!(edges.values().all(|count| *count == 0), "{:?}", edges);
    }

    #[test]
    fn layout_of_a_sub_grid_has_the_kept_dimensions(dims in grids(), keep in prop::collection::vec(any::<bool>(), 5)) {
        let grid = CartLayout::new(&dims).expect("a small grid");
        let keep = &keep[..dims.len()];
        let kept: Vec<Dim> = dims.iter().zip(keep).filter(|(_, keep)| **keep).map(|(dim, _)| *dim).collect();
        prop_assert_eq!(grid.sub(keep).expect("right number"), CartLayout::new(&kept).expect("smaller"));
    }
}

#[test]
fn invalid_grids_and_arguments_are_refused() {
    let refused = |dims: &[Dim]| CartLayout::new(dims).expect_err("no grid").to_string();
    assert_eq!(
        refused(&[Dim::open(2), Dim::periodic(0)]),
        "cart: dimension 1 of the grid 2 × 0 (periodic) has size 0"
    );
    assert_eq!(
        refused(&[Dim::open(usize::MAX), Dim::open(2)]),
        "cart: the grid 18446744073709551615 × 2 has more than 2147483647 cells"
    );
    assert_eq!(
        refused(&[Dim::open(1 << 16), Dim::open(1 << 15)]),
        "cart: the grid 65536 × 32768 has more than 2147483647 cells"
    );
    let grid = CartLayout::new(&[Dim::open(2), Dim::periodic(3)]).expect("a grid");
    assert_eq!(grid.rank_of(&[-1, 0]).expect("right number"), None);
    assert_eq!(grid.rank_of(&[0, isize::MIN]).expect("right number"), Some(1));
    let cells = "rank 6 is out of range: the grid 2 × 3 (periodic) has 6 cells";
    for (error, why) in [
        (grid.coords_of(6).map(drop), format!("coords_of: {cells}")),
        (grid.shift(6, 0, 1).map(drop), format!("shift: {cells}")),
        (grid.neighbors(6).map(drop), format!("neighbors: {cells}")),
        (
            grid.shift(0, 2, 1).map(drop),
            "shift: dimension 2 does not exist: the grid has 2 dimensions".into(),
        ),
        (grid.rank_of(&[0]).map(drop), "rank_of: 1 coordinates for 2 dimensions".into()),
        (grid.sub(&[true]).map(drop), "sub: 1 flags for 2 dimensions".into()),
    ] {
        assert_eq!(error.expect_err("invalid").to_string(), why);
    }
}

#[test]
fn ranks_of_a_grid_know_their_coordinates() {
    for size in [1, 2, 3, 6, 12] {
        ranks(size, |world| {
            for count in 0..=4 {
                let sizes = if count == 0 { vec![] } else { mpj::dims(size, &vec![None; count])? };
                let dims: Vec<Dim> =
                    sizes.iter().map(|size| Dim { size: *size, periodic: size % 2 == 1 }).collect();
                let layout = CartLayout::new(&dims)?;
                let grid = world.cart(&dims, Reorder::No)?;
                assert_eq!(grid.is_some(), world.rank() < layout.size());
                let Some(grid) = grid else { continue };
                assert_eq!((grid.rank(), grid.size(), grid.layout()), (world.rank(), layout.size(), &layout));
                assert_eq!((grid.dims(), grid.coords()), (&dims[..], &layout.coords_of(grid.rank())?[..]));
                let mut all = vec![0; grid.size()];
                grid.allgather(&[grid.rank_of(&signed(grid.coords()))?.expect("a cell")], &mut all)?;
                assert!(all.iter().copied().eq(0..grid.size()));
                for dim in 0..count {
                    let (before, after) = grid.shift(dim, 1)?;
                    let mut got = [usize::MAX];
                    grid.sendrecv(&[grid.rank()], after, 0, &mut got, before, 0)?;
                    assert_eq!(got[0], before.unwrap_or(usize::MAX));
                }
            }
            Ok(())
        });
    }
}

#[mpj::test(ranks = 7)]
fn ranks_outside_of_the_grid_get_none(world: World) -> mpj::Result<()> {
    let grid = world.cart(&[Dim::open(2), Dim::periodic(3)], Reorder::ByHost)?;
    assert_eq!(grid.is_some(), world.rank() < 6);
    assert_eq!(world.cart_map(&[Dim::open(6)])?, (world.rank() < 6).then(|| world.rank()));
    if let Some(grid) = grid {
        assert_eq!(grid.coords_of(6).expect_err("6 cells").class(), ErrorClass::Rank);
        grid.barrier()?;
    }
    world.barrier()
}

#[mpj::test(ranks = 12)]
fn sub_grids_have_the_kept_dimensions(world: World) -> mpj::Result<()> {
    let dims = [Dim::open(2), Dim::periodic(3), Dim::open(2)];
    let grid = world.cart(&dims, Reorder::No)?.expect("12 cells");
    for mask in 0..8 {
        let keep = [0, 1, 2].map(|dim| mask >> dim & 1 == 1);
        let part = grid.sub(&keep)?;
        assert_eq!(part.layout(), &grid.layout().sub(&keep)?);
        let kept: Vec<usize> =
            grid.coords().iter().zip(keep).filter(|(_, keep)| *keep).map(|(at, _)| *at).collect();
        assert_eq!(part.coords(), kept);
        // All members have the same coordinates in the dropped dimensions.
        let dropped: Vec<usize> =
            grid.coords().iter().zip(keep).filter(|(_, keep)| !*keep).map(|(at, _)| *at).collect();
        let mut all = vec![9; dropped.len() * part.size()];
        if !dropped.is_empty() {
            part.allgather(&dropped, &mut all)?;
            assert!(all.chunks(dropped.len()).all(|theirs| theirs == dropped));
        }
        // Sub-grids of a sub-grid.
        let alone = part.sub(&vec![false; part.dims().len()])?;
        assert_eq!((alone.size(), alone.dims().len()), (1, 0));
    }
    let error = grid.dup()?.sub(&[true]).expect_err("1 flag");
    assert_eq!(
        (error.class(), text_of(&error).as_str()),
        (ErrorClass::Dims, "sub: 1 flags for 3 dimensions")
    );
    world.barrier()
}

#[mpj::test(ranks = 4)]
fn duplicates_keep_the_grid_and_other_communicators_do_not(world: World) -> mpj::Result<()> {
    let grid = world.cart(&[Dim::periodic(4)], Reorder::No)?.expect("4 cells");
    let twin: Cart = grid.dup()?;
    let plain = grid.as_cart().expect("a grid").dup_with_rules(mpj::coll::Rules::default())?;
    for comm in [&**grid, &**twin, &plain, &grid.with_path(mpj::DataPath::ZeroCopy)] {
        assert_eq!(comm.as_cart().expect("a grid").layout(), grid.layout());
        assert!(comm.as_graph().is_none() && comm.as_dist_graph().is_none());
    }
    assert!(world.as_cart().is_none());
    assert!(grid.split(Some(0), 0)?.expect("has a color").as_cart().is_none());
    // The messages of the communicators are separate.
    let (before, after) = grid.shift(0, 1)?;
    let sends = [grid.isend([1], after, 0)?, twin.isend([2], after, 0)?];
    let (mut one, mut two) = ([0], [0]);
    twin.recv(&mut two, before, 0)?;
    grid.recv(&mut one, before, 0)?;
    assert_eq!((one, two), ([1], [2]));
    assert!(mpj::wait_all(sends.into()).into_iter().all(|sent| sent.is_ok()));
    grid.barrier()
}

#[mpj::test(ranks = 4)]
fn grids_that_do_not_fit_are_refused_on_every_rank(world: World) -> mpj::Result<()> {
    for (dims, why) in [
        (vec![Dim::open(5)], "cart: the grid 5 has 5 cells, but the communicator only 4 ranks"),
        (
            vec![Dim::open(2), Dim::periodic(3)],
            "cart: the grid 2 × 3 (periodic) has 6 cells, but the communicator only 4 ranks",
        ),
        (vec![Dim::open(0)], "cart: dimension 0 of the grid 0 has size 0"),
        (vec![Dim::open(1 << 62); 3], "has more than 2147483647 cells"),
    ] {
        let comm = world.dup()?;
        let error = comm.cart(&dims, Reorder::No).expect_err("too large");
        assert_eq!(error.class(), ErrorClass::Dims);
        assert!(text_of(&error).contains(why), "{error}");
        let error = comm.cart_map(&dims).expect_err("too large");
        assert!(error.to_string().contains(why.trim_start_matches("cart: ")), "{error}");
    }
    world.barrier()
}

#[mpj::test(ranks = 4)]
fn ranks_that_pass_different_grids_fail(world: World) -> mpj::Result<()> {
    let odd = world.rank() == 2;
    let [two, ring] = [Dim::open(2), Dim::periodic(2)];
    let grid = |odd_dims: &[Dim], reorder| match odd {
        true => world.dup()?.cart(odd_dims, reorder),
        false => world.dup()?.cart(&[two; 2], Reorder::No),
    };
    assert!(grid(&[two; 2], Reorder::No).is_ok());
    for (dims, reorder) in [
        (&[Dim::open(4)][..], Reorder::No),
        (&[two, ring], Reorder::No),
        (&[two; 2], Reorder::ByHost),
        (&[two, Dim::open(1)], Reorder::No),
    ] {
        let error = grid(dims, reorder).expect_err("they differ");
        assert_eq!(error.class(), ErrorClass::Topology);
        assert!(text_of(&error).starts_with("cart: ranks 0 and 2 passed different arguments"), "{error}");
    }
    // One rank's grid is refused: the others fail, too, in this call.
    let error = grid(&[Dim::open(9)], Reorder::No).expect_err("rank 2 fails");
    assert!(error.to_string().contains("the grid 9 has 9 cells"), "{error}");
    assert_eq!(error.class(), ErrorClass::Dims, "on all ranks");
    // Ranks pass different flags to `sub`; and one rank calls a barrier while the others call `sub`.
    let square = world.cart(&[two, ring], Reorder::No)?.expect("4 cells");
    let error = text_of(&square.dup()?.sub(&[odd, true]).expect_err("they differ"));
    assert!(error.starts_with("cart_sub: ranks 0 and 2 passed different arguments"), "{error}");
    let comm = square.dup()?;
    let outcome = if odd { comm.barrier() } else { comm.sub(&[true, false]).map(drop) };
    outcome.and_then(|()| comm.barrier()).expect_err("another call");
    square.barrier()
}

#[mpj::test(ranks = 2)]
fn freed_grid_refuses_calls(world: World) -> mpj::Result<()> {
    let grid = world.cart(&[Dim::open(2)], Reorder::No)?.expect("2 cells");
    grid.free()?;
    for error in [
        grid.sub(&[true]).map(drop).expect_err("freed"),
        grid.dup().map(drop).expect_err("freed"),
        grid.cart(&[Dim::open(1)], Reorder::No).map(drop).expect_err("freed"),
        grid.cart_map(&[Dim::open(1)]).map(drop).expect_err("freed"),
        grid.graph(&[0], &[], Reorder::No).map(drop).expect_err("freed"),
        grid.dist_graph(&[], None, Reorder::No).map(drop).expect_err("freed"),
        grid.dist_graph_adjacent(&[], &[], None, Reorder::No).map(drop).expect_err("freed"),
    ] {
        assert_eq!(error.class(), ErrorClass::Comm, "{error}");
    }
    assert_eq!(grid.coords(), [grid.rank()], "coordinates can be read after `free`");
    world.barrier()
}

#[test]
fn grids_can_be_created_and_dropped_repeatedly() {
    ranks(3, |world| {
        for round in 0..200 {
            let grid = world.cart(&[Dim::periodic(3)], Reorder::ByHost)?.expect("3 cells");
            let part = grid.sub(&[round % 2 == 0])?;
            assert_eq!(part.size(), if round % 2 == 0 { 3 } else { 1 });
            part.barrier()?;
        }
        Ok(())
    });
}
