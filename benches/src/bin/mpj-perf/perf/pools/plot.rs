//! Figure 8 of the mpjbuf paper: time by size, with a curve for each contender.

use super::contender::{Kind, Name};
use super::report::size;
use super::rounds::Series;
use crate::perf::plot::{Curve, CurveStyle, Lines, Page, Panel, Point};

pub(super) fn page(series: &[&Series], rounds: usize) -> Page {
    let how = format!(
        "Allocate one block, write 8 bytes into it, free it. Lines: medians of {rounds} rounds; bars: minimum to maximum. Lower is \
         better."
    );
    let what = "magazine: the default pool; buddy: without thread caches; buddy-eager: buddy that merges at each free; buddy1, \
                buddy2: those of the mpjbuf paper; unpooled: new memory from the storage each time. pages: mapped memory \
                (the paper's direct buffers); heap: the system's allocator (indirect).";
    let panel = |title: &str, wanted: &dyn Fn(Name) -> bool| {
        Panel::Lines(Lines {
            title: title.to_owned(),
            x: "size of the block",
            y: "time, ns",
            curves: curves(series, wanted),
            ..Lines::default()
        })
    };
    Page {
        title: title(series),
        setting: "one thread, without ranks".to_owned(),
        notes: vec![how, what.to_owned()],
        columns: 2,
        is_one_scale: true,
        panels: vec![
            panel("The pools of this project", &|name| name.kind == Kind::Ours),
            panel("The default pool and other allocators", &|name| {
                name.kind != Kind::Ours || is_default(name)
            }),
        ],
        ..Page::default()
    }
}

fn is_default(name: Name) -> bool {
    name.strategy == "magazine" && name.storage == "pages"
}

fn title(series: &[&Series]) -> String {
    let ns = series.iter().flat_map(|s| s.rows.iter().filter(|row| is_default(row.name)).map(|row| row.ns));
    let (low, high) = ns.fold((f64::INFINITY, 0f64), |(low, high), ns| (low.min(ns), high.max(ns)));
    match (series.first(), series.last()) {
        (Some(first), Some(last)) if high > 0.0 => format!(
            "A block from the default pool takes {low:.1} to {high:.1} ns, from {} to {}",
            size(first.bytes),
            size(last.bytes)
        ),
        _ => "Time to allocate and free one block, by its size".to_owned(),
    }
}

/// Makes curves with a colour and a marker for each strategy. The curves of this project's pools on `heap` are dotted.
fn curves(series: &[&Series], wanted: &dyn Fn(Name) -> bool) -> Vec<Curve> {
    let (mut names, mut strategies): (Vec<Name>, Vec<&str>) = (Vec::new(), Vec::new());
    for name in series.iter().flat_map(|series| series.rows.iter().map(|row| row.name)) {
        if !names.contains(&name) {
            names.push(name);
        }
        if !strategies.contains(&name.strategy) {
            strategies.push(name.strategy);
        }
    }
    let curve = |name: Name| {
        let point = |series: &&Series| {
            let row = series.rows.iter().find(|row| row.name == name)?;
            let (low, high) = row.spread;
            Some(Point { x: series.bytes as f64, y: row.ns, low, high })
        };
        let label = match name.kind {
            Kind::Ours => format!("{}, {}", name.strategy, name.storage),
            _ => name.strategy.to_owned(),
        };
        let mut style = CurveStyle::of(strategies.iter().position(|s| *s == name.strategy).unwrap_or(0));
        if name.kind == Kind::Ours && name.storage == "heap" {
            style = style.with_dashes(2);
        }
        if is_default(name) {
            style = style.strong();
        }
        Curve { label, style, points: series.iter().filter_map(point).collect() }
    };
    names.into_iter().filter(|name| wanted(*name)).map(curve).collect()
}
