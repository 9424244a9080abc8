//! Tests of the engine with a fake device, through which the test plays the peers. The engine must not panic or write
//! outside of a buffer. It must report a peer that violates the protocol, and communicate with the other peers.

mod any_frames;
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
mod lost_rank;
mod nack_causes;
mod partial_bodies;
mod pending_ops;
mod pool_regions;
mod streaming;
mod waiting;
