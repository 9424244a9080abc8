//! A naive model of datatypes: a list of primitives with their displacements.
#![allow(dead_code, unreachable_pub, reason = "each test file uses another part")]

use mpj_datatypes::{ArrayOrder, Datatype, DistributedDim, Distribution, Primitive, Signature, TypeError};

/// A description that builds both the type and its model.
#[derive(Clone, Debug)]
pub enum Spec {
    Primitive(Primitive),
    Contiguous(usize, Box<Spec>),
    Vector(usize, usize, isize, Box<Spec>),
    HVector(usize, usize, i64, Box<Spec>),
    Indexed(Vec<(usize, isize)>, Box<Spec>),
    HIndexed(Vec<(usize, i64)>, Box<Spec>),
    IndexedBlock(usize, Vec<isize>, Box<Spec>),
    HIndexedBlock(usize, Vec<i64>, Box<Spec>),
    Structure(Vec<(usize, i64, Spec)>),
    Subarray(Vec<(usize, usize, usize)>, ArrayOrder, Box<Spec>),
    Darray(usize, Vec<DistributedDim>, ArrayOrder, Box<Spec>),
    Pair(Primitive, Primitive),
    Dup(Box<Spec>),
    Resized(i64, i64, Box<Spec>),
}

impl Spec {
    pub fn build(&self) -> Result<Datatype, TypeError> {
        match self {
            Spec::Primitive(p) => Ok(Datatype::primitive(*p)),
            Spec::Contiguous(n, inner) => inner.build()?.contiguous(*n),
            Spec::Vector(n, block, stride, inner) => inner.build()?.vector(*n, *block, *stride),
            Spec::HVector(n, block, stride, inner) => inner.build()?.hvector(*n, *block, *stride),
            Spec::Indexed(blocks, inner) => inner.build()?.indexed(blocks),
            Spec::HIndexed(blocks, inner) => inner.build()?.hindexed(blocks),
            Spec::Structure(fields) => {
                let fields: Result<Vec<_>, _> =
                    fields.iter().map(|(n, by, spec)| Ok((*n, *by, spec.build()?))).collect();
                Datatype::structure(&fields?)
            }
            Spec::Resized(lb, extent, inner) => inner.build()?.resized(*lb, *extent),
            Spec::IndexedBlock(block, at, inner) => inner.build()?.indexed_block(*block, at),
            Spec::HIndexedBlock(block, at, inner) => inner.build()?.hindexed_block(*block, at),
            Spec::Subarray(dims, order, inner) => {
                let column = |f: fn(&(usize, usize, usize)) -> usize| dims.iter().map(f).collect::<Vec<_>>();
                let (sizes, subs, starts) = (column(|d| d.0), column(|d| d.1), column(|d| d.2));
                inner.build()?.subarray(&sizes, &subs, &starts, *order)
            }
            Spec::Darray(rank, dims, order, inner) => inner.build()?.darray(*rank, dims, *order),
            Spec::Pair(value, index) => Ok(Datatype::pair(*value, *index)),
            Spec::Dup(inner) => inner.build()?.dup(),
        }
    }

    pub fn model(&self) -> Model {
        match self {
            Spec::Primitive(p) => Model { leaves: vec![(0, *p)], markers: None },
            Spec::Contiguous(n, inner) => Model::blocks(&[(*n, 0)], &inner.model()),
            Spec::Vector(n, block, stride, inner) => {
                let inner = inner.model();
                let step = *stride as i64 * inner.extent();
                Model::blocks(&(0..*n as i64).map(|i| (*block, i * step)).collect::<Vec<_>>(), &inner)
            }
            Spec::HVector(n, block, stride, inner) => Model::blocks(
                &(0..*n as i64).map(|i| (*block, i * stride)).collect::<Vec<_>>(),
                &inner.model(),
            ),
            Spec::Indexed(blocks, inner) => {
                let inner = inner.model();
                let extent = inner.extent();
                let bytes: Vec<_> = blocks.iter().map(|&(n, by)| (n, by as i64 * extent)).collect();
                Model::blocks(&bytes, &inner)
            }
            Spec::HIndexed(blocks, inner) => Model::blocks(blocks, &inner.model()),
            Spec::Structure(fields) => {
                let mut all = Model::default();
                for (n, by, spec) in fields {
                    all.append(&Model::blocks(&[(*n, *by)], &spec.model()));
                }
                all
            }
            Spec::IndexedBlock(block, at, inner) => {
                let inner = inner.model();
                let extent = inner.extent();
                let bytes: Vec<_> = at.iter().map(|&by| (*block, by as i64 * extent)).collect();
                Model::blocks(&bytes, &inner)
            }
            Spec::HIndexedBlock(block, at, inner) => {
                Model::blocks(&at.iter().map(|&by| (*block, by)).collect::<Vec<_>>(), &inner.model())
            }
            Spec::Subarray(dims, order, inner) => {
                let sizes: Vec<_> = dims.iter().map(|d| d.0).collect();
                Model::array(&sizes, *order, &inner.model(), |d, i| {
                    (dims[d].2..dims[d].2 + dims[d].1).contains(&i)
                })
            }
            Spec::Darray(rank, dims, order, inner) => {
                let sizes: Vec<_> = dims.iter().map(|d| d.size).collect();
                let places: Vec<usize> = (0..dims.len())
                    .map(|d| {
                        let faster: usize = dims[d + 1..].iter().map(|d| d.processes).product();
                        rank / faster % dims[d].processes
                    })
                    .collect();
                Model::array(&sizes, *order, &inner.model(), |d, i| {
                    let DistributedDim { size, processes, distribution: how } = dims[d];
                    places[d]
                        == match how {
                            Distribution::Whole => 0,
                            Distribution::Block => i / size.div_ceil(processes),
                            Distribution::BlockOf(block) => i / block,
                            Distribution::Cyclic(block) => i / block % processes,
                        }
                })
            }
            Spec::Pair(value, index) => {
                let at = value.size().div_ceil(index.align()) * index.align();
                Model { leaves: vec![(0, *value), (at as i64, *index)], markers: None }
            }
            Spec::Dup(inner) => inner.model(),
            Spec::Resized(lb, extent, inner) => Model { markers: Some((*lb, lb + extent)), ..inner.model() },
        }
    }
}

/// The type map, with explicit bounds if there are any.
#[derive(Clone, Debug, Default)]
pub struct Model {
    pub leaves: Vec<(i64, Primitive)>,
    pub markers: Option<(i64, i64)>,
}

impl Model {
    fn append(&mut self, other: &Model) {
        self.leaves.extend(&other.leaves);
        self.markers = match (self.markers, other.markers) {
            (Some((a, b)), Some((c, d))) => Some((a.min(c), b.max(d))),
            (a, b) => a.or(b),
        };
    }

    fn blocks(blocks: &[(usize, i64)], inner: &Model) -> Model {
        let mut all = Model::default();
        let extent = inner.extent();
        for &(n, by) in blocks {
            for i in 0..n as i64 {
                let at = by + i * extent;
                all.append(&Model {
                    leaves: inner.leaves.iter().map(|&(d, p)| (d + at, p)).collect(),
                    markers: inner.markers.map(|(lb, ub)| (lb + at, ub + at)),
                });
            }
        }
        all
    }

    /// The elements of an array with `owned(dimension, index)` in every dimension, with the bounds of the array.
    fn array(
        sizes: &[usize],
        order: ArrayOrder,
        inner: &Model,
        owned: impl Fn(usize, usize) -> bool,
    ) -> Model {
        let mut dims: Vec<usize> = (0..sizes.len()).collect();
        if order == ArrayOrder::Fortran {
            dims.reverse();
        }
        let total: usize = sizes.iter().product();
        let mut blocks = Vec::new();
        for flat in 0..total {
            let mut rest = flat;
            let mine = dims.iter().rev().fold(true, |mine, &d| {
                let i = rest % sizes[d];
                rest /= sizes[d];
                mine & owned(d, i)
            });
            if mine {
                blocks.push((1, flat as i64 * inner.extent()));
            }
        }
        let all = Model::blocks(&blocks, inner);
        if sizes.is_empty() {
            return all;
        }
        Model { markers: Some((0, total as i64 * inner.extent())), ..all }
    }

    pub fn items(&self, count: usize) -> Model {
        Model::blocks(&[(count, 0)], self)
    }

    pub fn touched(&self) -> (i64, i64) {
        let low = self.leaves.iter().map(|l| l.0).min().unwrap_or(0);
        let high = self.leaves.iter().map(|l| l.0 + l.1.size() as i64).max().unwrap_or(0);
        (low, high)
    }

    pub fn lb(&self) -> i64 {
        self.markers.map_or(self.touched().0, |m| m.0)
    }

    pub fn extent(&self) -> i64 {
        if let Some((lb, ub)) = self.markers {
            return ub - lb;
        }
        let (low, high) = self.touched();
        let align = self.leaves.iter().map(|l| l.1.align() as i64).max().unwrap_or(1);
        (high - low + align - 1) / align * align
    }

    /// Returns the displacement of every packed byte.
    pub fn bytes(&self) -> Vec<i64> {
        self.leaves.iter().flat_map(|&(at, p)| (0..p.size() as i64).map(move |i| at + i)).collect()
    }

    pub fn signature(&self) -> Signature {
        self.leaves.iter().fold(Signature::EMPTY, |s, l| s.concat(Signature::of(l.1)))
    }
}
