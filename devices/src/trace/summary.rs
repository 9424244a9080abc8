//! The table of a trace: the waiting time of each rank, by call.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

const MAX_RANK_LINES: usize = 64;

/// The maximum number of calls that a line names.
const MAX_NAMED_CALLS: usize = 4;

/// The waiting times of the ranks of a job.
#[derive(Debug, Default)]
pub struct Summary {
    events: u64,
    ranks: BTreeMap<u32, Rank>,
}

/// Times in microseconds.
#[derive(Debug, Default)]
struct Rank {
    /// The earliest begin and the latest end of its events.
    span: Option<(f64, f64)>,
    /// The threads that have waited.
    threads: BTreeSet<u32>,
    waits: BTreeMap<String, f64>,
}

impl Rank {
    /// Returns the time of the rank, multiplied by the number of its threads that have waited, if there are several.
    fn time(&self) -> f64 {
        self.span.map_or(0.0, |(begin, end)| end - begin) * self.threads.len().max(1) as f64
    }
}

impl Summary {
    /// Adds a line of a part. Lines that lack a rank or a time are ignored.
    pub(super) fn add(&mut self, line: &[u8]) {
        let Ok(line) = std::str::from_utf8(line) else { return };
        let number = |key| field(line, key).and_then(|number| number.parse::<f64>().ok());
        let (Some(at), Some(rank)) = (number("\"ts\":"), field(line, "\"pid\":")) else { return };
        let Ok(rank) = rank.parse() else { return };
        let time = number("\"dur\":").unwrap_or(0.0);
        let rank: &mut Rank = self.ranks.entry(rank).or_default();
        let (begin, end) = rank.span.unwrap_or((at, at));
        rank.span = Some((begin.min(at), end.max(at + time)));
        self.events += 1;
        if !line.contains("\"cat\":\"wait\",\"ph\":\"X\"") {
            return;
        }
        let name =
            line.strip_prefix("{\"name\":\"").and_then(|rest| rest.split('"').next()).unwrap_or_default();
        let call = name.strip_prefix("wait: ").unwrap_or(name);
        *rank.waits.entry(call.to_owned()).or_default() += time;
        rank.threads.extend(field(line, "\"tid\":").and_then(|thread| thread.parse::<u32>().ok()));
    }
}

/// Returns the text between a key and the next comma or brace.
fn field<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let (_, rest) = line.split_once(key)?;
    rest.split([',', '}']).next()
}

impl fmt::Display for Summary {
    /// Writes a line for each rank, if there are few enough, and a line for the total.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} events; how long each rank waited, and in which calls:", self.events)?;
        write!(f, "\n  {:>5}  {:>9}  {:>6}  in", "rank", "time", "waited")?;
        let mut all = Rank::default();
        let mut time = 0.0;
        for (number, rank) in &self.ranks {
            if self.ranks.len() <= MAX_RANK_LINES {
                write_line(f, &number.to_string(), rank.time(), &rank.waits)?;
            }
            time += rank.time();
            for (call, waited) in &rank.waits {
                *all.waits.entry(call.clone()).or_default() += waited;
            }
        }
        write_line(f, "all", time, &all.waits)
    }
}

fn write_line(
    f: &mut fmt::Formatter<'_>,
    rank: &str,
    time: f64,
    waits: &BTreeMap<String, f64>,
) -> fmt::Result {
    let share = |waited: f64| if time > 0.0 { 100.0 * waited / time } else { 0.0 };
    let mut calls: Vec<(&String, f64)> = waits.iter().map(|(call, waited)| (call, *waited)).collect();
    calls.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    let sum = |calls: &[(&String, f64)]| calls.iter().fold(0.0, |sum, (_, waited)| sum + waited);
    let waited = sum(&calls);
    write!(f, "\n  {rank:>5}  {:>7.2} s  {:>4.0} %  ", time / 1e6, share(waited))?;
    let (named, others) = calls.split_at(calls.len().min(MAX_NAMED_CALLS));
    let mut parts: Vec<String> =
        named.iter().map(|(call, waited)| format!("{call} {:.0} %", share(*waited))).collect();
    if !others.is_empty() {
        parts.push(format!("other calls {:.0} %", share(sum(others))));
    }
    f.write_str(&parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_summed_by_rank_and_call() {
        let mut summary = Summary::default();
        for line in [
            r#"{"name":"process_name","ph":"M","pid":0,"args":{"name":"rank 0"}}"#,
            r#"{"name":"barrier","cat":"collective","ph":"X","pid":0,"tid":7,"ts":1000000.000,"dur":4000000.000,"args":{}}"#,
            r#"{"name":"wait: barrier","cat":"wait","ph":"X","pid":0,"tid":7,"ts":1000000.000,"dur":1000000.000,"args":{}}"#,
            r#"{"name":"recv","cat":"wait","ph":"X","pid":0,"tid":7,"ts":3000000.000,"dur":2000000.000,"args":{"from":1}}"#,
            r#"{"name":"eager sent","cat":"message","ph":"X","pid":1,"tid":9,"ts":1000000.000,"dur":2.000,"args":{}}"#,
            "{\"name\":\"cut",
        ] {
            summary.add(line.as_bytes());
        }
        assert_eq!(
            summary.to_string(),
            "4 events; how long each rank waited, and in which calls:\n   rank       time  waited  in\n      0     4.00 s    75 %  \
             recv 50 %, barrier 25 %\n      1     0.00 s     0 %  \n    all     4.00 s    75 %  recv 50 %, barrier 25 %"
        );
    }
}
