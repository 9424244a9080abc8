//! Integration tests that can share a process: they compile once, and run in parallel.

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
