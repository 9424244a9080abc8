//! Measures `smdev` or `niodev` between two threads: half round trips by size, and the one-way rate of messages of 8
//! bytes.
//!
//! `cargo run --release -p mpj-devices --example loopback -- niodev`
#![expect(clippy::print_stdout, reason = "a program that prints a table")]

use std::sync::Arc;
use std::time::Instant;

use mpj_devices::config::{Config, GROUPS, all};
use mpj_devices::conformance::LocalCardExchange;
use mpj_devices::{
    Buf, Channel, Coalesce, Doorbell, Engine, Group, Hub, JobKey, Mode, NioDriver, Pattern, Registry, Roster,
    Site, SmDriver, Source, Target,
};

struct Rank {
    engine: Arc<Engine>,
    channel: Arc<Channel>,
    other: u32,
}

impl Rank {
    #[expect(unsafe_code, reason = "the engine takes pointers")]
    fn send(&self, bytes: &[u8]) {
        // SAFETY: the bytes stay borrowed until the wait below has returned.
        let source = unsafe { Source::new(Buf::slice(bytes), None) };
        let started = self
            .engine
            .send(&self.channel, self.other, 1, source.unwrap(), Mode::Standard, Coalesce::No)
            .unwrap();
        self.engine.wait(started).unwrap();
    }

    #[expect(unsafe_code, reason = "the engine takes pointers")]
    fn recv(&self, bytes: &mut [u8]) {
        // SAFETY: as above, and the borrow is exclusive.
        let target = unsafe { Target::new(Buf::slice_mut(bytes), None) };
        let pattern = Pattern { source: self.other.cast_signed(), tag: 1 };
        let started = self.engine.recv(&self.channel, pattern, target.unwrap()).unwrap();
        self.engine.wait(started).unwrap();
    }
}

fn measure(me: &Rank, rank: u32) {
    for shift in [3, 10, 12, 14, 15, 16, 17, 18, 20, 22] {
        let mut bytes = vec![0u8; 1 << shift];
        let rounds = (1 << (28 - shift)).clamp(50, 10_000);
        let mut best = f64::INFINITY;
        for _ in 0..5 {
            let start = Instant::now();
            for _ in 0..rounds {
                if rank == 0 {
                    me.send(&bytes);
                    me.recv(&mut bytes);
                } else {
                    me.recv(&mut bytes);
                    me.send(&bytes);
                }
            }
            best = best.min(start.elapsed().as_secs_f64() / f64::from(rounds) / 2.0);
        }
        if rank == 0 {
            println!(
                "{:>8} B  {:>9.2} µs  {:>8.2} GB/s",
                1 << shift,
                best * 1e6,
                bytes.len() as f64 / best / 1e9
            );
        }
    }
    let mut bytes = [0u8; 8];
    const MESSAGES: u32 = 200_000;
    let start = Instant::now();
    for _ in 0..MESSAGES {
        if rank == 0 { me.send(&bytes) } else { me.recv(&mut bytes) }
    }
    if rank == 0 {
        me.recv(&mut bytes);
        println!(
            "one way, 8 B: {:.2} million a second",
            f64::from(MESSAGES) / start.elapsed().as_secs_f64() / 1e6
        );
    } else {
        me.send(&bytes);
    }
}

fn main() {
    let device = std::env::args().nth(1).unwrap_or_else(|| "niodev".into());
    let config = Config::from_env(&all(GROUPS)).unwrap();
    let (hub, cards, roster) =
        (Hub::new(0..2), Arc::<LocalCardExchange>::default(), Arc::<Roster>::default());
    let key = Arc::new(JobKey { job: 1, secret: [1; 32] });
    let drivers = Registry::empty().with(SmDriver::new(hub)).with(NioDriver::new(key));
    let registry = drivers.select(&[&device]).unwrap();
    std::thread::scope(|scope| {
        for rank in 0..2 {
            let (registry, config, cards, roster) =
                (&registry, &config, Arc::clone(&cards), Arc::clone(&roster));
            scope.spawn(move || {
                let bell = Arc::new(Doorbell::new().unwrap());
                let site = Site::new(rank, 2, bell);
                let engine = Engine::open(site, registry, config, cards.of(rank), roster).unwrap();
                let channel = engine.join(2, Group::Range { first: 0, len: 2 }, rank).unwrap();
                let me = Rank { engine, channel, other: 1 - rank };
                measure(&me, rank);
                me.engine.close();
            });
        }
    });
}
