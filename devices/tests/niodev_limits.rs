//! The errors of niodev when a process has no file descriptors left. This is the only test of its program, because the
//! limit applies to the process.
#![cfg(all(target_os = "linux", not(mpj_portable)))]

use std::fs::File;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mpj_devices::config::Config;
use mpj_devices::device::{Landing, OpToken};
use mpj_devices::{Doorbell, Driver, JobKey, NioDriver, Opened, PeerId, Sink, Site};
use rustix::process::{Resource, Rlimit};

#[derive(Debug, Default)]
struct Losses(Vec<(u32, String)>);

// SAFETY: bodies are accepted only in pieces.
#[expect(unsafe_code, reason = "the trait's contract")]
unsafe impl Sink for Losses {
    fn frame(&mut self, _from: PeerId, _head: &[u8], _body: &[u8]) {}

    fn begin(&mut self, _from: PeerId, _head: &[u8], _len: usize) -> Landing {
        Landing::Pieces
    }

    fn piece(&mut self, _from: PeerId, _bytes: &[u8]) {}

    fn landed(&mut self, _from: PeerId) {}

    fn peer_lost(&mut self, from: PeerId, why: &str) {
        self.0.push((from.0, why.to_owned()));
    }

    fn completed(&mut self, op: OpToken, _: Result<(), String>) {
        panic!("nothing was started: {op:?}");
    }

    fn quiesced(&mut self, op: OpToken) {
        panic!("nothing was quiesced: {op:?}");
    }
}

fn open(rank: u32) -> Opened {
    let key = Arc::new(JobKey { job: 1, secret: [1; 32] });
    let site = Site::new(rank, 2, Arc::new(Doorbell::new().unwrap()));
    NioDriver::new(key).open(&site, &Config::default()).unwrap()
}

#[test]
fn errors_name_the_side_without_descriptors() {
    let (mut connecting, mut accepting) = (open(0), open(1));
    let limit = Rlimit { current: Some(64), ..rustix::process::getrlimit(Resource::Nofile) };
    rustix::process::setrlimit(Resource::Nofile, limit).unwrap();
    let mut files: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    let refused = connecting.device.connect(PeerId(1), &accepting.device.address()).unwrap_err();
    assert!(refused.to_string().contains("raise `ulimit -n`"), "{refused}");
    // One descriptor is left for the connecting side, and none for the accepting side.
    files.pop();
    let _endpoint = connecting.device.connect(PeerId(1), &accepting.device.address()).unwrap();
    let (mut losses, until) = (Losses::default(), Instant::now() + Duration::from_secs(20));
    while losses.0.is_empty() {
        assert!(Instant::now() < until, "stuck");
        connecting.inlet.progress(&mut losses);
        accepting.inlet.progress(&mut losses);
    }
    assert!(losses.0[0].0 == 1 && losses.0[0].1.contains("raise `ulimit -n` there"), "{losses:?}");
}
