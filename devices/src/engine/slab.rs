//! Values with numbers that peers and devices send back. A number is valid again only after 2^32 - 1 uses of its slot.

/// A table of values; a number consists of the index of a slot and the slot's generation.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Slab { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    pub(crate) fn insert(&mut self, value: T) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            // Generations start at 1, so that 0 is never a valid number.
            self.slots.push(Slot { generation: 1, value: None });
            (self.slots.len() - 1) as u32
        });
        let slot = &mut self.slots[index as usize];
        slot.value = Some(value);
        number(slot.generation, index as usize)
    }

    pub(crate) fn get(&mut self, number: u64) -> Option<&mut T> {
        let slot = self.slots.get_mut(number as u32 as usize)?;
        slot.value.as_mut().filter(|_| u64::from(slot.generation) == number >> 32)
    }

    pub(crate) fn take(&mut self, number: u64) -> Option<T> {
        self.get(number)?;
        let slot = self.slots.get_mut(number as u32 as usize)?;
        slot.generation = slot.generation.wrapping_add(1).max(1);
        self.free.push(number as u32);
        slot.value.take()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut T)> {
        self.slots.iter_mut().enumerate().filter_map(|(index, Slot { generation, value })| {
            value.as_mut().map(|value| (number(*generation, index), value))
        })
    }

    pub(crate) fn find(&self, which: impl Fn(&T) -> bool) -> Option<u64> {
        let index = self.slots.iter().position(|slot| slot.value.as_ref().is_some_and(&which))?;
        Some(number(self.slots[index].generation, index))
    }

    pub(crate) fn drain(&mut self) -> Vec<T> {
        let numbers: Vec<u64> = self.iter_mut().map(|(number, _)| number).collect();
        numbers.into_iter().filter_map(|number| self.take(number)).collect()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|slot| slot.value.as_ref())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots.len() == self.free.len()
    }
}

fn number(generation: u32, index: usize) -> u64 {
    u64::from(generation) << 32 | index as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_of_taken_value_is_invalid() {
        let mut slab = Slab::default();
        let (a, b) = (slab.insert('a'), slab.insert('b'));
        assert_eq!((slab.take(a), slab.take(a), slab.get(a)), (Some('a'), None, None));
        let c = slab.insert('c');
        assert!(c != a && c as u32 == a as u32, "the slot is used again");
        assert_eq!([a, b, c].map(|number| slab.get(number).copied()), [None, Some('b'), Some('c')]);
        for wild in [0, 1, u64::MAX, c ^ 1 << 63, 1 << 32 | 77] {
            assert_eq!(slab.take(wild), if wild == b { Some('b') } else { None }, "{wild:#x}");
        }
        assert_eq!(slab.find(|value| *value == 'c'), Some(c));
        assert_eq!((slab.drain().len(), slab.is_empty(), slab.get(b)), (2, true, None));
    }
}
