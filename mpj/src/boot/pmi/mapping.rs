//! The map of ranks to hosts that a process manager provides: the value of `PMI_process_mapping`.
//!
//! ```text
//!   map    = (vector,ITEM,ITEM,…)
//!   ITEM   = (FIRST,HOSTS,RANKS)      RANKS consecutive ranks on each of HOSTS hosts, from host FIRST on
//!          | HOST                     one rank on a host
//!          | [ITEM,ITEM,…]xK          these items K times
//! ```
//! If ranks remain after the last item, the list starts again.

use std::collections::HashMap;

/// The deepest nesting of brackets. Known process managers do not nest them.
const MAX_DEPTH: u32 = 8;

/// Runs of consecutive ranks: a host, and the number of ranks on it. Hosts have numbers from 0 on in the order of their
/// first rank, as [`Hosts::from_runs`](mpj_devices::Hosts::from_runs) requires.
pub type Runs = Vec<(u32, u32)>;

/// Places `size` ranks according to a map.
///
/// # Errors
/// The text is not a map, or places no rank.
pub fn place(text: &str, size: u32) -> Result<Runs, String> {
    let refuse = |why: &str| {
        let shown = &text[..text.floor_char_boundary(80)];
        format!("the process manager's map of ranks to hosts is invalid ({why}): {shown}")
    };
    let body = text.strip_prefix("(vector,").and_then(|rest| rest.strip_suffix(')'));
    let items = body.and_then(|body| {
        let mut parser = Parser { rest: body };
        let items = parser.items(0)?;
        parser.rest.is_empty().then_some(items)
    });
    let items = items.ok_or_else(|| refuse("expected (vector,(FIRST,HOSTS,RANKS),…)"))?;
    let mut placed = Placed { runs: Vec::new(), known: HashMap::new(), left: size };
    while placed.left > 0 {
        let before = placed.left;
        placed.add(&items);
        if placed.left == before {
            return Err(refuse("it places no rank"));
        }
    }
    Ok(placed.runs)
}

enum Item {
    Block { first: u32, hosts: u32, ranks: u32 },
    Repeated { items: Vec<Item>, times: u32 },
}

struct Parser<'a> {
    rest: &'a str,
}

impl Parser<'_> {
    fn items(&mut self, depth: u32) -> Option<Vec<Item>> {
        let mut items = vec![self.item(depth)?];
        while self.take(",") {
            items.push(self.item(depth)?);
        }
        Some(items)
    }

    fn item(&mut self, depth: u32) -> Option<Item> {
        if self.take("[") {
            let items = if depth < MAX_DEPTH { self.items(depth + 1)? } else { return None };
            let times = if self.take("]x") { self.number()? } else { return None };
            return Some(Item::Repeated { items, times });
        }
        if !self.take("(") {
            return Some(Item::Block { first: self.number()?, hosts: 1, ranks: 1 });
        }
        let first = self.number()?;
        let hosts = if self.take(",") { self.number()? } else { return None };
        let ranks = if self.take(",") { self.number()? } else { return None };
        self.take(")").then_some(Item::Block { first, hosts, ranks })
    }

    fn take(&mut self, token: &str) -> bool {
        self.rest.strip_prefix(token).map(|rest| self.rest = rest).is_some()
    }

    fn number(&mut self) -> Option<u32> {
        let digits = self.rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, rest) = self.rest.split_at(digits);
        self.rest = rest;
        number.parse().ok()
    }
}

struct Placed {
    runs: Runs,
    /// The number in `runs` of each host of the map that has a rank.
    known: HashMap<u32, u32>,
    /// The number of ranks to place.
    left: u32,
}

impl Placed {
    fn add(&mut self, items: &[Item]) {
        for item in items {
            match item {
                Item::Block { first, hosts, ranks } => {
                    let hosts = (0..*hosts).map_while(|at| first.checked_add(at));
                    hosts.take_while(|host| self.add_run(*host, *ranks)).for_each(drop);
                }
                Item::Repeated { items, times } => {
                    for _ in 0..*times {
                        let before = self.left;
                        self.add(items);
                        // All ranks are placed, or the items place none.
                        if self.left == before {
                            break;
                        }
                    }
                }
            }
        }
    }

    /// Places ranks on a host. Returns whether a rank was placed, so that later hosts may get more.
    fn add_run(&mut self, host: u32, ranks: u32) -> bool {
        let ranks = ranks.min(self.left);
        if ranks == 0 {
            return false;
        }
        self.left -= ranks;
        let next = self.known.len() as u32;
        let host = *self.known.entry(host).or_insert(next);
        match self.runs.last_mut().filter(|(last, _)| *last == host) {
            Some((_, len)) => *len += ranks,
            None => self.runs.push((host, ranks)),
        }
        true
    }
}
