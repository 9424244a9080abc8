//! The values that are encoded and decoded.

use serde::{Deserialize, Serialize};

/// An unstructured mesh, with a few long vectors and many short ones.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(
    feature = "comparators",
    derive(bincode::Encode, bincode::Decode, bitcode::Encode, bitcode::Decode)
)]
#[cfg_attr(feature = "comparators", derive(rkyv::Archive, rkyv::Serialize, rkyv::Deserialize))]
#[cfg_attr(feature = "comparators", derive(wincode::SchemaWrite, wincode::SchemaRead))]
pub(in super::super) struct Mesh {
    pub(super) name: String,
    pub(super) points: Vec<[f64; 3]>,
    /// The 4 to 8 corners of each cell.
    pub(super) cells: Vec<Vec<u32>>,
    pub(super) neighbours: Vec<Vec<u32>>,
    pub(super) fields: Vec<Field>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(
    feature = "comparators",
    derive(bincode::Encode, bincode::Decode, bitcode::Encode, bitcode::Decode)
)]
#[cfg_attr(feature = "comparators", derive(rkyv::Archive, rkyv::Serialize, rkyv::Deserialize))]
#[cfg_attr(feature = "comparators", derive(wincode::SchemaWrite, wincode::SchemaRead))]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) values: Vec<f64>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(
    feature = "comparators",
    derive(bincode::Encode, bincode::Decode, bitcode::Encode, bitcode::Decode)
)]
#[cfg_attr(feature = "comparators", derive(rkyv::Archive, rkyv::Serialize, rkyv::Deserialize))]
#[cfg_attr(feature = "comparators", derive(wincode::SchemaWrite, wincode::SchemaRead))]
pub(super) struct Record {
    pub(super) time: u64,
    pub(super) level: Level,
    pub(super) rank: u32,
    pub(super) target: String,
    pub(super) message: String,
    pub(super) elapsed: Option<f64>,
    pub(super) tags: Vec<(String, i64)>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(
    feature = "comparators",
    derive(bincode::Encode, bincode::Decode, bitcode::Encode, bitcode::Decode)
)]
#[cfg_attr(feature = "comparators", derive(rkyv::Archive, rkyv::Serialize, rkyv::Deserialize))]
#[cfg_attr(feature = "comparators", derive(wincode::SchemaWrite, wincode::SchemaRead))]
pub(super) enum Level {
    Info,
    Warn { code: u16 },
    Error(String),
}

pub(super) fn numbers() -> Vec<f64> {
    (0..100_000).map(|at| f64::from(at).sqrt()).collect()
}

/// Returns a mesh of 5 000 cells: 584 KB of numbers, 200 KB of them in 10 000 short vectors.
pub(in super::super) fn mesh() -> Mesh {
    const CELLS: u32 = 5_000;
    const POINTS: u32 = 8_000;
    let points = (0..POINTS).map(f64::from).map(|at| [at.sin(), at.cos(), at * 1e-3]).collect();
    let corners = |cell: u32| (0..4 + cell % 5).map(|corner| (cell * 7 + corner * 131) % POINTS).collect();
    let next = |cell: u32| (1..4 + cell % 3).map(|step| (cell + step * 17) % CELLS).collect();
    let field = |name: &str| Field {
        name: name.to_owned(),
        values: (0..POINTS).map(|at| f64::from(at % 977) * 0.25).collect(),
    };
    Mesh {
        name: "wing".to_owned(),
        points,
        cells: (0..CELLS).map(corners).collect(),
        neighbours: (0..CELLS).map(next).collect(),
        fields: ["pressure", "density", "energy"].map(field).into(),
    }
}

pub(super) fn records() -> Vec<Record> {
    let record = |at: u32| Record {
        time: 1_700_000_000_000 + u64::from(at) * 137,
        level: match at % 16 {
            0 => Level::Error(format!("rank {} does not answer", at % 64)),
            1 | 2 => Level::Warn { code: (at % 500) as u16 },
            _ => Level::Info,
        },
        rank: at % 64,
        target: ["engine::match", "device::shm", "pool", "collective::tree"][at as usize % 4].to_owned(),
        message: format!("message {at} of {} bytes from rank {}", at * 37 % 65_536, at % 61),
        elapsed: at.is_multiple_of(3).then_some(f64::from(at) * 1e-6),
        tags: (0..at % 3).map(|tag| (format!("tag{tag}"), i64::from(at) - 1000)).collect(),
    };
    (0..2_000).map(record).collect()
}
