//! Tests the pictures, the lines, the help and the errors of `mpj-perf`.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Runs the program. Its ranks are bound only if `arguments` requests that, because bound ranks could not leave a core
/// that other tests use.
fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mpj-perf"));
    command.args(arguments).env("MPJ_BIND", "none").output().expect("the program starts")
}

fn picture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// Runs a program with `--svg` and returns its lines and the picture.
fn drawn(name: &str, arguments: &[&str]) -> (Vec<String>, String) {
    let path = picture(name);
    let arguments = [arguments, &["--svg", path.to_str().expect("a path")]].concat();
    let output = run(&arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty(), "no progress in a pipe: {}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).expect("text");
    let lines = lines.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect();
    (lines, std::fs::read_to_string(path).expect("the picture"))
}

fn text(document: &roxmltree::Document<'_>) -> String {
    document.descendants().filter_map(|node| node.text()).collect::<Vec<_>>().join("\n")
}

/// Checks that a picture names its machine, date and version, and that its texts, markers and curves are inside it.
fn check(svg: &str) -> roxmltree::Document<'_> {
    let document = roxmltree::Document::parse(svg).expect("XML");
    let text: Vec<&str> = document.descendants().filter_map(|node| node.text()).collect();
    assert!(
        text.iter().any(|text| text.contains(" logical processors; 2") && text.contains("mpj 0.")),
        "{text:?}"
    );
    let root = document.root_element();
    let number = |node: roxmltree::Node<'_, '_>, name: &str| {
        node.attribute(name).map(|value| value.parse::<f64>().expect("a number"))
    };
    let (width, height) =
        (number(root, "width").expect("a width"), number(root, "height").expect("a height"));
    for node in document.descendants().filter(|node| node.has_tag_name("text")) {
        let letters = node.text().unwrap_or_default().chars().count() as f64;
        let starts = node.attribute("text-anchor").is_none();
        let x = number(node, "x").expect("a place");
        let font_size = number(node, "font-size").expect("a size");
        assert!(!starts || x + 0.5 * font_size * letters <= width, "too long: {node:?}");
    }
    for node in document.descendants() {
        for (names, end) in [(["x", "cx"], width), (["y", "cy"], height)] {
            for place in names.into_iter().filter_map(|name| number(node, name)) {
                assert!((0.0..=end).contains(&place), "{node:?}");
            }
        }
        for pair in node.attribute("points").into_iter().flat_map(|points| points.split(' ')) {
            let (x, y) = pair.split_once(',').expect("two numbers");
            let (x, y): (f64, f64) = (x.parse().expect("a number"), y.parse().expect("a number"));
            assert!((0.0..=width).contains(&x) && (0.0..=height).contains(&y), "{pair}");
        }
    }
    document
}

fn styles(document: &roxmltree::Document<'_>) -> Vec<String> {
    let lines = document.descendants().filter(|node| node.has_tag_name("polyline"));
    let style = |node: roxmltree::Node<'_, '_>| {
        let parts = ["stroke", "stroke-dasharray"].map(|name| node.attribute(name).unwrap_or_default());
        parts.join(" ")
    };
    lines.map(style).collect()
}

#[test]
fn pingpong_draws_latency_and_bandwidth() {
    let (lines, svg) = drawn("pingpong.svg", &["pingpong", "0.2", "65536"]);
    let document = check(&svg);
    let styles = styles(&document);
    // The curves of the latency are the variants `same`, `rot` (rotating buffers), `fresh` and `used`; those of the
    // bandwidth are BW, BIBW and memcpy.
    assert_eq!(styles.len(), 7, "{styles:?}");
    let text = text(&document);
    for part in [
        "smdev: 2 ranks, threads of one process; ",
        "bound",
        "bandwidth, GB/s",
        "time, µs",
        "another buffer each time",
        "the receiver reads every word",
    ] {
        assert!(text.contains(part), "no '{part}' in {text}");
    }
    let pp: Vec<&String> = lines.iter().filter(|line| line.starts_with("PP,")).collect();
    assert_eq!(pp.len(), 12 + 11 + 5 + 9, "{lines:?}");
    assert!(pp.iter().all(|line| line.split(',').count() == 8));
    assert_eq!(lines.iter().filter(|line| line.starts_with("RATE")).count(), 4);
    assert_eq!(lines.iter().filter(|line| line.starts_with("B")).count(), 6);
}

#[test]
fn pictures_say_whether_ranks_are_bound() {
    let cores = std::thread::available_parallelism().expect("a number").get();
    let few = cores.min(2).to_string();
    let many = (cores + 1).to_string();
    for (ranks, bind, is_bound) in [(&few, "auto", cores > 1), (&few, "none", false), (&many, "auto", false)]
    {
        let arguments = ["coll", "0.1", "8", "-n", ranks, "--bind", bind];
        let (_, svg) = drawn("bound.svg", &arguments);
        let document = check(&svg);
        assert_eq!(text(&document).contains("; bound to cores "), is_bound, "{arguments:?}");
        let has_note = !is_bound && ranks != "1";
        assert_eq!(text(&document).contains("; not bound"), has_note, "{arguments:?}");
        let said = run(&arguments);
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        assert_eq!(said.contains("; not bound"), has_note, "{arguments:?}: {said}");
    }
}

#[test]
fn pingpong_threads_measures_one_thread_first_and_last() {
    let output = run(&["pingpong", "1", "--threads", "3"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).expect("text");
    let lines: Vec<Vec<&str>> =
        lines.lines().filter(|line| !line.starts_with('#')).map(|line| line.split(',').collect()).collect();
    let counts: Vec<&str> = lines.iter().map(|fields| fields[1]).collect();
    assert_eq!(counts, ["1", "2", "3", "1"]);
    let is_figure = |text: &&str| text.parse::<f64>().is_ok_and(|figure| figure > 0.0);
    assert!(
        lines
            .iter()
            .all(|fields| fields.len() == 4 && fields[0] == "THREADS" && fields[2..].iter().all(is_figure))
    );
}

#[test]
fn paths_draws_a_panel_with_a_finding_per_shape_and_state() {
    let (lines, svg) = drawn("paths.svg", &["paths", "0.05", "4096"]);
    // Three paths and memcpy for each shape and state, and the sends by ownership of contiguous data.
    let document = check(&svg);
    assert_eq!(styles(&document).len(), 8 * 4 + 2);
    let root = document.root_element();
    let [width, height] =
        ["width", "height"].map(|name| root.attribute(name).unwrap().parse::<f64>().unwrap());
    assert!(width / height > 1.5, "{width} × {height}");
    let text = text(&document);
    for part in [
        "the library chooses the path",
        "which the receiver reads in place",
        "freshly written: ",
        "indexed: ",
    ] {
        assert!(text.contains(part), "no '{part}' in {text}");
    }
    let is_finding = |text: &str| text.contains(" is faster at ") || text.contains(": no clear difference");
    let is_finding = |node: &roxmltree::Node<'_, '_>| node.is_text() && node.text().is_some_and(is_finding);
    assert!(document.descendants().filter(is_finding).count() >= 8, "{text}");
    let of = |kind: &str| lines.iter().filter(|line| line.starts_with(kind)).count();
    assert_eq!(
        (of("MEMCPY,"), of("PATH,"), lines.len()),
        (4, 8 * 4 * 3 + 2 * 4, 4 + 8 * 4 * 3 + 2 * 4),
        "{lines:?}"
    );
    let is_whole = |line: &&String| line.split(',').count() == 9;
    assert!(lines.iter().filter(|line| line.starts_with("PATH,")).all(|line| is_whole(&line)), "{lines:?}");
    assert!(lines.iter().any(|line| line.starts_with("PATH,indexed,fresh,1024,zerocopy,")), "{lines:?}");
}

#[test]
fn tune_rejects_a_device_without_a_limit_and_keeps_the_file() {
    let file = picture("mpj.conf");
    let lines = "# mine\nMPJ_SPIN_US=7\n";
    std::fs::write(&file, lines).unwrap();
    let output = run(&["tune", file.to_str().unwrap(), "0.05"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && said.contains("nothing to tune: \"smdev\" has no parameter"),
        "{said}"
    );
    assert_eq!(std::fs::read_to_string(&file).unwrap(), lines);
}

#[test]
fn pingpong_pool_draws_a_panel_per_storage() {
    let arguments =
        ["pingpong", "0.05", "4096", "--pool", "magazine,buddy2,unpooled", "--storage", "pages,heap"];
    let (lines, svg) = drawn("pooled.svg", &arguments);
    assert_eq!(styles(&check(&svg)).len(), 2 * 3);
    let fields = |kind: &str, len: usize| {
        let of = lines.iter().map(|line| line.split(',').collect::<Vec<_>>()).filter(|line| line[0] == kind);
        of.inspect(|line| assert_eq!(line.len(), len, "{line:?}")).count()
    };
    assert_eq!((fields("POOLPP", 8), fields("POOLPPMEM", 7)), (2 * 3 * 5, 2 * 3), "{lines:?}");
}

#[test]
fn coll_draws_a_distinct_curve_per_operation() {
    let (lines, svg) = drawn("coll.svg", &["coll", "0.2", "20000"]);
    let mut styles = styles(&check(&svg));
    assert_eq!(styles.len(), 12, "all but the barrier");
    styles.sort_unstable();
    styles.dedup();
    assert_eq!(styles.len(), 12, "distinct by colour and dashes");
    assert_eq!(lines.len(), 1 + 12 * 5, "8 B to 20000 B");
    assert_eq!(
        lines.iter().filter(|line| line.contains(",20000,")).count(),
        12,
        "the largest requested size"
    );
    assert!(lines.iter().all(|line| line.starts_with("COLL,") && line.split(',').count() == 8));
}

#[test]
fn ddt_draws_a_row_per_pattern() {
    let (lines, svg) = drawn("ddt.svg", &["ddt", "0.02", "0.02"]);
    let document = check(&svg);
    let names: Vec<&str> = document.descendants().filter_map(|node| node.text()).collect();
    assert!(lines.iter().any(|line| line.starts_with("DDT,")));
    for line in &lines {
        let fields: Vec<&str> = line.split(',').collect();
        assert!(fields.len() == if fields[0] == "DDT" { 10 } else { 7 }, "{line}");
        assert!(names.contains(&fields[1]), "{line}");
    }
}

#[test]
fn serde_draws_a_row_per_codec() {
    let (lines, svg) = drawn("serde.svg", &["serde", "--csv", "--time-ms", "0.05", "--rounds", "1"]);
    let document = check(&svg);
    let texts = document.descendants().filter_map(|node| node.text());
    let names: Vec<String> = texts.map(|text| text.replace(',', "")).collect();
    assert!(!lines.is_empty());
    for line in &lines {
        let fields: Vec<&str> = line.split(',').collect();
        assert!(
            fields.len() == 10 && fields[0] == "SERDE" && names.iter().any(|name| name == fields[2]),
            "{line}"
        );
    }
}

#[test]
fn matching_prints_a_line_per_case() {
    let output = run(&["matching", "1000"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).expect("text");
    let lines: Vec<&str> = lines.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(lines.len(), 2 * 6, "100 and 1000 messages");
    let is_whole = |line: &&str| line.starts_with("MATCH,") && line.split(',').count() == 7;
    assert!(lines.iter().all(is_whole), "{lines:?}");
}

#[test]
fn overlap_prints_times_and_a_percentage() {
    let output = run(&["overlap", "1"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).expect("text");
    let lines: Vec<&str> = lines.lines().filter(|line| !line.starts_with('#')).collect();
    let fields: Vec<&str> = lines.iter().flat_map(|line| line.split(',')).collect();
    assert!(fields.len() == 6 && fields[..2] == ["OVERLAP", "4194304"], "{lines:?}");
    let numbers: Vec<f64> = fields[2..].iter().map(|field| field.parse().expect("a number")).collect();
    assert!(numbers[..3].iter().all(|time| *time > 0.0) && (0.0..=100.0).contains(&numbers[3]), "{lines:?}");
}

#[test]
fn invalid_arguments_are_rejected_in_one_line() {
    let nowhere = ["--svg", "/nowhere/at/all.svg"];
    for (arguments, about) in [
        (&["pools", "one", "--time-ms", "0"][..], "above 0"),
        (&["pools", "one", "--time-ms", "nan"], "above 0"),
        (&["pools", "one", "--time-ms", "1e30"], "hour"),
        (&["pools", "mix", "--svg", "mix.svg"], "one"),
        (&["serde", "--time-ms", "-3"], "above 0"),
        (&["pingpong", "0"], "above 0"),
        (&["pingpong", "20", "100", "0"], "MiB"),
        (&["pingpong", "20", "100", "99999999999"], "memory"),
        (&["coll", "0"], "above 0"),
        (&["ddt", "1", "-1"], "above 0"),
        (&["pools", "--rounds", "0"], "rounds"),
        (&[&["pools", "one"][..], &nowhere].concat(), "/nowhere/at/all.svg"),
        (&[&["coll", "1"][..], &nowhere].concat(), "/nowhere/at/all.svg"),
        (&[&["hello"][..], &nowhere].concat(), "--svg"),
        (&[&["matching"][..], &nowhere].concat(), "--svg"),
        (&["matching", "-n", "3"], "2 ranks"),
        (&["overlap", "-n", "3"], "2 ranks"),
        (&["overlap", "0"], "above 0"),
        (&["pools", "-n", "2"], "-n"),
        (&["serde", "--bind", "none"], "--bind"),
        (&["pingpong", "--bind", "socket"], "expected auto, core or none"),
        (&["pingpong", "--payload", "slice", "--svg", "x.svg"], "--svg"),
        (&["pingpong", "--what", "slice", "--svg", "x.svg"], "--svg"),
        (&["serde", "--ms", "0"], "above 0"),
        (&["paths", "-n", "3"], "2 ranks"),
        (&["tune", "/tmp/unused", "-n", "3"], "2 ranks"),
        (&["tune", "/nowhere/at/all"], "/nowhere/at/all"),
        (&["pingpong", "--pool", "slab"], "magazine"),
        (&["pingpong", "--storage", "heap"], "--pool"),
        (&["pingpong", "--pool", "buddy1", "--storage", "shared"], "buddy1 does not support shared storage"),
        (&["paths", "1", "63"], "64 bytes"),
    ] {
        let output = run(arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{arguments:?}");
        assert_eq!(said.lines().count(), 1, "{arguments:?}: {said}");
        assert!(said.contains(about), "{arguments:?}: {said}");
        assert!(output.stdout.is_empty(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stdout));
    }
}

#[test]
fn rejected_program_leaves_no_picture() {
    let path = picture("rejected.svg");
    let svg = ["--svg", path.to_str().expect("a path")];
    for arguments in [&["pingpong", "-n", "3"][..], &["pingpong", "20", "100", "0"]] {
        assert!(!run(&[arguments, &svg].concat()).status.success(), "{arguments:?}");
        assert!(!path.exists(), "{arguments:?}");
    }
    // An earlier picture is kept.
    std::fs::write(&path, "earlier").expect("a file");
    assert!(!run(&[&["pingpong", "-n", "3"][..], &svg].concat()).status.success());
    assert_eq!(std::fs::read_to_string(&path).expect("the file"), "earlier");
    std::fs::remove_file(&path).expect("removed");
}

/// The doc comments of the arguments are printed as help. They must not contain notes for developers, which mention
/// "peers" (other libraries) or the C files that a program follows.
#[test]
fn help_has_no_notes_for_developers() {
    for arguments in [&["--help"][..], &["pingpong", "--help"], &["ddt", "--help"], &["pools", "--help"]] {
        let output = run(arguments);
        assert!(output.status.success());
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(!said.contains("peers") && !said.contains(".c "), "{said}");
    }
}

#[test]
fn help_lists_options_of_its_program_and_not_of_others() {
    for (program, taken, not_taken) in [
        ("pingpong", &["-n ", "--bind", "--stats", "--svg"][..], &["--csv"][..]),
        ("tune", &["-n ", "--bind", "--stats"], &["--svg"]),
        ("pools", &["--svg", "--csv"], &["-n ", "--bind", "--stats"]),
        ("serde", &["--svg", "--csv"], &["-n ", "--bind", "--stats"]),
        ("hello", &["-n "], &["--bind", "--stats", "--svg"]),
    ] {
        let output = run(&[program, "--help"]);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let (_, options) = said.split_once("Options:").expect("options");
        assert!(taken.iter().all(|option| options.contains(option)), "{program}: {said}");
        assert!(!not_taken.iter().any(|option| options.contains(option)), "{program}: {said}");
    }
}
