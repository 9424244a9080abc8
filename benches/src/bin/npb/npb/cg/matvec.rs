//! A sparse matrix by rows, and its product with a vector, in which CG spends most of its time.
//!
//! The matrix is read once for each product, and larger classes do not fit into a core's own caches. So the bytes per
//! entry determine the cost. A block of at most 2^16 columns has indices of 16 bits: 10 bytes per entry instead of 12.

#[derive(Debug)]
pub(crate) enum Csr {
    Narrow(Rows<u16>),
    Wide(Rows<u32>),
}

impl Csr {
    pub(crate) fn new(cols: usize) -> Self {
        if cols <= 1 << u16::BITS { Self::Narrow(Rows::new(cols)) } else { Self::Wide(Rows::new(cols)) }
    }

    /// Adds a row.
    ///
    /// # Panics
    ///
    /// If a column index is out of bounds.
    pub(crate) fn push_row(&mut self, entries: impl Iterator<Item = (u32, f64)>) {
        match self {
            Self::Narrow(rows) => rows.push_row(entries),
            Self::Wide(rows) => rows.push_row(entries),
        }
    }

    /// Computes the product with `x` and stores it in `y`.
    ///
    /// # Panics
    ///
    /// If the length of `x` is not the number of columns, or that of `y` is not the number of rows.
    pub(crate) fn multiply(&self, x: &[f64], y: &mut [f64]) {
        match self {
            Self::Narrow(rows) => rows.multiply(x, y),
            Self::Wide(rows) => rows.multiply(x, y),
        }
    }

    #[cfg(test)]
    pub(crate) fn row(&self, row: usize) -> Vec<(u32, f64)> {
        match self {
            Self::Narrow(rows) => rows.row(row),
            Self::Wide(rows) => rows.row(row),
        }
    }
}

/// A sparse matrix, row after row, whose column indices have the type `I`: `u16` or `u32`.
///
/// # Invariants
///
/// 1. Every element of `at` is less than `cols`.
/// 2. `at` and `value` have the same length, `ends` never decreases, and its last element is that length.
#[derive(Debug)]
pub(crate) struct Rows<I> {
    cols: usize,
    /// The end of each row. A row starts where the previous one ends.
    ends: Vec<usize>,
    at: Vec<I>,
    value: Vec<f64>,
}

/// The number of partial sums of a row. With only one, every addition would wait for the previous one.
const LANES: usize = 8;

impl<I: Copy + Into<u32> + TryFrom<u32>> Rows<I> {
    fn new(cols: usize) -> Self {
        Self { cols, ends: Vec::new(), at: Vec::new(), value: Vec::new() }
    }

    fn push_row(&mut self, entries: impl Iterator<Item = (u32, f64)>) {
        for (col, value) in entries {
            // Invariant 1: this check permits the unchecked accesses below.
            let at = I::try_from(col).ok().filter(|_| (col as usize) < self.cols);
            self.at.push(at.unwrap_or_else(|| panic!("column {col} of {}", self.cols)));
            self.value.push(value);
        }
        self.ends.push(self.at.len());
    }

    fn multiply(&self, x: &[f64], y: &mut [f64]) {
        assert_eq!((x.len(), y.len()), (self.cols, self.ends.len()), "vectors of the matrix's shape");
        let fetch = |at: &I| {
            let at: u32 = (*at).into();
            // SAFETY: `fetch` is called below only with elements of `self.at`. They are less than `self.cols`
            // (invariant 1), which is `x.len()` (asserted above; `x` and `self` are borrowed since), and `into` keeps
            // the value of a `u16` or `u32`.
            unsafe { *x.get_unchecked(at as usize) }
        };

        let (mut at, mut value, mut start) = (&self.at[..], &self.value[..], 0);
        for (y, &end) in y.iter_mut().zip(&self.ends) {
            let (row_at, rest_at) = at.split_at(end - start);
            let (row_value, rest_value) = value.split_at(end - start);
            (at, value, start) = (rest_at, rest_value, end);

            let (at_lanes, at_left) = row_at.as_chunks::<LANES>();
            let (value_lanes, value_left) = row_value.as_chunks::<LANES>();
            let mut sums = [0.0; LANES];
            for (at, value) in at_lanes.iter().zip(value_lanes) {
                for ((sum, at), value) in sums.iter_mut().zip(at).zip(value) {
                    *sum += value * fetch(at);
                }
            }
            for ((sum, at), value) in sums.iter_mut().zip(at_left).zip(value_left) {
                *sum += value * fetch(at);
            }
            *y = sums.iter().sum();
        }
    }

    #[cfg(test)]
    fn row(&self, row: usize) -> Vec<(u32, f64)> {
        let start = if row == 0 { 0 } else { self.ends[row - 1] };
        let range = start..self.ends[row];
        let at = self.at[range.clone()].iter().map(|&at| at.into());
        at.zip(self.value[range].iter().copied()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks rows of every length from 0 to more than two chunks, on the first and the last columns.
    fn check(cols: usize) {
        let mut matrix = Csr::new(cols);
        let lengths = 0..2 * LANES + 2;
        for length in lengths.clone() {
            let columns = (0..length as u32).map(|i| if i % 2 == 0 { i } else { cols as u32 - i });
            matrix.push_row(columns.map(|col| (col, f64::from(col % 10) + 1.0)));
        }
        let x: Vec<f64> = (0..cols).map(|col| (col % 13) as f64).collect();
        let mut y = vec![f64::NAN; lengths.len()];
        matrix.multiply(&x, &mut y);
        for (row, y) in y.iter().enumerate() {
            assert_eq!(matrix.row(row).len(), row);
            let expected: f64 = matrix.row(row).iter().map(|&(col, value)| value * x[col as usize]).sum();
            assert_eq!(*y, expected, "{row} entries in {cols} columns");
        }
    }

    #[test]
    fn both_widths_multiply_rows_of_every_length() {
        for cols in [100, 1 << 16, (1 << 16) + 1, 100_000] {
            check(cols);
        }
    }

    #[test]
    #[should_panic(expected = "column 5 of 5")]
    fn column_out_of_bounds_panics() {
        Csr::new(5).push_row([(5, 1.0)].into_iter());
    }

    #[test]
    #[should_panic(expected = "column 65536 of 65536")]
    fn column_out_of_bounds_of_the_widest_narrow_block_panics() {
        Csr::new(1 << 16).push_row([(1 << 16, 1.0)].into_iter());
    }

    #[test]
    #[should_panic(expected = "shape")]
    fn vector_of_wrong_length_panics() {
        Csr::new(5).multiply(&[0.0; 4], &mut []);
    }
}
