//! A stencil on a grid, whose ranks exchange the edges of their tiles.

use mpj::topology::Dim;
use mpj::{Datatype, Reorder, SplitViews, ViewSpec};

use crate::common::{Sample, ranks};

/// Returns the averages of each cell and its four neighbours. The grid is periodic in both directions.
fn average(cells: &[f64], (rows, columns): (usize, usize)) -> Vec<f64> {
    let at = |row: usize, column: usize| cells[row % rows * columns + column % columns];
    let cell = |row: usize, column: usize| {
        let around = [
            at(row + rows - 1, column),
            at(row + 1, column),
            at(row, column + columns - 1),
            at(row, column + 1),
        ];
        (at(row, column) + around.into_iter().sum::<f64>()) / 5.0
    };
    (0..rows * columns).map(|at| cell(at / columns, at % columns)).collect()
}

/// Several steps on blocks with a halo give the same bits as on one whole grid.
#[test]
fn stencil_with_halos_equals_the_sequential_one() {
    const TILE: (usize, usize) = (3, 4);
    const STRIDE: usize = TILE.1 + 2;
    for size in [1, 2, 3, 4, 6, 12] {
        ranks(size, |world| {
            let sizes = mpj::dims(size, &[None, None])?;
            let dims = [Dim::periodic(sizes[0]), Dim::periodic(sizes[1])];
            let grid = world.cart(&dims, Reorder::ByHost)?.expect("a cell for each rank");
            let (rows, columns) = (sizes[0] * TILE.0, sizes[1] * TILE.1);
            let first = (grid.coords()[0] * TILE.0, grid.coords()[1] * TILE.1);
            let mut whole: Vec<f64> = (0..rows * columns).map(|at| f64::sample(at, at / 7)).collect();
            let row = Datatype::of::<f64>().contiguous(TILE.1)?;
            let column = Datatype::of::<f64>().vector(TILE.0, 1, STRIDE as isize)?;
            let place = |row: usize, column: usize| row * STRIDE + column;
            let views = |top, bottom, left, right| {
                [
                    ViewSpec::new(place(top, 1), &row, 1),
                    ViewSpec::new(place(bottom, 1), &row, 1),
                    ViewSpec::new(place(1, left), &column, 1),
                    ViewSpec::new(place(1, right), &column, 1),
                ]
            };
            let ghosts = views(0, TILE.0 + 1, 0, TILE.1 + 1);
            let halo = SplitViews::<f64>::new((TILE.0 + 2) * STRIDE, &ghosts, &views(1, TILE.0, 1, TILE.1))?;
            let mut tile = vec![0.0; (TILE.0 + 2) * STRIDE];
            let cells = || (0..TILE.0).flat_map(|row| (0..TILE.1).map(move |column| (row, column)));
            for (row, column) in cells() {
                tile[place(row + 1, column + 1)] = whole[(first.0 + row) * columns + first.1 + column];
            }
            for _ in 0..4 {
                let (mut ghosts, edges) = halo.split(&mut tile)?;
                grid.neighbor_alltoallw(&edges, &mut ghosts)?;
                drop((ghosts, edges));
                let old = tile.clone();
                for (row, column) in cells() {
                    let at = place(row + 1, column + 1);
                    let around = [old[at - STRIDE], old[at + STRIDE], old[at - 1], old[at + 1]];
                    tile[at] = (old[at] + around.into_iter().sum::<f64>()) / 5.0;
                }
                whole = average(&whole, (rows, columns));
                for (row, column) in cells() {
                    let expected = whole[(first.0 + row) * columns + first.1 + column];
                    assert_eq!(tile[place(row + 1, column + 1)].to_bits(), expected.to_bits());
                }
            }
            Ok(())
        });
    }
}
