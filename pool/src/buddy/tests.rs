use super::word::Word;
use super::*;

struct Oracle {
    taken: Vec<bool>,
}

impl Oracle {
    fn new(leaves: u64) -> Oracle {
        Oracle { taken: vec![false; leaves as usize] }
    }

    /// Returns whether a run of free children in one group holds a block of this order.
    fn has_room(&self, order: Order) -> bool {
        let Span { level, count } = Span::of(order);
        let (child, count) = (1 << (6 * level), count as usize);
        // Runs of leaves start at multiples of the block, larger children anywhere.
        let step = if level == 0 { count } else { 1 };
        let groups = self.taken.chunks(child * 64);
        groups.into_iter().any(|group| {
            let children: Vec<bool> = group.chunks_exact(child).map(|child| !child.contains(&true)).collect();
            (0..(children.len() + 1).saturating_sub(count))
                .step_by(step)
                .any(|at| !children[at..at + count].contains(&false))
        })
    }

    fn mark(&mut self, at: Leaf, order: Order, taken: bool) {
        let run = &mut self.taken[at.0 as usize..(at.0 + order.leaves()) as usize];
        assert!(run.iter().all(|&leaf| leaf != taken), "{at:?} {order:?} overlaps");
        run.fill(taken);
    }
}

fn order(number: u64) -> Order {
    Order::new(number as u8).unwrap()
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// Allocates and frees at random, and compares each answer with the oracle.
fn compare_random_operations(leaves: u64, steps: u64, seed: u64) {
    let mut random = Random(seed);
    let mut map = BuddyMap::new(leaves).unwrap();
    let mut oracle = Oracle::new(leaves);
    let mut live: Vec<(Leaf, Order)> = Vec::new();
    let orders = u64::from(BuddyMap::max_order(leaves).get()) + 2;
    for step in 0..steps {
        if live.is_empty() || random.below(100) < if step / 300 % 2 == 0 { 65 } else { 35 } {
            let order = order(random.below(orders).min(random.below(orders)));
            let got = map.alloc(order);
            assert_eq!(got.is_some(), oracle.has_room(order), "{leaves} leaves, {order:?}");
            if let Some(at) = got {
                assert_eq!(at.0 % order.leaves().min(64), 0);
                oracle.mark(at, order, true);
                live.push((at, order));
            }
        } else {
            let (at, order) = live.swap_remove(random.below(live.len() as u64) as usize);
            map.free(at, order).unwrap();
            oracle.mark(at, order, false);
            assert_eq!(map.free(at, order), Err(NotLive { at, order }), "freed twice");
        }
        if step % 64 == 0 {
            map.validate().unwrap();
        }
    }
    for (at, order) in live {
        map.free(at, order).unwrap();
    }
    map.merge_all();
    map.validate().unwrap();
    assert_eq!(map.free_leaves(), leaves);
    assert!(map.alloc(BuddyMap::max_order(leaves)).is_some(), "all merged");
}

#[test]
fn map_agrees_with_the_oracle() {
    for (seed, leaves) in (1..).zip([1, 2, 3, 63, 64, 65, 100, 4095, 4096, 4097, 4160, 8192, 16384, 12345]) {
        compare_random_operations(leaves, 4000, seed);
    }
}

#[test]
fn map_agrees_with_the_oracle_on_four_levels() {
    compare_random_operations(1 << 18, 1500, 99);
    compare_random_operations((1 << 18) + (1 << 12) + 64 + 1, 1500, 100);
}

#[test]
fn only_live_blocks_can_be_freed() {
    let mut map = BuddyMap::new(8192).unwrap();
    let blocks: Vec<_> = [0, 3, 6, 7, 12, 1].map(|o| (map.alloc(order(o)).unwrap(), order(o))).to_vec();
    for at in (0..8192).map(Leaf) {
        for other in (0..=14).map(order) {
            if !blocks.contains(&(at, other)) {
                assert_eq!(map.free(at, other), Err(NotLive { at, order: other }));
            }
        }
    }
    for at in [8192, u64::MAX].map(Leaf) {
        assert!(map.free(at, order(0)).is_err());
    }
    map.validate().unwrap();
    for (at, order) in blocks {
        map.free(at, order).unwrap();
    }
    map.validate().unwrap();
}

#[test]
fn zero_or_too_many_leaves_are_rejected() {
    assert!(BuddyMap::new(0).is_none());
    assert!(BuddyMap::new(BuddyMap::MAX_LEAVES + 1).is_none());
}

#[test]
fn one_whole_group_per_level_stays_open_until_needed() {
    let mut map = BuddyMap::new(4096 * 2).unwrap();
    let leaf = map.alloc(order(0)).unwrap();
    assert_eq!(map.splits(), 2);
    map.free(leaf, order(0)).unwrap();
    assert_eq!(map.merges(), 0, "kept");
    let again = map.alloc(order(0)).unwrap();
    assert_eq!(map.splits(), 2, "used again");
    map.free(again, order(0)).unwrap();
    let all = map.alloc(order(13)).unwrap();
    assert_eq!(map.merges(), 2, "merged for the whole");
    map.free(all, order(13)).unwrap();
    map.validate().unwrap();
}

#[test]
fn validation_detects_damage() {
    let broken = |damage: fn(&mut BuddyMap)| {
        let mut map = BuddyMap::new(8192).unwrap();
        map.alloc(order(0)).unwrap();
        map.validate().unwrap();
        damage(&mut map);
        map.validate().unwrap_err()
    };
    assert!(broken(|map| map.free += 1).contains("counted"));
    assert!(broken(|map| map.levels[0].linked = 0).contains("summary"));
    assert!(broken(|map| map.levels[0].groups[0].free = Word::ALL).contains("free and live"));
    assert!(broken(|map| map.levels[1].groups[0].starts = Word::NONE).contains("split, but free"));
}

#[test]
fn blocks_of_eighths_leave_the_rest_free() {
    use super::eighths::pieces;
    use crate::class::Class;
    let classes: Vec<Class> = (0..=255).filter_map(Class::new).collect();
    for leaves in [64, 4096, 5000, 1 << 15] {
        let mut random = Random(leaves);
        let mut map = BuddyMap::new(leaves).unwrap();
        let mut taken = vec![false; leaves as usize];
        let mut live: Vec<(Leaf, Class)> = Vec::new();
        let mark = |taken: &mut [bool], at: Leaf, class: Class, to: bool| {
            let run = &mut taken[at.0 as usize..][..class.bytes() / crate::MIN_BLOCK];
            assert!(run.iter().all(|&leaf| leaf != to), "{at:?} {class:?} overlaps");
            run.fill(to);
        };
        for step in 0..6000 {
            if live.is_empty() || random.below(100) < if step / 300 % 2 == 0 { 60 } else { 40 } {
                let most = u64::from(BuddyMap::max_order(leaves).get()) * 4;
                let class = classes[random.below(most).min(random.below(most)) as usize];
                if let Some(at) = map.alloc_class(class) {
                    assert_eq!(at.0 as usize % (crate::alignment(class.bytes()) / crate::MIN_BLOCK), 0);
                    mark(&mut taken, at, class, true);
                    live.push((at, class));
                }
            } else {
                let (at, class) = live.swap_remove(random.below(live.len() as u64) as usize);
                map.free_class(at, class).unwrap();
                mark(&mut taken, at, class, false);
            }
            if let Some(&(at, from)) = live.last()
                && let next = classes.iter().position(|&class| class > from).unwrap()
                && let to = classes[next + random.below(5) as usize]
            {
                let (start, end) = (at.0 as usize + from.bytes() / 64, at.0 as usize + to.bytes() / 64);
                let room = taken.get(start..end).is_some_and(|run| !run.contains(&true));
                let fits = |at: Leaf, Span { level, count }| {
                    let first = at.0 >> (6 * level);
                    let start = if level == 0 { 1 << count.ilog2() } else { 1 };
                    first << (6 * level) == at.0
                        && first.is_multiple_of(start)
                        && first % 64 + u64::from(count) <= 64
                };
                let fits = match Span::of_class(to) {
                    Some(span) => fits(at, span),
                    None => pieces(at, to).all(|(at, order)| fits(at, Span::of(order))),
                };
                assert_eq!(map.grow(at, from, to), room && fits, "{at:?} {from:?} {to:?}");
                if room && fits {
                    taken[start..end].fill(true);
                    live.last_mut().unwrap().1 = to;
                }
            }
            if step % 50 == 0 {
                map.validate().unwrap();
            }
            assert_eq!(map.free_leaves(), taken.iter().filter(|&&leaf| !leaf).count() as u64);
        }
        for (at, class) in live.drain(..) {
            map.free_class(at, class).unwrap();
            assert!(map.free_class(at, class).is_err(), "not twice");
        }
        map.validate().unwrap();
        let all = BuddyMap::max_order(leaves);
        assert!(map.alloc(all).is_some(), "one block again");
    }
}
