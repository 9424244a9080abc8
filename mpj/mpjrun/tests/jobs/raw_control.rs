//! Ranks that implement the control protocol themselves, so they can send false messages.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixStream};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use mpj::boot::wire::{
    CONTROL_VAR, FrameDecoder, ProtocolVersion, ToLauncher, ToProcess, VERSION, WireExit, encode_frame,
};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, Signal, getpid, getppid, kill_process, pidfd_open};

/// The number of failure reports that each of two ranks sends. `mpjrun` reads them in many parts.
const REPORTS: usize = 50_000;

/// The longest time that a rank waits for another one while `mpjrun` is stopped.
const LIMIT: Duration = Duration::from_secs(10);

pub(crate) fn run_role(role: &str) -> ExitCode {
    match role {
        "later-version" => {
            return RawRank::join_as(&ProtocolVersion { version: VERSION + 1, mpj_version: "99.1".into() });
        }
        "no-version" => return RawRank::join_without_a_version(),
        _ => {}
    }
    let mut rank = RawRank::join();
    rank.fence();
    match role {
        "accuse" => rank.accuse_each_other(),
        "lost-and-left" => return rank.leave_after_its_loss(),
        "own-report" => rank.report_with_peer_reports(),
        "simultaneous" => rank.die_simultaneously(),
        "own-loss" => rank.send(&[ToLauncher::PeerLost { rank: rank.me, cause: "itself".into() }]),
        "flood" if rank.me == 1 => rank.flood(),
        "flood" => rank.send(&[rank.died("returned an error: enough")]),
        "unread" if rank.me == 1 => rank.request_and_not_read(),
        "unread" => rank.wait_for_death(),
        "long-cause" if rank.me == 1 => rank.send(&[rank.died(&"long ".repeat(200_000))]),
        "long-cause" => rank.wait_for_death(),
        role => match role.split_once(':') {
            Some((how, len)) if rank.me == 1 => return rank.send_part(how, len.parse().unwrap()),
            Some(_) => rank.print_death(),
            None => return ExitCode::FAILURE,
        },
    }
    // Give mpjrun time to read all messages, even on a busy machine.
    std::thread::sleep(Duration::from_millis(1500));
    ExitCode::from(3)
}

/// The message that is sent incompletely.
pub(crate) fn torn_message() -> Vec<u8> {
    encode_frame(&ToLauncher::Put { rank: 1, key: "key".into(), value: vec![7; 5] }).unwrap()
}

struct RawRank {
    me: u32,
    socket: UnixStream,
    frames: FrameDecoder,
}

impl RawRank {
    fn join_as(version: &ProtocolVersion) -> ExitCode {
        let mut rank = RawRank::connect();
        rank.send(&[ToLauncher::Hello(version.clone())]);
        rank.wait(|_| true);
        ExitCode::SUCCESS
    }

    fn join_without_a_version() -> ExitCode {
        let mut rank = RawRank::connect();
        (&rank.socket).write_all(&[1, 0, 0, 0, 0]).unwrap();
        rank.wait(|_| true);
        ExitCode::SUCCESS
    }

    fn join() -> RawRank {
        let mut rank = RawRank::connect();
        rank.send(&[ToLauncher::Hello(ProtocolVersion::own())]);
        rank.wait(|message| matches!(message, ToProcess::Welcome(_)));
        rank
    }

    fn connect() -> RawRank {
        let control = std::env::var(CONTROL_VAR).unwrap();
        let number = control.split(':').next().unwrap().parse().unwrap();
        let own = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
        let fd = rustix::process::pidfd_getfd(&own, number, PidfdGetfdFlags::empty()).unwrap();
        let me = std::env::var("MPJ_RANK").unwrap().parse().unwrap();
        RawRank { me, socket: UnixStream::from(fd), frames: FrameDecoder::default() }
    }

    fn fence(&mut self) {
        self.send(&[ToLauncher::Fence { id: 1 }]);
        self.wait(|message| matches!(message, ToProcess::FenceDone { .. }));
    }

    /// Sends messages together. If the socket is closed, they are lost.
    fn send(&self, messages: &[ToLauncher]) {
        let bytes: Vec<u8> = messages.iter().flat_map(|message| encode_frame(message).unwrap()).collect();
        let _ = (&self.socket).write_all(&bytes);
    }

    fn wait(&mut self, wanted: impl Fn(&ToProcess) -> bool) -> ToProcess {
        let mut bytes = [0; 4096];
        loop {
            if let Some(message) = self.frames.next::<ToProcess>().unwrap() {
                if wanted(&message) {
                    return message;
                }
                continue;
            }
            let got = (&self.socket).read(&mut bytes).unwrap();
            assert!(got > 0, "mpjrun has exited");
            self.frames.push(&bytes[..got]);
        }
    }

    fn died(&self, cause: &str) -> ToLauncher {
        ToLauncher::Exited { rank: self.me, exit: WireExit::Died(cause.into()) }
    }

    /// Ranks 0 and 1 repeatedly report each other as lost.
    fn accuse_each_other(&mut self) {
        if self.me < 2 {
            let loss = ToLauncher::PeerLost { rank: 1 - self.me, cause: "false report".into() };
            self.send(&vec![loss; REPORTS]);
        } else {
            // Its exit must not be the first failure.
            self.wait_for_death();
        }
    }

    /// Rank 0 reports that it has lost rank 1, which then leaves the job and exits with code 0.
    fn leave_after_its_loss(&mut self) -> ExitCode {
        if self.me == 0 {
            self.send(&[ToLauncher::PeerLost { rank: 1, cause: "false report".into() }]);
        }
        self.wait_for_death();
        self.send(&[ToLauncher::Exited { rank: self.me, exit: WireExit::Left }]);
        ExitCode::SUCCESS
    }

    /// The last rank stops `mpjrun`. Meanwhile all ranks report their deaths.
    fn die_simultaneously(&mut self) {
        self.report_during_a_stop(&[self.died("returned an error: simultaneous")]);
    }

    /// While `mpjrun` is stopped, rank 2 reports its failure, and ranks 0 and 1 report the loss of rank 2 and of each
    /// other. Then `mpjrun` reads all reports together.
    fn report_with_peer_reports(&mut self) {
        if self.me == 2 {
            self.report_during_a_stop(&[self.died("returned an error: the cause")]);
        } else {
            let losses =
                [2, 1 - self.me].map(|rank| ToLauncher::PeerLost { rank, cause: "it closed".into() });
            self.report_during_a_stop(&vec![losses; REPORTS / 2].concat());
        }
    }

    /// Sends messages while the last rank has stopped `mpjrun`. Returns when `mpjrun` has announced a death, so that no
    /// rank exits before `mpjrun` has read the reports.
    fn report_during_a_stop(&mut self, messages: &[ToLauncher]) {
        let size: u32 = std::env::var("MPJ_SIZE").unwrap().parse().unwrap();
        let launcher = getppid().unwrap();
        let name = format!("mpjrun-tests-{}", launcher.as_raw_pid());
        let address = SocketAddr::from_abstract_name(name).unwrap();
        if self.me + 1 == size {
            let others = UnixDatagram::bind_addr(&address).unwrap();
            others.set_read_timeout(Some(LIMIT)).unwrap();
            kill_process(launcher, Signal::STOP).unwrap();
            self.send(messages);
            // Each of the others has filled its socket, or has sent all of its messages.
            let have_sent = (1..size).all(|_| others.recv(&mut [0; 1]).is_ok());
            kill_process(launcher, Signal::CONT).unwrap();
            assert!(have_sent, "a rank has sent nothing");
        } else {
            wait_for_the_stop();
            self.send_and_then(messages, || {
                UnixDatagram::unbound().unwrap().send_to_addr(&[1], &address).unwrap();
            });
        }
        self.wait(|message| matches!(message, ToProcess::Died(_)));
    }

    /// Sends messages together. Calls `then` when the socket is full, or all are sent.
    fn send_and_then(&self, messages: &[ToLauncher], then: impl FnOnce()) {
        let bytes: Vec<u8> = messages.iter().flat_map(|message| encode_frame(message).unwrap()).collect();
        self.socket.set_nonblocking(true).unwrap();
        let mut sent = 0;
        while sent < bytes.len() {
            match (&self.socket).write(&bytes[sent..]) {
                Ok(more) => sent += more,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        self.socket.set_nonblocking(false).unwrap();
        then();
        (&self.socket).write_all(&bytes[sent..]).unwrap();
    }

    /// Sends requests until the socket is closed, and discards the replies.
    fn flood(&self) {
        let request = ToLauncher::Get { id: 7, rank: 0, key: String::new() };
        let requests = encode_frame(&request).unwrap().repeat(10_000);
        let mut reader = self.socket.try_clone().unwrap();
        std::thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
        while (&self.socket).write_all(&requests).is_ok() {}
    }

    /// Requests 80 MB, which is more than `mpjrun` queues, and reads nothing.
    fn request_and_not_read(&self) {
        let (rank, key) = (self.me, "k".to_owned());
        self.send(&[ToLauncher::Put { rank, key: key.clone(), value: vec![7; 1_000_000] }]);
        let gets = (0..80).map(|id| ToLauncher::Get { id, rank, key: key.clone() });
        self.send(&gets.collect::<Vec<_>>());
        std::thread::sleep(Duration::from_secs(100));
    }

    /// Sends the first `len` bytes of a message, and then closes the socket, exits, is killed, or sends invalid bytes.
    fn send_part(&self, how: &str, len: usize) -> ExitCode {
        (&self.socket).write_all(&torn_message()[..len]).unwrap();
        match how {
            "torn" => self.socket.shutdown(Shutdown::Both).unwrap(),
            "torn-kill" => kill_process(getpid(), Signal::KILL).unwrap(),
            "garbage" => (&self.socket).write_all(&[0xff; 64]).unwrap(),
            _ => return ExitCode::SUCCESS,
        }
        std::thread::sleep(Duration::from_secs(100));
        ExitCode::SUCCESS
    }

    fn print_death(&mut self) {
        let death = self.wait(|message| matches!(message, ToProcess::Died(_)));
        super::program::say(&format!("{death:?}"));
        self.send(&[ToLauncher::Exited { rank: self.me, exit: WireExit::Left }]);
    }

    fn wait_for_death(&mut self) {
        let death = self.wait(|message| matches!(message, ToProcess::Died(_)));
        super::program::say(&format!("rank {} got a death of {} bytes", self.me, format!("{death:?}").len()));
        self.send(&[ToLauncher::Exited { rank: self.me, exit: WireExit::Left }]);
    }
}

fn wait_for_the_stop() {
    let stat = format!("/proc/{}/stat", getppid().unwrap().as_raw_pid());
    let stopped = || {
        let text = std::fs::read_to_string(&stat).unwrap();
        text.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
    };
    let start = Instant::now();
    while !stopped() && start.elapsed() < LIMIT {
        std::thread::sleep(Duration::from_millis(1));
    }
}
