//! The engine with a device whose peers are played by the test: frames that no honest peer sends, and bodies that
//! arrive in pieces. The engine never panics and never writes outside of a buffer. It reports the offender, and the
//! other peers continue.

mod any_frames;
mod bench;
mod bidirectional;
mod cancel;
mod channels;
mod coalesced;
mod credit;
mod device;
mod device_ops;
mod exit_races;
mod head;
mod hostile;
mod nack_causes;
mod partial_bodies;
mod regions;
mod scene;
mod streaming;
mod waiting;
