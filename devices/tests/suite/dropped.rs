//! An engine that is dropped without `close`, for example because its rank panics: peers no longer access its memory.

use std::sync::{Arc, Mutex};

use mpj_datatypes::Primitive;
use mpj_devices::config::Config;
use mpj_devices::conformance::LocalCardExchange;
use mpj_devices::{
    Buf, Coalesce, Doorbell, Engine, Exit, Group, Hub, KeepAlive, Mode, Pattern, Registry, Roster, Site,
    SmDriver, Source, Target,
};

#[test]
fn rendezvous_sends_fail_when_their_engine_is_dropped() {
    const LEN: usize = 1 << 20;
    let (hub, board, roster) =
        (Hub::new(0..2), Arc::<LocalCardExchange>::default(), Arc::<Roster>::default());
    let registry = Registry::empty().with(SmDriver::new(hub));
    let [sender, receiver] = [0, 1].map(|rank| {
        let site = Site::new(rank, 2, Arc::new(Doorbell::new().unwrap()));
        Engine::open(site, &registry, &Config::default(), board.of(rank), Arc::clone(&roster)).unwrap()
    });
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
    assert_eq!(Arc::strong_count(&in_use), 1, "the engine was dropped, its source was not");
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
