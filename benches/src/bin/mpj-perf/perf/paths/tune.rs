//! Measures the message size from which `ibvdev` should register user memory instead of copying, and writes it to a
//! parameter file.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path as FilePath;

use mpj::World;
use mpj::config::{Number, PREFIX, Parameter};
use mpj::devices::config::IBV_REGISTER_MIN;

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

/// The device that `tune` supports. Only `ibvdev` has a path that copies in this process and one that does not.
const DEVICE: &str = "ibvdev";
const PARAMETER: &Number = &IBV_REGISTER_MIN;

/// Zero copy is chosen if it takes less than this multiple of the time of the path with copies.
const TOLERANCE: f64 = 1.02;

/// Returns the parameter's value for zero copy from `from` bytes on; `None`: all measured sizes are copied. With any
/// value, `ibvdev` copies messages shorter than `IBV_RDMA_READ_MIN`.
fn value(from: Option<usize>) -> u64 {
    let (min, max) = PARAMETER.range;
    let from = from.unwrap_or(SIZES[SIZES.len() - 1] * 2);
    (from as u64).clamp(min, max)
}

fn outcome(from: Option<usize>, value: u64) -> String {
    let found = match from {
        Some(bytes) => format!("zero copy is faster from {} on, or slower by less than 2 %", size(bytes)),
        None => format!("zero copy is slower by 2 % or more at {}", size(SIZES[SIZES.len() - 1])),
    };
    let (name, default) = (PARAMETER.name(), PARAMETER.default);
    if value == default {
        return format!(
            "{DEVICE}: {found}: nothing to gain on this host, {PREFIX}{name}={value} is the default"
        );
    }
    format!("{DEVICE}: {found}: {PREFIX}{name} is now {value} (default: {default})")
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
    if name != DEVICE {
        return Err(
            format!("nothing to tune: {name:?} has no parameter for zero copy, only {DEVICE} has").into()
        );
    }
    report.line(format_args!(
        "# TUNE,device,bytes,us with copies (freshly written),us without,us with copies (unmodified),us without,ratio"
    ))?;
    let mut ratios = Vec::new();
    for bytes in SIZES {
        let wanted = |candidate: &PathCandidate| ["buffered", "zerocopy"].contains(&candidate.name);
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
        let value = value(from);
        let line = format!("{PREFIX}{}={value}", PARAMETER.name());
        let remark = format!("# {name}: {}", plot::machine());
        let written =
            fs::read_to_string(path).and_then(|text| fs::write(path, with_parameter(&text, &line, &remark)));
        written.map_err(|error| format!("{}: {error}", path.display()))?;
        let shown = path.display();
        report.line(format_args!("# {}", outcome(from, value)))?;
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
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(format!("{}: {error}", path.display()));
        }
        text => text.unwrap_or_default(),
    };
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
        let none = outcome(Some(256 << 10), 256 << 10);
        assert!(
            none.contains("nothing to gain on this host") && none.contains("IBV_REGISTER_MIN=262144"),
            "{none}"
        );
        let some = outcome(Some(65536), 65536);
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
    fn value_is_the_first_uncopied_size() {
        assert_eq!((value(Some(64 << 10)), value(None)), (64 << 10, 8 << 20));
    }
}
