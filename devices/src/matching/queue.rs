//! A queue from which the earliest matching entry is removed: a plain list while that entry is near the front, and
//! [`Bins`] after deep searches.

use std::collections::VecDeque;

use super::bins::{BinEntry, BinKey, Bins};

/// A search that passes over at most this number of entries is not deep.
const SHALLOW: usize = 16;

/// A list is moved into bins when deep searches have passed over more entries than this multiple of its length. By then
/// the searches have cost about as much as building the bins will.
const BIN_FACTOR: usize = 8;

/// The ratio of capacity to length above which a queue with more than `LARGE` places releases memory.
const SPARSE: usize = 4;
const LARGE: usize = 1024;

#[derive(Debug)]
pub(super) struct Queue<T, const LISTS: usize> {
    /// Empty while there are bins.
    list: VecDeque<T>,
    bins: Option<Box<Bins<T, LISTS>>>,
    /// The number of entries that deep searches in the list have passed over.
    passed: usize,
}

impl<T: BinEntry<LISTS>, const LISTS: usize> Queue<T, LISTS> {
    pub(super) fn new() -> Self {
        Queue { list: VecDeque::new(), bins: None, passed: 0 }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.bins.as_ref().map_or(self.list.len(), |bins| bins.len())
    }

    #[inline]
    pub(super) fn push(&mut self, entry: T) {
        match &mut self.bins {
            None => self.list.push_back(entry),
            Some(bins) => bins.push(entry),
        }
    }

    /// Returns the earliest entry for which `fits` returns true; `keys` returns the keys of all such entries.
    #[inline]
    pub(super) fn peek<const KEYS: usize>(
        &mut self,
        fits: impl Fn(&T) -> bool,
        keys: impl FnOnce() -> [BinKey; KEYS],
    ) -> Option<&T> {
        let at = self.find(fits, keys)?;
        match &self.bins {
            None => self.list.get(at),
            Some(bins) => bins.get(at),
        }
    }

    #[inline]
    pub(super) fn take<const KEYS: usize>(
        &mut self,
        fits: impl Fn(&T) -> bool,
        keys: impl FnOnce() -> [BinKey; KEYS],
    ) -> Option<T> {
        if self.list.front().is_some_and(&fits) {
            return self.remove_first();
        }
        if self.len() == 0 {
            return None;
        }
        let at = self.find(fits, keys)?;
        self.remove(at)
    }

    /// Returns the position of the entry that `peek` returns: its index in the list, or its slot in the bins.
    #[inline]
    fn find<const KEYS: usize>(
        &mut self,
        fits: impl Fn(&T) -> bool,
        keys: impl FnOnce() -> [BinKey; KEYS],
    ) -> Option<usize> {
        if self.bins.is_some() {
            return self.find_in_bins(fits, keys);
        }
        let at = self.list.iter().position(fits);
        let passed = at.unwrap_or(self.list.len());
        if passed > SHALLOW {
            self.note_deep_search(passed);
        }
        at
    }

    /// Counts a deep search, and moves the list into bins if the searches have passed over enough entries. A position
    /// in the list is also the slot in the bins.
    #[cold]
    fn note_deep_search(&mut self, passed: usize) {
        self.passed += passed;
        if self.passed > BIN_FACTOR * self.list.len() {
            let list = std::mem::take(&mut self.list);
            self.bins = Some(Box::new(Bins::new(list)));
        }
    }

    #[inline(never)]
    fn find_in_bins<const KEYS: usize>(
        &mut self,
        fits: impl Fn(&T) -> bool,
        keys: impl FnOnce() -> [BinKey; KEYS],
    ) -> Option<usize> {
        let bins = self.bins.as_mut()?;
        let front = bins.front();
        if bins.get(front).is_some_and(&fits) {
            return Some(front);
        }
        let at = bins.find(&keys());
        debug_assert!(at.and_then(|at| bins.get(at)).is_none_or(fits), "an entry with one of the keys fits");
        at
    }

    #[inline]
    fn remove(&mut self, at: usize) -> Option<T> {
        if self.bins.is_some() {
            return self.remove_from_bins(at);
        }
        if at == 0 {
            return self.remove_first();
        }
        let entry = self.list.remove(at);
        if self.list.capacity() > LARGE {
            self.shrink();
        }
        entry
    }

    #[inline]
    fn remove_first(&mut self) -> Option<T> {
        let entry = self.list.pop_front();
        if self.list.capacity() > LARGE {
            self.shrink();
        }
        entry
    }

    #[inline(never)]
    fn remove_from_bins(&mut self, at: usize) -> Option<T> {
        let entry = self.bins.as_mut()?.take(at);
        self.shrink();
        entry
    }

    /// Releases memory, and returns to a list when few entries are left.
    fn shrink(&mut self) {
        let is_sparse = |len: usize, places: usize| places > LARGE && len < places / SPARSE;
        let Some(bins) = &self.bins else {
            if is_sparse(self.list.len(), self.list.capacity()) {
                self.list.shrink_to(LARGE.max(2 * self.list.len()));
            }
            return;
        };
        let few = bins.len() <= SHALLOW / 2;
        if (few || is_sparse(bins.len(), bins.slot_count()))
            && let Some(bins) = self.bins.take()
        {
            let queue = bins.into_queue();
            if few {
                (self.list, self.passed) = (queue, 0);
            } else {
                self.bins = Some(Box::new(Bins::new(queue)));
            }
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        let binned = self.bins.iter().flat_map(|bins| bins.iter().map(|(_, entry)| entry));
        self.list.iter().chain(binned)
    }

    pub(super) fn take_first(&mut self, limit: usize, mut which: impl FnMut(&T) -> bool) -> Option<T> {
        let at = match &self.bins {
            None => self.list.iter().take(limit).position(which)?,
            Some(bins) => bins.iter().take(limit).find(|(_, entry)| which(entry))?.0,
        };
        self.remove(at)
    }

    pub(super) fn take_all(&mut self, mut which: impl FnMut(&T) -> bool) -> Vec<T> {
        let Some(bins) = &mut self.bins else {
            let (mut taken, mut left) = (Vec::new(), VecDeque::new());
            for entry in std::mem::take(&mut self.list) {
                if which(&entry) { taken.push(entry) } else { left.push_back(entry) }
            }
            self.list = left;
            return taken;
        };
        let slots: Vec<usize> = bins.iter().filter(|(_, entry)| which(entry)).map(|(at, _)| at).collect();
        let taken = slots.into_iter().filter_map(|at| bins.take(at)).collect();
        self.shrink();
        taken
    }

    #[cfg(test)]
    pub(super) fn is_binned(&self) -> bool {
        self.bins.is_some()
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.bins.as_ref().map_or(self.list.capacity(), |bins| bins.slot_count())
    }
}
