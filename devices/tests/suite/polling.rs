//! How often a rank polls a device whose polls need a system call.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mpj_devices::config::{Config, SPIN_US};
use mpj_devices::conformance::Pinboard;
use mpj_devices::stub::StubDriver;
use mpj_devices::{Doorbell, Driver, Engine, Inlet, OpenError, Opened, Registry, Sink, Site};

/// A device that counts its polls, and at which nothing arrives.
#[derive(Clone, Debug)]
struct Counted {
    name: &'static str,
    asks: bool,
    looks: Arc<AtomicUsize>,
}

impl Counted {
    fn new(name: &'static str, asks: bool) -> Self {
        Counted { name, asks, looks: Arc::default() }
    }

    fn looks(&self) -> usize {
        self.looks.load(Ordering::Relaxed)
    }
}

// SAFETY: the device moves nothing.
#[expect(unsafe_code, reason = "the trait's contract")]
unsafe impl Driver for Counted {
    fn name(&self) -> &'static str {
        self.name
    }

    fn open(&self, site: &Site, config: &Config) -> Result<Opened, OpenError> {
        let Opened { device, .. } = StubDriver.open(site, config)?;
        Ok(Opened { device, inlet: Box::new(self.clone()) })
    }
}

// SAFETY: no body begins.
#[expect(unsafe_code, reason = "the trait's contract")]
unsafe impl Inlet for Counted {
    fn progress(&mut self, _: &mut dyn Sink) -> usize {
        self.looks.fetch_add(1, Ordering::Relaxed);
        0
    }

    fn needs_syscall(&self) -> bool {
        self.asks
    }
}

/// Opens a rank with these devices that spins for a long time before it yields.
fn rank(devices: &[&Counted]) -> Arc<Engine> {
    let registry = devices.iter().fold(Registry::empty(), |registry, &device| registry.with(device.clone()));
    let mut config = Config::default();
    config.set(&SPIN_US, SPIN_US.range.1).unwrap();
    let site = Site::new(0, 1, Arc::new(Doorbell::new().unwrap()));
    let board: Arc<Pinboard> = Arc::default();
    Engine::open(site, &registry, &config, board.of(0), Arc::default()).unwrap()
}

/// Polls `times` times.
fn poll(engine: &Engine, times: usize) {
    let mut polls = 0;
    engine.wait_until(|| {
        polls += 1;
        (polls > times).then_some(())
    });
}

#[test]
fn who_polls_memory_asks_the_system_now_and_then() {
    let (near, far) = (Counted::new("near", false), Counted::new("far", true));
    let engine = rank(&[&near, &far]);
    poll(&engine, 8000);
    assert_eq!(near.looks(), 8000);
    assert!((8000 / 128..8000 / 16).contains(&far.looks()), "{} times", far.looks());
}

#[test]
fn who_has_only_what_asks_the_system_asks_it_each_time() {
    let far = Counted::new("far", true);
    poll(&rank(&[&far]), 100);
    assert_eq!(far.looks(), 100);
}

#[test]
fn who_tests_seldom_looks_at_everything_each_time() {
    let (near, far) = (Counted::new("near", false), Counted::new("far", true));
    let engine = rank(&[&near, &far]);
    for _ in 0..20 {
        std::thread::sleep(Duration::from_micros(100));
        engine.progress();
    }
    assert_eq!((near.looks(), far.looks()), (20, 20));
}
