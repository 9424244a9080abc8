//! The form of a long queue: entries in order of arrival, and in hash bins, one for each search key.
//!
//! The entries are stored in slots with links, so that an entry is removed from all lists without a search. List 0 is
//! the order of arrival. Each other list number stands for one kind of bins, such as the bins by tag; all bins of a
//! kind use the same pair of links in the slots. The bins of a kind are built at the first search that needs them.

use std::collections::{HashMap, VecDeque};

use foldhash::fast::RandomState;

/// A search key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum BinKey {
    Any,
    Source(u32),
    Tag(i32),
    Exact {
        source: u32,
        tag: i32,
    },
    /// The operation that the entry completes, see [`Completer::id`](crate::completion::Completer::id).
    Operation(usize),
}

/// An entry of a queue with `LISTS` lists: the order of arrival, and `LISTS - 1` kinds of bins.
pub(super) trait BinEntry<const LISTS: usize> {
    /// Returns the list whose bins have this key; 0 if the key matches every entry.
    fn list(key: BinKey) -> usize;

    /// Returns the key of the entry's bin in this list, if it is in one.
    fn key(&self, list: usize) -> Option<BinKey>;
}

/// The value of a link without a target.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct ListLinks {
    previous: u32,
    next: u32,
}

/// The first and the last slot of a list or a bin.
#[derive(Clone, Copy, Debug)]
struct ListEnds {
    first: u32,
    last: u32,
}

const UNLINKED: ListLinks = ListLinks { previous: NONE, next: NONE };
const EMPTY: ListEnds = ListEnds { first: NONE, last: NONE };

#[derive(Debug)]
struct Slot<T, const LISTS: usize> {
    entry: Option<T>,
    /// Increases in order of arrival.
    sequence: u64,
    /// The links in each list; the free slots are linked by `next` of list 0.
    links: [ListLinks; LISTS],
}

/// # Invariants
/// 1. A slot with an entry is in list 0 and, for each built list in which the entry has a key, in the bin of that key.
/// 2. No bin in `bins` is empty, and the slots of each list and bin are in order of `sequence`.
#[derive(Debug)]
pub(super) struct Bins<T, const LISTS: usize> {
    slots: Vec<Slot<T, LISTS>>,
    len: usize,
    free: u32,
    sequence: u64,
    order: ListEnds,
    bins: HashMap<BinKey, ListEnds, RandomState>,
    is_built: [bool; LISTS],
}

impl<T: BinEntry<LISTS>, const LISTS: usize> Bins<T, LISTS> {
    /// Takes the entries of a queue: the entry at index `at` goes to slot `at`.
    pub(super) fn new(queue: VecDeque<T>) -> Self {
        let mut bins = Bins {
            slots: Vec::with_capacity(queue.len()),
            len: 0,
            free: NONE,
            sequence: 0,
            order: EMPTY,
            bins: HashMap::default(),
            is_built: [false; LISTS],
        };
        queue.into_iter().for_each(|entry| bins.push(entry));
        bins
    }

    pub(super) fn into_queue(mut self) -> VecDeque<T> {
        let mut queue = VecDeque::with_capacity(self.len);
        let mut at = self.order.first;
        while let Some(slot) = self.slots.get_mut(at as usize) {
            queue.extend(slot.entry.take());
            at = slot.links[0].next;
        }
        queue
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn slot_count(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn push(&mut self, entry: T) {
        let at = self.free;
        let slot = Slot { entry: Some(entry), sequence: self.sequence, links: [UNLINKED; LISTS] };
        let at = match self.slots.get_mut(at as usize) {
            Some(free) => {
                self.free = free.links[0].next;
                *free = slot;
                at
            }
            None => {
                // 2^32 entries would need at least 192 GiB.
                self.slots.push(slot);
                (self.slots.len() - 1) as u32
            }
        };
        self.sequence += 1;
        self.len += 1;
        link(&mut self.slots, &mut self.order, 0, at);
        for list in 1..LISTS {
            if self.is_built[list] {
                self.add_to_bin(list, at);
            }
        }
    }

    fn add_to_bin(&mut self, list: usize, at: u32) {
        if let Some(key) = self.key(list, at) {
            link(&mut self.slots, self.bins.entry(key).or_insert(EMPTY), list, at);
        }
    }

    fn key(&self, list: usize, at: u32) -> Option<BinKey> {
        self.get(at as usize)?.key(list)
    }

    /// Returns the slot of the earliest entry that is in a bin of one of these keys.
    pub(super) fn find(&mut self, keys: &[BinKey]) -> Option<usize> {
        let mut earliest = None;
        for key in keys {
            let at = match T::list(*key) {
                0 => self.order.first,
                list => {
                    if !self.is_built[list] {
                        self.build(list);
                    }
                    self.bins.get(key).map_or(NONE, |bin| bin.first)
                }
            };
            if let Some(slot) = self.slots.get(at as usize)
                && earliest.is_none_or(|(sequence, _)| slot.sequence < sequence)
            {
                earliest = Some((slot.sequence, at as usize));
            }
        }
        earliest.map(|(_, at)| at)
    }

    #[cold]
    fn build(&mut self, list: usize) {
        self.is_built[list] = true;
        let mut at = self.order.first;
        while at != NONE {
            self.add_to_bin(list, at);
            at = self.slots[at as usize].links[0].next;
        }
    }

    pub(super) fn get(&self, at: usize) -> Option<&T> {
        self.slots.get(at)?.entry.as_ref()
    }

    /// Returns the slot number of the earliest entry; `u32::MAX` if the queue is empty.
    pub(super) fn front(&self) -> usize {
        self.order.first as usize
    }

    pub(super) fn take(&mut self, at: usize) -> Option<T> {
        let slot = at as u32;
        self.get(at)?;
        for list in (1..LISTS).filter(|list| self.is_built[*list]) {
            let Some(key) = self.key(list, slot) else { continue };
            let ListLinks { previous, next } = self.slots[at].links[list];
            if previous == NONE && next == NONE {
                self.bins.remove(&key);
                continue;
            }
            // A bin stores only its first and last slot, so the removal of a slot between them does not change it.
            let is_end = previous == NONE || next == NONE;
            let mut unused = EMPTY;
            let bin = if is_end { self.bins.get_mut(&key) } else { None }.unwrap_or(&mut unused);
            unlink(&mut self.slots, bin, list, slot);
        }
        unlink(&mut self.slots, &mut self.order, 0, slot);
        let entry = self.slots[at].entry.take();
        self.slots[at].links[0].next = self.free;
        self.free = slot;
        self.len -= 1;
        entry
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        let slot = |at: u32| self.slots.get(at as usize).map(|slot| (at, slot));
        let next = move |(_, before): &(u32, &Slot<T, LISTS>)| slot(before.links[0].next);
        let slots = std::iter::successors(slot(self.order.first), next);
        slots.filter_map(|(at, slot)| Some((at as usize, slot.entry.as_ref()?)))
    }
}

fn link<T, const LISTS: usize>(slots: &mut [Slot<T, LISTS>], ends: &mut ListEnds, list: usize, at: u32) {
    slots[at as usize].links[list] = ListLinks { previous: ends.last, next: NONE };
    match slots.get_mut(ends.last as usize) {
        Some(last) => last.links[list].next = at,
        None => ends.first = at,
    }
    ends.last = at;
}

fn unlink<T, const LISTS: usize>(slots: &mut [Slot<T, LISTS>], ends: &mut ListEnds, list: usize, at: u32) {
    let ListLinks { previous, next } = slots[at as usize].links[list];
    match slots.get_mut(previous as usize) {
        Some(previous) => previous.links[list].next = next,
        None => ends.first = next,
    }
    match slots.get_mut(next as usize) {
        Some(next) => next.links[list].previous = previous,
        None => ends.last = previous,
    }
}
