//! The pools of this project.

use mpj_pool::strategy::{PoolNameError, PoolVisitor, STRATEGIES, with_pool};
use mpj_pool::{Growth, Pool};

use super::contender::{Contender, Kind, Name, Ours, PoolContender};

/// The direct and indirect buffers of the paper: mapped pages, and memory of the global allocator.
const STORAGES: [&str; 2] = ["pages", "heap"];

pub(super) fn names() -> impl Iterator<Item = Name> {
    let named = |strategy| STORAGES.map(|storage| Name { strategy, storage, kind: Kind::Ours });
    STRATEGIES.into_iter().flat_map(named)
}

pub(super) fn make(name: Name) -> Result<Box<dyn Contender + Send>, PoolNameError> {
    let growth = match name.strategy {
        "magazine" | "buddy" => Growth::DEFAULT,
        _ => Growth::PAPER,
    };
    with_pool(name.strategy, name.storage, growth, MakeContender(name))
}

struct MakeContender(Name);

impl PoolVisitor for MakeContender {
    type Output = Box<dyn Contender + Send>;

    fn visit<P: Pool + 'static>(self, pool: P) -> Self::Output {
        Box::new(PoolContender::new(self.0, Ours(pool)))
    }
}
