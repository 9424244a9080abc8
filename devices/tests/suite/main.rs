//! The tests of this crate that do not need a process of their own. One program compiles the shared code once, and
//! runs tests that wait in parallel.

mod contact;
mod credit;
mod dropped;
mod frames;
mod hosts;
mod neighbours;
mod niodev_network;
mod niodev_patience;
mod opened_twice;
mod overwritten;
mod polling;
mod segment;
