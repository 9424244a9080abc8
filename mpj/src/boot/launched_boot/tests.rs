//! Tests of a process's side of the control socket; the test acts as `mpjrun`, or as an agent.

use std::io::{IoSlice, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use mpj_devices::{ExitEvent, IbvDriver, PeerId, ShmDriver};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

use super::*;
use crate::boot::wire::{DeathGroup, ExitRun, FrameDecoder, WireExit};
use crate::config::Config;

struct Launcher {
    socket: UnixStream,
    frames: FrameDecoder,
}

impl Launcher {
    fn recv(&mut self) -> ToLauncher {
        let mut byte = [0];
        loop {
            if let Some(message) = self.frames.next().unwrap() {
                return message;
            }
            self.socket.read_exact(&mut byte).unwrap();
            self.frames.push(&byte);
        }
    }

    fn send(&self, message: &ToProcess, fd: Option<&OwnedFd>) {
        let bytes = encode_frame(message).unwrap();
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds = fd.map(|fd| [fd.as_fd()]);
        if let Some(fds) = &fds {
            control.push(SendAncillaryMessage::ScmRights(fds));
        }
        rustix::net::sendmsg(&self.socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::empty())
            .unwrap();
    }
}

fn welcome() -> Welcome {
    let hosts = vec![(0, 4), (1, 1)];
    Welcome {
        job: 7,
        secret: [1; 32],
        hosts,
        first_rank: 1,
        ranks_here: 2,
        devices: None,
        has_segment: false,
    }
}

fn join() -> (Launcher, Vec<LaunchedBoot>) {
    join_with(welcome())
}

fn join_with(welcome: Welcome) -> (Launcher, Vec<LaunchedBoot>) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut launcher = Launcher { socket: ours, frames: FrameDecoder::default() };
    launcher.send(&ToProcess::Welcome(welcome), None);
    let boots = LaunchedBoot::connect(theirs, None, |_| ()).unwrap();
    assert_eq!(launcher.recv(), ToLauncher::Hello(ProtocolVersion::own()));
    (launcher, boots)
}

#[track_caller]
fn wait_until(mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(60), "the condition is not met after 60 s");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn welcome_defines_ranks_hosts_and_devices() {
    let (_launcher, boots) = join();
    let place: Vec<(u32, u32)> = boots.iter().map(|boot| (boot.rank(), boot.size())).collect();
    assert_eq!(place, [(1, 5), (2, 5)]);
    let hosts = boots[0].hosts();
    assert_eq!((hosts.count(), hosts.host_of(4), hosts.index_of(4)), (2, Some(HostId(1)), Some(0)));
    let site = boots[1].site().unwrap();
    assert_eq!((site.rank, site.size, site.ranks_on_host), (2, 5, 4));
    let opened = boots[1].registry().open(&site, &Config::default()).unwrap();
    let names: Vec<&str> = opened.opened.iter().map(|opened| opened.device.name()).collect();
    assert_eq!(names, ["smdev", "niodev"]);
    assert_eq!(
        opened.failed[0].to_string(),
        "shmdev: the launcher has created no shared memory on this host"
    );
}

#[test]
fn invalid_placements_are_rejected() {
    for wrong in [
        Welcome { ranks_here: 0, ..welcome() },
        Welcome { ranks_here: 5, ..welcome() },
        Welcome { first_rank: u32::MAX, ..welcome() },
        // Ranks 3 and 4 are on two hosts.
        Welcome { first_rank: 3, ..welcome() },
        // Invalid maps of hosts.
        Welcome { hosts: vec![], ..welcome() },
        Welcome { hosts: vec![(0, 4), (1, 0)], ..welcome() },
        Welcome { hosts: vec![(0, 4), (7, 1)], ..welcome() },
        Welcome { hosts: vec![(0, 4), (1, u32::MAX)], ..welcome() },
        // The descriptor of the segment is missing.
        Welcome { has_segment: true, ..welcome() },
    ] {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let launcher = Launcher { socket: ours, frames: FrameDecoder::default() };
        launcher.send(&ToProcess::Welcome(wrong.clone()), None);
        LaunchedBoot::connect(theirs, None, |_| ()).map(|boots| panic!("{wrong:?}: {boots:?}")).unwrap_err();
    }
}

/// Requests key `k` of a rank. The reply comes through the channel, which is closed if the callback is dropped.
fn request(boot: &LaunchedBoot, rank: u32) -> mpsc::Receiver<Result<Vec<u8>, String>> {
    let (sender, receiver) = mpsc::channel();
    boot.get(rank, "k", Box::new(move |reply| sender.send(reply).unwrap()));
    receiver
}

/// Joins a job with shared memory for `ranks` ranks, and returns the memory as well.
fn join_with_memory(ranks: u32) -> (Launcher, OwnedFd, Result<Vec<LaunchedBoot>, String>) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let launcher = Launcher { socket: ours, frames: FrameDecoder::default() };
    let segment = Segment::create(ranks, &Config::default()).unwrap();
    // SAFETY: the test and the process under test only attach the duplicate, or pass it on.
    #[expect(unsafe_code, reason = "see above")]
    let memory = unsafe { segment.descriptor() }.try_clone_to_owned().unwrap();
    launcher.send(&ToProcess::Welcome(Welcome { has_segment: true, ..welcome() }), Some(&memory));
    (launcher, memory, LaunchedBoot::connect(theirs, None, |_| ()))
}

#[test]
fn segment_belongs_to_the_ranks_of_one_host() {
    let why = join_with_memory(5).2.unwrap_err();
    assert_eq!(why, "shared memory of another job: it has another number of ranks");
    let (mut launcher, _memory, boots) = join_with_memory(4);
    let boots = boots.unwrap();
    assert_eq!(launcher.recv(), ToLauncher::Hello(ProtocolVersion::own()));
    let opened = boots[1].registry().open(&boots[1].site().unwrap(), &Config::default()).unwrap();
    // Whether `ibvdev` can be opened depends on the machine.
    assert!(opened.failed.iter().all(|refused| refused.device == IbvDriver::NAME), "{:?}", opened.failed);
    let shm = opened.opened.iter().find(|opened| opened.device.name() == ShmDriver::NAME).unwrap();
    let own = shm.device.address();
    assert!(shm.device.affinity(&own).is_some());
    // An address with another segment is that of a rank on another host.
    let mut other = own.clone();
    other.0[0] ^= 1;
    assert_eq!(shm.device.affinity(&other), None);
    assert!(shm.device.connect(PeerId(4), &own).unwrap_err().why.contains("P4 is not one of the 4 ranks"));
}

#[test]
fn ranks_of_a_segment_exchange_cards_in_it() {
    let (mut launcher, memory, boots) = join_with_memory(4);
    let boots = boots.unwrap();
    assert_eq!(launcher.recv(), ToLauncher::Hello(ProtocolVersion::own()));
    let request = |of| {
        let (sender, receiver) = mpsc::channel();
        boots[0].get(of, CARDS, Box::new(move |reply| sender.send(reply).unwrap()));
        receiver
    };
    // SAFETY: the descriptor is a duplicate of the segment's, and the segment is attached.
    #[expect(unsafe_code, reason = "see above")]
    let elsewhere = unsafe { Segment::attach(memory, 4) }.unwrap();
    elsewhere.put_card(3, b"of 3");
    assert_eq!(request(3).try_recv().expect("the card was published"), Ok(b"of 3".to_vec()));
    // A card that is too long for the shared memory comes from `mpjrun`.
    elsewhere.put_card(3, &[3; 2000]);
    let reply = request(3);
    let ToLauncher::Get { id, rank: 3, .. } = launcher.recv() else { panic!("expected Get") };
    launcher.send(&ToProcess::Value { id, value: Ok(vec![3; 2000]) }, None);
    assert_eq!(reply.recv().unwrap(), Ok(vec![3; 2000]));
    // A card goes to the shared memory, and to `mpjrun` for ranks that do not share it.
    boots[1].put(CARDS, b"of 2").unwrap();
    assert!(matches!(launcher.recv(), ToLauncher::Put { rank: 2, .. }));
    assert_eq!(request(2).try_recv().expect("the card was published"), Ok(b"of 2".to_vec()));
    // These requests go to `mpjrun`: rank 0 has published no card, rank 4 is on another host, and shared memory has
    // only cards.
    let _reply = [request(0), request(4)];
    assert!(matches!(launcher.recv(), ToLauncher::Get { rank: 0, .. }));
    assert!(matches!(launcher.recv(), ToLauncher::Get { rank: 4, .. }));
    boots[0].get(3, "k", Box::new(drop));
    assert!(matches!(launcher.recv(), ToLauncher::Get { rank: 3, .. }));
}

#[test]
fn unexpected_reply_closes_the_connection() {
    let (mut launcher, boots) = join();
    let _reply = request(&boots[0], 3);
    let ToLauncher::Get { id, .. } = launcher.recv() else { panic!("expected Get") };
    launcher.send(&ToProcess::FenceDone { id, result: Ok(()) }, None);
    wait_until(|| boots[0].roster().event_count() == 3);
    assert!(boots[0].fence().unwrap_err().contains("unexpected message"));
}

#[test]
fn exits_are_forwarded_but_not_echoed() {
    let (mut launcher, boots) = join();
    let roster = boots[0].roster();
    let died = |cause: &str, runs: &[(u32, u32)]| DeathGroup { cause: cause.into(), runs: runs.to_vec() };
    // Rank 1 is of this process. Ranks that do not exist are ignored.
    let groups = vec![
        died("was lost", &[(1, 1)]),
        died("was killed", &[(4, 1), (u32::MAX, 2), (7, 0)]),
        died("returned an error", &[(0, 2), (4, u32::MAX)]),
    ];
    launcher.send(&ToProcess::Died(groups), None);
    wait_until(|| roster.event_count() == 3);
    let died = |rank, cause: &str| ExitEvent { rank, exit: Exit::Died(cause.into()) };
    assert_eq!(roster.since(0), [died(1, "was lost"), died(4, "was killed"), died(0, "returned an error")]);
    roster.report(2, Exit::Left);
    assert_eq!(launcher.recv(), ToLauncher::Exited { rank: 2, exit: WireExit::Left });
    roster.report(3, Exit::Died("its connection broke".into()));
    assert_eq!(launcher.recv(), ToLauncher::PeerLost { rank: 3, cause: "its connection broke".into() });
}

#[test]
fn orderly_exits_are_requested_once_at_a_time() {
    let (mut launcher, boots) = join();
    let roster = boots[0].roster();
    let run = |first, len, exit| ExitRun { first, len, exit };
    for (runs, known) in [
        (vec![run(3, 2, WireExit::Closing)], 2),
        // Ranks of this process, and ranks that do not exist, are skipped.
        (vec![run(0, u32::MAX, WireExit::Left)], 5),
        (vec![run(u32::MAX, 2, WireExit::Left)], 5),
    ] {
        (0..3).for_each(|_| roster.request_exits());
        assert_eq!(launcher.recv(), ToLauncher::QueryExits);
        launcher.send(&ToProcess::OrderlyExits(runs), None);
        wait_until(|| {
            roster.event_count() == known
                && !boots[0].process.broadcaster.exit_query_pending.load(Ordering::Relaxed)
        });
    }
    let ranks: Vec<u32> = roster.since(0).iter().map(|event| event.rank).collect();
    assert_eq!(ranks, [3, 4, 0, 3, 4]);
    roster.report(1, Exit::Left);
    assert_eq!(launcher.recv(), ToLauncher::Exited { rank: 1, exit: WireExit::Left });
}

#[test]
fn exit_of_mpjrun_reports_other_ranks_dead_and_ends_requests() {
    let (launcher, boots) = join();
    let roster = boots[0].roster();
    roster.learn(ExitEvent { rank: 3, exit: Exit::Left });
    let reply = request(&boots[0], 0);
    let waiting = std::thread::spawn({
        let boot = boots[0].clone();
        move || boot.fence().unwrap_err()
    });
    drop(launcher);
    waiting.join().unwrap();
    assert!(reply.recv().is_err());
    assert_eq!(roster.event_count(), 3);
    let dead: Vec<u32> = roster.since(1).iter().map(|event| event.rank).collect();
    assert_eq!(dead, [0, 4]);
    assert!(request(&boots[1], 4).recv().is_err() && boots[1].fence().is_err());
}

#[test]
fn loss_of_an_agent_is_the_death_of_the_first_rank_of_its_host() {
    let (agent, boots) = join_with(Welcome { hosts: vec![(0, 2), (1, 3)], first_rank: 3, ..welcome() });
    let roster = boots[0].roster();
    drop(agent);
    wait_until(|| roster.event_count() == 3);
    let dead: Vec<u32> = roster.since(0).iter().map(|event| event.rank).collect();
    assert_eq!(dead, [2, 0, 1]);
}

#[test]
fn requests_do_not_block_when_mpjrun_does_not_read() {
    const REQUESTS: u32 = 5000;
    let (mut launcher, boots) = join();
    let (sender, receiver) = mpsc::channel();
    let boot = boots[0].clone();
    let requester = std::thread::spawn(move || {
        for request in 0..REQUESTS {
            boot.get(0, &request.to_string(), Box::new(drop));
        }
        boot.roster().request_exits();
        boot.roster().report(3, Exit::Died("its connection broke".into()));
        sender.send(()).unwrap();
        boot.roster().report(1, Exit::Left);
    });
    receiver.recv_timeout(Duration::from_secs(20)).expect("a request waited for mpjrun");
    for request in 0..REQUESTS {
        let ToLauncher::Get { key, .. } = launcher.recv() else { panic!("expected Get") };
        assert_eq!(key, request.to_string());
    }
    assert_eq!(launcher.recv(), ToLauncher::QueryExits);
    assert!(matches!(launcher.recv(), ToLauncher::PeerLost { rank: 3, .. }));
    assert_eq!(launcher.recv(), ToLauncher::Exited { rank: 1, exit: WireExit::Left });
    requester.join().unwrap();
}
