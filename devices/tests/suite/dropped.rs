//! Drops of an engine without `close`, as after a panic of its rank, and of a value that keeps a message alive.

use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use mpj_datatypes::Primitive;
use mpj_devices::config::Config;
use mpj_devices::conformance::LocalCardExchange;
use mpj_devices::{
    Buf, Channel, Coalesce, Doorbell, Engine, Exit, Fault, Group, Hub, KeepAlive, MessageTag, Mode, Pattern,
    Registry, Roster, Site, SmDriver, Source, Target, drop_deferred,
};

fn pair(roster: &Arc<Roster>) -> [Arc<Engine>; 2] {
    let (hub, board) = (Hub::new(0..2), Arc::<LocalCardExchange>::default());
    let registry = Registry::empty().with(SmDriver::new(hub));
    [0, 1].map(|rank| {
        let site = Site::new(rank, 2, Arc::new(Doorbell::new().unwrap()));
        Engine::open(site, &registry, &Config::default(), board.of(rank), Arc::clone(roster)).unwrap()
    })
}

fn empty_target() -> Target {
    // SAFETY: the target is empty, so nothing is written.
    #[expect(unsafe_code, reason = "see above")]
    unsafe { Target::new(Buf::empty(), None) }.unwrap()
}

fn empty_source() -> Source {
    // SAFETY: the source is empty, so nothing is read.
    #[expect(unsafe_code, reason = "see above")]
    unsafe { Source::new(Buf::empty(), None) }.unwrap()
}

/// The engine of the channel could reclaim the memory while the devices of the other engine access it.
#[test]
fn operations_in_a_channel_of_another_engine_are_refused() {
    let roster = Arc::<Roster>::default();
    let [one, other] = pair(&roster);
    let world = Group::Range { first: 0, len: 2 };
    let of_one = one.join(2, world.clone(), 0).unwrap();
    let of_other = other.join(2, world, 1).unwrap();
    let pattern = Pattern { source: 0, tag: 1 };
    let (send, coalesce) = (Mode::Standard, Coalesce::No);
    let posted = other.recv(&of_other, pattern, empty_target()).unwrap();
    let mpj_devices::Started::Pending(posted) = posted else { panic!("nothing was sent") };

    let foreign = Fault::ForeignChannel;
    assert_eq!(one.recv(&of_other, pattern, empty_target()).unwrap_err(), foreign);
    assert_eq!(one.send(&of_other, 0, 1, empty_source(), send, coalesce).unwrap_err(), foreign);
    let mut source = empty_source();
    let tag = MessageTag::from(1);
    assert_eq!(*one.send_from(&of_other, 0, tag, &mut source, send, coalesce).unwrap_err(), foreign);
    assert_eq!(one.iprobe(&of_other, pattern).unwrap_err(), foreign);
    assert_eq!(one.improbe(&of_other, pattern).unwrap_err(), foreign);
    assert_eq!(one.probe(&of_other, pattern).unwrap_err(), foreign);
    assert_eq!(one.mprobe(&of_other, pattern, "mprobe").unwrap_err(), foreign);
    assert_eq!(one.mprobe_or_recv(&of_other, pattern, "mprobe").unwrap_err(), foreign);
    assert!(!one.cancel(&of_other, &posted) && !one.cancel_receive(&of_other, &posted));
    one.begin_free(&of_other);
    one.free(&of_other);

    // The channel is as before: the receive is posted, and gets its message. The second message is unexpected.
    for _ in 0..2 {
        one.send(&of_one, 1, 1, empty_source(), send, coalesce).unwrap();
    }
    other.wait(mpj_devices::Started::Pending(posted)).unwrap();
    while of_other.unexpected_counts().queued == 0 {
        other.progress();
    }
    assert!(one.take_unexpected(&of_other, usize::MAX, |_| true).is_none());
    assert!(other.take_unexpected(&of_other, usize::MAX, |_| true).is_some());
}

#[test]
fn rendezvous_sends_fail_when_their_engine_is_dropped() {
    const LEN: usize = 1 << 20;
    let roster = Arc::<Roster>::default();
    let [sender, receiver] = pair(&roster);
    let world = Group::Range { first: 0, len: 2 };
    let to = sender.join(2, world.clone(), 0).unwrap();
    let from = receiver.join(2, world, 1).unwrap();

    // The memory outlives the engine; `in_use` shows whether the engine still keeps it.
    let mut memory = vec![7u8; LEN];
    let in_use = Arc::new(());
    let keep: KeepAlive = Arc::clone(&in_use) as KeepAlive;
    // SAFETY: the bytes are written only after `in_use` shows that the source was dropped.
    #[expect(unsafe_code, reason = "see above")]
    let source = unsafe { Source::new(Buf::read_only(memory.as_ptr(), LEN, Primitive::Byte), Some(keep)) };
    let started = sender.send(&to, 1, 1, source.unwrap(), Mode::Standard, Coalesce::Allowed).unwrap();
    receiver.progress();
    drop(sender);
    assert_eq!(Arc::strong_count(&in_use), 1, "the dropped engine still keeps the source");
    let mpj_devices::Started::Pending(completion) = started else { panic!("a rendezvous message") };
    assert!(completion.outcome().is_some_and(Result::is_err), "the send has ended");
    memory.fill(0xff);

    let received = Arc::new(Mutex::new(vec![0u8; LEN]));
    let base = received.lock().unwrap().as_mut_ptr();
    let keep: KeepAlive = Arc::clone(&received) as KeepAlive;
    // SAFETY: nothing accesses the contents of the mutex before the receive has completed.
    #[expect(unsafe_code, reason = "see above")]
    let target = unsafe { Target::new(Buf::new(base, LEN, Primitive::Byte), Some(keep)) };
    let pattern = Pattern { source: 0, tag: 1 };
    let receive = receiver.recv(&from, pattern, target.unwrap());
    roster.report(0, Exit::Died("its thread has ended".into()));
    let outcome = receive.and_then(|started| receiver.wait(started));
    assert!(outcome.is_err(), "a message was received from memory that its sender has given back");
    assert!(received.lock().unwrap().iter().all(|byte| *byte == 0));
    receiver.close();
}

struct SendsOnDrop(Arc<Engine>, Arc<Channel>);

impl Drop for SendsOnDrop {
    fn drop(&mut self) {
        drop(self.0.send(&self.1, 1, 2, byte(None), Mode::Standard, Coalesce::No));
    }
}

/// Keeps a message alive, and drops the user's value as `KeepAlive` requires.
struct Keep(Option<SendsOnDrop>);

impl Drop for Keep {
    fn drop(&mut self) {
        drop_deferred(self.0.take());
    }
}

fn byte(keep: Option<KeepAlive>) -> Source {
    // SAFETY: the byte is static.
    #[expect(unsafe_code, reason = "see above")]
    let source = unsafe { Source::new(Buf::slice(&[7u8][..]), keep) };
    source.unwrap()
}

#[test]
fn value_that_a_finished_send_drops_can_send() {
    let (sent, outcome) = mpsc::channel();
    thread::spawn(move || {
        let roster = Arc::default();
        let [sender, receiver] = pair(&roster);
        let world = Group::Range { first: 0, len: 2 };
        let (to, from) =
            (sender.join(2, world.clone(), 0).unwrap(), receiver.join(2, world.clone(), 1).unwrap());
        let other = sender.join(4, world, 0).unwrap();
        let received = |tag| {
            let mut byte = 0u8;
            // SAFETY: the byte stays until the receive has completed.
            #[expect(unsafe_code, reason = "see above")]
            let target = unsafe { Target::new(Buf::new(&raw mut byte, 1, Primitive::U8), None) };
            let started = receiver.recv(&from, Pattern { source: 0, tag }, target.unwrap()).unwrap();
            while sender.progress() + receiver.progress() > 0 {}
            receiver.wait(started).unwrap().bytes
        };
        // Connects the two. Then the first message of another channel does not take the fast path.
        drop(sender.send(&to, 1, 1, byte(None), Mode::Standard, Coalesce::No));
        assert_eq!(received(1), 1);
        let keep: KeepAlive = Arc::new(Mutex::new(Keep(Some(SendsOnDrop(Arc::clone(&sender), to)))));
        drop(sender.send(&other, 1, 1, byte(Some(keep)), Mode::Standard, Coalesce::No));
        sent.send(received(2)).unwrap();
    });
    assert_eq!(outcome.recv_timeout(Duration::from_secs(60)), Ok(1), "the second message arrives");
}
