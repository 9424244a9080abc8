//! The pools and their selection by name. Those of the mpjbuf paper are in `paper`.

mod any;
#[allow(unsafe_code, reason = "owns an arena that blocks may outlive")]
mod buddy;
#[allow(unsafe_code, reason = "owns an arena that blocks may outlive")]
mod magazine;
mod paper;
#[allow(unsafe_code, reason = "hands out a whole storage as one block")]
mod unpooled;

pub use any::{
    AnyBlock, AnyPool, AnyRawBlock, PoolNameError, PoolVisitor, STORAGES, STRATEGIES, by_name, with_pool,
};
pub use buddy::{Buddy, Growth};
pub use magazine::Magazine;
pub use paper::{Buddy1, Buddy1Lists, Buddy2, Buddy2Lists, PaperBlock, PrivateStorage};
pub use unpooled::{Unpooled, UnpooledBlock};
