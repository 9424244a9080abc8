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

/// Checks reduce, allreduce, scan and reduce_scatter with one operation. The data must give the same result for every
/// grouping of the ranks.
pub(crate) fn check<T, F>(
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
    let upto = fold(me, part, f);
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
    Ok(())
}
