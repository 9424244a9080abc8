//! The messages of `paths`.

use std::fmt;
use std::hint::black_box;

use clap::ValueEnum;
use mpj::{Datatype, Intracomm, PoolSlice, Request, View, ViewMut, World};

use super::super::Failure;
use super::super::memory::Pages;

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum Shape {
    Contiguous,
    /// Every second element.
    Strided,
    /// Blocks of 1 to 7 elements, each followed by a gap of the same length.
    Indexed,
    /// A vector of pairs, encoded and decoded by serde.
    Object,
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Shape::Contiguous => "contiguous",
            Shape::Strided => "strided",
            Shape::Indexed => "indexed",
            Shape::Object => "object",
        })
    }
}

#[derive(Debug)]
pub(super) struct Message {
    bytes: usize,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Derived {
        datatype: Datatype,
        send: Pages<f64>,
        recv: Pages<f64>,
    },
    Contiguous {
        send: Pages<f64>,
        recv: Pages<f64>,
    },
    /// Contiguous elements that are sent by ownership. At most one of the slice and its pending send is present, and
    /// neither after a failed send.
    InPoolBlock {
        send: Option<PoolSlice<f64>>,
        sending: Option<Request<PoolSlice<f64>>>,
    },
    Object {
        send: Vec<(u64, f64)>,
    },
}

const LOST: &str = "the slice was lost in a failed send";

impl Message {
    /// Makes a message whose elements have `bytes` bytes, which must be a multiple of 64.
    pub(super) fn new(shape: Shape, bytes: usize) -> Result<Self, Failure> {
        let len = bytes / size_of::<f64>();
        let pages = || Ok::<_, Failure>((Pages::filled(2 * len, 1.5)?, Pages::filled(2 * len, 2.5)?));
        let element = Datatype::of::<f64>();
        let kind = match shape {
            Shape::Contiguous => {
                Kind::Contiguous { send: Pages::filled(len, 1.5)?, recv: Pages::filled(len, 2.5)? }
            }
            Shape::Strided => {
                let (send, recv) = pages()?;
                Kind::Derived { datatype: element.vector(len, 1, 2)?, send, recv }
            }
            Shape::Indexed => {
                let (send, recv) = pages()?;
                Kind::Derived { datatype: element.indexed(&blocks(len))?, send, recv }
            }
            Shape::Object => Kind::Object { send: (0..len as u64 / 2).map(|at| (at, 1.5)).collect() },
        };
        Ok(Message { bytes, kind })
    }

    pub(super) fn in_pool_block(world: &World, bytes: usize) -> Result<Self, Failure> {
        let send = Some(world.alloc_slice(1.5, bytes / size_of::<f64>())?);
        Ok(Message { bytes, kind: Kind::InPoolBlock { send, sending: None } })
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Writes to every cache line of the slice to send; of an object, perhaps not to the last one.
    pub(super) fn write(&mut self) -> Result<(), Failure> {
        match &mut self.kind {
            Kind::InPoolBlock { send, sending } => {
                wait_for_slice(send, sending)?;
                let send = send.as_mut().ok_or(LOST)?;
                send.iter_mut().step_by(8).for_each(|element| *element += 1.0);
                black_box(&mut send[..]);
            }
            Kind::Contiguous { send, .. } | Kind::Derived { send, .. } => {
                send.iter_mut().step_by(8).for_each(|element| *element += 1.0);
                black_box(&mut send[..]);
            }
            Kind::Object { send } => {
                send.iter_mut().step_by(4).for_each(|(_, element)| *element += 1.0);
                black_box(&mut send[..]);
            }
        }
        Ok(())
    }

    #[inline]
    pub(super) fn send(&mut self, world: &Intracomm, to: usize) -> Result<(), Failure> {
        match &mut self.kind {
            Kind::InPoolBlock { send, sending } => {
                wait_for_slice(send, sending)?;
                *sending = Some(world.isend(send.take().ok_or(LOST)?, to, 1)?);
            }
            Kind::Contiguous { send, .. } => world.send(&send[..], to, 1)?,
            Kind::Derived { datatype, send, .. } => {
                world.send(&View::new(&send[..], 0, datatype, 1)?, to, 1)?;
            }
            Kind::Object { send } => world.send_object(send, to, 1)?,
        }
        Ok(())
    }

    #[inline]
    pub(super) fn recv(&mut self, world: &Intracomm, from: usize) -> Result<(), Failure> {
        match &mut self.kind {
            Kind::Contiguous { recv, .. } => drop(world.recv(&mut recv[..], from, 1)?),
            Kind::Derived { datatype, recv, .. } => {
                world.recv(&mut ViewMut::new(&mut recv[..], 0, datatype, 1)?, from, 1)?;
            }
            Kind::InPoolBlock { .. } => {
                let (block, _) = world.recv_block(from, 1)?;
                black_box(block.try_as_slice::<f64>()?.iter().step_by(8).sum::<f64>());
            }
            Kind::Object { .. } => drop(black_box(world.recv_object::<Vec<(u64, f64)>>(from, 1)?)),
        }
        Ok(())
    }
}

fn wait_for_slice(
    send: &mut Option<PoolSlice<f64>>,
    sending: &mut Option<Request<PoolSlice<f64>>>,
) -> Result<(), Failure> {
    if let Some(sending) = sending.take() {
        *send = Some(sending.wait()?.0);
    }
    Ok(())
}

/// Returns blocks of 1 to 7 elements, `len` in all, each followed by a gap of the same length.
fn blocks(len: usize) -> Vec<(usize, isize)> {
    let (mut blocks, mut total) = (Vec::new(), 0);
    while total < len {
        let block = (1 + blocks.len() * 5 % 7).min(len - total);
        blocks.push((block, 2 * total as isize));
        total += block;
    }
    blocks
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::blocks;

    #[test]
    fn blocks_fill_half_of_their_extent() {
        for len in [8, 32, 1000] {
            let blocks = blocks(len);
            assert_eq!(blocks.iter().map(|(block, _)| block).sum::<usize>(), len);
            let (last, at) = blocks[blocks.len() - 1];
            assert!(at as usize + last <= 2 * len);
        }
    }

    #[test]
    fn blocks_have_1_to_7_elements() {
        let lengths: BTreeSet<usize> = blocks(1000).iter().map(|(block, _)| *block).collect();
        assert!(lengths.iter().copied().eq(1..=7), "{lengths:?}");
    }
}
