//! What rank 0 prints.

use std::fmt;
use std::io::{self, Write};

use mpj::Intracomm;

use super::Failure;
use super::cores;

/// The bytes with which a rank names its cores.
const AFFINITY: usize = 64;

/// Prints at rank 0 and is silent elsewhere.
#[derive(Clone, Copy, Debug)]
pub(super) struct Report {
    prints: bool,
}

impl Report {
    pub(super) fn new(world: &Intracomm) -> Self {
        Report { prints: world.rank() == 0 }
    }

    /// Prints one line at once: a reader may be waiting for it.
    pub(super) fn line(self, line: fmt::Arguments<'_>) -> Result<(), Failure> {
        if !self.prints {
            return Ok(());
        }
        let mut out = io::stdout().lock();
        let written = writeln!(out, "{line}").and_then(|()| out.flush());
        Ok(written.map_err(|why| format!("the report cannot be written: {why}"))?)
    }

    /// Prints which library this is and on which cores its ranks are. Collective.
    pub(super) fn head(self, world: &Intracomm) -> Result<(), Failure> {
        let mut mine = [0u8; AFFINITY];
        let cores = cores::affinity();
        let len = cores.len().min(AFFINITY);
        mine[..len].copy_from_slice(&cores.as_bytes()[..len]);
        let mut all = vec![0u8; if self.prints { AFFINITY * world.size() } else { 0 }];
        world.gather(&mine, &mut all, 0)?;

        let build = if cfg!(debug_assertions) { ", a debug build: its figures mean nothing" } else { "" };
        self.line(format_args!("# lib: mpj {}, pure Rust{build}", env!("CARGO_PKG_VERSION")))?;
        let name = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned();
        let ranks =
            all.chunks(AFFINITY).enumerate().map(|(rank, bytes)| format!("rank{rank}={}", name(bytes)));
        self.line(format_args!("# affinity: {}", ranks.collect::<Vec<_>>().join(" ")))
    }
}
