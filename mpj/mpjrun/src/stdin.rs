//! Forwards terminal input to the process of rank 0. The ranks are not in the foreground process group of the terminal,
//! so the kernel would stop a rank that reads from it.

use std::io::Write;
use std::process::ChildStdin;
use std::time::Duration;

use rustix::io::Errno;

pub(crate) fn is_terminal() -> bool {
    rustix::termios::isatty(rustix::stdio::stdin())
}

/// The interval at which a job in the background checks whether it has moved to the foreground.
const FOREGROUND_POLL: Duration = Duration::from_millis(200);

/// Starts the forwarding thread. It ends at the end of the input, or when a read or a write fails.
pub(crate) fn forward(mut to: ChildStdin) -> std::io::Result<()> {
    let body = move || {
        let mut bytes = [0; 4096];
        loop {
            if !in_foreground() {
                std::thread::sleep(FOREGROUND_POLL);
                continue;
            }
            match rustix::io::read(rustix::stdio::stdin(), &mut bytes) {
                Ok(got) if got > 0 && to.write_all(&bytes[..got]).is_ok() => {}
                Err(Errno::INTR) => {}
                _ => return,
            }
        }
    };
    std::thread::Builder::new().name("input".into()).spawn(body).map(|_| ())
}

/// Returns whether a read from the terminal does not stop this process: it is in the foreground, or the terminal is
/// gone and the read fails.
fn in_foreground() -> bool {
    rustix::termios::tcgetpgrp(rustix::stdio::stdin())
        .map_or(true, |group| group == rustix::process::getpgrp())
}
