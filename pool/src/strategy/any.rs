//! Pools chosen by name at run time.

use core::fmt;
use core::mem::MaybeUninit;
use core::ptr::NonNull;

use super::{Buddy, Buddy1, Buddy2, Growth, Magazine, Unpooled};
#[cfg(all(target_os = "linux", not(mpj_portable)))]
use crate::SharedStorage;
use crate::{AllocError, Heap, Huge, Pages, Pool, PoolStats, RawBuffer, RegionKey};

/// A pool whose type is chosen at run time.
///
/// Each allocation costs a virtual call and a `Box` in addition. For benchmarks, use [`with_pool`].
pub trait AnyPool: Send + Sync + fmt::Debug {
    /// As [`Pool::alloc`].
    ///
    /// # Errors
    /// As for [`Pool::alloc`].
    fn alloc(&self, len: usize) -> Result<AnyBlock, AllocError>;
    /// As [`Pool::max_alloc`].
    fn max_alloc(&self) -> usize;
    /// As [`Pool::stats`].
    fn stats(&self) -> PoolStats;
    /// As [`Pool::trim`].
    fn trim(&self) -> usize;
    /// As [`Pool::validate`].
    ///
    /// # Errors
    /// As for [`Pool::validate`].
    fn validate(&self) -> Result<(), String>;
}

/// A block of an [`AnyPool`].
pub type AnyBlock = Box<dyn AnyRawBlock>;

/// The methods of a block of any pool. Only [`RawBuffer`]s implement this trait: callers rely on their contract.
///
/// ```compile_fail,E0277
/// # use std::{mem::MaybeUninit, ptr::NonNull};
/// # use mpj_pool::{RegionKey, strategy::AnyRawBlock};
/// #[derive(Debug)]
/// struct Nowhere;
///
/// impl AnyRawBlock for Nowhere {
///     fn as_ptr(&self) -> NonNull<u8> {
///         NonNull::dangling()
///     }
///     # fn capacity(&self) -> usize { 1 }
///     # fn region_offset(&self) -> Option<(RegionKey, usize)> { None }
///     # fn as_uninit_mut(&mut self) -> &mut [MaybeUninit<u8>] { &mut [] }
/// }
/// ```
pub trait AnyRawBlock: sealed::Sealed + Send + fmt::Debug {
    /// As [`RawBuffer::as_ptr`].
    fn as_ptr(&self) -> NonNull<u8>;
    /// As [`RawBuffer::capacity`].
    fn capacity(&self) -> usize;
    /// As [`RawBuffer::region_offset`].
    fn region_offset(&self) -> Option<(RegionKey, usize)>;
    /// As [`RawBuffer::as_uninit_mut`].
    fn as_uninit_mut(&mut self) -> &mut [MaybeUninit<u8>];
}

mod sealed {
    #[expect(unnameable_types, reason = "seals `AnyRawBlock`")]
    pub trait Sealed {}

    impl<B: crate::RawBuffer> Sealed for B {}
}

impl<B: RawBuffer + fmt::Debug> AnyRawBlock for B {
    fn as_ptr(&self) -> NonNull<u8> {
        RawBuffer::as_ptr(self)
    }

    fn capacity(&self) -> usize {
        RawBuffer::capacity(self)
    }

    fn region_offset(&self) -> Option<(RegionKey, usize)> {
        RawBuffer::region_offset(self)
    }

    fn as_uninit_mut(&mut self) -> &mut [MaybeUninit<u8>] {
        RawBuffer::as_uninit_mut(self)
    }
}

impl<P: Pool> AnyPool for P {
    fn alloc(&self, len: usize) -> Result<AnyBlock, AllocError> {
        Pool::alloc(self, len).map(|block| Box::new(block) as AnyBlock)
    }

    fn max_alloc(&self) -> usize {
        Pool::max_alloc(self)
    }

    fn stats(&self) -> PoolStats {
        Pool::stats(self)
    }

    fn trim(&self) -> usize {
        Pool::trim(self)
    }

    fn validate(&self) -> Result<(), String> {
        Pool::validate(self)
    }
}

/// The names of the strategies for [`by_name`] and [`with_pool`].
pub const STRATEGIES: [&str; 6] = ["magazine", "buddy", "buddy-eager", "buddy1", "buddy2", "unpooled"];

/// The names of the storages for [`by_name`] and [`with_pool`] on this system.
pub const STORAGES: &[&str] = &[
    "pages",
    "heap",
    "huge",
    #[cfg(all(target_os = "linux", not(mpj_portable)))]
    "shared",
];

/// An invalid name of a strategy or storage, or an invalid pair of them.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PoolNameError {
    /// No strategy has the name.
    Strategy(String),
    /// No storage has the name.
    Storage(String),
    /// The strategy (the first name) keeps its lists in free blocks, and other processes could write to the storage.
    Pair(&'static str, &'static str),
}

impl fmt::Display for PoolNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PoolNameError::Strategy(name) => {
                write!(f, "unknown pool strategy {name:?}: expected one of {}", STRATEGIES.join(", "))
            }
            PoolNameError::Storage(name) => {
                write!(f, "unknown storage {name:?}: expected one of {}", STORAGES.join(", "))
            }
            PoolNameError::Pair(strategy, storage) => {
                write!(f, "{strategy} does not support {storage} storage")
            }
        }
    }
}

impl core::error::Error for PoolNameError {}

/// An operation on a pool of any type.
pub trait PoolVisitor {
    /// The result of the operation.
    type Output;

    /// Runs the operation.
    fn visit<P: Pool + 'static>(self, pool: P) -> Self::Output;
}

/// Creates the pool with these names and passes it to `visitor` with its static type, so that a benchmark measures the
/// same code as a program that names the type.
///
/// ```
/// use mpj_pool::{Growth, Pool, strategy};
///
/// struct Alloc(usize);
/// impl strategy::PoolVisitor for Alloc {
///     type Output = bool;
///     fn visit<P: Pool + 'static>(self, pool: P) -> bool {
///         pool.alloc(self.0).is_ok()
///     }
/// }
///
/// for name in strategy::STRATEGIES {
///     assert_eq!(strategy::with_pool(name, "heap", Growth::PAPER, Alloc(4096)), Ok(true));
/// }
/// ```
///
/// # Errors
/// [`PoolNameError`] if a name is unknown, or the two cannot be combined.
pub fn with_pool<V: PoolVisitor>(
    strategy: &str,
    storage: &str,
    growth: Growth,
    visitor: V,
) -> Result<V::Output, PoolNameError> {
    macro_rules! on {
        ($storage:ty, $buddy1:expr) => {
            match strategy {
                "magazine" => visitor.visit(Magazine::growing(growth, <$storage>::create)),
                "buddy" => visitor.visit(Buddy::growing(growth, <$storage>::create)),
                "buddy-eager" => visitor.visit(Buddy::growing(growth.eager_merge(), <$storage>::create)),
                "buddy1" => $buddy1,
                "buddy2" => visitor.visit(Buddy2::growing(growth, <$storage>::create)),
                "unpooled" => visitor.visit(Unpooled::new(growth.limit, <$storage>::create)),
                _ => return Err(PoolNameError::Strategy(strategy.to_owned())),
            }
        };
    }
    Ok(match storage {
        "pages" => on!(Pages, visitor.visit(Buddy1::growing(growth, Pages::create))),
        "heap" => on!(Heap, visitor.visit(Buddy1::growing(growth, Heap::create))),
        "huge" => on!(Huge, visitor.visit(Buddy1::growing(growth, Huge::create))),
        #[cfg(all(target_os = "linux", not(mpj_portable)))]
        "shared" => on!(SharedStorage, return Err(PoolNameError::Pair("buddy1", "shared"))),
        _ => return Err(PoolNameError::Storage(storage.to_owned())),
    })
}

/// Creates the pool with these names.
///
/// ```
/// use mpj_pool::{Growth, strategy};
/// let pool = strategy::by_name("magazine", "pages", Growth::default())?;
/// assert!(pool.alloc(1000)?.capacity() >= 1000);
/// assert!(strategy::by_name("slab", "pages", Growth::default()).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`PoolNameError`] if a name is unknown, or the two cannot be combined.
pub fn by_name(strategy: &str, storage: &str, growth: Growth) -> Result<Box<dyn AnyPool>, PoolNameError> {
    struct Boxed;
    impl PoolVisitor for Boxed {
        type Output = Box<dyn AnyPool>;

        fn visit<P: Pool + 'static>(self, pool: P) -> Box<dyn AnyPool> {
            Box::new(pool)
        }
    }
    with_pool(strategy, storage, growth, Boxed)
}
