//! Jobs under `mpjrun`: how they end, what they print, what they leave behind.
//!
//! This binary is both the tests and the program of the ranks: `… rank ROLE` plays a role of [`program`], `… bare ROLE`
//! one of [`bare`]. Jobs share the machine's cores, so tests run one after the other.

mod bare;
mod bind;
#[path = "../../../tests/suite/common/lent.rs"]
mod blocks;
mod claims;
mod collectives;
mod devices;
mod ends;
mod hosts;
mod io;
mod job;
mod late;
mod lent;
mod messages;
// What the tests of `mpj` run on threads runs here on processes. It is the same source: a crate between the two would depend on
// `mpj`, and `mpj` on it.
#[path = "../../../tests/suite/common/mismatch.rs"]
mod mismatch;
mod parameters;
mod program;
#[path = "../../../tests/suite/common/messages.rs"]
mod programs;
#[path = "../../../tests/suite/common/trace.rs"]
mod reader;
mod signals;
mod trace;
mod usage;
mod verbs;

use std::io::Write;
use std::panic::catch_unwind;
use std::process::ExitCode;

type Test = (&'static str, fn());

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match &args[..] {
        [first, role] if first == "rank" => return program::play(role),
        [first, role] if first == "bare" => return bare::play(role),
        _ => {}
    }
    let filter: Vec<&String> = args.iter().filter(|arg| !arg.starts_with('-')).collect();
    // A failed assertion says enough.
    std::panic::set_hook(Box::new(|info| {
        // Nobody listens: nothing can be done.
        let _ = writeln!(std::io::stderr(), "{info}");
    }));
    let wanted =
        |(name, _): &&Test| filter.is_empty() || filter.iter().any(|part| name.contains(part.as_str()));
    let tests: Vec<Test> = [
        bind::TESTS,
        claims::TESTS,
        collectives::TESTS,
        devices::TESTS,
        ends::TESTS,
        hosts::TESTS,
        io::TESTS,
        late::TESTS,
        lent::TESTS,
        messages::TESTS,
        parameters::TESTS,
        signals::TESTS,
        trace::TESTS,
        usage::TESTS,
        verbs::TESTS,
    ]
    .concat();
    let list = args.iter().any(|arg| arg == "--list");
    let mut failed = 0;
    let mut out = std::io::stdout().lock();
    for (name, test) in tests.iter().filter(wanted) {
        let outcome = match list || catch_unwind(test).is_ok() {
            true if list => ": test",
            true => " ... ok",
            false => " ... FAILED",
        };
        failed += u32::from(outcome == " ... FAILED");
        writeln!(out, "{}{name}{outcome}", if list { "" } else { "test " }).unwrap();
    }
    ExitCode::from(u8::from(failed > 0))
}
