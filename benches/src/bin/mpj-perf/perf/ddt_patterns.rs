//! The access patterns of `ddt.c` (see [`super`]): shapes published for DDTBench (WRF halos, MILC su3 zdown, NAS MG
//! faces, NAS LU, FFT2D transpose, LAMMPS, SPECFEM3D) and plain vectors.

use mpj::{Datatype, Receivable};

use super::Failure;
use super::ddt::Measured;
use super::ddt_by_hand::{List, ManualLoops, NestedLoop};
use super::memory::{PAGE, Pages};

pub(super) trait Element: Receivable + bytemuck::Pod {}

impl<T: Receivable + bytemuck::Pod> Element for T {}

/// A pattern: its memory, its datatypes, and the equivalent manual loops.
#[derive(Debug)]
pub(super) struct Pattern<T> {
    pub(super) name: String,
    pub(super) data: Pages<T>,
    /// The index of the element at displacement 0.
    pub(super) start: usize,
    pub(super) send: Datatype,
    pub(super) recv: Datatype,
    /// Whether `recv` equals `send`.
    pub(super) symmetric: bool,
    pub(super) manual: Vec<ManualLoops<T>>,
}

type Patterns = Vec<Box<dyn Measured>>;

/// Arrays in one allocation, each of which starts on a page.
#[derive(Debug)]
struct Arrays<T> {
    data: Pages<T>,
    starts: Vec<usize>,
}

impl<T: Element> Arrays<T> {
    fn new(lens: impl IntoIterator<Item = usize>) -> Result<Self, Failure> {
        let page = PAGE / size_of::<T>();
        let (mut end, mut bounds) = (0, Vec::new());
        for len in lens {
            bounds.push((end, len));
            end = (end + len).next_multiple_of(page) + page;
        }
        let mut data = Pages::filled(end, T::zeroed())?;
        for &(start, len) in &bounds {
            let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut data[start..][..len]);
            for (at, byte) in bytes.iter_mut().enumerate() {
                *byte = (at * 131 + (at >> 8) * 7 + 1) as u8;
            }
        }
        Ok(Arrays { data, starts: bounds.into_iter().map(|(start, _)| start).collect() })
    }

    /// Returns a structure with a field for each array: a datatype at an offset in elements.
    fn structure(&self, types: impl IntoIterator<Item = (usize, Datatype)>) -> Result<Datatype, Failure> {
        let field = |(start, (offset, datatype)): (&usize, _)| (1, bytes::<T>(start + offset), datatype);
        Ok(Datatype::structure(&self.starts.iter().zip(types).map(field).collect::<Vec<_>>())?)
    }

    fn pattern(self, name: String, send: Datatype, manual: Vec<ManualLoops<T>>) -> Pattern<T> {
        Pattern { name, data: self.data, start: 0, recv: send.clone(), send, symmetric: true, manual }
    }
}

impl<T: Element> Pattern<T> {
    /// Makes a pattern in one array of `len` elements. Displacement 0 is element `start`.
    fn new(
        name: String,
        len: usize,
        start: usize,
        send: Datatype,
        manual: ManualLoops<T>,
    ) -> Result<Self, Failure> {
        Ok(Pattern { start, ..Arrays::new([len])?.pattern(name, send, vec![manual]) })
    }

    fn boxed(self) -> Box<dyn Measured> {
        Box::new(self)
    }
}

fn bytes<T>(elements: usize) -> i64 {
    (elements * size_of::<T>()) as i64
}

pub(super) fn all() -> Result<Patterns, Failure> {
    let mut patterns = Vec::new();
    for subarray in [false, true] {
        patterns.push(wrf("x", subarray, [22, 0, 4], [3, 65, 44])?); // 3 columns wide
        patterns.push(wrf("y", subarray, [5, 0, 7], [23, 65, 3])?); // 3 rows
        patterns.push(wrf("z", subarray, [5, 1, 4], [23, 3, 44])?); // 3 levels, not in DDTBench
    }
    patterns.extend([milc(16)?, milc(8)?]);
    patterns.extend(mg([130, 66, 66])?);
    patterns.extend(mg([258, 130, 130])?);
    for size in [33, 102, 408] {
        patterns.extend(lu(size)?);
    }
    patterns.extend([fft(256)?, fft(1024)?]);
    patterns.extend([lammps("full", 6, 3062, 3534)?, lammps("atomic", 4, 243, 4084)?]);
    patterns.extend(specfem()?);
    let payloads = [1024, 8192, 65536, 524_288, 4_194_304];
    for payload in payloads {
        patterns.push(vector::<1>(payload)?);
    }
    for payload in payloads {
        patterns.push(vector::<2>(payload)?);
    }
    for payload in payloads {
        patterns.push(vector::<8>(payload)?);
    }
    for payload in payloads {
        patterns.push(vector::<64>(payload)?);
    }
    Ok(patterns)
}

/// Returns the pattern of a box in each of nine arrays, of which the first four have two dimensions.
fn wrf(
    direction: &str,
    subarray: bool,
    [i, k, j]: [usize; 3],
    [ni, nk, nj]: [usize; 3],
) -> Result<Box<dyn Measured>, Failure> {
    const ARRAYS: usize = 9;
    const FLAT: usize = 4;
    let [d1, d2, d3] = [32, 65, 52];
    let float = Datatype::of::<f32>();
    let arrays = Arrays::<f32>::new((0..ARRAYS).map(|a| if a < FLAT { d1 * d3 } else { d1 * d2 * d3 }))?;
    let (flat_at, cube_at) = (j * d1 + i, (j * d2 + k) * d1 + i);
    let flat = float.vector(nj, ni, d1 as isize)?;
    let cube = float.vector(nk, ni, d1 as isize)?.hvector(nj, 1, bytes::<f32>(d1 * d2))?;
    // A subarray includes the position of the box, and has the extent of the whole array.
    let placed = |inner: &Datatype, at, whole| {
        Datatype::structure(&[(1, bytes::<f32>(at), inner.clone())])?.resized(0, bytes::<f32>(whole))
    };
    let [flat, cube] = if subarray {
        [(0, placed(&flat, flat_at, d1 * d3)?), (0, placed(&cube, cube_at, d1 * d2 * d3)?)]
    } else {
        [(flat_at, flat), (cube_at, cube)]
    };
    let of_each = |a| if a < FLAT { flat.clone() } else { cube.clone() };
    let send = arrays.structure((0..ARRAYS).map(of_each))?;
    let piece = |(a, start)| {
        let grid = if a < FLAT {
            NestedLoop { start: start + flat_at, outer: nj, outer_stride: d1, inner: 1, inner_stride: 0 }
        } else {
            NestedLoop {
                start: start + cube_at,
                outer: nj,
                outer_stride: d1 * d2,
                inner: nk,
                inner_stride: d1,
            }
        };
        ManualLoops::runs(grid, ni)
    };
    let manual = arrays.starts.iter().copied().enumerate().map(piece).collect();
    let name = format!("WRF_{direction}_{}", if subarray { "sa" } else { "vec" });
    Ok(arrays.pattern(name, send, manual).boxed())
}

/// Returns the pattern of a hyperplane of complex 3-vectors in a lattice of `d`⁴ sites. Even and odd sites are stored
/// separately.
fn milc(d: usize) -> Result<Box<dyn Measured>, Failure> {
    let (plane, cube, all) = (d * d / 2, d * d * d / 2, d * d * d * d / 2);
    let vector = Datatype::of::<f32>().contiguous(6)?;
    let send = vector.vector(d, plane, cube as isize)?.hvector(2, 1, bytes::<f32>(6 * all))?;
    let grid = NestedLoop { start: 0, outer: 2, outer_stride: 6 * all, inner: d, inner_stride: 6 * cube };
    let name = format!("MILC_su3_zd_{d}x{d}x{d}x{d}");
    Ok(Pattern::<f32>::new(name, 12 * all, 0, send, ManualLoops::runs(grid, 6 * plane))?.boxed())
}

/// Returns the patterns of three faces of a box with ghost cells.
fn mg([a, b, c]: [usize; 3]) -> Result<[Box<dyn Measured>; 3], Failure> {
    let double = Datatype::of::<f64>();
    let face = |axis, start, send, manual| {
        let name = format!("NAS_MG_{axis}_{a}x{b}x{c}");
        Pattern::<f64>::new(name, a * b * c, start, send, manual).map(Pattern::boxed)
    };
    let x = double.vector(b - 2, 1, a as isize)?.hvector(c - 2, 1, bytes::<f64>(a * b))?;
    let manual = NestedLoop { start: 0, outer: c - 2, outer_stride: a * b, inner: b - 2, inner_stride: a };
    let x = face("x", (a - 2) + a * (1 + b), x, ManualLoops::fixed::<1, _>(manual))?;
    let y = double.vector(c - 2, a - 2, (a * b) as isize)?;
    let y = face("y", 1 + a * ((b - 2) + b), y, ManualLoops::runs(NestedLoop::line(c - 2, a * b), a - 2))?;
    let z = double.vector(b - 2, a - 2, a as isize)?;
    let z = face("z", 1 + a * (1 + b), z, ManualLoops::runs(NestedLoop::line(b - 2, a), a - 2))?;
    Ok([x, y, z])
}

/// Returns the patterns of a row and a column of cells of five numbers.
fn lu(d: usize) -> Result<[Box<dyn Measured>; 2], Failure> {
    let (double, len) = (Datatype::of::<f64>(), 5 * (d + 2) * (d + 2));
    let row = (double.contiguous(5 * d)?, ManualLoops::runs(NestedLoop::line(1, 0), 5 * d));
    let column = double.contiguous(5)?.vector(d, 1, (d + 2) as isize)?;
    let column = (column, ManualLoops::fixed::<5, _>(NestedLoop::line(d, 5 * (d + 2))));
    let x = Pattern::<f64>::new(format!("NAS_LU_x_{d}"), len, 5 * (1 + d * (d + 2)), row.0, row.1)?;
    let y = Pattern::<f64>::new(format!("NAS_LU_y_{d}"), len, 5 * (d + d + 2), column.0, column.1)?;
    Ok([x.boxed(), y.boxed()])
}

/// Returns the pattern of a transpose: columns are sent and rows are received.
fn fft(size: usize) -> Result<Box<dyn Measured>, Failure> {
    let n = size / 2;
    let complex = Datatype::of::<f64>().contiguous(2)?;
    let send = complex.vector(n, 1, size as isize)?.resized(0, 16)?.contiguous(n)?;
    let recv = complex.vector(n, n, size as isize)?.resized(0, bytes::<f64>(2 * n))?;
    let columns = NestedLoop { start: 0, outer: n, outer_stride: 2, inner: n, inner_stride: 2 * size };
    let rows = ManualLoops::runs(NestedLoop::line(n, 2 * size), 2 * n);
    let manual = ManualLoops { unpack: rows.unpack, ..ManualLoops::fixed::<2, _>(columns) };
    let pattern = Pattern::<f64>::new(format!("FFT2D_{size}_p2"), 2 * size * n, 0, send, manual)?;
    Ok(Pattern { recv, symmetric: false, ..pattern }.boxed())
}

/// Returns `count` distinct indices below `range` in random order, the same as those of `ddt.c`.
fn permutation(count: usize, range: usize, seed: u32) -> Vec<usize> {
    let mut indices: Vec<usize> = (0..range).collect();
    let mut state = u64::from(seed.wrapping_mul(2_654_435_761).wrapping_add(12345));
    for at in 0..count {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let with = at + ((state >> 33) % (range - at) as u64) as usize;
        indices.swap(at, with);
    }
    indices.truncate(count);
    indices
}

/// Returns a datatype of blocks of `block` elements. The n-th block starts at `block` times the n-th index.
fn indexed<T: Element>(indices: &[usize], block: usize) -> Result<Datatype, Failure> {
    let blocks: Vec<_> = indices.iter().map(|at| (block, (block * at) as isize)).collect();
    Ok(Datatype::of::<T>().indexed(&blocks)?)
}

/// Returns the pattern of selected particles: an array of 3-vectors and arrays of numbers, all at the same indices.
fn lammps(kind: &str, arrays: usize, count: usize, range: usize) -> Result<Box<dyn Measured>, Failure> {
    let indices = permutation(count, range, 7);
    let (vectors, numbers) = (indexed::<f64>(&indices, 3)?, indexed::<f64>(&indices, 1)?);
    let memory = Arrays::<f64>::new((0..arrays).map(|a| (range + count) * if a == 0 { 3 } else { 1 }))?;
    let send =
        memory.structure((0..arrays).map(|a| (0, if a == 0 { vectors.clone() } else { numbers.clone() })))?;
    let piece = |(a, start)| match a {
        0 => ManualLoops::fixed::<3, _>(List::new(start, 3, &indices)),
        _ => ManualLoops::fixed::<1, _>(List::new(start, 1, &indices)),
    };
    let manual = memory.starts.iter().copied().enumerate().map(piece).collect();
    Ok(memory.pattern(format!("LAMMPS_{kind}_{count}"), send, manual).boxed())
}

/// Returns the patterns of the boundaries of the outer core and of crust and mantle, and of mass terms.
fn specfem() -> Result<[Box<dyn Measured>; 3], Failure> {
    let core = permutation(3225, 88_881, 3);
    let manual = ManualLoops::fixed::<1, _>(List::new(0, 1, &core));
    let outer =
        Pattern::<f32>::new("SPECFEM3D_oc_3225".into(), 88_881, 0, indexed::<f32>(&core, 1)?, manual)?;

    let indices = [permutation(11797, 834_917, 4), permutation(3009, 51153, 5)];
    let memory = Arrays::<f32>::new([3 * 834_917, 3 * 51153])?;
    let send =
        memory.structure([(0, indexed::<f32>(&indices[0], 3)?), (0, indexed::<f32>(&indices[1], 3)?)])?;
    let piece =
        |(start, indices): (&usize, &Vec<usize>)| ManualLoops::fixed::<3, _>(List::new(*start, 3, indices));
    let manual = memory.starts.iter().zip(&indices).map(piece).collect();
    let mantle = memory.pattern("SPECFEM3D_cm_11797".into(), send, manual);

    let send = Datatype::of::<f32>().contiguous(3)?.vector(7600, 1, 2)?;
    let manual = ManualLoops::runs(NestedLoop::line(7600, 6), 3);
    let mass = Pattern::<f32>::new("SPECFEM3D_mt_7600".into(), 6 * 7600, 0, send, manual)?;
    Ok([outer.boxed(), mantle.boxed(), mass.boxed()])
}

/// Returns the pattern of every second block of `L` numbers.
fn vector<const L: usize>(payload: usize) -> Result<Box<dyn Measured>, Failure> {
    let count = payload / size_of::<f64>() / L;
    let send = Datatype::of::<f64>().vector(count, L, 2 * L as isize)?;
    let name = format!("vec_bl{L}_{}K", payload >> 10);
    Ok(Pattern::<f64>::new(name, 2 * count * L, 0, send, ManualLoops::every_second::<L>(count))?.boxed())
}
