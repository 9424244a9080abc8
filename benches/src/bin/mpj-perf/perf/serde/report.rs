//! The output: comma-separated lines or human-readable tables, and the picture.

use super::{Kind, Row, SerdeOptions, Series};
use crate::perf::plot::{self, CurveStyle, Dots, Mark, Page, Panel, Point};
pub(super) use crate::perf::pools::lines;

pub(super) fn page(all: &[Series], rounds: usize) -> Page {
    let values = all.iter().filter(|series| series.direction == "encode");
    let panel = |encoded: &Series| {
        let decoded = all.iter().find(|series| series.value == encoded.value && series.direction == "decode");
        let row = |row: &Row| {
            let back = decoded.and_then(|series| series.rows.iter().find(|back| back.name == row.name));
            let points = [Some(row), back].into_iter().flatten().map(Row::rate).collect();
            plot::DotRow { name: row.name.to_owned(), points }
        };
        Panel::Dots(Dots {
            title: encoded.value.to_owned(),
            x_label: "bandwidth, GB/s of encoded bytes",
            marks: vec![Mark("encode", CurveStyle::of(0), -4.0), Mark("decode", CurveStyle::of(1), 4.0)],
            rows: encoded.rows.iter().map(row).collect(),
        })
    };
    Page {
        title: "Codecs: encoding and decoding".to_owned(),
        setting: "one thread, without ranks".to_owned(),
        notes: vec![
            format!("Markers: medians of {rounds} rounds; lines: minimum to maximum. Right is better."),
            "100k f64: a vector of numbers; mesh: a mesh of few long and many short vectors; records: lines of a log, with \
             texts, an enum, options and pairs. memcpy: a copy of the shortest encoding."
                .to_owned(),
        ],
        panels: values.map(panel).collect(),
        ..Page::default()
    }
}

pub(super) fn head(options: &SerdeOptions) -> Vec<String> {
    let build = if cfg!(debug_assertions) { ", a debug build: its figures mean nothing" } else { "" };
    let mut lines = vec![
        format!("# lib: mpj {}, pure Rust{build}", env!("CARGO_PKG_VERSION")),
        format!("# medians of {} rounds, {} ms per codec and round, interleaved", options.rounds, options.ms),
    ];
    if options.csv {
        lines.push("# SERDE,value,codec,kind,direction,bytes,ns,to best serde,to best,to memcpy".to_owned());
    }
    if cfg!(not(feature = "comparators")) {
        lines.push(
            "# only the codecs of mpj; for other serializers build with --features comparators".to_owned(),
        );
    }
    lines
}

impl Row {
    fn kind(&self) -> &'static str {
        match self.kind {
            Kind::Ours => "ours",
            Kind::Serde => "serde",
            Kind::Derive => "derive",
            Kind::Copy => "copy",
        }
    }

    fn rate(&self) -> Point {
        let rate = |ns: f64| self.bytes as f64 / ns;
        Point { x: 0.0, y: rate(self.ns), low: rate(self.spread.1), high: rate(self.spread.0) }
    }

    fn ratios(&self) -> [String; 3] {
        [self.to_serde, self.to_best, self.to_copy]
            .map(|ratio| ratio.map_or_else(String::new, |ratio| format!("{ratio:.3}")))
    }
}

impl Series {
    pub(super) fn csv(&self) -> Vec<String> {
        let Series { value, direction, rows } = self;
        let line = |row: &Row| {
            // Names can contain commas.
            let name = row.name.replace(", ", " ");
            let ratios = row.ratios().join(",");
            format!("SERDE,{value},{name},{},{direction},{},{:.0},{ratios}", row.kind(), row.bytes, row.ns)
        };
        rows.iter().map(line).collect()
    }

    pub(super) fn table(&self) -> Vec<String> {
        let others = |serde: &str, best: &str| match cfg!(feature = "comparators") {
            true => format!("{serde:>14}{best:>9}"),
            false => String::new(),
        };
        let mut lines = vec![format!(
            "\n{}, {}\n  {:<26}{:<8}{:>10}{:>11}{:>9}{}{:>11}",
            self.value,
            self.direction,
            "",
            "kind",
            "bytes",
            "us",
            "GB/s",
            others("to best serde", "to best"),
            "to memcpy"
        )];
        lines.extend(self.rows.iter().map(|row| {
            let [serde, best, copy] = row.ratios();
            let (rate, us, others) = (row.bytes as f64 / row.ns, row.ns / 1e3, others(&serde, &best));
            let (name, kind, bytes) = (row.name, row.kind(), row.bytes);
            format!("  {name:<26}{kind:<8}{bytes:>10}{us:>11.1}{rate:>9.1}{others}{copy:>11}")
        }));
        lines
    }
}
