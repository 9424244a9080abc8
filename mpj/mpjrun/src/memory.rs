//! The memory that the ranks of a job share, and whether there is enough.

use std::os::fd::AsFd;
use std::rc::Rc;

use mpj_devices::{Segment, config};

use crate::job::Job;
use crate::report::Refused;

impl Job<'_> {
    /// Makes the memory of the job when its first process joins: programs that never do cost nothing.
    pub(crate) fn share_memory(&mut self) -> Result<(), Refused> {
        if self.segment.is_some() || !self.plan.segment() {
            return Ok(());
        }
        let fragments = self.plan.config.get(&config::SHM_FRAGMENTS) as u32;
        let needed = Segment::needed(self.plan.size, fragments);
        let refused = |e: &dyn std::fmt::Display| {
            Refused::new(format!(
                "no {} MiB of memory for {} ranks to share: {e}; free some, set MPJ_SHM_FRAGMENTS lower, or use \
                 another device with --dev",
                needed >> 20,
                self.plan.size
            ))
        };
        // Memory that is not there would be found out by whoever the kernel kills for it.
        if let Some(available) = available().filter(|available| *available < needed as u64) {
            return Err(refused(&format_args!("{} MiB are available", available >> 20)));
        }
        let segment = Segment::create(self.plan.size, fragments).map_err(|e| refused(&e))?;
        let fd = segment.as_fd().try_clone_to_owned().map_err(|e| refused(&e))?;
        self.segment = Some(Rc::new(fd));
        Ok(())
    }
}

/// Returns the bytes of memory that can be had without pushing others out.
fn available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}
