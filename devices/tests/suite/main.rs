//! The tests of this crate that need no process of their own, in one program: what they share is compiled once, and tests
//! that wait run beside each other.

mod contact;
mod credit;
mod dropped;
mod frames;
mod hosts;
mod looks;
mod neighbours;
mod niodev_network;
mod niodev_patience;
mod opened_twice;
mod overwritten;
mod segment;
