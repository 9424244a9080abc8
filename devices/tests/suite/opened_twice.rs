//! A rank can open smdev or shmdev only once, because a ring has only one sender and one receiver.

use std::sync::Arc;

use mpj_devices::config::Config;
use mpj_devices::{Doorbell, Hub, Registry, Site, SmDriver};

fn open_all(ranks: [(Registry, Site); 3]) -> Vec<Result<(), String>> {
    let mut opened_all = Vec::new();
    let mut open = |(registry, site): (Registry, Site)| {
        registry
            .open(&site, &Config::default())
            .map(|opened| opened_all.push(opened))
            .map_err(|e| e.to_string())
    };
    ranks.into_iter().map(&mut open).collect()
}

fn assert_opened_once(device: &str, outcomes: &[Result<(), String>]) {
    let [first, again, other] = outcomes else { panic!("three tries") };
    assert_eq!((first, other), (&Ok(()), &Ok(())));
    let why = again.as_ref().unwrap_err();
    assert!(why.contains(&format!("{device}: rank 0 has opened {device} already")), "{why}");
}

#[test]
fn smdev_is_opened_once() {
    let hub = Hub::new(0..2);
    let rank = |rank| {
        let site = Site::new(rank, 2, Arc::new(Doorbell::new().unwrap()));
        (Registry::empty().with(SmDriver::new(Arc::clone(&hub))), site)
    };
    assert_opened_once("smdev", &open_all([0, 0, 1].map(rank)));
}

#[cfg(all(target_os = "linux", not(mpj_portable)))]
#[test]
fn shmdev_is_opened_once() {
    use mpj_devices::{HostId, Hosts, Segment, ShmDriver};
    let memory = Segment::create(2, &Config::default()).unwrap();
    let here = Hosts::single_host(2).ranks_of(HostId(0));
    let rank = |rank| {
        // SAFETY: only a duplicate of the descriptor is used, and it is only attached.
        #[expect(unsafe_code, reason = "see above")]
        let fd = unsafe { memory.descriptor() }.try_clone_to_owned();
        // SAFETY: the descriptor is a duplicate of a segment's descriptor.
        #[expect(unsafe_code, reason = "see above")]
        let view = unsafe { Segment::attach(fd.unwrap(), 2) }.unwrap();
        let site = Site::new(rank, 2, Arc::new(Doorbell::new().unwrap()));
        (Registry::empty().with(ShmDriver::new(view, here.clone())), site)
    };
    assert_opened_once("shmdev", &open_all([0, 0, 1].map(rank)));
}
