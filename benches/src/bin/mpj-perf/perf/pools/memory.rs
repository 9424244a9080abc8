//! The memory that the mix needs, measured in a separate process for each contender.

use std::fs;
use std::process::Command;

use super::contender::{Contender, Name};
use crate::perf::Failure;

const STEPS: usize = 4096;

#[derive(Clone, Copy, Debug)]
pub(super) struct Peak {
    /// Requested by the mix.
    pub(super) live: usize,
    pub(super) resident: usize,
}

/// Runs this program with `--memory-of`, and parses its output.
pub(super) fn of(name: Name) -> Result<Peak, Failure> {
    let this = std::env::current_exe()?;
    let chosen = format!("{},{}", name.strategy, name.storage);
    let output = Command::new(this).args(["pools", "--memory-of", &chosen]).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut numbers = text.split_whitespace().map(str::parse);
    match (output.status.success(), numbers.next(), numbers.next()) {
        (true, Some(Ok(live)), Some(Ok(resident))) => Ok(Peak { live, resident }),
        _ => {
            Err(format!("the memory of {chosen}: {}", String::from_utf8_lossy(&output.stderr).trim()).into())
        }
    }
}

/// Performs the mix. Returns the memory that it needed in addition to the initial memory of the process.
pub(super) fn measure(
    make: impl FnOnce() -> Result<Box<dyn Contender + Send>, Failure>,
) -> Result<Peak, Failure> {
    let before = status("VmRSS:")?;
    let contender = make()?;
    let live = contender.peak_of_mix(STEPS).ok_or("out of memory")?;
    Ok(Peak { live, resident: status("VmHWM:")?.saturating_sub(before) })
}

/// Returns a size of `/proc/self/status` in bytes.
fn status(field: &str) -> Result<usize, Failure> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok());
    Ok(kib.ok_or_else(|| format!("/proc/self/status has no {field}"))? << 10)
}
