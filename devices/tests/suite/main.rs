//! The tests of this crate that do not need a process of their own. One program compiles the shared code once, and
//! runs tests that wait in parallel.

mod credit;
mod dropped;
mod frames;
mod hosts;
mod niodev_network;
mod niodev_rare_polls;
mod opened_twice;
mod overwritten;
mod polling;
mod segment;
mod shm_peers;
mod wireup;
