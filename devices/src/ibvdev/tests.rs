//! Tests with several ranks in one thread, some of which misbehave. Without a device, the tests print that and return.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mpj_datatypes::{Datatype, Primitive};
use mpj_pool::Access;

use super::inlet::IbvInlet;
use super::keys::RdmaKey;
use super::verbs::{SendSge, Wc};
use super::wr_id::WrId;
use super::*;
use crate::config::Parameter;
use crate::device::{Body, HEAD_MAX, Inlet, Landing, OpStatus, PostError, Sink};
use crate::doorbell::Doorbell;

/// A time limit far above the needs of these tests.
const LIVENESS: Duration = Duration::from_secs(40);

/// A dead peer is detected within 5 s, and later on a busy machine.
const DETECTION_LIMIT: Duration = Duration::from_secs(15);

fn key(secret: u8) -> Arc<JobKey> {
    Arc::new(JobKey { job: 77, secret: [secret; 32] })
}

#[derive(Debug, Default)]
struct RecordingSink {
    frames: Vec<(u32, Vec<u8>, Vec<u8>)>,
    lost: Vec<(u32, String)>,
    completed: Vec<(u64, Result<(), String>)>,
    quiesced: Vec<u64>,
}

// SAFETY: `begin` returns no memory.
unsafe impl Sink for RecordingSink {
    fn frame(&mut self, from: PeerId, head: &[u8], body: &[u8]) {
        self.frames.push((from.0, head.to_vec(), body.to_vec()));
    }

    fn begin(&mut self, _: PeerId, _: &[u8], _: usize) -> Landing {
        panic!("a body begins, although this device delivers only whole frames")
    }

    fn piece(&mut self, _: PeerId, _: &[u8]) {}

    fn landed(&mut self, _: PeerId) {}

    fn peer_lost(&mut self, from: PeerId, why: &str) {
        self.lost.push((from.0, why.to_owned()));
    }

    fn completed(&mut self, op: OpToken, outcome: Result<(), String>) {
        self.completed.push((op.0, outcome));
    }

    fn quiesced(&mut self, op: OpToken) {
        self.quiesced.push(op.0);
    }
}

struct Rank {
    inlet: IbvInlet,
    device: IbvDevice,
    bell: Arc<Doorbell>,
    got: RecordingSink,
}

impl Rank {
    fn open(rank: u32, secret: u8, config: &Config) -> Result<Self, String> {
        let bell = Arc::new(Doorbell::new().unwrap());
        let site = Site::new(rank, 3, Arc::clone(&bell));
        let (device, inlet) = open(key(secret), &site, config)?;
        Ok(Rank { inlet, device, bell, got: RecordingSink::default() })
    }

    fn endpoint(&self, to: &Rank) -> Box<dyn Endpoint> {
        self.device.connect(PeerId(to.device.shared.site.0), &to.device.address()).unwrap()
    }

    fn memory(&self, bytes: &mut [u8], access: Access) -> (MemoryDesc, Registration) {
        let memory =
            MemoryDesc::new(bytes.as_mut_ptr(), bytes.len(), Datatype::primitive(Primitive::U8)).unwrap();
        // SAFETY: the tests drop the registration before the bytes.
        let registration = unsafe { self.device.register(&memory, None, access) }.unwrap();
        (memory, registration)
    }
}

/// Opens three ranks of a job, or prints why the test is skipped.
fn ranks() -> Option<[Rank; 3]> {
    let open = |rank| Rank::open(rank, 1, &Config::default());
    let first =
        open(0).inspect_err(|why| drop(writeln!(std::io::stderr(), "SKIPPED, no ibvdev: {why}"))).ok()?;
    Some([first, open(1).unwrap(), open(2).unwrap()])
}

fn until(ranks: &mut [&mut Rank], mut done: impl FnMut(&mut [&mut Rank]) -> bool) {
    let limit = Instant::now() + LIVENESS;
    while !done(ranks) {
        for rank in &mut *ranks {
            rank.inlet.progress(&mut rank.got);
        }
        let got: Vec<_> = ranks.iter().map(|rank| &rank.got).collect();
        assert!(Instant::now() < limit, "stuck: {got:?}");
        std::thread::yield_now();
    }
}

/// Posts a frame as soon as the connection has room.
fn post(ranks: &mut [&mut Rank], endpoint: &mut dyn Endpoint, head: &[u8], body: &[u8]) {
    until(ranks, |_| match endpoint.post(head, Body::Bytes(body)) {
        Ok(()) => true,
        Err(PostError::Again) => false,
        Err(other) => panic!("{other:?}"),
    });
}

#[test]
fn frames_of_all_lengths_arrive_in_order_in_both_directions() {
    let Some([mut a, mut b, _c]) = ranks() else { return };
    let (mut to_b, mut to_a) = (a.endpoint(&b), b.endpoint(&a));
    let len = |i: usize| [0, 1, 207, 208, 209, 4096, a.device.caps.max_send_size][i % 7];
    let lens: Vec<usize> = (0..200).map(len).collect();
    for (i, len) in lens.iter().enumerate() {
        let body = vec![i as u8; *len];
        post(&mut [&mut a, &mut b], &mut *to_b, &[1, i as u8], &body);
        post(&mut [&mut a, &mut b], &mut *to_a, &[2; HEAD_MAX], &body);
    }
    until(&mut [&mut a, &mut b], |ranks| ranks.iter().all(|rank| rank.got.frames.len() == 200));
    for (i, (len, (from, head, body))) in lens.iter().zip(&b.got.frames).enumerate() {
        assert_eq!((*from, &head[..]), (0, &[1, i as u8][..]));
        assert!(*body == vec![i as u8; *len], "frame {i}");
    }
    assert!(a.got.frames.iter().all(|(from, head, _)| (*from, head.len()) == (1, HEAD_MAX)));
    until(&mut [&mut a, &mut b], |_| to_b.is_drained() && to_a.is_drained());
}

#[test]
fn peer_that_does_not_poll_takes_one_window_of_frames_and_is_not_lost() {
    let Some([mut a, mut b, mut c]) = ranks() else { return };
    let (mut to_b, mut to_c) = (a.endpoint(&b), a.endpoint(&c));
    post(&mut [&mut a, &mut b], &mut *to_b, &[0], &[]);
    until(&mut [&mut a, &mut b], |ranks| !ranks[1].got.frames.is_empty());
    let window = usize::from(a.device.shared.sizes.window);
    let mut posted = 1;
    for _ in 0..10 * window {
        posted += usize::from(to_b.post(&[0], Body::Bytes(&[7; 1000])).is_ok());
        a.inlet.progress(&mut a.got);
    }
    assert!((window..=window + 1).contains(&posted), "{posted} frames, a window of {window}");
    // The receives of other peers are not affected.
    for _ in 0..3 * window {
        post(&mut [&mut a, &mut c], &mut *to_c, &[1], &[8; 1000]);
    }
    until(&mut [&mut a, &mut b, &mut c], |ranks| ranks[1].got.frames.len() == posted);
    post(&mut [&mut a, &mut b], &mut *to_b, &[0], &[]);
    assert!(a.got.lost.is_empty() && b.got.lost.is_empty());
}

#[test]
fn short_frames_without_room_are_batched_in_order() {
    let Some([mut a, mut b, _c]) = ranks() else { return };
    let mut to_b = a.endpoint(&b);
    post(&mut [&mut a, &mut b], &mut *to_b, &[0], &[]);
    let content = |i: u32| vec![i as u8; i as usize % 40];
    let mut next = 1u32;
    let mut post_on = |to_b: &mut dyn Endpoint| {
        while next < 600 && to_b.post_more(&[next as u8], Body::Bytes(&content(next))).is_ok() {
            next += 1;
        }
        next
    };
    // Rank 1 does not poll, so these frames fill the window and a batch.
    let singles = Config::default().number(&IBV_SEND_WINDOW);
    assert!(u64::from(post_on(&mut *to_b)) > singles + 40 && to_b.has_unflushed());
    until(&mut [&mut a, &mut b], |ranks| {
        let _ = post_on(&mut *to_b);
        let _ = to_b.flush().unwrap();
        ranks[1].got.frames.len() == 600
    });
    for (i, (_, head, body)) in b.got.frames.iter().enumerate() {
        assert_eq!((head[0], body.len()), (i as u8, if i == 0 { 0 } else { i % 40 }));
        assert!(body.iter().all(|byte| *byte == i as u8), "frame {i}");
    }
    // A longer frame follows the batched ones.
    let posted = (0..40u8).take_while(|i| to_b.post_more(&[*i], Body::Empty).is_ok()).count();
    assert_eq!(posted, 40);
    post(&mut [&mut a, &mut b], &mut *to_b, &[40], &[9; 4000]);
    until(&mut [&mut a, &mut b], |ranks| ranks[1].got.frames.len() == 641);
    assert!(b.got.frames[600..].iter().map(|(_, head, _)| head[0]).eq(0..=40));
    until(&mut [&mut a, &mut b], |_| to_b.is_drained());
}

#[test]
fn posted_frames_leave_although_their_sender_does_not_poll() {
    let Some([mut a, mut b, _c]) = ranks() else { return };
    let mut to_b = a.endpoint(&b);
    post(&mut [&mut a, &mut b], &mut *to_b, &[0], &[]);
    let posted = (1..600u32).take_while(|i| to_b.post(&[*i as u8], Body::Empty).is_ok()).count();
    assert!(!to_b.has_unflushed());
    until(&mut [&mut b], |ranks| ranks[0].got.frames.len() == 1 + posted);
}

#[test]
fn stranger_without_the_key_is_not_connected() {
    let Some([mut a, mut b, _c]) = ranks() else { return };
    let mut stranger = Rank::open(1, 2, &Config::default()).unwrap();
    let mut from_stranger = stranger.endpoint(&a);
    let mut to_b = a.endpoint(&b);
    post(&mut [&mut stranger, &mut a, &mut b], &mut *to_b, &[0], &[]);
    let end = Instant::now() + Duration::from_millis(300);
    until(&mut [&mut stranger, &mut a, &mut b], |_| Instant::now() > end);
    assert_eq!(from_stranger.post(&[0], Body::Empty), Err(PostError::Again));
    assert!(a.got.lost.is_empty() && stranger.got.lost.is_empty());
}

#[test]
fn memory_is_read_by_its_key_until_the_key_is_revoked() {
    let Some([mut a, mut b, _c]) = ranks() else { return };
    let (mut to_b, mut to_a) = (a.endpoint(&b), b.endpoint(&a));
    let mut from: Vec<u8> = (0..200_000u32).map(|at| (at / 7) as u8).collect();
    let mut to = vec![0; 100_000];
    let (_, exposed) = a.memory(&mut from, Access::READ);
    let (target, own) = b.memory(&mut to, Access::LOCAL);
    let key = a.device.pack_key(&exposed, 50_000, 100_000).unwrap();
    post(&mut [&mut a, &mut b], &mut *to_a, &[0], &[]);
    let part = target.part(0, 100_000, Some(&own));
    // SAFETY: the test accesses the memory only after the read has completed.
    assert_eq!(unsafe { to_a.get(&key, 0, part, OpToken(5)) }, Ok(OpStatus::InProgress));
    assert_eq!(a.device.quiesce(PeerId(1), &exposed, OpToken(9)), QuiesceStatus::InProgress);
    until(&mut [&mut a, &mut b], |ranks| ranks[0].got.quiesced == [9]);
    // The read in progress completed without an error before the peer confirmed the revocation.
    assert_eq!(b.got.completed, [(5, Ok(()))]);
    // SAFETY: as above.
    assert_eq!(unsafe { to_a.get(&key, 0, part, OpToken(6)) }, Err(PostError::Revoked));
    drop((own, exposed));
    assert!(to[..] == from[50_000..150_000]);
    // The connection still works.
    post(&mut [&mut a, &mut b], &mut *to_b, &[1], &[]);
    until(&mut [&mut a, &mut b], |ranks| !ranks[1].got.frames.is_empty());
    assert!(a.got.lost.is_empty() && b.got.lost.is_empty());
}

#[test]
fn invalid_key_is_refused_before_a_read() {
    let Some([mut a, mut b, _c]) = ranks() else { return };
    let mut to_a = b.endpoint(&a);
    post(&mut [&mut a, &mut b], &mut *to_a, &[0], &[]);
    let (mut from, mut to) = (vec![0; 1000], vec![0; 1000]);
    let (_, exposed) = a.memory(&mut from, Access::READ);
    let (target, own) = b.memory(&mut to, Access::LOCAL);
    let good = RdmaKey::of(&exposed, 0, 1000).unwrap();
    let endless = RdmaKey { addr: u64::MAX - 10, ..good };
    for (key, at, len) in
        [(good, 1, 1000), (good, u64::MAX, 2), (RdmaKey { len: 999, ..good }, 0, 1000), (endless, 0, 11)]
    {
        let part = target.part(0, len, Some(&own));
        // SAFETY: the test does not access the memory.
        let refused = unsafe { to_a.get(&key.pack().unwrap(), at, part, OpToken(1)) };
        assert!(matches!(refused, Err(PostError::Broken(_))), "{key:?}: {refused:?}");
    }
    drop((own, exposed));
}

#[test]
fn wrong_rkey_loses_only_that_peer() {
    let Some([mut a, mut b, mut c]) = ranks() else { return };
    let (mut to_a, mut c_to_a) = (b.endpoint(&a), c.endpoint(&a));
    post(&mut [&mut a, &mut b], &mut *to_a, &[0], &[]);
    post(&mut [&mut a, &mut c], &mut *c_to_a, &[0], &[]);
    let (mut from, mut to) = (vec![3; 1000], vec![0; 1000]);
    let (_, exposed) = a.memory(&mut from, Access::READ);
    let (target, own) = b.memory(&mut to, Access::LOCAL);
    let good = RdmaKey::of(&exposed, 0, 1000).unwrap();
    let wrong = RdmaKey { rkey: good.rkey ^ 0xff, ..good };
    let part = target.part(0, 1000, Some(&own));
    // SAFETY: the test does not access the memory.
    assert_eq!(unsafe { to_a.get(&wrong.pack().unwrap(), 0, part, OpToken(1)) }, Ok(OpStatus::InProgress));
    until(&mut [&mut a, &mut b], |ranks| !ranks[1].got.lost.is_empty());
    assert!(matches!(&b.got.completed[..], [(1, Err(_))]), "{:?}", b.got.completed);
    assert_eq!(b.got.lost[0].0, 0);
    assert!(to.iter().all(|byte| *byte == 0));
    for _ in 0..100 {
        post(&mut [&mut a, &mut c], &mut *c_to_a, &[1], &[1; 500]);
    }
    assert!(c.got.lost.is_empty() && a.got.lost.iter().all(|(peer, _)| *peer == 1));
}

#[test]
fn read_from_a_dead_peer_fails_and_loses_the_peer() {
    let Some([mut a, mut b, c]) = ranks() else { return };
    let mut to_b = a.endpoint(&b);
    post(&mut [&mut a, &mut b], &mut *to_b, &[0], &[]);
    until(&mut [&mut a, &mut b], |ranks| !ranks[1].got.frames.is_empty());
    let (mut from, mut to) = (vec![3; 1000], vec![0; 1000]);
    let (_, exposed) = b.memory(&mut from, Access::READ);
    let (target, own) = a.memory(&mut to, Access::LOCAL);
    let key = b.device.pack_key(&exposed, 0, 1000).unwrap();
    let (_, ours) = a.memory(&mut from, Access::READ);
    drop(exposed);
    drop(b);
    let died = Instant::now();
    let part = target.part(0, 1000, Some(&own));
    // SAFETY: the test does not access the memory.
    assert_eq!(unsafe { to_b.get(&key, 0, part, OpToken(1)) }, Ok(OpStatus::InProgress));
    assert_eq!(a.device.quiesce(PeerId(1), &ours, OpToken(2)), QuiesceStatus::InProgress);
    until(&mut [&mut a], |ranks| !ranks[0].got.lost.is_empty() && !ranks[0].got.completed.is_empty());
    assert!(died.elapsed() < DETECTION_LIMIT, "{:?}", died.elapsed());
    assert!(matches!(&a.got.completed[..], [(1, Err(_))]), "{:?}", a.got.completed);
    assert_eq!(a.got.quiesced, [2]);
    assert_eq!(a.device.quiesce(PeerId(1), &ours, OpToken(3)), QuiesceStatus::Done);
    assert!(to_b.is_drained());
    drop(c);
}

#[test]
fn peer_gone_quiesces_memory_at_once() {
    let Some([mut a, mut b, _c]) = ranks() else { return };
    let mut to_b = a.endpoint(&b);
    post(&mut [&mut a, &mut b], &mut *to_b, &[0], &[]);
    until(&mut [&mut a, &mut b], |ranks| !ranks[1].got.frames.is_empty());
    let mut memory = vec![3; 1000];
    let (_, ours) = a.memory(&mut memory, Access::READ);
    assert_eq!(a.device.quiesce(PeerId(1), &ours, OpToken(2)), QuiesceStatus::InProgress);
    // Rank 1 stops polling. The test calls `peer_gone` as the engine does when the roster reports a death.
    to_b.peer_gone();
    until(&mut [&mut a], |ranks| ranks[0].got.quiesced == [2]);
    assert!(to_b.is_drained() && a.got.lost.is_empty());
    assert_eq!(to_b.post(&[0], Body::Empty), Err(PostError::Again));
}

/// Returns an event in the format of the kernel.
fn event(kind: u32, port: u32) -> [u8; 16] {
    let words = [port, 0, kind, 0].map(u32::to_ne_bytes);
    std::array::from_fn(|at| words[at / 4][at % 4])
}

const DEVICE_FATAL: u32 = 8;
const PORT_ACTIVE: u32 = 9;
const PORT_ERROR: u32 = 10;

#[test]
fn failed_device_loses_all_peers_and_fails_operations() {
    let (mut from, mut to) = (vec![3; 1000], vec![0; 1000]);
    let Some([mut a, mut b, mut c]) = ranks() else { return };
    let (mut to_b, mut to_c) = (a.endpoint(&b), a.endpoint(&c));
    post(&mut [&mut a, &mut b], &mut *to_b, &[0], &[]);
    post(&mut [&mut a, &mut c], &mut *to_c, &[0], &[]);
    let (_, exposed) = b.memory(&mut from, Access::READ);
    let (target, own) = a.memory(&mut to, Access::LOCAL);
    let (_, ours) = a.memory(&mut from, Access::READ);
    let key = b.device.pack_key(&exposed, 0, 1000).unwrap();
    let mut events = a.device.shared.context().replace_event_source();
    // The read below gets no answer.
    drop(exposed);
    drop(b);
    // SAFETY: the test does not access the memory.
    let read = unsafe { to_b.get(&key, 0, target.part(0, 1000, Some(&own)), OpToken(1)) };
    assert_eq!(read, Ok(OpStatus::InProgress));
    assert_eq!(a.device.quiesce(PeerId(2), &ours, OpToken(2)), QuiesceStatus::InProgress);
    events.write_all(&event(DEVICE_FATAL, 0)).unwrap();
    a.device.arm();
    until(&mut [&mut a], |ranks| ranks[0].got.lost.len() == 2);
    let why = "the device of this host has failed".to_owned();
    a.got.lost.sort();
    assert_eq!(a.got.lost, [(1, why.clone()), (2, why.clone())]);
    assert_eq!((&a.got.completed[..], &a.got.quiesced[..]), (&[(1, Err(why.clone()))][..], &[2][..]));
    assert!(to_b.is_drained() && to_c.is_drained(), "closed connections are drained");
    assert_eq!(to_c.post(&[0], Body::Empty), Err(PostError::Again));
    let refused = a.device.connect(PeerId(0), &c.device.address()).err().unwrap();
    assert_eq!(refused.why, why);
}

#[test]
fn failed_datagram_queue_pair_loses_all_peers() {
    let Some([mut a, b, mut c]) = ranks() else { return };
    let (mut to_b, mut to_c) = (a.endpoint(&b), a.endpoint(&c));
    post(&mut [&mut a, &mut c], &mut *to_c, &[0], &[]);
    // Rank 1 does not poll, so the connection to it is not established.
    assert_eq!(to_b.post(&[0], Body::Empty), Err(PostError::Again));
    let mut failed = Wc::default();
    (failed.id, failed.status) = (WrId::HelloSent(0).id(), 4);
    a.inlet.complete(&failed, &mut a.got);
    until(&mut [&mut a], |ranks| ranks[0].got.lost.len() == 2);
    let why = "the datagram queue pair of this rank has failed: ";
    assert!(a.got.lost.iter().all(|(_, text)| text.starts_with(why)), "{:?}", a.got.lost);
}

#[test]
fn port_without_a_link_loses_peers_only_after_the_limit() {
    let Some([mut a, mut b, _c]) = ranks() else { return };
    let mut to_b = a.endpoint(&b);
    post(&mut [&mut a, &mut b], &mut *to_b, &[0], &[]);
    let port = u32::from(a.device.shared.route.port);
    let mut events = a.device.shared.context().replace_event_source();
    let mut wait = |a: &mut Rank, b: &mut Rank, sent: &[[u8; 16]]| {
        sent.iter().for_each(|event| events.write_all(event).unwrap());
        let until_then = Instant::now() + Duration::from_secs(6);
        until(&mut [a, b], |ranks| {
            ranks[0].device.arm();
            Instant::now() > until_then
        });
    };
    wait(&mut a, &mut b, &[event(PORT_ERROR, port + 1), event(PORT_ERROR, port), event(PORT_ACTIVE, port)]);
    post(&mut [&mut a, &mut b], &mut *to_b, &[1], &[]);
    assert!(a.got.lost.is_empty());
    wait(&mut a, &mut b, &[event(PORT_ERROR, port)]);
    assert!(matches!(&a.got.lost[..], [(1, why)] if why.ends_with("has lost its link")), "{:?}", a.got.lost);
    // The other end detects that the connection is broken when it sends.
    let mut to_a = b.endpoint(&a);
    until(&mut [&mut a, &mut b], |ranks| {
        let _ = to_a.post(&[0], Body::Bytes(&[0; 100]));
        !ranks[1].got.lost.is_empty()
    });
}

#[test]
fn malformed_message_loses_its_sender() {
    for nonsense in
        [&[9, 0, 0, 0][..], &[1, 57, 0, 0], &[3, 1, 0, 0, 7], &[4, 8, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]]
    {
        let Some([mut a, mut b, _c]) = ranks() else { return };
        let mut to_b = a.endpoint(&b);
        post(&mut [&mut a, &mut b], &mut *to_b, &[0], &[]);
        let connection = a.device.shared.get(PeerId(1)).unwrap();
        let piece = SendSge::Inline(nonsense.as_ptr(), nonsense.len() as u32);
        // SAFETY: the bytes are copied into the request.
        unsafe { connection.qp().send(WrId::Sent(1).id(), piece, false) }.unwrap();
        until(&mut [&mut a, &mut b], |ranks| !ranks[1].got.lost.is_empty());
        assert_eq!((b.got.frames.len(), b.got.lost.len(), b.got.lost[0].0), (1, 1, 0), "{nonsense:?}");
    }
}

#[test]
fn frame_wakes_a_sleeping_rank() {
    let Some([mut a, mut b, _c]) = ranks() else { return };
    let mut to_b = a.endpoint(&b);
    post(&mut [&mut a, &mut b], &mut *to_b, &[0], &[]);
    until(&mut [&mut a, &mut b], |ranks| !ranks[1].got.frames.is_empty());
    let slept = Instant::now();
    while b.got.frames.len() == 1 {
        let armed = [b.device.arm().unwrap()];
        b.bell.sleep(&armed, Duration::from_secs(60), || {
            let posted = to_b.post(&[1], Body::Empty);
            assert!(matches!(posted, Ok(()) | Err(PostError::Again)));
            a.inlet.progress(&mut a.got);
            false
        });
        b.inlet.progress(&mut b.got);
    }
    assert!(slept.elapsed() < Duration::from_secs(50));
}

#[test]
fn rank_of_another_byte_order_is_refused() {
    let Some([a, b, _c]) = ranks() else { return };
    let card = b.device.shared.card;
    let other = IbvCard { is_big_endian: !card.is_big_endian, ..card };
    let refused = a.device.connect(PeerId(1), &Address(other.to_bytes().to_vec())).unwrap_err();
    assert!(refused.to_string().contains("rank 1 has another byte order"), "{refused}");
    assert!(a.device.connect(PeerId(1), &b.device.address()).is_ok());
}

#[test]
fn error_names_the_parameter_of_a_missing_resource() {
    if ranks().is_none() {
        return;
    }
    for (parameter, text, why) in [
        (&IBV_DEVICE as &dyn Parameter, "mlx9_0", "MPJ_IBV_DEVICE=mlx9_0: this host has no device 'mlx9_0'"),
        (&IBV_PORT, "9", "MPJ_IBV_PORT=9: "),
        (&IBV_GID_INDEX, "77", "MPJ_IBV_GID_INDEX=77: port 1 of "),
        (&IBV_PKEY_INDEX, "400", "MPJ_IBV_PKEY_INDEX=400: port 1 of "),
        (&IBV_SL, "9", "MPJ_IBV_SL=9: port 1 of "),
    ] {
        let mut config = Config::default();
        config.set_text(parameter, text).unwrap();
        let refused = Rank::open(0, 1, &config).err().unwrap();
        assert!(refused.starts_with(why), "{refused}");
    }
    let mut config = Config::default();
    for (parameter, text) in [(&IBV_PORT as &dyn Parameter, "1"), (&IBV_MTU, "512"), (&IBV_SEND_WINDOW, "4")]
    {
        config.set_text(parameter, text).unwrap();
    }
    let least = Rank::open(0, 1, &config).unwrap();
    assert_eq!((least.device.shared.card.mtu, least.device.shared.sizes.window), (2, 4));
}
