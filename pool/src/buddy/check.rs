use super::group::{Group, GroupId, RunList};
use super::word::Word;
use super::{BuddyMap, LEVELS, list_index};

impl BuddyMap {
    /// Checks every invariant in `README.md`.
    ///
    /// # Errors
    /// A sentence that names the first broken invariant.
    pub(crate) fn validate(&self) -> Result<(), String> {
        let mut free = 0;
        for number in 0..LEVELS {
            self.validate_lists(number)?;
            for (id, group) in (0u64..).zip(self.levels[number].groups.iter()) {
                self.validate_group(number, id, group)
                    .map_err(|what| format!("level {number}, group {id} ({:?}): {what}", group.list))?;
                free += u64::from(group.free.count()) << (6 * number);
            }
        }
        for (number, level) in self.levels.iter().enumerate() {
            if level.linked != 0
                && number > 0
                && list_index(number, RunList(level.linked.ilog2() as u8)) > self.max_list_index
            {
                return Err(format!("level {number} has a list above index {}", self.max_list_index));
            }
        }
        if free != self.free {
            return Err(format!("{} leaves are free, {} are counted", free, self.free));
        }
        Ok(())
    }

    fn validate_group(&self, number: usize, id: u64, group: &Group) -> Result<(), &'static str> {
        let Group { free, starts, list, .. } = *group;
        if list == RunList::CLOSED {
            if free.intersects(Word::ALL) || starts.intersects(Word::ALL) {
                return Err("closed, but with children");
            }
            if number == self.top {
                return Err("the top is closed");
            }
            return Ok(());
        }
        if free.intersects(starts) {
            return Err("a child is free and live");
        }
        let in_right_list = match free.longest_run() {
            0 => list != RunList::WHOLE,
            64 => list == RunList::WHOLE,
            // A run of leaves might have no valid start. Then the group can be in a list of shorter runs.
            _ if number == 0 => list < RunList::WHOLE,
            longest => (RunList::of(longest)..RunList::WHOLE).contains(&list),
        };
        if !in_right_list {
            return Err("in the wrong list");
        }
        if number < self.top {
            let above = &self.levels[number + 1].groups[(id >> 6) as usize];
            let bit = (id & 63) as u32;
            if above.free.has(bit) || !above.starts.has(bit) {
                return Err("split, but free or part of a block above");
            }
        }
        // A child that is neither free nor a start continues a block, so there must be one before it.
        let orphans = Word::ALL.without(free).without(starts);
        if orphans.has(0) || orphans.intersects(Word(free.0 << 1)) {
            return Err("the middle of a block without its start");
        }
        Ok(())
    }

    fn validate_lists(&self, number: usize) -> Result<(), String> {
        let level = &self.levels[number];
        let mut linked = 0;
        for (list, &head) in (0u8..).zip(&level.heads) {
            if (level.linked >> list & 1 == 1) != (head != GroupId::NONE) {
                return Err(format!("level {number}: the summary of list {list} is wrong"));
            }
            let (mut prev, mut at) = (GroupId::NONE, head);
            while at != GroupId::NONE {
                let Some(group) = level.groups.get(at.child() as usize) else {
                    return Err(format!("level {number}: list {list} names {at:?}"));
                };
                linked += 1;
                if group.list != RunList(list) || group.links.prev() != prev || linked > level.groups.len() {
                    return Err(format!("level {number}: list {list} is broken at {at:?}"));
                }
                (prev, at) = (at, group.links.next());
            }
        }
        let claimed = level.groups.iter().filter(|group| group.list.0 <= RunList::WHOLE.0).count();
        if claimed != linked {
            return Err(format!("level {number}: {claimed} groups claim to be in lists, {linked} are"));
        }
        if let Some(whole) = level.whole()
            && level.groups[whole.child() as usize].links.next() != GroupId::NONE
        {
            return Err(format!("level {number}: more than one whole group was kept"));
        }
        Ok(())
    }
}
