//! Measures the message size from which a device should use zero copy, and writes it to a parameter file.

use std::fs::{self, OpenOptions};
use std::path::Path as FilePath;

use mpj::World;
use mpj::config::{Number, PREFIX, Parameter};
use mpj::devices::config::{IBV_REGISTER_MIN, NIO_EAGER_LIMIT};

use super::super::Failure;
use super::super::plot;
use super::super::pools::size;
use super::super::report::Report;
use super::super::setting::devices;
use super::message::Shape;
use super::{PathCandidate, candidates, measure_interleaved};

const SIZES: [usize; 13] = [
    1 << 10,
    2 << 10,
    4 << 10,
    8 << 10,
    16 << 10,
    32 << 10,
    64 << 10,
    128 << 10,
    256 << 10,
    512 << 10,
    1 << 20,
    2 << 20,
    4 << 20,
];

/// The parameter by which a device chooses between copies and zero copy, by the size of the message.
struct Limit {
    device: &'static str,
    parameter: &'static Number,
    /// Whether the parameter is the largest copied size; otherwise, it is the smallest size that is not copied.
    is_largest_copied: bool,
}

const LIMITS: [Limit; 2] = [
    Limit { device: "niodev", parameter: &NIO_EAGER_LIMIT, is_largest_copied: true },
    Limit { device: "ibvdev", parameter: &IBV_REGISTER_MIN, is_largest_copied: false },
];

/// Zero copy is chosen if it takes less than this multiple of the time of the other path.
const TOLERANCE: f64 = 1.02;

impl Limit {
    /// Returns the parameter's value for zero copy from `from` bytes on; `None`: all measured sizes are copied.
    fn value(&self, from: Option<usize>) -> u64 {
        let (min, max) = self.parameter.range;
        let value = match (from, self.is_largest_copied) {
            (Some(from), false) => from as u64,
            (Some(from), true) => from as u64 / 2,
            (None, true) => max,
            (None, false) => SIZES[SIZES.len() - 1] as u64 * 2,
        };
        value.clamp(min, max)
    }

    fn outcome(&self, from: Option<usize>, value: u64) -> String {
        let Limit { device, parameter, .. } = self;
        let found = match from {
            Some(bytes) => format!("zero copy is faster from {} on, or slower by less than 2 %", size(bytes)),
            None => format!("zero copy is slower by 2 % or more at {}", size(SIZES[SIZES.len() - 1])),
        };
        let default = parameter.default;
        match value == default {
            true => format!(
                "{device}: {found}: nothing to gain on this host, {PREFIX}{}={value} is the default",
                parameter.name()
            ),
            false => {
                format!("{device}: {found}: {PREFIX}{} is now {value} (default: {default})", parameter.name())
            }
        }
    }
}

pub(crate) fn run(world: &World, ms: f64, path: &FilePath) -> Result<(), Failure> {
    if world.rank() == 0 {
        // Fail before the long measurement.
        check_writable(path)?;
    }
    // The device is known only after the ranks have communicated.
    world.barrier()?;
    let report = Report::begin(world, SIZES.len())?;
    let name = devices(world);
    let limit = LIMITS.iter().find(|limit| limit.device == name);
    let limit = limit.ok_or_else(|| format!("nothing to tune: {name:?} has no parameter for zero copy"))?;
    report.line(format_args!(
        "# TUNE,device,bytes,us as set (freshly written),us without copies,us as set (unmodified),us without copies,ratio"
    ))?;
    let mut ratios = Vec::new();
    for bytes in SIZES {
        let wanted = |candidate: &PathCandidate| candidate.name == "auto" || candidate.name == "zerocopy";
        let mut candidates: Vec<PathCandidate> =
            candidates(world, Shape::Contiguous, bytes)?.into_iter().filter(wanted).collect();
        let (fresh, same) = (
            measure_interleaved(world, &mut candidates, true, ms)?,
            measure_interleaved(world, &mut candidates, false, ms)?,
        );
        let [fresh, same] = [fresh, same].map(|times| {
            report.note_spread(times[0].median.y, times[0].min);
            [times[0].median.y, times[1].median.y]
        });
        let ratio = (fresh[1] / fresh[0] * same[1] / same[0]).sqrt();
        report.row(format_args!(
            "TUNE,{name},{bytes},{:.3},{:.3},{:.3},{:.3},{ratio:.3}",
            fresh[0], fresh[1], same[0], same[1]
        ))?;
        ratios.push((bytes, ratio));
    }
    if world.rank() == 0 {
        let from = ratios.iter().rev().take_while(|(_, ratio)| *ratio < TOLERANCE).last();
        let from = from.map(|(bytes, _)| *bytes);
        let value = limit.value(from);
        let line = format!("{PREFIX}{}={value}", limit.parameter.name());
        let remark = format!("# {name}: {}", plot::machine());
        let written =
            fs::read_to_string(path).and_then(|text| fs::write(path, with_parameter(&text, &line, &remark)));
        written.map_err(|error| format!("{}: {error}", path.display()))?;
        let shown = path.display();
        report.line(format_args!("# {}", limit.outcome(from, value)))?;
        report.line(format_args!("# {shown} has {line}; {PREFIX}CONFIG_FILE={shown} makes jobs read it"))?;
    }
    report.finish(world, None, || unreachable!("no picture was requested"))
}

/// Creates the file if it does not exist, and checks that it is a writable parameter file.
fn check_writable(path: &FilePath) -> Result<(), String> {
    // Reading a device file might not end, and opening a pipe might block.
    if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        return Err(format!("{} is not a file", path.display()));
    }
    let bytes = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let is_ours = |line: &str| {
        line.is_empty() || line.starts_with('#') || line.starts_with(PREFIX) && line.contains('=')
    };
    if let Some((number, line)) = (1..).zip(text.lines().map(str::trim)).find(|(_, line)| !is_ours(line)) {
        return Err(format!("{}: line {number} is not {PREFIX}NAME=VALUE: {line}", path.display()));
    }
    let opened = OpenOptions::new().create(true).append(true).open(path);
    opened.map(drop).map_err(|error| format!("{}: {error}", path.display()))
}

/// Removes the line of the same parameter and the remark of the same device before it, and appends `remark` and `line`.
fn with_parameter(text: &str, line: &str, remark: &str) -> String {
    let name = |line: &str| line.split_once('=').map(|(name, _)| name.trim().to_owned());
    let device = |remark: &str| remark.split_once(':').map(|(device, _)| device.to_owned());
    let mut lines: Vec<&str> = Vec::new();
    for old in text.lines() {
        if name(old) != name(line) {
            lines.push(old);
        } else if lines.last().is_some_and(|before| device(before) == device(remark)) {
            lines.pop();
        }
    }
    lines.extend([remark, line]);
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameter_is_in_the_file_once() {
        let first = with_parameter("", "MPJ_A=1", "# a: then");
        assert_eq!(first, "# a: then\nMPJ_A=1\n");
        let both = with_parameter(&first, "MPJ_B=2", "# b: then");
        assert_eq!(both, "# a: then\nMPJ_A=1\n# b: then\nMPJ_B=2\n");
        assert_eq!(with_parameter(&both, "MPJ_A=3", "# a: now"), "# b: then\nMPJ_B=2\n# a: now\nMPJ_A=3\n");
        assert_eq!(with_parameter("# mine\nMPJ_A = 5", "MPJ_A=3", "# a: now"), "# mine\n# a: now\nMPJ_A=3\n");
    }

    #[test]
    fn outcome_says_whether_anything_was_changed() {
        let [_, ibv] = &LIMITS;
        let none = ibv.outcome(Some(256 << 10), 256 << 10);
        assert!(
            none.contains("nothing to gain on this host") && none.contains("IBV_REGISTER_MIN=262144"),
            "{none}"
        );
        let some = ibv.outcome(Some(65536), 65536);
        assert!(some.contains("from 64 KiB on") && some.contains("is now 65536 (default: 262144)"), "{some}");
    }

    #[test]
    fn paths_that_are_not_files_are_rejected() {
        for path in ["/dev/full", "/"] {
            assert_eq!(check_writable(FilePath::new(path)), Err(format!("{path} is not a file")));
        }
        assert!(
            check_writable(FilePath::new("/nowhere/at/all")).unwrap_err().starts_with("/nowhere/at/all: ")
        );
    }

    #[test]
    fn value_is_the_last_copied_or_the_first_uncopied_size() {
        let values = |from| LIMITS.each_ref().map(|limit| limit.value(from));
        assert_eq!(values(Some(64 << 10)), [32 << 10, 64 << 10]);
        assert_eq!(values(None), [NIO_EAGER_LIMIT.range.1, 8 << 20]);
    }
}
