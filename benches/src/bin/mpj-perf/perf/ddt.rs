//! Derived datatypes: packing and unpacking compared with loops by hand, and messages. Follows `ddt.c`.

use std::hint::black_box;
use std::path::Path;

use mpj::{Intracomm, View, ViewMut, World};
use mpj_datatypes::{Packer, Unpacker};

use super::Failure;
use super::ddt_patterns::{Element, Pattern, all};
use super::memory::{PAGE, Pages};
use super::plot::{Dots, Look, Mark, Page, Panel, Point, Row};
use super::report::Report;
use super::stats::{now_ns, quantile, repeats};

/// The buffer for packed data, and a second buffer of the same length.
#[derive(Debug)]
struct Buffers {
    first: Pages<u8>,
    second: Pages<u8>,
}

/// An operation on a pattern in memory.
#[derive(Clone, Copy, Debug)]
enum Local {
    Pack,
    PackByHand,
    Unpack,
    UnpackByHand,
    Copy,
}

/// The method by which a pattern is sent from rank to rank.
#[derive(Clone, Copy, Debug)]
enum Way {
    Datatype,
    ByHand,
    PackFirst,
    Contiguous,
}

/// A pattern of any element type.
pub(super) trait Measured {
    fn name(&self) -> &str;
    /// Returns the number of packed bytes.
    fn bytes(&self) -> usize;
    /// Returns whether the datatypes of the sender and the receiver are the same.
    fn symmetric(&self) -> bool;
    fn pack(&self, out: &mut [u8]) -> Result<(), Failure>;
    fn pack_by_hand(&self, out: &mut [u8]);
    fn unpack(&mut self, from: &[u8]) -> Result<(), Failure>;
    fn unpack_by_hand(&mut self, from: &[u8]);
    fn send(&self, world: &Intracomm, to: usize, tag: i32) -> Result<(), Failure>;
    fn recv(&mut self, world: &Intracomm, from: usize, tag: i32) -> Result<(), Failure>;
}

impl<T: Element> Measured for Pattern<T> {
    fn name(&self) -> &str {
        &self.name
    }

    fn bytes(&self) -> usize {
        self.send.size()
    }

    fn symmetric(&self) -> bool {
        self.symmetric
    }

    fn pack(&self, out: &mut [u8]) -> Result<(), Failure> {
        let memory = bytemuck::cast_slice(&self.data);
        Packer::new(&self.send, memory, self.start * size_of::<T>(), 1)?.pack_into_bytes(out);
        Ok(())
    }

    fn pack_by_hand(&self, out: &mut [u8]) {
        let mut out = bytemuck::cast_slice_mut(out);
        for piece in &self.by_hand {
            let (part, rest) = out.split_at_mut(piece.elements);
            (piece.pack)(&self.data[self.start..], part);
            out = rest;
        }
    }

    fn unpack(&mut self, from: &[u8]) -> Result<(), Failure> {
        let memory = bytemuck::cast_slice_mut(&mut self.data);
        Unpacker::new(&self.recv, memory, self.start * size_of::<T>(), 1)?.unpack_from(from)?;
        Ok(())
    }

    fn unpack_by_hand(&mut self, from: &[u8]) {
        let mut from = bytemuck::cast_slice(from);
        for piece in &self.by_hand {
            let (part, rest) = from.split_at(piece.elements);
            (piece.unpack)(&mut self.data[self.start..], part);
            from = rest;
        }
    }

    fn send(&self, world: &Intracomm, to: usize, tag: i32) -> Result<(), Failure> {
        Ok(world.send(&View::new(&self.data, self.start, &self.send, 1)?, to, tag)?)
    }

    fn recv(&mut self, world: &Intracomm, from: usize, tag: i32) -> Result<(), Failure> {
        let mut view = ViewMut::new(&mut self.data, self.start, &self.recv, 1)?;
        world.recv(&mut view, from, tag)?;
        Ok(())
    }
}

/// Measures all patterns: packing for `pack_ms` milliseconds a figure, and, with two ranks, sending for `send_ms`.
pub(crate) fn run(world: &World, pack_ms: f64, send_ms: f64, svg: Option<&Path>) -> Result<(), Failure> {
    let mut patterns = all()?;
    let report = Report::begin(world, patterns.len() * if world.size() == 2 { 2 } else { 1 })?;
    let (mut packed, mut sent) = (Vec::new(), Vec::new());
    let room = patterns.iter().map(|p| p.bytes()).max().unwrap_or(0) + PAGE;
    let mut buffers = Buffers { first: Pages::filled(room, 1)?, second: Pages::filled(room, 2)? };
    if world.rank() == 0 {
        for pattern in &mut patterns {
            packed.push(local(pattern.as_mut(), &mut buffers, pack_ms, &report)?);
        }
    }
    world.barrier()?;
    if world.size() == 2 {
        for pattern in &mut patterns {
            let mut us = Vec::with_capacity(4);
            for way in [Way::Datatype, Way::ByHand, Way::PackFirst, Way::Contiguous] {
                us.push(pingpong(world, pattern.as_mut(), &mut buffers, way, send_ms)?);
            }
            let (name, bytes) = (pattern.name(), pattern.bytes());
            let [datatype, by_hand, packed, plain] = [us[0].y, us[1].y, us[2].y, us[3].y];
            report.row(format_args!(
                "DDTPP,{name},{bytes},{datatype:.2},{by_hand:.2},{packed:.2},{plain:.2}"
            ))?;
            sent.push(Row { name: name.to_owned(), points: us });
        }
    }
    report.finish(world, svg, || page(packed, sent))
}

impl Local {
    #[inline]
    fn run(self, pattern: &mut dyn Measured, buffers: &mut Buffers) -> Result<(), Failure> {
        let bytes = pattern.bytes();
        let buf = &mut buffers.first[..bytes];
        match self {
            Local::Pack => pattern.pack(buf)?,
            Local::PackByHand => pattern.pack_by_hand(buf),
            Local::Unpack => pattern.unpack(buf)?,
            Local::UnpackByHand => pattern.unpack_by_hand(buf),
            Local::Copy => buffers.second[..bytes].copy_from_slice(buf),
        }
        black_box(&mut *buffers);
        Ok(())
    }

    /// Returns the rate in bytes per nanosecond.
    fn rate(self, pattern: &mut dyn Measured, buffers: &mut Buffers, ms: f64) -> Result<Point, Failure> {
        const READINGS: usize = 301;
        for _ in 0..3 {
            self.run(pattern, buffers)?;
        }
        let start = now_ns();
        self.run(pattern, buffers)?;
        self.run(pattern, buffers)?;
        let estimate = (now_ns() - start) as f64 / 2.0 + 1.0;
        let batch = ((20_000.0 / estimate) as i64 + 1).clamp(1, 10_000);
        let readings = repeats(ms * 1e6, estimate * batch as f64, 5, READINGS as i64);
        let mut times = [0u64; READINGS];
        let times = &mut times[..readings as usize];
        for time in &mut *times {
            let start = now_ns();
            for _ in 0..batch {
                self.run(pattern, buffers)?;
            }
            *time = now_ns() - start;
        }
        let bytes = pattern.bytes() as f64 * batch as f64;
        let mut rate = |q| bytes / quantile(times, q).max(1.0);
        Ok(Point { x: 0.0, y: rate(0.5), low: rate(0.95), high: rate(0.05) })
    }
}

/// Checks a pattern against the loops by hand, and measures it in memory.
fn local(
    pattern: &mut dyn Measured,
    buffers: &mut Buffers,
    ms: f64,
    report: &Report,
) -> Result<Row, Failure> {
    let bytes = pattern.bytes();
    Local::Pack.run(pattern, buffers)?;
    let packed = buffers.first[..bytes].to_vec();
    buffers.first[..bytes].fill(0);
    Local::PackByHand.run(pattern, buffers)?;
    if packed != buffers.first[..bytes] {
        report.line(format_args!("# MISMATCH pack {}", pattern.name()))?;
    }
    if pattern.symmetric() {
        for (at, byte) in buffers.first[..bytes].iter_mut().enumerate() {
            *byte = at.wrapping_mul(37).wrapping_add(11) as u8;
        }
        let given = buffers.first[..bytes].to_vec();
        Local::Unpack.run(pattern, buffers)?;
        buffers.first[..bytes].fill(0);
        Local::PackByHand.run(pattern, buffers)?;
        if given != buffers.first[..bytes] {
            report.line(format_args!("# MISMATCH unpack {}", pattern.name()))?;
        }
    }
    let mut points = Vec::with_capacity(5);
    for what in [Local::Pack, Local::PackByHand, Local::Unpack, Local::UnpackByHand, Local::Copy] {
        points.push(what.rate(pattern, buffers, ms)?);
    }
    let [pack, pack_by_hand, unpack, unpack_by_hand, copy] = core::array::from_fn(|i| points[i].y);
    let name = pattern.name();
    report.row(format_args!(
        "DDT,{name},{bytes},{pack:.2},{pack_by_hand:.2},{unpack:.2},{unpack_by_hand:.2},{copy:.2},{:.2},{:.2}",
        pack / pack_by_hand,
        unpack / unpack_by_hand
    ))?;
    Ok(Row { name: name.to_owned(), points })
}

/// Makes the page: a panel for packing, and below it a panel for sending if there were two ranks.
fn page(packed: Vec<Row>, sent: Vec<Row>) -> Page {
    let mut panels = vec![Panel::Dots(Dots {
        title: "In memory: right is better".to_owned(),
        x: "bandwidth, GB/s of packed bytes",
        marks: vec![
            Mark("pack", Look::of(0), -5.0),
            Mark("pack by hand", Look::of(5), -5.0),
            Mark("unpack", Look::of(1), 5.0),
            Mark("unpack by hand", Look::of(4), 5.0),
            Mark("memcpy", Look::of(2), 0.0),
        ],
        rows: packed,
    })];
    if !sent.is_empty() {
        panels.push(Panel::Dots(Dots {
            title: "Sent between two ranks: left is better".to_owned(),
            x: "half a round trip, µs",
            marks: vec![
                Mark("by datatype", Look::of(0), -6.0),
                Mark("packed by hand", Look::of(5), -2.0),
                Mark("packed first", Look::of(3), 2.0),
                Mark("contiguous bytes", Look::of(2), 6.0),
            ],
            rows: sent,
        }));
    }
    Page {
        title: "Derived datatypes".to_owned(),
        notes: vec![
            "Markers: medians; lines: 5 % to 95 %. Rows: the patterns of DDTBench, and plain vectors. by hand: loops written for \
             the pattern; packed first: packed by the library, sent as bytes, unpacked; memcpy and contiguous bytes: as many \
             bytes in one piece, for comparison."
                .to_owned(),
        ],
        columns: panels.len(),
        panels,
        ..Page::default()
    }
}

impl Way {
    const TAG: i32 = 9;

    #[inline]
    fn send(self, world: &Intracomm, pattern: &dyn Measured, buffers: &mut Buffers) -> Result<(), Failure> {
        let (to, buf) = (1 - world.rank(), &mut buffers.first[..pattern.bytes()]);
        match self {
            Way::Datatype => return pattern.send(world, to, Way::TAG),
            Way::ByHand => pattern.pack_by_hand(buf),
            Way::PackFirst => pattern.pack(buf)?,
            Way::Contiguous => (),
        }
        Ok(world.send(buf, to, Way::TAG)?)
    }

    #[inline]
    fn recv(
        self,
        world: &Intracomm,
        pattern: &mut dyn Measured,
        buffers: &mut Buffers,
    ) -> Result<(), Failure> {
        let (from, bytes) = (1 - world.rank(), pattern.bytes());
        let Buffers { first, second } = buffers;
        match self {
            Way::Datatype => pattern.recv(world, from, Way::TAG)?,
            Way::ByHand => {
                world.recv(&mut first[..bytes], from, Way::TAG)?;
                pattern.unpack_by_hand(&first[..bytes]);
            }
            Way::PackFirst => {
                let status = world.recv(&mut first[..], from, Way::TAG)?;
                pattern.unpack(&first[..status.bytes()])?;
            }
            Way::Contiguous => {
                world.recv(&mut second[..bytes], from, Way::TAG)?;
            }
        }
        Ok(())
    }
}

/// Returns the half round-trip time in microseconds.
fn pingpong(
    world: &Intracomm,
    pattern: &mut dyn Measured,
    buffers: &mut Buffers,
    way: Way,
    ms: f64,
) -> Result<Point, Failure> {
    let leads = world.rank() == 0;
    let mut once = || {
        if leads {
            way.send(world, pattern, buffers)?;
            way.recv(world, pattern, buffers)
        } else {
            way.recv(world, pattern, buffers)?;
            way.send(world, pattern, buffers)
        }
    };
    for _ in 0..3 {
        once()?;
    }
    let start = now_ns();
    for _ in 0..3 {
        once()?;
    }
    let estimate = (now_ns() - start) as f64 / 3.0;
    let mut iterations = repeats(ms * 1e6, estimate + 1.0, 7, 5000);
    world.bcast(&mut iterations, 0)?;
    let mut times = vec![0u64; iterations as usize];
    for time in &mut times {
        let start = now_ns();
        once()?;
        *time = now_ns() - start;
    }
    let mut us = |q| quantile(&mut times, q) / 2e3;
    Ok(Point { x: 0.0, y: us(0.5), low: us(0.05), high: us(0.95) })
}
