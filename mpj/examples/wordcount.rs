//! Counts the words of a text: rank 0 sends each rank some lines, and every rank returns a map of its words. Lines and
//! maps are objects: any type that serde can serialize.
//!
//! ```sh
//! cargo run --release -p mpj --example wordcount   # four ranks, as threads
//! mpjrun -n 3 target/release/examples/wordcount README.md
//! ```
#![expect(clippy::print_stdout, reason = "a program's result")]

use std::collections::BTreeMap;
use std::process::ExitCode;

use mpj::{BoxError, Launch, World};

const TEXT: &str = include_str!("../README.md");

type Counts = BTreeMap<String, usize>;

fn main() -> ExitCode {
    mpj::run_with(Launch::threads(4), rank)
}

fn rank(world: World) -> Result<(), BoxError> {
    // Only the root's list is scattered.
    let parts = if world.rank() == 0 { divide(&text()?, world.size()) } else { Vec::new() };
    let mine: Vec<String> = world.scatter_object(parts, 0)?;
    let counts = count(mine.iter().map(String::as_str));
    let Some(all) = world.gather_object(counts, 0)? else { return Ok(()) };

    let mut total = Counts::new();
    for (word, count) in all.into_iter().flatten() {
        *total.entry(word).or_default() += count;
    }
    let mut frequent: Vec<_> = total.iter().collect();
    frequent.sort_by_key(|(word, count)| (std::cmp::Reverse(**count), *word));
    println!("{} different words; the most frequent: {:?}", total.len(), &frequent[..frequent.len().min(5)]);
    if total != count(text()?.lines()) {
        return Err("the counts differ from those of one rank".into());
    }
    Ok(())
}

fn text() -> std::io::Result<String> {
    std::env::args().nth(1).map_or_else(|| Ok(TEXT.to_owned()), std::fs::read_to_string)
}

/// Distributes the lines of a text to `ranks` lists.
fn divide(text: &str, ranks: usize) -> Vec<Vec<String>> {
    let mut parts = vec![Vec::new(); ranks];
    text.lines().enumerate().for_each(|(at, line)| parts[at % ranks].push(line.to_owned()));
    parts
}

fn count<'a>(lines: impl Iterator<Item = &'a str>) -> Counts {
    let mut counts = Counts::new();
    for word in lines.flat_map(|line| line.split(|c: char| !c.is_alphanumeric())).filter(|w| !w.is_empty()) {
        *counts.entry(word.to_lowercase()).or_default() += 1;
    }
    counts
}
