//! The type signature: a hash of a sequence of primitives that can be computed from the hashes of its parts.

use crate::Primitive;

/// 2^61 − 1, a prime, for which reduction is a shift and an addition.
const PRIME: u64 = (1 << 61) - 1;
/// The point at which the polynomial is evaluated. A wire value, which never changes.
const BASE: u64 = 0x0e3d_6d5a_91b7_4c2b;

/// The type signature of a message (MPI 4.1 §5.1): the sequence of its primitives without displacements, as a
/// polynomial hash and a length.
///
/// Two layouts match if their signatures are equal, however they were built. A signature detects mistakes; memory
/// safety never depends on it.
///
/// ```
/// use mpj_datatypes::{Primitive, Signature};
/// let f = Signature::of(Primitive::F64);
/// let pair = f.concat(Signature::of(Primitive::I32));
/// assert_eq!(pair.repeat(3), pair.concat(pair).concat(pair));
/// assert_eq!(Signature::EMPTY.concat(f), f);
/// assert_eq!(f.repeat(1_000_000).count, 1_000_000);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Signature {
    /// Value of the polynomial, below 2^61 − 1, as it is sent.
    pub hash: u64,
    /// Number of primitives, saturated at `u64::MAX`.
    pub count: u64,
}

impl Signature {
    /// The signature of no primitives.
    pub const EMPTY: Signature = Signature { hash: 0, count: 0 };

    /// Returns the signature of one primitive.
    pub const fn of(primitive: Primitive) -> Signature {
        // The factor spreads the codes, so that short sequences of small codes do not have close hashes.
        Signature { hash: multiply(primitive as u64, 0x1f83_d9ab_fb41_bd6b), count: 1 }
    }

    /// Returns the signature of the primitives of `self` followed by those of `next`.
    #[must_use]
    pub const fn concat(self, next: Signature) -> Signature {
        if next.count == 0 {
            return self;
        }
        if self.count == 0 {
            return next;
        }
        Signature {
            hash: add(multiply(reduce(self.hash), power(BASE, next.count)), reduce(next.hash)),
            count: self.count.saturating_add(next.count),
        }
    }

    /// Returns the signature of `times` repetitions in a logarithmic number of steps.
    #[must_use]
    pub const fn repeat(self, times: u64) -> Signature {
        match times {
            0 => return Signature::EMPTY,
            1 => return self,
            _ => {}
        }
        // Doubling: (hash, shift) of 2^k repetitions; to append them, multiply by `shift` and add `hash`.
        let (mut hash, mut shift) = (reduce(self.hash), power(BASE, self.count));
        let mut result = 0;
        let mut left = times;
        loop {
            if left & 1 == 1 {
                result = add(multiply(result, shift), hash);
            }
            left >>= 1;
            if left == 0 {
                break;
            }
            hash = add(multiply(hash, shift), hash);
            shift = multiply(shift, shift);
        }
        Signature { hash: result, count: self.count.saturating_mul(times) }
    }
}

/// a + b mod PRIME, for a + b < 2 PRIME.
const fn add(a: u64, b: u64) -> u64 {
    let sum = a + b;
    if sum >= PRIME { sum - PRIME } else { sum }
}

/// a · b mod PRIME for a, b < PRIME.
const fn multiply(a: u64, b: u64) -> u64 {
    let product = a as u128 * b as u128;
    // 2^61 ≡ 1, so the high part is added to the low part. At most one of them is PRIME.
    add(product as u64 & PRIME, (product >> 61) as u64)
}

/// a mod PRIME. Needed because the fields of a signature are public.
const fn reduce(a: u64) -> u64 {
    add(a & PRIME, a >> 61)
}

const fn power(base: u64, mut exponent: u64) -> u64 {
    if exponent == 1 {
        return base;
    }
    let (mut result, mut square) = (1, base);
    while exponent > 0 {
        if exponent & 1 == 1 {
            result = multiply(result, square);
        }
        square = multiply(square, square);
        exponent >>= 1;
    }
    result
}
