//! The engine with a device whose peers are played by the test: frames that no honest peer sends, and bodies that
//! arrive in pieces. The engine never panics and never writes outside of a buffer. It reports the offender, and the
//! other peers continue.

mod any;
mod bench;
mod blame;
mod channels;
mod credit;
mod crossing;
mod device;
mod ended;
mod halfway;
mod head;
mod held;
mod hostile;
mod moves;
mod regions;
mod scene;
mod streaming;
mod waiting;
mod withdraw;
