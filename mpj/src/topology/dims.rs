//! Balanced dimensions of a grid (MPI_Dims_create).

use crate::error::{Error, ErrorClass, Result};

/// The largest number of ranks, as in MPI.
const MAX_RANKS: usize = i32::MAX as usize;

/// Returns the sizes of a grid of `ranks` cells that are as balanced as possible (MPI_Dims_create).
///
/// `fixed` has one entry for each dimension: `Some(size)` sets its size, `None` lets this function choose it. The chosen
/// sizes are in non-increasing order. Their largest and their smallest differ as little as possible; if several choices
/// have this difference, the one with the largest smallest size is returned.
///
/// ```
/// assert_eq!(mpj::dims(12, &[None, None])?, [4, 3]);
/// assert_eq!(mpj::dims(12, &[None, Some(3), None])?, [2, 3, 2]);
/// assert_eq!(mpj::dims(7, &[None, None])?, [7, 1]);
/// # Ok::<(), mpj::Error>(())
/// ```
///
/// # Errors
/// [`ErrorClass::Dims`] if `ranks` is not a multiple of the product of the fixed sizes, or not this product if all sizes
/// are fixed; if a fixed size is 0; or if `ranks` is 0 or above 2,147,483,647.
pub fn dims(ranks: usize, fixed: &[Option<usize>]) -> Result<Vec<usize>> {
    let fail = |why| Err(Error::new(ErrorClass::Dims, "dims", why));
    if !(1..=MAX_RANKS).contains(&ranks) {
        return fail(format!("expected 1 to {MAX_RANKS} ranks, found {ranks}"));
    }
    if let Some(dim) = fixed.iter().position(|size| *size == Some(0)) {
        return fail(format!(
            "dimension {dim} has size 0; expected at least 1, or None for a free dimension"
        ));
    }
    let product = fixed.iter().flatten().try_fold(1usize, |product, size| product.checked_mul(*size));
    let Some(cells) = product.filter(|product| ranks.is_multiple_of(*product)).map(|it| ranks / it) else {
        let product = product.map_or("above 2^64".to_owned(), |product| product.to_string());
        return fail(format!("{ranks} ranks are not a multiple of the fixed sizes' product, {product}"));
    };
    let free = fixed.iter().filter(|size| size.is_none()).count();
    if free == 0 && cells > 1 {
        return fail(format!("all sizes are fixed, and their product is {}, not {ranks}", ranks / cells));
    }
    let mut chosen = balanced(cells, free).into_iter();
    Ok(fixed.iter().map(|size| size.or_else(|| chosen.next()).unwrap_or(1)).collect())
}

/// Returns `count` sizes with the product `cells`, in non-increasing order and as balanced as possible.
fn balanced(cells: usize, count: usize) -> Vec<usize> {
    let primes = prime_factors(cells);
    if primes.len() <= count {
        // Each other choice replaces two primes by their product and by 1.
        let ones = std::iter::repeat_n(1, count - primes.len());
        return primes.into_iter().chain(ones).collect();
    }
    let Some(others) = count.checked_sub(1).filter(|others| *others > 0) else {
        return vec![cells; count];
    };
    let search = Search { divisors: divisors(&primes) };
    let mut best = Vec::new();
    let mut spread = usize::MAX;
    for low in search.divisors.iter().rev().copied().filter(|low| power(*low, count) <= cells) {
        // The largest size is at least the largest prime and the root. Both bounds hold for each smaller `low`, too.
        let least = search.at_least_root(cells / low, others).max(primes[0]);
        if least - low >= spread {
            break;
        }
        let mut sizes = Vec::new();
        if search.split(cells / low, others, low, low.saturating_add(spread - 1), &mut sizes) {
            spread = sizes[0] - low;
            sizes.push(low);
            best = sizes;
        }
    }
    best
}

/// A search for sizes among the divisors of a number.
struct Search {
    /// All divisors, in ascending order.
    divisors: Vec<usize>,
}

impl Search {
    /// Returns the smallest divisor that is at least the `count`-th root of `cells`.
    fn at_least_root(&self, cells: usize, count: usize) -> usize {
        self.divisors[self.divisors.partition_point(|size| power(*size, count) < cells)]
    }

    /// Adds `count` sizes from `low` to `high` with the product `cells`, in non-increasing order, to `sizes`: those whose
    /// largest size is the smallest possible. Returns whether such sizes exist.
    fn split(&self, cells: usize, count: usize, low: usize, high: usize, sizes: &mut Vec<usize>) -> bool {
        if count == 1 {
            let fits = (low..=high).contains(&cells);
            sizes.extend(fits.then_some(cells));
            return fits;
        }
        let first = self.divisors.partition_point(|size| power(*size, count) < cells);
        for size in self.divisors[first..].iter().copied() {
            if size > high || power(low, count - 1) > cells / size {
                return false;
            }
            if cells.is_multiple_of(size) {
                sizes.push(size);
                if self.split(cells / size, count - 1, low, size, sizes) {
                    return true;
                }
                sizes.pop();
            }
        }
        false
    }
}

fn power(base: usize, exponent: usize) -> usize {
    base.saturating_pow(u32::try_from(exponent).unwrap_or(u32::MAX))
}

/// Returns the prime factors of a number, the largest first.
pub(super) fn prime_factors(mut number: usize) -> Vec<usize> {
    let mut primes = Vec::new();
    let mut divisor = 2;
    while divisor * divisor <= number {
        if number.is_multiple_of(divisor) {
            primes.push(divisor);
            number /= divisor;
        } else {
            divisor += 1;
        }
    }
    primes.extend((number > 1).then_some(number));
    primes.reverse();
    primes
}

/// Returns the divisors of the product of `primes`, in ascending order.
fn divisors(primes: &[usize]) -> Vec<usize> {
    let mut all = vec![1];
    for prime in primes {
        all.extend(all.clone().into_iter().map(|divisor| divisor * prime));
        all.sort_unstable();
        all.dedup();
    }
    all
}
