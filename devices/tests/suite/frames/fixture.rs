//! The fixture of the tests: an engine on the fake device, and short methods to use both.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use mpj_datatypes::Datatype;
use mpj_devices::Site;
use mpj_devices::config::Config;
use mpj_devices::{
    Address, Buf, Callback, CardExchange, Channel, Coalesce, Completion, Doorbell, Engine, Envelope, Exit,
    Fault, Group, KeepAlive, Mode, Pattern, Registry, Roster, Source, Started, Target,
};

use super::device::{FakeDriver, Gets, Sent, Step, Wire, lock};
use super::head_encoding::{BYTES, bind, eager, word};

#[derive(Debug)]
struct FakeCards;

impl CardExchange for FakeCards {
    fn publish(&self, _cards: Vec<(String, Address)>) -> Result<(), String> {
        Ok(())
    }

    fn request(&self, _rank: u32, then: Callback<Vec<(String, Address)>>) {
        then(Ok(vec![("fake".into(), Address(Vec::new()))]));
    }
}

/// The engine of rank 0 of four; the test plays the other three ranks.
#[derive(Debug)]
pub(crate) struct Fixture {
    pub(crate) engine: Arc<Engine>,
    pub(crate) roster: Arc<Roster>,
    /// The channel of all ranks, with context 2.
    pub(crate) world: Arc<Channel>,
    pub(crate) wire: Arc<Wire>,
}

pub(crate) const WORLD: u64 = 2;
/// The context of a channel of ranks 0 and 2.
pub(crate) const REST: u64 = 9;

impl Fixture {
    pub(crate) fn new() -> Self {
        Fixture::with(Gets::None)
    }

    pub(crate) fn with(gets: Gets) -> Self {
        Fixture::with_config(gets, &Config::default())
    }

    pub(crate) fn with_config(gets: Gets, config: &Config) -> Self {
        let wire = Arc::new(Wire { gets, ..Wire::default() });
        let driver = FakeDriver(Arc::clone(&wire));
        let roster = Arc::<Roster>::default();
        let site = Site::new(0, 4, Arc::new(Doorbell::new().unwrap()));
        let registry = Registry::empty().with(driver);
        let cards = Arc::new(FakeCards);
        let engine = Engine::open(site, &registry, config, cards, Arc::clone(&roster)).unwrap();
        let world = engine.join(WORLD, Group::Range { first: 0, len: 4 }, 0).unwrap();
        Fixture { engine, roster, world, wire }
    }

    pub(crate) fn play(&self, steps: impl IntoIterator<Item = Step>) {
        lock(&self.wire.steps).extend(steps);
        // The first pass handles the steps. Later passes complete operations.
        for _ in 0..3 {
            self.engine.progress();
        }
    }

    /// Makes the endpoints return `Again` for all frames and gets, or accept them again.
    pub(crate) fn stop_endpoints(&self, stop: bool) {
        self.wire.full.store(stop, Ordering::Relaxed);
    }

    pub(crate) fn sent(&self) -> Vec<Sent> {
        std::mem::take(&mut *lock(&self.wire.sent))
    }

    /// Takes all sent frames. Returns the last two words, `op` and `extra`, of each frame of this kind to `to`.
    pub(crate) fn take_ops(&self, to: u32, kind: u8) -> Vec<(u64, u64)> {
        let ours = |(peer, head, _): &Sent| *peer == to && head[0] == kind;
        self.sent()
            .iter()
            .filter(|sent| ours(sent))
            .map(|(_, head, _)| (word(head, 28), word(head, 36)))
            .collect()
    }

    pub(crate) fn send(&self, to: u32, data: Vec<u8>, mode: Mode) -> Result<Started, Fault> {
        self.send_on(&self.world, to, data, mode)
    }

    pub(crate) fn send_on(
        &self,
        channel: &Arc<Channel>,
        to: u32,
        data: Vec<u8>,
        mode: Mode,
    ) -> Result<Started, Fault> {
        let data = Arc::new(data);
        let keep: KeepAlive = Arc::clone(&data) as KeepAlive;
        // SAFETY: `keep` keeps the bytes, and nothing writes to them.
        #[expect(unsafe_code, reason = "see above")]
        let source = unsafe { Source::new(Buf::read_only(data.as_ptr(), data.len(), BYTES), Some(keep)) };
        self.engine.send(channel, to, 1, source.unwrap(), mode, Coalesce::Allowed)
    }

    pub(crate) fn send_from(&self, to: u32, data: &[u8], coalesce: Coalesce) -> mpj_devices::Sent {
        // SAFETY: the callers ensure that the endpoint has room, so it copies the message before the call returns.
        #[expect(unsafe_code, reason = "see above")]
        let source = unsafe { Source::new(Buf::slice(data), None) };
        let (channel, mut source) = (&self.world, source.unwrap());
        self.engine.send_from(channel, to, 1.into(), &mut source, Mode::Standard, coalesce).unwrap()
    }

    /// Posts a receive of `count` items into `bytes` bytes of memory, with 64 guard bytes on either side.
    pub(crate) fn post(
        &self,
        channel: &Arc<Channel>,
        pattern: Pattern,
        datatype: Datatype,
        bytes: usize,
        count: usize,
    ) -> Posted {
        let mut memory = vec![0xaa; bytes + 128];
        let base = memory.as_mut_ptr().wrapping_add(64);
        let memory = Arc::new(Mutex::new(memory));
        let keep: KeepAlive = Arc::clone(&memory) as KeepAlive;
        // SAFETY: the items are within `bytes` bytes from `base`; nothing accesses them before the target is dropped.
        #[expect(unsafe_code, reason = "see above")]
        let target = unsafe { Target::new(Buf::new(base, count, datatype), Some(keep)) };
        Posted { started: self.engine.recv(channel, pattern, target.unwrap()), memory }
    }

    pub(crate) fn post_bytes(&self, source: i32, bytes: usize) -> Posted {
        self.post(&self.world, Pattern { source, tag: 1 }, Datatype::primitive(BYTES), bytes, bytes)
    }

    pub(crate) fn death(&self) -> Option<u32> {
        self.roster.first_death().map(|event| event.rank)
    }

    /// Checks that a message of rank 2 still arrives, on a channel without rank 1.
    pub(crate) fn assert_others_communicate(&self) {
        let rest = self.engine.join(REST, [0, 2].into_iter().collect(), 0).unwrap();
        let posted = self.post(&rest, Pattern { source: 1, tag: 1 }, Datatype::primitive(BYTES), 5, 5);
        self.play([Step::Frame(2, bind(40, REST, 1), vec![]), Step::Frame(2, eager(40), b"hello".to_vec())]);
        let (outcome, memory) = posted.finish().expect("the message of rank 2 arrives");
        assert_eq!((outcome.map(|e| e.bytes), memory), (Ok(5), b"hello".to_vec()));
    }
}

#[derive(Debug)]
pub(crate) struct Posted {
    started: Result<Started, Fault>,
    memory: Arc<Mutex<Vec<u8>>>,
}

impl Posted {
    pub(crate) fn completion(&self) -> Option<&Completion> {
        match &self.started {
            Ok(Started::Pending(completion)) => Some(completion),
            _ => None,
        }
    }

    /// Returns the outcome and the memory if the receive has completed, and checks the guard bytes.
    pub(crate) fn finish(self) -> Option<(Result<Envelope, Fault>, Vec<u8>)> {
        let outcome = match self.started {
            Ok(Started::Done(envelope)) => Ok(envelope),
            Ok(Started::Pending(completion)) => completion.outcome()?.clone(),
            Err(fault) => Err(fault),
        };
        let memory = Arc::into_inner(self.memory).expect("a completed receive still holds its memory");
        let mut memory = memory.into_inner().unwrap();
        let guard = |bytes: &[u8]| assert!(bytes.iter().all(|b| *b == 0xaa), "a write outside of the buffer");
        guard(&memory[..64]);
        guard(&memory[memory.len() - 64..]);
        memory.truncate(memory.len() - 64);
        Some((outcome, memory.split_off(64)))
    }
}

/// Reports the death of a rank as another process would.
pub(crate) fn report_death(fixture: &Fixture, rank: u32) {
    fixture.roster.report(rank, Exit::Died("elsewhere".into()));
}
