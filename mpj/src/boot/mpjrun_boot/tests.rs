//! Tests of a process's side of the control socket; the test plays the launcher.

use std::io::{IoSlice, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc;
use std::time::Duration;

use mpj_devices::PeerId;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

use super::*;
use crate::boot::wire::{ExitRun, FrameDecoder};
use crate::config::Config;

struct Launcher {
    socket: UnixStream,
    frames: FrameDecoder,
}

impl Launcher {
    fn hear(&mut self) -> ToLauncher {
        let mut byte = [0];
        loop {
            if let Some(message) = self.frames.next().unwrap() {
                return message;
            }
            self.socket.read_exact(&mut byte).unwrap();
            self.frames.push(&byte);
        }
    }

    fn say(&self, message: &ToProcess, fd: Option<&OwnedFd>) {
        let bytes = encode_frame(message).unwrap();
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        let fds = fd.map(|fd| [fd.as_fd()]);
        if let Some(fds) = &fds {
            beside.push(SendAncillaryMessage::ScmRights(fds));
        }
        rustix::net::sendmsg(&self.socket, &[IoSlice::new(&bytes)], &mut beside, SendFlags::empty()).unwrap();
    }
}

fn welcome() -> Welcome {
    let hosts = vec![(0, 4), (1, 1)];
    Welcome { job: 7, secret: [1; 32], hosts, first: 1, ranks_here: 2, devices: None, segment: false }
}

fn join() -> (Launcher, Vec<MpjrunBoot>) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut launcher = Launcher { socket: ours, frames: FrameDecoder::default() };
    launcher.say(&ToProcess::Welcome(welcome()), None);
    let faces = MpjrunBoot::connect(theirs, || ()).unwrap();
    assert_eq!(launcher.hear(), ToLauncher::Hello(ProtocolVersion::own()));
    (launcher, faces)
}

fn settle(mut done: impl FnMut() -> bool) {
    while !done() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_process_learns_its_place() {
    let (_launcher, faces) = join();
    let place: Vec<(u32, u32)> = faces.iter().map(|face| (face.rank(), face.size())).collect();
    assert_eq!(place, [(1, 5), (2, 5)]);
    let hosts = faces[0].hosts();
    assert_eq!((hosts.count(), hosts.host_of(4), hosts.index_of(4)), (2, Some(HostId(1)), Some(0)));
    let site = faces[1].site().unwrap();
    assert_eq!((site.rank, site.size, site.ranks_on_host), (2, 5, 4));
    let opened = faces[1].registry().open(&site, &Config::default()).unwrap();
    let names: Vec<&str> = opened.opened.iter().map(|opened| opened.device.name()).collect();
    assert_eq!(names, ["smdev", "niodev"]);
    assert_eq!(opened.failed[0].to_string(), "shmdev: mpjrun has made no shared memory for this job");
}

#[test]
fn a_place_that_cannot_be_is_refused() {
    let more = u32::MAX;
    for wrong in [
        Welcome { ranks_here: 0, ..welcome() },
        Welcome { ranks_here: 5, ..welcome() },
        Welcome { first: more, ..welcome() },
        // A process with ranks on two hosts, and invalid maps.
        Welcome { first: 3, ..welcome() },
        Welcome { hosts: vec![], ..welcome() },
        Welcome { hosts: vec![(0, 4), (1, 0)], ..welcome() },
        Welcome { hosts: vec![(0, 4), (7, 1)], ..welcome() },
        Welcome { hosts: vec![(0, 4), (1, more)], ..welcome() },
        Welcome { segment: true, ..welcome() },
    ] {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let launcher = Launcher { socket: ours, frames: FrameDecoder::default() };
        launcher.say(&ToProcess::Welcome(wrong.clone()), None);
        MpjrunBoot::connect(theirs, || ()).map(|faces| panic!("{wrong:?}: {faces:?}")).unwrap_err();
    }
}

/// Requests key `k` of a rank; the answer comes through the channel, which is closed if the callback is dropped.
fn ask(face: &MpjrunBoot, of: u32) -> mpsc::Receiver<Result<Vec<u8>, String>> {
    let (tell, told) = mpsc::channel();
    face.get(of, "k", Box::new(move |answer| tell.send(answer).unwrap()));
    told
}

#[test]
fn nobody_waits_for_an_answer_and_they_come_in_any_order() {
    let (mut launcher, faces) = join();
    let told = [ask(&faces[0], 3), ask(&faces[1], 4), ask(&faces[0], 0)];
    let mut asked: Vec<ToLauncher> = (0..3).map(|_| launcher.hear()).collect();
    assert!(told.iter().all(|told| told.try_recv() == Err(mpsc::TryRecvError::Empty)));
    asked.reverse();
    for request in asked {
        match request {
            ToLauncher::Get { id, rank, key } => {
                assert_eq!(key, "k");
                let value = if rank == 0 { Err("it has ended".into()) } else { Ok(vec![rank as u8]) };
                launcher.say(&ToProcess::Value { id, value }, None);
            }
            other => panic!("{other:?}"),
        }
    }
    let [three, four, ended] = told;
    assert_eq!((three.recv(), four.recv()), (Ok(Ok(vec![3])), Ok(Ok(vec![4]))));
    assert!(ended.recv().is_err(), "of a rank that ended the roster speaks");
}

/// Joins a job with shared memory for `ranks` ranks, and returns the memory as well.
fn join_with_memory(ranks: u32) -> (Launcher, OwnedFd, Result<Vec<MpjrunBoot>, String>) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let launcher = Launcher { socket: ours, frames: FrameDecoder::default() };
    let segment = Segment::create(ranks, &Config::default()).unwrap();
    // SAFETY: the duplicate goes to the process under test and to the test, which attach it.
    #[expect(unsafe_code, reason = "see above")]
    let memory = unsafe { segment.descriptor() }.try_clone_to_owned().unwrap();
    launcher.say(&ToProcess::Welcome(Welcome { segment: true, ..welcome() }), Some(&memory));
    (launcher, memory, MpjrunBoot::connect(theirs, || ()))
}

#[test]
fn memory_is_that_of_the_ranks_of_one_host() {
    let why = join_with_memory(5).2.unwrap_err();
    assert_eq!(why, "shared memory of another job: it has another number of ranks");
    let (mut launcher, _memory, faces) = join_with_memory(4);
    let faces = faces.unwrap();
    assert_eq!(launcher.hear(), ToLauncher::Hello(ProtocolVersion::own()));
    let opened = faces[1].registry().open(&faces[1].site().unwrap(), &Config::default()).unwrap();
    // Whether `ibvdev` can be opened depends on the machine.
    assert!(opened.failed.iter().all(|refused| refused.device == IbvDriver::NAME), "{:?}", opened.failed);
    let shm = opened.opened.iter().find(|opened| opened.device.name() == ShmDriver::NAME).unwrap();
    let own = shm.device.address();
    assert!(shm.device.affinity(&own).is_some());
    // The same address on another host names another memory.
    let mut other = own.clone();
    other.0[0] ^= 1;
    assert_eq!(shm.device.affinity(&other), None);
    assert!(shm.device.connect(PeerId(4), &own).unwrap_err().why.contains("P4 is none of the 4 ranks"));
}

#[test]
fn the_cards_of_those_who_share_the_memory_lie_there() {
    let (mut launcher, memory, faces) = join_with_memory(4);
    let faces = faces.unwrap();
    assert_eq!(launcher.hear(), ToLauncher::Hello(ProtocolVersion::own()));
    let ask = |of| {
        let (tell, told) = mpsc::channel();
        faces[0].get(of, CARDS, Box::new(move |answer| tell.send(answer).unwrap()));
        told
    };
    // Another process publishes its card.
    // SAFETY: the descriptor is a duplicate of the segment's, and attached.
    #[expect(unsafe_code, reason = "see above")]
    let elsewhere = unsafe { Segment::attach(memory, 4) }.unwrap();
    elsewhere.put_card(3, b"of 3");
    assert_eq!(ask(3).try_recv().expect("it is there"), Ok(b"of 3".to_vec()));
    // A card that is too long for the shared memory comes from the launcher.
    elsewhere.put_card(3, &[3; 2000]);
    let told = ask(3);
    let ToLauncher::Get { id, rank: 3, .. } = launcher.hear() else { panic!("no question") };
    launcher.say(&ToProcess::Value { id, value: Ok(vec![3; 2000]) }, None);
    assert_eq!(told.recv().unwrap(), Ok(vec![3; 2000]));
    // A rank's own card goes to the shared memory, and to the launcher for ranks that do not share it.
    faces[1].put(CARDS, b"of 2").unwrap();
    assert!(matches!(launcher.hear(), ToLauncher::Put { rank: 2, .. }));
    assert_eq!(ask(2).try_recv().expect("it is there"), Ok(b"of 2".to_vec()));
    // These requests go to the launcher: rank 0 has not opened the device and would not be notified of a later card,
    // rank 4 is on another host, and keys other than that of cards are not in shared memory.
    let _told = [ask(0), ask(4)];
    assert!(matches!(launcher.hear(), ToLauncher::Get { rank: 0, .. }));
    assert!(matches!(launcher.hear(), ToLauncher::Get { rank: 4, .. }));
    faces[0].get(3, "k", Box::new(drop));
    assert!(matches!(launcher.hear(), ToLauncher::Get { rank: 3, .. }));
}

#[test]
fn a_launcher_that_answers_something_else_is_lost() {
    let (mut launcher, faces) = join();
    let _told = ask(&faces[0], 3);
    let ToLauncher::Get { id, .. } = launcher.hear() else { panic!("no question") };
    launcher.say(&ToProcess::FenceDone { id, met: Ok(()) }, None);
    settle(|| faces[0].roster().event_count() == 3);
    assert!(faces[0].fence().unwrap_err().contains("another answer"));
}

#[test]
fn ends_travel_both_ways_and_not_back() {
    let (mut launcher, faces) = join();
    let roster = faces[0].roster();
    launcher.say(&ToProcess::Ended { rank: 4, end: WireExit::Died("was killed".into()) }, None);
    // Reports of this process's own ranks, and of ranks that do not exist, are ignored.
    launcher.say(&ToProcess::Ended { rank: 1, end: WireExit::Left }, None);
    launcher.say(&ToProcess::Ended { rank: 5, end: WireExit::Left }, None);
    launcher.say(&ToProcess::Ended { rank: 0, end: WireExit::Closing }, None);
    settle(|| roster.event_count() == 2);
    assert_eq!(roster.first_death().unwrap().rank, 4);
    roster.report(2, Exit::Left);
    assert_eq!(launcher.hear(), ToLauncher::Ended { rank: 2, end: WireExit::Left });
    roster.report(3, Exit::Died("its connection broke".into()));
    assert_eq!(launcher.hear(), ToLauncher::PeerLost { rank: 3, cause: "its connection broke".into() });
}

/// Orderly exits are sent on request, and one request is pending at a time.
#[test]
fn good_ends_are_asked_for() {
    let (mut launcher, faces) = join();
    let roster = faces[0].roster();
    let run = |first, len, end| ExitRun { first, len, end };
    for (runs, known) in [
        (vec![run(3, 2, WireExit::Closing)], 2),
        // Ranks of this process, and ranks that do not exist, are skipped.
        (vec![run(0, u32::MAX, WireExit::Left)], 5),
        (vec![run(u32::MAX, 2, WireExit::Left)], 5),
    ] {
        (0..3).for_each(|_| roster.request_exits());
        assert_eq!(launcher.hear(), ToLauncher::Ends);
        launcher.say(&ToProcess::Ends(runs), None);
        settle(|| {
            roster.event_count() == known
                && !faces[0].process.broadcaster.exit_query_pending.load(Ordering::Relaxed)
        });
    }
    let ranks: Vec<u32> = roster.since(0).iter().map(|event| event.rank).collect();
    assert_eq!(ranks, [3, 4, 0, 3, 4]);
    // After the last answer no further request was sent: the next message is this report.
    roster.report(1, Exit::Left);
    assert_eq!(launcher.hear(), ToLauncher::Ended { rank: 1, end: WireExit::Left });
}

#[test]
fn without_the_launcher_everybody_elsewhere_is_dead_and_nothing_waits() {
    let (launcher, faces) = join();
    let roster = faces[0].roster();
    roster.learn(ExitEvent { rank: 3, exit: Exit::Left });
    let told = ask(&faces[0], 0);
    let waiting = std::thread::spawn({
        let face = faces[0].clone();
        move || face.fence().unwrap_err()
    });
    drop(launcher);
    waiting.join().unwrap();
    assert!(told.recv().is_err());
    assert_eq!(roster.event_count(), 3);
    let dead: Vec<u32> = roster.since(1).iter().map(|event| event.rank).collect();
    assert_eq!(dead, [0, 4]);
    assert!(ask(&faces[1], 4).recv().is_err() && faces[1].fence().is_err());
}

/// Ranks send requests while they make progress and hold locks that other threads need.
#[test]
fn a_launcher_that_does_not_read_stops_nobody_who_asks() {
    const QUESTIONS: u32 = 5000;
    let (mut launcher, faces) = join();
    let (tell, told) = mpsc::channel();
    let face = faces[0].clone();
    let asking = std::thread::spawn(move || {
        for question in 0..QUESTIONS {
            face.get(0, &question.to_string(), Box::new(drop));
        }
        face.roster().request_exits();
        face.roster().report(3, Exit::Died("its connection broke".into()));
        tell.send(()).unwrap();
        // This returns after the report was written.
        face.roster().report(1, Exit::Left);
    });
    told.recv_timeout(Duration::from_secs(20)).expect("it waits for the launcher");
    for question in 0..QUESTIONS {
        let ToLauncher::Get { key, .. } = launcher.hear() else { panic!("no question") };
        assert_eq!(key, question.to_string());
    }
    assert_eq!(launcher.hear(), ToLauncher::Ends);
    assert!(matches!(launcher.hear(), ToLauncher::PeerLost { rank: 3, .. }));
    assert_eq!(launcher.hear(), ToLauncher::Ended { rank: 1, end: WireExit::Left });
    asking.join().unwrap();
}
