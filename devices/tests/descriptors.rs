//! The limit on open file descriptors. This is the only test of its program, because the limit applies to the process.
#![cfg(all(target_os = "linux", not(mpj_portable)))]

use std::fs::File;
use std::sync::Arc;

use mpj_devices::config::Config;
use mpj_devices::{Doorbell, Driver, JobKey, NioDriver, Site};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Sets the limit, and opens files until no descriptor is left.
fn use_up(limit: Rlimit) -> Vec<File> {
    setrlimit(Resource::Nofile, limit).unwrap();
    std::iter::from_fn(|| File::open("/dev/null").ok()).collect()
}

#[test]
fn limit_of_descriptors_is_raised_to_its_maximum() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let soft = Rlimit { current: Some(64), maximum };
    let site = Site::new(0, 2, Arc::new(Doorbell::new().unwrap()));
    setrlimit(Resource::Nofile, soft).unwrap();
    let driver = NioDriver::new(Arc::new(JobKey { job: 1, secret: [1; 32] }));
    let opened = driver.open(&site, &Config::default()).unwrap();
    assert_eq!(getrlimit(Resource::Nofile).current, maximum, "each peer of niodev takes descriptors");
    drop(opened);

    let files = use_up(soft);
    drop(Doorbell::new().expect("the limit is raised if there is no descriptor left"));
    assert_eq!(getrlimit(Resource::Nofile).current, maximum);
    drop(files);

    let files = use_up(Rlimit { current: Some(64), maximum: Some(64) });
    let error = Doorbell::new().unwrap_err();
    assert!(error.to_string().contains("raise `ulimit -Hn`"), "{error}");
    drop(files);
}
