//! Tests the output of `mpj-perf pools`, but not the times.

use std::process::Command;

fn run(arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mpj-perf"));
    let output = command.arg("pools").args(["--time-ms", "0.01", "--rounds", "1"]).args(arguments).output();
    let output = output.expect("the program starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty(), "stderr is empty without a terminal");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn lines_have_seven_fields_and_the_picture_is_xml() {
    let picture = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("pools.svg");
    let text = run(&["one", "fixed", "--csv", "--svg", picture.to_str().expect("a path")]);
    let lines: Vec<Vec<&str>> =
        text.lines().filter(|line| !line.starts_with('#')).map(|line| line.split(',').collect()).collect();
    assert!(lines.iter().all(|fields| fields.len() == 7 && fields[0] == "POOL"), "{text}");
    for fields in &lines {
        let [bytes, ns, ratio] = [fields[4], fields[5], fields[6]].map(|field| field.parse::<f64>());
        assert!(bytes.is_ok_and(|bytes| bytes >= 64.0) && ns.is_ok_and(|ns| ns >= 0.0), "{fields:?}");
        // Without comparators, `fixed` measures only `magazine`, so it has no ratio.
        assert!(ratio.is_ok_and(|ratio| ratio > 0.0) || fields[1] == "fixed", "{fields:?}");
    }
    // Four of the strategies, on both storages and at all sizes.
    for strategy in ["magazine", "buddy1", "buddy2", "unpooled"] {
        for storage in ["pages", "heap"] {
            let of = lines.iter().filter(|fields| fields[1..4] == ["one", strategy, storage]);
            assert_eq!(of.count(), 18, "{strategy} {storage}");
        }
    }

    let svg = std::fs::read_to_string(&picture).expect("the picture");
    let document = roxmltree::Document::parse(&svg).expect("XML");
    let count = |tag: &str| document.descendants().filter(|node| node.has_tag_name(tag)).count();
    assert_eq!(document.root_element().tag_name().name(), "svg");
    let contenders = lines.iter().filter(|fields| fields[1] == "one" && fields[4] == "64").count();
    assert_eq!(count("polyline"), contenders + 1, "a curve for each, and the default pool in both panels");
    let mut labels = document.descendants().filter_map(|node| node.text());
    assert!(labels.any(|text| text.starts_with("magazine")), "{svg}");
}

#[test]
fn tables_name_contenders_and_sizes() {
    let text = run(&["touch"]);
    let head = text.lines().find(|line| line.contains("64 KiB")).expect("sizes");
    assert!(head.ends_with("8 MiB"), "{text}");
    let row = text.lines().find(|line| line.trim_start().starts_with("memset warm")).expect("a baseline");
    assert_eq!(row.split_whitespace().count(), 5, "{text}");
    assert!(!text.contains("POOL"), "{text}");
}

#[test]
fn memory_of_prints_live_and_resident_bytes() {
    let output = Command::new(env!("CARGO_BIN_EXE_mpj-perf"))
        .args(["pools", "--memory-of", "magazine,heap"])
        .output()
        .expect("the program starts");
    let numbers: Vec<usize> = String::from_utf8_lossy(&output.stdout)
        .split_whitespace()
        .map(|number| number.parse().expect("a number"))
        .collect();
    let [live, resident] = numbers[..] else { panic!("{numbers:?}") };
    assert!(live > 64 << 20 && resident > live / 2, "{live} {resident}");
}
