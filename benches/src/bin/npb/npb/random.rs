//! The pseudorandom numbers of NPB (report RNR-94-007, section 2.3).
//!
//! The generator is linear congruential, `x' = a·x mod 2^46` with `a = 5^13`; a number is `x·2^-46`. The published
//! routines split each operand into halves, because a double cannot represent the product of two 46-bit integers. A
//! product of two `u64`s is exact modulo 2^64, which 2^46 divides, so multiplying and masking gives the same sequence.

pub(crate) const MULTIPLIER: u64 = 1_220_703_125;

/// Bits of the state.
pub(crate) const BITS: u32 = 46;

const MASK: u64 = (1 << BITS) - 1;
const SCALE: f64 = 1.0 / (1_u64 << BITS) as f64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lcg(u64);

impl Lcg {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed & MASK)
    }

    /// Steps once and returns the new state, an integer below 2^46.
    pub(crate) fn step(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(MULTIPLIER) & MASK;
        self.0
    }

    /// `randlc`: steps once and returns a number between 0 and 1.
    pub(crate) fn next(&mut self) -> f64 {
        // Exact, because 46 bits fit into the significand.
        self.step() as f64 * SCALE
    }

    /// `icnvrt` of `randlc`: steps once and returns an integer below `2^bits`.
    pub(crate) fn next_bits(&mut self, bits: u32) -> usize {
        (self.step() >> (BITS - bits)) as usize
    }

    /// `vranlc`: fills a slice with consecutive numbers of the sequence.
    #[cfg_attr(not(test), expect(dead_code, reason = "for kernels that draw in bulk: EP, FT"))]
    pub(crate) fn fill(&mut self, out: &mut [f64]) {
        out.fill_with(|| self.next());
    }

    /// Advances the state by `steps` calls of [`step`](Self::step).
    #[cfg_attr(
        not(test),
        expect(
            dead_code,
            reason = "for kernels whose ranks start at different points of the sequence: EP, IS, FT"
        )
    )]
    pub(crate) fn skip(&mut self, steps: u64) {
        self.0 = self.0.wrapping_mul(power(MULTIPLIER, steps)) & MASK;
    }
}

/// Returns `base^exponent mod 2^46`, by squaring.
pub(crate) fn power(base: u64, mut exponent: u64) -> u64 {
    let (mut square, mut result) = (base & MASK, 1_u64);
    while exponent > 0 {
        if exponent & 1 == 1 {
            result = result.wrapping_mul(square) & MASK;
        }
        square = square.wrapping_mul(square) & MASK;
        exponent >>= 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `randlc` as published, with halves of 23 bits in doubles.
    fn randlc(x: &mut f64, a: f64) -> f64 {
        let (r23, t23) = (2.0_f64.powi(-23), 2.0_f64.powi(23));
        let a1 = (r23 * a).trunc();
        let a2 = a - t23 * a1;
        let x1 = (r23 * *x).trunc();
        let x2 = *x - t23 * x1;
        let t1 = a1 * x2 + a2 * x1;
        let z = t1 - t23 * (r23 * t1).trunc();
        let t3 = t23 * z + a2 * x2;
        let (r46, t46) = (r23 * r23, t23 * t23);
        *x = t3 - t46 * (r46 * t3).trunc();
        r46 * *x
    }

    #[test]
    fn integer_generator_equals_the_published_one() {
        let (mut x, mut lcg) = (314_159_265.0, Lcg::new(314_159_265));
        for _ in 0..100_000 {
            assert_eq!(lcg.next(), randlc(&mut x, MULTIPLIER as f64));
        }
    }

    #[test]
    fn skip_equals_repeated_steps() {
        for steps in [0, 1, 2, 3, 1000, 65_537] {
            let (mut stepped, mut skipped) = (Lcg::new(271_828_183), Lcg::new(271_828_183));
            let mut drawn = vec![0.0; steps];
            stepped.fill(&mut drawn);
            skipped.skip(steps as u64);
            assert_eq!(stepped, skipped);
        }
    }

    #[test]
    fn integers_are_the_truncated_numbers() {
        let (mut a, mut b) = (Lcg::new(314_159_265), Lcg::new(314_159_265));
        for _ in 0..1000 {
            assert_eq!(a.next_bits(11), (b.next() * 2048.0) as usize);
        }
    }
}
