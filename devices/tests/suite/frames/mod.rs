//! Tests of the engine with a fake device, by which the test plays the peers: frames that no honest peer sends, bodies
//! in pieces, operations of the device, credit, channels, cancels and waits. The engine never panics and never writes
//! outside of a buffer. It reports a peer that breaks the protocol, and communicates with the other peers.

mod any_frames;
mod bidirectional;
mod cancel;
mod channels;
mod coalesced;
mod credit;
mod device;
mod device_ops;
mod exit_races;
mod fixture;
mod head_encoding;
mod hostile;
mod nack_causes;
mod partial_bodies;
mod pending_ops;
mod pool_regions;
mod streaming;
mod waiting;
