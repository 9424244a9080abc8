//! Compares reductions with a fold in rank order.

use mpj::{Intracomm, Op, Receivable};

/// Returns the contributions of ranks `0..=last`, folded from the left.
pub(crate) fn fold<T: Receivable>(
    last: usize,
    part: impl Fn(usize) -> Vec<T>,
    f: impl Fn(T, T) -> T,
) -> Vec<T> {
    let mut all = part(0);
    for rank in 1..=last {
        for (into, from) in all.iter_mut().zip(part(rank)) {
            *into = f(*into, from);
        }
    }
    all
}

/// Checks all reductions with one operation, out of place and in place. The data must give the same result for every
/// grouping of the ranks.
pub(crate) fn check_reductions<T, F>(
    comm: &Intracomm,
    op: &Op,
    part: impl Fn(usize) -> Vec<T>,
    f: F,
    root: usize,
) -> mpj::Result<()>
where
    T: Receivable + PartialEq + std::fmt::Debug,
    F: Fn(T, T) -> T,
{
    let (me, last) = (comm.rank(), comm.size() - 1);
    let (mine, all) = (part(me), fold(last, &part, &f));
    let before: Vec<T> = part(last);
    let mut got = before.clone();
    comm.reduce(&mine, &mut got, op.clone(), root)?;
    assert!(got == if me == root { all.clone() } else { before }, "reduce to {root}: {op:?}");
    comm.allreduce(&mine, &mut got, op.clone())?;
    assert!(got == all, "allreduce: {op:?}");
    comm.scan(&mine, &mut got, op.clone())?;
    let upto = fold(me, &part, &f);
    assert!(got == upto, "scan: {op:?}");
    let mut in_place = mine.clone();
    comm.reduce_in_place(&mut in_place, op.clone(), root)?;
    assert!(in_place == if me == root { &all[..] } else { &mine }, "reduce in place to {root}: {op:?}");
    in_place.clone_from(&mine);
    comm.allreduce_in_place(&mut in_place, op.clone())?;
    assert!(in_place == all, "allreduce in place: {op:?}");
    in_place.clone_from(&mine);
    comm.scan_in_place(&mut in_place, op.clone())?;
    assert!(in_place == upto, "scan in place: {op:?}");
    let mut counts: Vec<usize> = (0..=last).map(|rank| all.len() / (last + 1) * (rank % 3) / 2).collect();
    counts[last] += all.len() - counts.iter().sum::<usize>();
    let at: usize = counts[..me].iter().sum();
    let mut some = mine[..counts[me]].to_vec();
    comm.reduce_scatter(&mine, &mut some, &counts, op.clone())?;
    assert!(some == all[at..at + counts[me]], "reduce_scatter by {counts:?}: {op:?}");
    in_place.clone_from(&mine);
    comm.reduce_scatter_in_place(&mut in_place, &counts, op.clone())?;
    assert!(in_place[..counts[me]] == some, "reduce_scatter in place by {counts:?}: {op:?}");
    assert!(in_place[counts[me]..] == mine[counts[me]..], "the other items do not change");
    check_exscan(comm, op, &mine, fold(me.saturating_sub(1), &part, &f))?;
    check_scattered_blocks(comm, op, &mine, &all)
}

fn check_exscan<T>(comm: &Intracomm, op: &Op, mine: &[T], below: Vec<T>) -> mpj::Result<()>
where
    T: Receivable + PartialEq + std::fmt::Debug,
{
    let below = if comm.rank() == 0 { mine.to_vec() } else { below };
    let mut got = mine.to_vec();
    comm.exscan(mine, &mut got, op.clone())?;
    assert!(got == below, "exscan: {op:?}");
    got.copy_from_slice(mine);
    comm.exscan_in_place(&mut got, op.clone())?;
    assert!(got == below, "exscan in place: {op:?}");
    Ok(())
}

fn check_scattered_blocks<T>(comm: &Intracomm, op: &Op, mine: &[T], all: &[T]) -> mpj::Result<()>
where
    T: Receivable + PartialEq + std::fmt::Debug,
{
    let each = all.len() / comm.size();
    let (whole, at) = (each * comm.size(), each * comm.rank());
    let mut in_place = mine[..whole].to_vec();
    let mut block = mine[..each].to_vec();
    comm.reduce_scatter_block(&mine[..whole], &mut block, op.clone())?;
    assert!(block == all[at..at + each], "reduce_scatter_block: {op:?}");
    comm.reduce_scatter_block_in_place(&mut in_place, op.clone())?;
    assert!(in_place[..each] == block, "reduce_scatter_block in place: {op:?}");
    assert!(in_place[each..] == mine[each..whole], "the other items do not change");
    Ok(())
}
