//! Derived datatypes: packing, unpacking and messages, compared with manual loops. Follows `ddt.c` (see [`super`]).

use std::hint::black_box;
use std::path::Path;

use mpj::{Intracomm, View, ViewMut, World};
use mpj_datatypes::{Packer, Unpacker};

use super::Failure;
use super::ddt_patterns::{Element, Pattern, all};
use super::memory::{PAGE, Pages};
use super::plot::{CurveStyle, DotRow, Dots, Mark, Page, Panel, Point};
use super::report::Report;
use super::stats::{now_ns, quantile, repeats};

#[derive(Debug)]
struct Buffers {
    first: Pages<u8>,
    second: Pages<u8>,
}

#[derive(Clone, Copy, Debug)]
enum Operation {
    Pack,
    PackManual,
    Unpack,
    UnpackManual,
    Copy,
}

#[derive(Clone, Copy, Debug)]
enum Method {
    Datatype,
    Manual,
    PackFirst,
    Contiguous,
}

pub(super) trait Measured {
    fn name(&self) -> &str;
    /// Returns the number of packed bytes.
    fn bytes(&self) -> usize;
    /// Returns whether sender and receiver have the same datatype.
    fn symmetric(&self) -> bool;
    fn pack(&self, out: &mut [u8]) -> Result<(), Failure>;
    fn pack_manual(&self, out: &mut [u8]);
    fn unpack(&mut self, from: &[u8]) -> Result<(), Failure>;
    fn unpack_manual(&mut self, from: &[u8]);
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

    fn pack_manual(&self, out: &mut [u8]) {
        let mut out = bytemuck::cast_slice_mut(out);
        for piece in &self.manual {
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

    fn unpack_manual(&mut self, from: &[u8]) {
        let mut from = bytemuck::cast_slice(from);
        for piece in &self.manual {
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

pub(crate) fn run(world: &World, pack_ms: f64, send_ms: f64, svg: Option<&Path>) -> Result<(), Failure> {
    let mut patterns = all()?;
    let report = Report::begin(world, patterns.len() * if world.size() == 2 { 2 } else { 1 })?;
    let (mut packed, mut sent) = (Vec::new(), Vec::new());
    let capacity = patterns.iter().map(|p| p.bytes()).max().unwrap_or(0) + PAGE;
    let mut buffers = Buffers { first: Pages::filled(capacity, 1)?, second: Pages::filled(capacity, 2)? };
    if world.rank() == 0 {
        for pattern in &mut patterns {
            packed.push(measure_packing(pattern.as_mut(), &mut buffers, pack_ms, &report)?);
        }
    }
    world.barrier()?;
    if world.size() == 2 {
        for pattern in &mut patterns {
            let mut us = Vec::with_capacity(4);
            for method in [Method::Datatype, Method::Manual, Method::PackFirst, Method::Contiguous] {
                us.push(pingpong(world, pattern.as_mut(), &mut buffers, method, send_ms)?);
            }
            let (name, bytes) = (pattern.name(), pattern.bytes());
            let [datatype, manual, packed, plain] = [us[0].y, us[1].y, us[2].y, us[3].y];
            report
                .row(format_args!("DDTPP,{name},{bytes},{datatype:.2},{manual:.2},{packed:.2},{plain:.2}"))?;
            sent.push(DotRow { name: name.to_owned(), points: us });
        }
    }
    report.finish(world, svg, || page(packed, sent))
}

impl Operation {
    #[inline]
    fn run(self, pattern: &mut dyn Measured, buffers: &mut Buffers) -> Result<(), Failure> {
        let bytes = pattern.bytes();
        let buf = &mut buffers.first[..bytes];
        match self {
            Operation::Pack => pattern.pack(buf)?,
            Operation::PackManual => pattern.pack_manual(buf),
            Operation::Unpack => pattern.unpack(buf)?,
            Operation::UnpackManual => pattern.unpack_manual(buf),
            Operation::Copy => buffers.second[..bytes].copy_from_slice(buf),
        }
        black_box(&mut *buffers);
        Ok(())
    }

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

/// Compares the results of a datatype with those of the manual loops, and measures packing and unpacking.
fn measure_packing(
    pattern: &mut dyn Measured,
    buffers: &mut Buffers,
    ms: f64,
    report: &Report,
) -> Result<DotRow, Failure> {
    let bytes = pattern.bytes();
    Operation::Pack.run(pattern, buffers)?;
    let packed = buffers.first[..bytes].to_vec();
    buffers.first[..bytes].fill(0);
    Operation::PackManual.run(pattern, buffers)?;
    if packed != buffers.first[..bytes] {
        report.line(format_args!("# MISMATCH pack {}", pattern.name()))?;
    }
    if pattern.symmetric() {
        for (at, byte) in buffers.first[..bytes].iter_mut().enumerate() {
            *byte = at.wrapping_mul(37).wrapping_add(11) as u8;
        }
        let expected = buffers.first[..bytes].to_vec();
        Operation::Unpack.run(pattern, buffers)?;
        buffers.first[..bytes].fill(0);
        Operation::PackManual.run(pattern, buffers)?;
        if expected != buffers.first[..bytes] {
            report.line(format_args!("# MISMATCH unpack {}", pattern.name()))?;
        }
    }
    let mut points = Vec::with_capacity(5);
    for operation in
        [Operation::Pack, Operation::PackManual, Operation::Unpack, Operation::UnpackManual, Operation::Copy]
    {
        points.push(operation.rate(pattern, buffers, ms)?);
    }
    let [pack, pack_manual, unpack, unpack_manual, copy] = core::array::from_fn(|i| points[i].y);
    let name = pattern.name();
    report.row(format_args!(
        "DDT,{name},{bytes},{pack:.2},{pack_manual:.2},{unpack:.2},{unpack_manual:.2},{copy:.2},{:.2},{:.2}",
        pack / pack_manual,
        unpack / unpack_manual
    ))?;
    Ok(DotRow { name: name.to_owned(), points })
}

fn page(packed: Vec<DotRow>, sent: Vec<DotRow>) -> Page {
    let mut panels = vec![Panel::Dots(Dots {
        title: "In memory: right is better".to_owned(),
        x_label: "bandwidth, GB/s of packed bytes",
        marks: vec![
            Mark("pack", CurveStyle::of(0), -5.0),
            Mark("pack manually", CurveStyle::of(5), -5.0),
            Mark("unpack", CurveStyle::of(1), 5.0),
            Mark("unpack manually", CurveStyle::of(4), 5.0),
            Mark("memcpy", CurveStyle::of(2), 0.0),
        ],
        rows: packed,
    })];
    if !sent.is_empty() {
        panels.push(Panel::Dots(Dots {
            title: "Sent between two ranks: left is better".to_owned(),
            x_label: "half a round trip, µs",
            marks: vec![
                Mark("by datatype", CurveStyle::of(0), -6.0),
                Mark("packed manually", CurveStyle::of(5), -2.0),
                Mark("packed first", CurveStyle::of(3), 2.0),
                Mark("contiguous bytes", CurveStyle::of(2), 6.0),
            ],
            rows: sent,
        }));
    }
    Page {
        title: "Derived datatypes".to_owned(),
        notes: vec![
            "Markers: medians; lines: 5 % to 95 %. Rows: patterns like those of DDTBench, and plain vectors. manually: by loops \
             written for the pattern; packed first: packed by the library, sent as bytes, unpacked; memcpy and contiguous \
             bytes: the same number of contiguous bytes, for comparison."
                .to_owned(),
        ],
        columns: panels.len(),
        panels,
        ..Page::default()
    }
}

impl Method {
    const TAG: i32 = 9;

    #[inline]
    fn send(self, world: &Intracomm, pattern: &dyn Measured, buffers: &mut Buffers) -> Result<(), Failure> {
        let (to, buf) = (1 - world.rank(), &mut buffers.first[..pattern.bytes()]);
        match self {
            Method::Datatype => return pattern.send(world, to, Method::TAG),
            Method::Manual => pattern.pack_manual(buf),
            Method::PackFirst => pattern.pack(buf)?,
            Method::Contiguous => (),
        }
        Ok(world.send(buf, to, Method::TAG)?)
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
            Method::Datatype => pattern.recv(world, from, Method::TAG)?,
            Method::Manual => {
                world.recv(&mut first[..bytes], from, Method::TAG)?;
                pattern.unpack_manual(&first[..bytes]);
            }
            Method::PackFirst => {
                let status = world.recv(&mut first[..], from, Method::TAG)?;
                pattern.unpack(&first[..status.bytes()])?;
            }
            Method::Contiguous => {
                world.recv(&mut second[..bytes], from, Method::TAG)?;
            }
        }
        Ok(())
    }
}

/// Returns the half round-trip times in microseconds: the median, and the 5 % and 95 % quantiles.
fn pingpong(
    world: &Intracomm,
    pattern: &mut dyn Measured,
    buffers: &mut Buffers,
    method: Method,
    ms: f64,
) -> Result<Point, Failure> {
    let leads = world.rank() == 0;
    let mut once = || {
        if leads {
            method.send(world, pattern, buffers)?;
            method.recv(world, pattern, buffers)
        } else {
            method.recv(world, pattern, buffers)?;
            method.send(world, pattern, buffers)
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
