//! The numbers of 16 bits, as their bits. A sum or a product computed in `f32` and then rounded is the nearest number of 16
//! bits, because the digits of an `f32` are more than twice theirs.

/// Bits of an `f32`: infinity, the smallest normal `f16`, and the smallest number that exceeds the exponents of `f16`.
const INFINITY: u32 = 0x7f80_0000;
const F16_MIN_NORMAL: u32 = 0x3880_0000;
const F16_BEYOND: u32 = 0x4780_0000;

/// The exponent of an `f32` minus that of the equal `f16`, at its place in an `f32`.
const EXPONENT_SHIFT: u32 = 112 << 23;

pub(super) fn f16_to_f32(bits: u16) -> f32 {
    let (sign, exponent, fraction) =
        (u32::from(bits & 0x8000) << 16, u32::from(bits >> 10 & 0x1f), u32::from(bits & 0x3ff));
    let magnitude = match exponent {
        // A subnormal number is a multiple of 2^-24.
        0 => (fraction as f32 / 16_777_216.0).to_bits(),
        0x1f => INFINITY | fraction << 13,
        _ => (exponent << 23 | fraction << 13) + EXPONENT_SHIFT,
    };
    f32::from_bits(sign | magnitude)
}

/// Returns the nearest `f16`; of two that are equally near, the even one.
pub(super) fn f32_to_f16(value: f32) -> u16 {
    let (sign, magnitude) = ((value.to_bits() >> 16) as u16 & 0x8000, value.to_bits() & 0x7fff_ffff);
    let rounded = if magnitude > INFINITY {
        0x7e00
    } else if magnitude >= F16_BEYOND {
        0x7c00
    } else if magnitude < F16_MIN_NORMAL {
        // The last digit of 0.5 is 2^-24, so the addition rounds to a multiple of it.
        ((f32::from_bits(magnitude) + 0.5).to_bits() - 0.5f32.to_bits()) as u16
    } else {
        // A carry into the exponent is right.
        ((magnitude - EXPONENT_SHIFT + 0xfff + (magnitude >> 13 & 1)) >> 13) as u16
    };
    sign | rounded
}

pub(super) fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// Returns the nearest `bf16`; of two that are equally near, the even one.
pub(super) fn f32_to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    if value.is_nan() {
        // A set bit of the fraction must remain.
        return (bits >> 16) as u16 | 0x40;
    }
    ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
}
