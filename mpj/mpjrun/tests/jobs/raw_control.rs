//! Ranks that use the control protocol directly, without `mpj`: a job can have many of them, and they may send false
//! messages.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use mpj::boot::wire::{
    CONTROL_VAR, FrameDecoder, ProtocolVersion, ToLauncher, ToProcess, VERSION, WireExit, encode_frame,
};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, Signal, getpid, getppid, kill_process, pidfd_open};

/// How many failure reports each of two ranks sends.
pub(crate) const LOSSES: usize = 50_000;

/// How long the other ranks may fill their sockets while `mpjrun` is stopped.
const FILL: Duration = Duration::from_millis(500);

/// Plays a role.
pub(crate) fn play(role: &str) -> ExitCode {
    match role {
        "later-version" => {
            return Bare::join_as(&ProtocolVersion { version: VERSION + 1, mpj_version: "99.1".into() });
        }
        "no-version" => return Bare::join_without_a_version(),
        _ => {}
    }
    let mut rank = Bare::join();
    rank.fence();
    match role {
        "accuse" => rank.accuse_each_other(),
        "said-first" => rank.say_before_others_notice(),
        "together" => rank.die_together(),
        "own-loss" => rank.say(&[ToLauncher::PeerLost { rank: rank.me, cause: "itself".into() }]),
        "talk" if rank.me == 1 => rank.talk(),
        "talk" => rank.say(&[rank.died("returned an error: enough")]),
        "unread" if rank.me == 1 => rank.ask_and_not_read(),
        "unread" => rank.hear_of_a_death(),
        "long-cause" if rank.me == 1 => rank.say(&[rank.died(&"long ".repeat(200_000))]),
        "long-cause" => rank.hear_of_a_death(),
        role => match role.split_once(':') {
            Some((how, cut)) if rank.me == 1 => return rank.cut_off(how, cut.parse().unwrap()),
            Some(_) => rank.repeat_the_death(),
            None => return ExitCode::FAILURE,
        },
    }
    // mpjrun may take a while to read all messages.
    std::thread::sleep(Duration::from_millis(100));
    ExitCode::from(3)
}

/// The message that is sent incompletely.
pub(crate) fn torn_message() -> Vec<u8> {
    encode_frame(&ToLauncher::Put { rank: 1, key: "key".into(), value: vec![7; 5] }).unwrap()
}

struct Bare {
    me: u32,
    socket: UnixStream,
    frames: FrameDecoder,
}

impl Bare {
    /// Joins with this version in the first message, and waits for the reply.
    fn join_as(speaker: &ProtocolVersion) -> ExitCode {
        let mut rank = Bare::connect();
        rank.say(&[ToLauncher::Hello(speaker.clone())]);
        rank.wait(|_| true);
        ExitCode::SUCCESS
    }

    fn join_without_a_version() -> ExitCode {
        let mut rank = Bare::connect();
        (&rank.socket).write_all(&[1, 0, 0, 0, 0]).unwrap();
        rank.wait(|_| true);
        ExitCode::SUCCESS
    }

    fn join() -> Bare {
        let mut rank = Bare::connect();
        rank.say(&[ToLauncher::Hello(ProtocolVersion::own())]);
        rank.wait(|message| matches!(message, ToProcess::Welcome(_)));
        rank
    }

    fn connect() -> Bare {
        let control = std::env::var(CONTROL_VAR).unwrap();
        let number = control.split(':').next().unwrap().parse().unwrap();
        let own = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
        let fd = rustix::process::pidfd_getfd(&own, number, PidfdGetfdFlags::empty()).unwrap();
        let me = std::env::var("MPJ_RANK").unwrap().parse().unwrap();
        Bare { me, socket: UnixStream::from(fd), frames: FrameDecoder::default() }
    }

    /// Waits until every rank has reached the fence.
    fn fence(&mut self) {
        self.say(&[ToLauncher::Fence { id: 1 }]);
        self.wait(|message| matches!(message, ToProcess::FenceDone { .. }));
    }

    /// Sends messages together; they are lost if the socket is closed.
    fn say(&self, messages: &[ToLauncher]) {
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
            assert!(got > 0, "mpjrun is gone");
            self.frames.push(&bytes[..got]);
        }
    }

    fn died(&self, cause: &str) -> ToLauncher {
        ToLauncher::Exited { rank: self.me, exit: WireExit::Died(cause.into()) }
    }

    /// Ranks 0 and 1 report each other as dead again and again; rank 2 does nothing.
    fn accuse_each_other(&self) {
        if self.me < 2 {
            let loss = ToLauncher::PeerLost { rank: 1 - self.me, cause: "so they say".into() };
            self.say(&vec![loss; LOSSES]);
        }
    }

    /// All ranks report their deaths and exit while `mpjrun` is stopped. The last rank, whose fence completes last,
    /// stops it.
    fn die_together(&self) {
        let size: u32 = std::env::var("MPJ_SIZE").unwrap().parse().unwrap();
        let say = || self.say(&[self.died("returned an error: together")]);
        if self.me + 1 == size {
            // On a busy host this rank may exit before the others, so it reports its death, too.
            stop_launcher(say);
        } else {
            wait_for_the_stop();
            say();
        }
    }

    /// Rank 2 reports why it dies; ranks 0 and 1 report the death of rank 2 and of each other. `mpjrun` is stopped
    /// meanwhile and then reads all reports together.
    fn say_before_others_notice(&self) {
        if self.me == 2 {
            stop_launcher(|| self.say(&[self.died("returned an error: the cause")]));
        } else {
            wait_for_the_stop();
            let losses =
                [2, 1 - self.me].map(|rank| ToLauncher::PeerLost { rank, cause: "it closed".into() });
            self.say(&vec![losses; LOSSES / 2].concat());
        }
    }

    /// Sends meaningless requests until the socket is closed.
    fn talk(&self) {
        let request = ToLauncher::Get { id: 7, rank: 0, key: String::new() };
        let requests = encode_frame(&request).unwrap().repeat(10_000);
        let mut reader = self.socket.try_clone().unwrap();
        // Read the replies, so that nothing blocks.
        std::thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
        while (&self.socket).write_all(&requests).is_ok() {}
    }

    /// Requests 80 MB and reads none of it.
    fn ask_and_not_read(&self) {
        let (rank, key) = (self.me, "k".to_owned());
        self.say(&[ToLauncher::Put { rank, key: key.clone(), value: vec![7; 1_000_000] }]);
        // More than mpjrun queues for a process that does not read.
        let gets = (0..80).map(|id| ToLauncher::Get { id, rank, key: key.clone() });
        self.say(&gets.collect::<Vec<_>>());
        std::thread::sleep(Duration::from_secs(100));
    }

    /// Sends the first bytes of a message, and then closes the socket, exits, is killed, or sends invalid bytes.
    fn cut_off(&self, how: &str, cut: usize) -> ExitCode {
        (&self.socket).write_all(&torn_message()[..cut]).unwrap();
        match how {
            "torn" => self.socket.shutdown(Shutdown::Both).unwrap(),
            "torn-kill" => kill_process(getpid(), Signal::KILL).unwrap(),
            "garbage" => (&self.socket).write_all(&[0xff; 64]).unwrap(),
            _ => return ExitCode::SUCCESS,
        }
        std::thread::sleep(Duration::from_secs(100));
        ExitCode::SUCCESS
    }

    fn repeat_the_death(&mut self) {
        let heard = self.wait(|message| matches!(message, ToProcess::Exited { exit: WireExit::Died(_), .. }));
        super::program::say(&format!("{heard:?}"));
        self.say(&[ToLauncher::Exited { rank: self.me, exit: WireExit::Left }]);
    }

    fn hear_of_a_death(&mut self) {
        let heard = self.wait(|message| matches!(message, ToProcess::Exited { exit: WireExit::Died(_), .. }));
        super::program::say(&format!("rank {} heard of {} bytes", self.me, format!("{heard:?}").len()));
        self.say(&[ToLauncher::Exited { rank: self.me, exit: WireExit::Left }]);
    }
}

/// Stops `mpjrun` while this rank runs `meanwhile` and the others fill their sockets.
fn stop_launcher(meanwhile: impl FnOnce()) {
    let launcher = getppid().unwrap();
    kill_process(launcher, Signal::STOP).unwrap();
    meanwhile();
    std::thread::sleep(FILL);
    kill_process(launcher, Signal::CONT).unwrap();
}

fn wait_for_the_stop() {
    let stat = format!("/proc/{}/stat", getppid().unwrap().as_raw_pid());
    let stopped = || {
        let text = std::fs::read_to_string(&stat).unwrap();
        text.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
    };
    let start = Instant::now();
    while !stopped() && start.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(1));
    }
}
