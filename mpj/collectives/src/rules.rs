//! The rules that select an algorithm.
//!
//! The rules of an operation are a list, of which the first one that fits the call is used:
//!
//! ```text
//!   linear:ranks=3-8:bytes=0-32K,ring:bytes=32K-,recursive_doubling
//!   ------ --------------------- ------------- ------------------
//!   name   conditions, all of which must hold  without conditions
//! ```
//! The conditions are `ranks`, `hosts` and `bytes`; `bytes` is invalid for gather, scatter and the neighbourhood
//! collectives. A range is `A-B`, `A-` or `A`; a number can end in `K`, `M` or `G` (powers of 1,024). A rule does not
//! fit if the call does not meet the [requirements](Algorithm::requires) of its algorithm.

use std::fmt;
use std::ops::RangeInclusive;

use crate::algorithms::{self, Algorithm};
use crate::arguments::Arguments;
use crate::operation::Operation;

/// The default rules. If ranks share cores, each wait for another rank can cost a time slice, and linear algorithms
/// have shorter chains of waiting ranks. So they are the default for short vectors of few ranks; for two ranks they
/// have no advantage. A linear scan sends one message for each pair of ranks, so its limit is lower.
const DEFAULTS: &[(Operation, &str)] = &[
    (Operation::Barrier, "linear:ranks=3-8,dissemination"),
    (Operation::Bcast, "linear:ranks=3-8:bytes=0-32K,binomial"),
    (Operation::Reduce, "linear:ranks=3-8:bytes=0-32K,binomial"),
    (Operation::Allreduce, "ring:bytes=32K-,linear:ranks=3-8:bytes=0-32K,recursive_doubling"),
    (Operation::ReduceScatter, "pairwise"),
    (Operation::Scan, "linear:ranks=3-8:bytes=0-4K,recursive_doubling"),
    (Operation::Gather, "linear"),
    (Operation::Scatter, "linear"),
    (Operation::Allgather, "linear:bytes=0-64K,ring"),
    (Operation::Alltoall, "linear:bytes=0-64K,pairwise"),
    (Operation::Exscan, "linear:ranks=3-8:bytes=0-4K,recursive_doubling"),
    (Operation::ReduceScatterBlock, "pairwise"),
    (Operation::Alltoallw, "linear:bytes=0-64K,pairwise"),
    (Operation::NeighborAllgather, "linear"),
    (Operation::NeighborAlltoall, "linear"),
    (Operation::NeighborAlltoallw, "linear"),
];

/// The operations whose rules have no `bytes`, because not all ranks know the number. (In an alltoallv or alltoallw the
/// number can differ between ranks, but all algorithms send the same messages.)
const HAVE_LOCAL_BYTES: &[Operation] = &[
    Operation::Gather,
    Operation::Scatter,
    Operation::NeighborAllgather,
    Operation::NeighborAlltoall,
    Operation::NeighborAlltoallw,
];

/// The rules of every operation.
#[derive(Clone, Debug)]
pub struct Rules {
    /// The rules of each operation, indexed by its code.
    by_code: Vec<Vec<Rule>>,
}

#[derive(Clone, Debug)]
struct Rule {
    algorithm: &'static Algorithm,
    ranks: RangeInclusive<u64>,
    hosts: RangeInclusive<u64>,
    bytes: RangeInclusive<u64>,
}

impl Default for Rules {
    fn default() -> Self {
        let mut rules = Rules { by_code: vec![Vec::new(); 1 + Operation::MAX_CODE as usize] };
        for (operation, text) in DEFAULTS {
            rules.set(*operation, text).expect("the default rules are valid");
        }
        rules
    }
}

impl Rules {
    /// Returns the default rules of an operation; empty if the operation has no algorithms of its own.
    pub fn default_of(operation: Operation) -> &'static str {
        DEFAULTS.iter().find(|(of, _)| *of == operation).map_or("", |(_, text)| text)
    }

    /// Returns whether the rules of an operation can have the condition `bytes`.
    pub fn can_have_bytes(operation: Operation) -> bool {
        !HAVE_LOCAL_BYTES.contains(&operation)
    }

    /// Replaces the rules of an operation.
    ///
    /// # Errors
    /// The reason why the text is invalid, as the rest of a sentence whose subject is the text.
    pub fn set(&mut self, operation: Operation, text: &str) -> Result<(), String> {
        self.by_code[operation as usize] = parse(operation, text)?;
        Ok(())
    }

    /// Returns the algorithm of a call. All ranks must pass the same `bytes`: the length of the vector, the blocks of
    /// all ranks together (allgather), or the blocks that one rank sends (alltoall). For an alltoallv or alltoallw, the
    /// numbers may differ. Operations without a `bytes` condition ignore the number.
    ///
    /// # Errors
    /// No rule fits.
    #[inline]
    pub fn select(
        &self,
        operation: Operation,
        call: &Arguments<'_>,
        bytes: usize,
    ) -> Result<&'static Algorithm, Misfit> {
        let rules = &self.by_code[operation as usize];
        let (ranks, hosts, bytes) = (u64::from(call.size), u64::from(call.hosts), bytes as u64);
        let fits = |rule: &&Rule| {
            rule.ranks.contains(&ranks)
                && rule.hosts.contains(&hosts)
                && rule.bytes.contains(&bytes)
                && rule.algorithm.fits(call)
        };
        match rules.iter().find(fits) {
            Some(rule) => Ok(rule.algorithm),
            None => Err(misfit(operation, rules, call)),
        }
    }
}

/// No rule of an operation fits a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Misfit {
    /// The operation.
    pub operation: Operation,
    /// The names of the algorithms in the rules, with what each requires.
    pub tried: String,
    /// The names of the algorithms that fit the call.
    pub fitting: String,
}

#[cold]
fn misfit(operation: Operation, rules: &[Rule], call: &Arguments<'_>) -> Misfit {
    let names = |algorithms: &mut dyn Iterator<Item = &'static Algorithm>| {
        algorithms.map(|algorithm| algorithm.to_string()).collect::<Vec<_>>().join(", ")
    };
    let tried = names(&mut rules.iter().map(|rule| rule.algorithm));
    let fitting = names(&mut algorithms::algorithms_of(operation).filter(|algorithm| algorithm.fits(call)));
    Misfit { operation, tried, fitting }
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Misfit { operation, tried, fitting } = self;
        write!(
            f,
            "the rules for {operation} select none of its algorithms here ({tried}); these fit: {fitting}"
        )
    }
}

impl std::error::Error for Misfit {}

fn parse(operation: Operation, text: &str) -> Result<Vec<Rule>, String> {
    text.split(',').map(|rule| parse_rule(operation, rule.trim())).collect()
}

fn parse_rule(operation: Operation, text: &str) -> Result<Rule, String> {
    let mut parts = text.split(':');
    let name = parts.next().unwrap_or_default();
    let algorithm = algorithms::algorithm_named(operation, name).ok_or_else(|| {
        let names = algorithms::algorithms_of(operation)
            .map(|algorithm| algorithm.name)
            .collect::<Vec<_>>()
            .join(", ");
        format!("has the unknown algorithm '{name}'; {operation} has {names}")
    })?;
    let mut rule = Rule { algorithm, ranks: 0..=u64::MAX, hosts: 0..=u64::MAX, bytes: 0..=u64::MAX };
    let expected = match Rules::can_have_bytes(operation) {
        true => "ranks=A-B, hosts=A-B or bytes=A-B",
        false => "ranks=A-B or hosts=A-B",
    };
    for condition in parts {
        let invalid = || format!("has the invalid condition '{condition}'; expected {expected}");
        let (what, range) = condition.split_once('=').ok_or_else(invalid)?;
        let range = parse_range(range).ok_or_else(invalid)?;
        match what {
            "ranks" => rule.ranks = range,
            "hosts" => rule.hosts = range,
            "bytes" if !Rules::can_have_bytes(operation) => {
                return Err(format!("has the condition '{condition}', which {operation} does not have"));
            }
            "bytes" => rule.bytes = range,
            _ => return Err(invalid()),
        }
    }
    Ok(rule)
}

fn parse_range(text: &str) -> Option<RangeInclusive<u64>> {
    let (low, high) = text.split_once('-').unwrap_or((text, text));
    let low = parse_number(low)?;
    let high = if high.is_empty() { u64::MAX } else { parse_number(high)? };
    (low <= high).then_some(low..=high)
}

fn parse_number(text: &str) -> Option<u64> {
    let (digits, shift) = match text.as_bytes().last()? {
        b'K' => (&text[..text.len() - 1], 10),
        b'M' => (&text[..text.len() - 1], 20),
        b'G' => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}
