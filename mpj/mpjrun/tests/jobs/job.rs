//! Starts `mpjrun` and collects its output.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::mismatch::time_factor;

/// A job that runs for more seconds than this counts as hung.
const HANG_LIMIT: u64 = 180;

/// Returns a time limit, multiplied by [`time_factor`].
pub(crate) fn limit(seconds: u64) -> Duration {
    Duration::from_secs(seconds) * time_factor()
}

pub(crate) struct Job {
    command: String,
    child: Child,
    lines: Arc<Lines>,
    readers: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Lines {
    /// Each line, and whether it is of standard error.
    got: Mutex<Vec<(bool, String)>>,
    changed: Condvar,
}

#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) out: Vec<String>,
    pub(crate) err: Vec<String>,
}

/// Returns the command of `mpjrun` with these arguments, which are separated by spaces.
pub(crate) fn mpjrun(args: &str) -> Command {
    // These tests might inherit ignored signals (nohup).
    let mut command = Command::new("env");
    command
        .args(["--default-signal=HUP,INT,QUIT,USR1,USR2,TERM", env!("CARGO_BIN_EXE_mpjrun")])
        .args(args.split_whitespace())
        .env_remove("RUST_BACKTRACE")
        .stdin(Stdio::null());
    command
}

/// Starts a job whose ranks run a role of this binary.
pub(crate) fn start(args: &str, role: &str) -> Job {
    let mut command = mpjrun(args);
    command.arg(std::env::current_exe().unwrap()).args(["rank", role]);
    watch(&mut command).0
}

pub(crate) fn run(args: &str, role: &str) -> Ended {
    start(args, role).end()
}

pub(crate) fn run_sh(args: &str, script: &str) -> Ended {
    start_sh(args, script).end()
}

/// Starts a job of shell scripts; `$RANKS` is this binary.
pub(crate) fn start_sh(args: &str, script: &str) -> Job {
    let mut command = mpjrun(args);
    command.env("RANKS", std::env::current_exe().unwrap()).args(["bash", "-c", script]);
    watch(&mut command).0
}

/// Starts a command and collects the lines of its output. Returns its standard input if that is a pipe.
pub(crate) fn watch(command: &mut Command) -> (Job, Option<ChildStdin>) {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = Arc::<Lines>::default();
    let out: Box<dyn Read + Send> = Box::new(child.stdout.take().unwrap());
    let err: Box<dyn Read + Send> = Box::new(child.stderr.take().unwrap());
    let readers = [(false, out), (true, err)].map(|(is_err, pipe)| {
        let lines = Arc::clone(&lines);
        std::thread::spawn(move || {
            for line in BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
                lines.got.lock().unwrap().push((is_err, String::from_utf8_lossy(&line).into_owned()));
                lines.changed.notify_all();
            }
        })
    });
    let stdin = child.stdin.take();
    (Job { command: format!("{command:?}"), child, lines, readers: readers.into() }, stdin)
}

impl Job {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: &str) {
        kill(&[self.child.id()], signal);
    }

    /// Sends SIGQUIT until a line of standard error contains `part`.
    pub(crate) fn query_until(&self, part: &str) {
        let start = Instant::now();
        let has_line =
            || self.lines.got.lock().unwrap().iter().any(|(is_err, line)| *is_err && line.contains(part));
        while !has_line() {
            assert!(
                start.elapsed() < limit(HANG_LIMIT),
                "no '{part}' in {:?}",
                self.lines.got.lock().unwrap()
            );
            self.signal("-QUIT");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    pub(crate) fn signal_twice(&self, signal: &str) {
        kill(&[self.child.id(); 2], signal);
    }

    /// Waits until `n` lines of standard output contain `part`, and returns them.
    pub(crate) fn lines(&self, n: usize, part: &str) -> Vec<String> {
        self.wait_for(n, part, false)
    }

    /// Waits until `n` lines of standard error contain `part`, and returns them.
    pub(crate) fn errors(&self, n: usize, part: &str) -> Vec<String> {
        self.wait_for(n, part, true)
    }

    fn wait_for(&self, n: usize, part: &str, err: bool) -> Vec<String> {
        let start = Instant::now();
        let mut got = self.lines.got.lock().unwrap();
        loop {
            let found = got.iter().filter(|(is_err, line)| *is_err == err && line.contains(part));
            let found: Vec<String> = found.map(|(_, line)| line.clone()).collect();
            if found.len() >= n {
                return found;
            }
            assert!(start.elapsed() < limit(HANG_LIMIT), "{}: {n} × '{part}' in {got:?}", self.command);
            got = self.lines.changed.wait_timeout(got, Duration::from_millis(100)).unwrap().0;
        }
    }

    pub(crate) fn end(self) -> Ended {
        self.end_within(limit(HANG_LIMIT))
    }

    /// Waits for the end of a job that runs at most for `limit`.
    pub(crate) fn end_within(mut self, limit: Duration) -> Ended {
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if start.elapsed() > limit {
                self.child.kill().unwrap();
                panic!("{} hangs; so far: {:?}", self.command, self.lines.got.lock().unwrap());
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        for reader in self.readers {
            reader.join().unwrap();
        }
        let got = std::mem::take(&mut *self.lines.got.lock().unwrap());
        let lines =
            |which| got.iter().filter(|(is_err, _)| *is_err == which).map(|(_, line)| line.clone()).collect();
        Ended { code: status.code(), signal: status.signal(), out: lines(false), err: lines(true) }
    }
}

impl Ended {
    /// Returns the message of `mpjrun`; panics unless there is exactly one. Notices of interrupts, of waiting times in
    /// a trace, and of failures during the job do not count.
    pub(crate) fn message(&self) -> &str {
        let own = self.err.iter().filter(|line| line.starts_with("mpjrun: "));
        let is_other = |line: &str| {
            line.starts_with("mpjrun: interrupt")
                || line.contains("how long each rank waited")
                || line.ends_with("; the other ranks continue")
                || line.ends_with("; the job ends")
        };
        let own: Vec<&String> = own.filter(|line| !is_other(line)).collect();
        assert_eq!(own.len(), 1, "{self:?}");
        own[0]
    }

    /// Asserts the exit code, and that the message contains these parts.
    #[track_caller]
    pub(crate) fn expect(&self, code: i32, parts: &[&str]) {
        assert_eq!(self.code, Some(code), "{self:#?}");
        for part in parts {
            assert!(self.message().contains(part), "no '{part}' in {self:#?}");
        }
    }
}

/// Returns the number at the end of a line.
pub(crate) fn pid(line: &str) -> u32 {
    line.rsplit(' ')
        .next()
        .and_then(|word| word.parse().ok())
        .unwrap_or_else(|| panic!("no number in '{line}'"))
}

pub(crate) fn kill(pids: &[u32], signal: &str) {
    let status = Command::new("kill").arg(signal).args(pids.iter().map(u32::to_string)).status().unwrap();
    assert!(status.success(), "kill {signal} {pids:?}");
}

/// Waits until a process has exited, at most for `limit` times [`time_factor`]. It can still be a zombie.
pub(crate) fn wait_for_exit(pid: u32, limit: Duration) {
    let start = Instant::now();
    while alive(pid) {
        assert!(start.elapsed() < limit * time_factor(), "process {pid} still runs");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn alive(pid: u32) -> bool {
    let path = format!("/proc/{pid}/stat");
    let text = std::fs::read_to_string(Path::new(&path)).unwrap_or_default();
    text.rsplit(") ").next().and_then(|rest| rest.chars().next()).is_some_and(|state| !"ZX".contains(state))
}

/// Writes to a job's standard input and closes it.
pub(crate) fn feed(input: Option<ChildStdin>, text: &str) {
    input.unwrap().write_all(text.as_bytes()).unwrap();
}
