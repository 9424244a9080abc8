//! Regular patterns: halos, faces, columns, plain vectors.

use crate::pattern::{Arena, Loops, Pattern, copy};
use mpj_datatypes::{ArrayOrder, Datatype};

pub(crate) fn patterns() -> Vec<Pattern> {
    let mut all = Vec::new();
    for sub in [false, true] {
        all.push(wrf("x", sub, [22, 0, 4], [3, 65, 44]));
        all.push(wrf("y", sub, [5, 0, 7], [23, 65, 3]));
        all.push(wrf("z", sub, [5, 1, 4], [23, 3, 44]));
    }
    all.push(milc(16));
    all.push(milc(8));
    mg(&mut all, 130, 66, 66);
    mg(&mut all, 258, 130, 130);
    for d in [33, 102, 408] {
        lu(&mut all, d);
    }
    all.push(fft(256));
    all.push(fft(1024));
    for payload in [1 << 10, 8 << 10, 64 << 10, 512 << 10, 4 << 20] {
        all.push(vector::<1>(payload));
        all.push(vector::<2>(payload));
        all.push(vector::<8>(payload));
        all.push(vector::<64>(payload));
    }
    all.push(vector::<8>(64 << 20));
    all.push(vector::<64>(64 << 20));
    all
}

/// Nine arrays of floats with halos, the first four two-dimensional; `from` and `len` in the order i, k, j.
fn wrf(direction: &str, sub: bool, from: [usize; 3], len: [usize; 3]) -> Pattern {
    let (d1, d2, d3) = (32, 65, 52);
    let ([i0, k0, j0], [ni, nk, nj]) = (from, len);
    let float = Datatype::of::<f32>();
    let sizes: Vec<usize> = (0..9).map(|a| 4 * d1 * d3 * if a < 4 { 1 } else { d2 }).collect();
    let mut arena = Arena::new(&sizes);
    let start = [j0 * d1 + i0, (j0 * d2 + k0) * d1 + i0];
    let (flat, solid) = if sub {
        (
            float.subarray(&[d3, d1], &[nj, ni], &[j0, i0], ArrayOrder::C),
            float.subarray(&[d3, d2, d1], &[nj, nk, ni], &[j0, k0, i0], ArrayOrder::C),
        )
    } else {
        let plane = float.vector(nk, ni, d1 as isize).expect("fits");
        (float.vector(nj, ni, d1 as isize), plane.hvector(nj, 1, (d1 * d2 * 4) as i64))
    };
    let kinds = [flat.expect("fits"), solid.expect("fits")];
    let fields: Vec<_> = (0..9)
        .map(|a| {
            let kind = usize::from(a >= 4);
            let skip = if sub { 0 } else { 4 * start[kind] };
            (1, (arena.offset(a) + skip) as i64, kinds[kind].clone())
        })
        .collect();
    let datatype = Datatype::structure(&fields).expect("fits");
    let arrays: Vec<(*mut f32, Loops)> = (0..9)
        .map(|a| {
            let kind = usize::from(a >= 4);
            let loops = [
                Loops { outer: (nj, d1), inner: (1, 0), len: ni },
                Loops { outer: (nj, d1 * d2), inner: (nk, d1), len: ni },
            ][kind];
            (arena.at(a).cast::<f32>().wrapping_add(start[kind]), loops)
        })
        .collect();
    let again = arrays.clone();
    let pack = move |mut out: *mut u8| {
        for &(at, loops) in &arrays {
            loops.pack(at, out);
            out = out.wrapping_add(4 * loops.outer.0 * loops.inner.0 * loops.len);
        }
    };
    let unpack = move |mut input: *const u8| {
        for &(at, loops) in &again {
            loops.unpack(at, input);
            input = input.wrapping_add(4 * loops.outer.0 * loops.inner.0 * loops.len);
        }
    };
    let name = format!("WRF_{direction}_{}", if sub { "sa" } else { "vec" });
    Pattern::new(name, arena.with_base(0), datatype, pack, unpack)
}

fn milc(d: usize) -> Pattern {
    let arena = Arena::new(&[24 * d.pow(4)]);
    let vector = Datatype::of::<f32>().contiguous(6).expect("fits");
    let half = vector.vector(d, d * d / 2, (d * d * d / 2) as isize).expect("fits");
    let datatype = half.hvector(2, 1, (24 * d.pow(4) / 2) as i64).expect("fits");
    let loops = Loops { outer: (2, 6 * d.pow(4) / 2), inner: (d, 6 * d * d * d / 2), len: 6 * d * d / 2 };
    loops.pattern::<f32>(format!("MILC_su3_zd_{d}x{d}x{d}x{d}"), arena.with_base(0), datatype)
}

fn mg(all: &mut Vec<Pattern>, a: usize, b: usize, c: usize) {
    let double = Datatype::of::<f64>();
    let place = |element: usize| Arena::new(&[8 * a * b * c]).with_base(8 * element);
    let name = |face: &str| format!("NAS_MG_{face}_{a}x{b}x{c}");

    let column = double.vector(b - 2, 1, a as isize).expect("fits");
    let x = column.hvector(c - 2, 1, (8 * a * b) as i64).expect("fits");
    let start = (a - 2) + a * (1 + b);
    let loops = Loops { outer: (c - 2, a * b), inner: (b - 2, a), len: 1 };
    all.push(loops.pattern::<f64>(name("x"), place(start), x));

    let y = double.vector(c - 2, a - 2, (a * b) as isize).expect("fits");
    let loops = Loops { outer: (c - 2, a * b), inner: (1, 0), len: a - 2 };
    all.push(loops.pattern::<f64>(name("y"), place(1 + a * ((b - 2) + b)), y));

    let z = double.vector(b - 2, a - 2, a as isize).expect("fits");
    let loops = Loops { outer: (b - 2, a), inner: (1, 0), len: a - 2 };
    all.push(loops.pattern::<f64>(name("z"), place(1 + a * (1 + b)), z));
}

fn lu(all: &mut Vec<Pattern>, d: usize) {
    let place = |element: usize| Arena::new(&[40 * (d + 2) * (d + 2)]).with_base(8 * element);
    let x = Datatype::of::<f64>().contiguous(5 * d).expect("fits");
    let loops = Loops { outer: (1, 0), inner: (1, 0), len: 5 * d };
    all.push(loops.pattern::<f64>(format!("NAS_LU_x_{d}"), place(5 * (1 + d * (d + 2))), x));

    let five = Datatype::of::<f64>().contiguous(5).expect("fits");
    let y = five.vector(d, 1, (d + 2) as isize).expect("fits");
    let (arena, base) = place(5 * (d + d + 2));
    let from = base.cast::<[f64; 5]>();
    let pack = move |out: *mut u8| {
        for i in 0..d {
            // SAFETY: both invariants of `Pattern`.
            unsafe { copy(from.wrapping_add(i * (d + 2)), out.cast::<[f64; 5]>().wrapping_add(i)) };
        }
    };
    let unpack = move |input: *const u8| {
        for i in 0..d {
            // SAFETY: both invariants of `Pattern`.
            unsafe { copy(input.cast::<[f64; 5]>().wrapping_add(i), from.wrapping_add(i * (d + 2))) };
        }
    };
    all.push(Pattern::new(format!("NAS_LU_y_{d}"), (arena, base), y, pack, unpack));
}

fn fft(n: usize) -> Pattern {
    let half = n / 2;
    let (arena, base) = Arena::new(&[16 * n * half]).with_base(0);
    let complex = Datatype::of::<[f64; 2]>();
    let column = complex.vector(half, 1, n as isize).expect("fits").resized(0, 16).expect("fits");
    let sent = column.contiguous(half).expect("fits");
    let received = complex.vector(half, half, n as isize).expect("fits");
    let numbers = base.cast::<[f64; 2]>();
    let pack = move |out: *mut u8| {
        for c in 0..half {
            for r in 0..half {
                let from = numbers.wrapping_add(r * n + c);
                // SAFETY: both invariants of `Pattern`.
                unsafe { copy(from, out.cast::<[f64; 2]>().wrapping_add(c * half + r)) };
            }
        }
    };
    let rows = Loops { outer: (half, 2 * n), inner: (1, 0), len: 2 * half };
    let unpack = move |input: *const u8| rows.unpack(base.cast::<f64>(), input);
    let mut pattern = Pattern::new(format!("FFT2D_{n}_p2"), (arena, base), sent, pack, unpack);
    pattern.unpack_type = received;
    pattern.symmetric = false;
    pattern
}

fn vector<const L: usize>(payload: usize) -> Pattern {
    let n = payload / 8 / L;
    let (arena, base) = Arena::new(&[2 * payload]).with_base(0);
    let datatype = Datatype::of::<f64>().vector(n, L, 2 * L as isize).expect("fits");
    let numbers = base.cast::<[f64; L]>();
    let pack = move |out: *mut u8| {
        for i in 0..n {
            // SAFETY: both invariants of `Pattern`.
            unsafe { copy(numbers.wrapping_add(2 * i), out.cast::<[f64; L]>().wrapping_add(i)) };
        }
    };
    let unpack = move |input: *const u8| {
        for i in 0..n {
            // SAFETY: both invariants of `Pattern`.
            unsafe { copy(input.cast::<[f64; L]>().wrapping_add(i), numbers.wrapping_add(2 * i)) };
        }
    };
    Pattern::new(format!("vec_bl{L}_{}K", payload >> 10), (arena, base), datatype, pack, unpack)
}
