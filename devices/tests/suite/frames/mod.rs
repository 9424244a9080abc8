//! The engine against a device whose peers are the test: frames no honest peer sends, and bodies that come in pieces.
//! Never a panic, never a write outside; the offender is reported, the others go on.

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
