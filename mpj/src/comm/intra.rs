//! A communicator of one group, and how others are made from it.

use crate::error::Result;
use crate::raw;

/// A group of ranks that exchange messages no other communicator sees.
///
/// Handles are cheap to clone and can be used from many threads at once (`THREAD_MULTIPLE`).
///
/// ```
/// # mpj::threads(4, |world| {
/// // Two halves, each with its own ranks and messages.
/// let half = world.split(Some((world.rank() / 2) as u32), 0)?.expect("every rank has a color");
/// assert_eq!(half.size(), 2);
/// let mut sum = [0usize];
/// half.allreduce(&[world.rank()], &mut sum, mpj::Op::Sum)?;
/// assert_eq!(sum[0], if world.rank() < 2 { 1 } else { 5 });
/// # Ok::<(), mpj::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Intracomm {
    raw: raw::Comm,
}

impl Intracomm {
    pub(crate) fn new(raw: raw::Comm) -> Self {
        Intracomm { raw }
    }

    /// Returns the erased communicator under this one.
    pub fn as_raw(&self) -> &raw::Comm {
        &self.raw
    }

    /// Returns this process's rank, from 0.
    #[inline]
    pub fn rank(&self) -> usize {
        self.raw.rank() as usize
    }

    /// Returns the number of ranks.
    #[inline]
    pub fn size(&self) -> usize {
        self.raw.size() as usize
    }

    /// Makes a communicator of the same ranks with its own messages. Collective.
    ///
    /// # Errors
    /// A rank has died, or there are too many communicators.
    pub fn dup(&self) -> Result<Intracomm> {
        self.raw.dup().map(Intracomm::new)
    }

    /// Makes one communicator for each color, ranks in order of key and then of old rank. Collective; with `None` for
    /// a color a rank takes no part and gets `None`.
    ///
    /// # Errors
    /// A color above 2,147,483,647, a dead rank, too many communicators.
    pub fn split(&self, color: Option<u32>, key: i32) -> Result<Option<Intracomm>> {
        let color = match color {
            None => raw::UNDEFINED,
            Some(color) => i32::try_from(color).map_err(|_| {
                let why = format!("color {color} is above 2147483647");
                crate::Error::new(crate::Class::Arg, "split", why)
            })?,
        };
        Ok(self.raw.split(color, key)?.map(Intracomm::new))
    }

    /// Frees the communicator on this rank: every later call on any of its handles is an error, and so is what is
    /// pending. Dropping the last handle frees it too.
    ///
    /// # Errors
    /// It was freed before, or it is the world.
    pub fn free(&self) -> Result<()> {
        self.raw.free()
    }
}
