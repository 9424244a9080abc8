//! How often a rank polls a device whose polls need a system call.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mpj_devices::config::{Config, SPIN_US};
use mpj_devices::conformance::LocalCardExchange;
use mpj_devices::stub::StubDriver;
use mpj_devices::{Doorbell, Driver, Engine, Inlet, OpenError, Opened, Registry, Sink, Site};

/// A device that counts its polls and receives nothing.
#[derive(Clone, Debug)]
struct CountingDevice {
    name: &'static str,
    needs_syscall: bool,
    polls: Arc<AtomicUsize>,
}

impl CountingDevice {
    fn new(name: &'static str, needs_syscall: bool) -> Self {
        CountingDevice { name, needs_syscall, polls: Arc::default() }
    }

    fn polls(&self) -> usize {
        self.polls.load(Ordering::Relaxed)
    }
}

// SAFETY: the device moves nothing.
#[expect(unsafe_code, reason = "the trait's contract")]
unsafe impl Driver for CountingDevice {
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
unsafe impl Inlet for CountingDevice {
    fn progress(&mut self, _: &mut dyn Sink) -> usize {
        self.polls.fetch_add(1, Ordering::Relaxed);
        0
    }

    fn needs_syscall(&self) -> bool {
        self.needs_syscall
    }
}

/// Opens a rank with these devices. Its waits spin for the maximum time before they yield.
fn open_rank(devices: &[&CountingDevice]) -> Arc<Engine> {
    let registry = devices.iter().fold(Registry::empty(), |registry, &device| registry.with(device.clone()));
    let mut config = Config::default();
    config.set(&SPIN_US, SPIN_US.range.1).unwrap();
    let site = Site::new(0, 1, Arc::new(Doorbell::new().unwrap()));
    let board: Arc<LocalCardExchange> = Arc::default();
    Engine::open(site, &registry, &config, board.of(0), Arc::default()).unwrap()
}

fn poll(engine: &Engine, times: usize) {
    let mut count = 0;
    engine.wait_until(|| {
        count += 1;
        (count > times).then_some(())
    });
}

#[test]
fn costly_devices_are_polled_less_often() {
    let (cheap, costly) = (CountingDevice::new("cheap", false), CountingDevice::new("costly", true));
    let engine = open_rank(&[&cheap, &costly]);
    poll(&engine, 8000);
    assert_eq!(cheap.polls(), 8000);
    assert!((8000 / 128..8000 / 16).contains(&costly.polls()), "{} times", costly.polls());
}

#[test]
fn costly_devices_alone_are_polled_every_time() {
    let costly = CountingDevice::new("costly", true);
    poll(&open_rank(&[&costly]), 100);
    assert_eq!(costly.polls(), 100);
}

#[test]
fn rare_progress_calls_poll_every_device() {
    let (cheap, costly) = (CountingDevice::new("cheap", false), CountingDevice::new("costly", true));
    let engine = open_rank(&[&cheap, &costly]);
    for _ in 0..20 {
        std::thread::sleep(Duration::from_micros(100));
        engine.progress();
    }
    assert_eq!((cheap.polls(), costly.polls()), (20, 20));
}
