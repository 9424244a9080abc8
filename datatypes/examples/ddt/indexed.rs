//! Irregular patterns: particles and unstructured meshes.

use crate::pattern::{Arena, Loops, Pattern, copy};
use mpj_datatypes::Datatype;

pub(crate) fn patterns() -> Vec<Pattern> {
    vec![lammps("full", 6, 3062, 3534), lammps("atomic", 4, 243, 4084), ocean(), mantle(), touching()]
}

/// Returns `count` different indices below `range` in random order.
fn permutation(count: usize, range: usize, seed: u32) -> Vec<u32> {
    let mut list: Vec<u32> = (0..range as u32).collect();
    let mut state = u64::from(seed.wrapping_mul(2_654_435_761)) + 12345;
    for i in 0..count {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        list.swap(i, i + ((state >> 33) as usize) % (range - i));
    }
    list.truncate(count);
    list
}

fn chosen(element: &Datatype, block: usize, indices: &[u32]) -> Datatype {
    let starts: Vec<isize> = indices.iter().map(|&i| i as isize * block as isize).collect();
    element.indexed_block(block, &starts).expect("fits")
}

fn gather<T: Copy>(from: *const T, indices: &[u32], out: *mut u8) -> *mut u8 {
    let mut out = out.cast::<T>();
    for &i in indices {
        // SAFETY: both invariants of `Pattern`.
        unsafe { copy(from.wrapping_add(i as usize), out) };
        out = out.wrapping_add(1);
    }
    out.cast()
}

fn scatter<T: Copy>(to: *mut T, indices: &[u32], input: *const u8) -> *const u8 {
    let mut input = input.cast::<T>();
    for &i in indices {
        // SAFETY: both invariants of `Pattern`.
        unsafe { copy(input, to.wrapping_add(i as usize)) };
        input = input.wrapping_add(1);
    }
    input.cast()
}

/// Selected particles: three coordinates from the first array, one number from each other array.
fn lammps(kind: &str, arrays: usize, count: usize, range: usize) -> Pattern {
    let indices = permutation(count, range, 7);
    let double = Datatype::of::<f64>();
    let sizes: Vec<usize> = (0..arrays).map(|a| (range + count) * 8 * if a == 0 { 3 } else { 1 }).collect();
    let mut arena = Arena::new(&sizes);
    let (one, three) = (chosen(&double, 1, &indices), chosen(&double, 3, &indices));
    let fields: Vec<_> = (0..arrays)
        .map(|a| (1, arena.offset(a) as i64, if a == 0 { three.clone() } else { one.clone() }))
        .collect();
    let datatype = Datatype::structure(&fields).expect("fits");
    let starts: Vec<*mut u8> = (0..arrays).map(|a| arena.at(a)).collect();
    let (more, again) = (starts.clone(), indices.clone());
    let pack = move |out: *mut u8| {
        let mut out = gather::<[f64; 3]>(starts[0].cast(), &indices, out);
        for start in &starts[1..] {
            out = gather::<f64>(start.cast(), &indices, out);
        }
    };
    let unpack = move |input: *const u8| {
        let mut input = scatter::<[f64; 3]>(more[0].cast(), &again, input);
        for start in &more[1..] {
            input = scatter::<f64>(start.cast(), &again, input);
        }
    };
    Pattern::new(format!("LAMMPS_{kind}_{count}"), arena.with_base(0), datatype, pack, unpack)
}

fn ocean() -> Pattern {
    let indices = permutation(3225, 88_881, 3);
    let (arena, base) = Arena::new(&[4 * 88_881]).with_base(0);
    let datatype = chosen(&Datatype::of::<f32>(), 1, &indices);
    let again = indices.clone();
    let pack = move |out| _ = gather::<f32>(base.cast(), &indices, out);
    let unpack = move |input| _ = scatter::<f32>(base.cast(), &again, input);
    Pattern::new("SPECFEM3D_oc_3225", (arena, base), datatype, pack, unpack)
}

fn mantle() -> Pattern {
    let lists = [permutation(11_797, 834_917, 4), permutation(3009, 51_153, 5)];
    let mut arena = Arena::new(&[12 * 834_917, 12 * 51_153]);
    let float = Datatype::of::<f32>();
    let fields: Vec<_> = (0..2).map(|a| (1, arena.offset(a) as i64, chosen(&float, 3, &lists[a]))).collect();
    let datatype = Datatype::structure(&fields).expect("fits");
    let starts = [arena.at(0), arena.at(1)];
    let again = lists.clone();
    let pack = move |mut out| {
        for (start, list) in starts.iter().zip(&lists) {
            out = gather::<[f32; 3]>(start.cast(), list, out);
        }
    };
    let unpack = move |mut input| {
        for (start, list) in starts.iter().zip(&again) {
            input = scatter::<[f32; 3]>(start.cast(), list, input);
        }
    };
    Pattern::new("SPECFEM3D_cm_11797", arena.with_base(0), datatype, pack, unpack)
}

fn touching() -> Pattern {
    let three = Datatype::of::<[f32; 3]>();
    let datatype = three.vector(7600, 1, 2).expect("fits");
    let loops = Loops { outer: (7600, 6), inner: (1, 0), len: 3 };
    let place = Arena::new(&[4 * 3 * 2 * 7600]).with_base(0);
    loops.pattern::<f32>("SPECFEM3D_mt_7600".into(), place, datatype)
}
