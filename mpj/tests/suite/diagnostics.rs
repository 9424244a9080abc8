//! A common mistake causes one compiler error, which says how to fix it.

#![cfg(not(miri))]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the libraries `lib<name>-*.rlib` next to this program, the newest first. Each set of features adds one.
pub(crate) fn libraries(name: &str) -> Vec<PathBuf> {
    let program = std::env::current_exe().unwrap();
    let folder = program.parent().unwrap().read_dir().unwrap().map(|entry| entry.unwrap().path());
    let prefix = format!("lib{name}-");
    let is_wanted = |path: &PathBuf| {
        let file = path.file_name().unwrap().to_string_lossy().into_owned();
        file.starts_with(&prefix) && file.ends_with(".rlib")
    };
    let mut found: Vec<_> = folder.filter(is_wanted).collect();
    found.sort_by_key(|path| std::cmp::Reverse(path.metadata().unwrap().modified().unwrap()));
    assert!(!found.is_empty(), "no {prefix}*.rlib next to {}", program.display());
    found
}

/// Compiles an invalid program that uses a library, and returns the compiler's messages; `None` without a suitable
/// compiler.
pub(crate) fn compiler_messages(
    program: &str,
    text: &str,
    library_name: &str,
    library: &Path,
) -> Option<String> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let source = folder.join(format!("diagnostics_{program}.rs"));
    std::fs::write(&source, text).unwrap();
    // Some errors are found only when code is generated.
    let output = Command::new("rustc")
        .args(["--edition=2024", "--emit=obj", "--color=never", "-L"])
        .arg(format!("dependency={}", library.parent().unwrap().display()))
        .arg(format!("--extern={library_name}={}", library.display()))
        .arg(&source)
        .arg("-o")
        .arg(source.with_extension("o"))
        .output();
    let (said, is_missing) = match output {
        Ok(output) => (String::from_utf8_lossy(&output.stderr).into_owned(), false),
        Err(error) => (error.to_string(), true),
    };
    // The compiler is missing, or is for another processor or of another version.
    if is_missing || ["E0461", "E0514", "E0463"].iter().any(|code| said.contains(code)) {
        drop(writeln!(std::io::stderr(), "SKIPPED: no compiler that reads {}: {said}", library.display()));
        return None;
    }
    Some(said)
}

#[track_caller]
fn expect_error(name: &str, items: &str, body: &str, parts: &[&str]) {
    let text = format!(
        "#![crate_type = \"lib\"]\n{items}\npub fn rank(world: &mpj::World) -> mpj::Result<()> {{\n{body}\nOk(())\n}}\n"
    );
    let Some(said) = compiler_messages(name, &text, "mpj", &libraries("mpj")[0]) else { return };
    // The compiler might wrap long notes.
    let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in parts {
        assert!(words.contains(part), "no '{part}' in\n{said}");
    }
    let errors = said.lines().filter(|line| line.starts_with("error")).count();
    assert_eq!(errors, 2, "one error, and the line that says that compilation was aborted:\n{said}");
}

#[test]
fn vec_of_vecs_is_rejected_with_a_hint() {
    let body = "let mut rows: Vec<Vec<f64>> = vec![vec![0.0; 3]; 3]; world.recv(&mut rows, 0, 0)?;";
    let parts = ["`Vec<f64>` cannot be received", "a `Vec`, `String` or `Box` is a pointer", "`recv_object`"];
    expect_error("vecs", "", body, &parts);
}

#[test]
fn text_is_rejected_with_two_ways_to_send_it() {
    expect_error("text", "", "world.send(\"hello\", 1, 0)?;", &["`.as_bytes()`", "`send_object`"]);
}

#[test]
fn rank_of_another_integer_type_is_rejected_with_the_conversion() {
    let body = "let r = 1i32; world.send(&[1.0], r, 0)?;";
    expect_error("dest", "", body, &["`i32` is not a rank to send to", "`r as usize`"]);
    let body = "let r = 1u32; world.recv(&mut [1.0], r, 0)?;";
    expect_error("source", "", body, &["`u32` is not a rank to receive from", "`r as usize`"]);
}

#[test]
fn derive_without_repr_is_one_error() {
    let items = "#[derive(Clone, Copy, mpj::Datatype)]\npub struct P { pub x: f64 }";
    let body = "let mut p = P { x: 1.0 }; world.send(&p, 1, 0)?; world.recv(&mut p, 1, 0)?;";
    expect_error("repr", items, body, &["write #[repr(C)] above the structure"]);
}

#[test]
fn derive_of_an_enum_is_one_error() {
    let items = "#[derive(Clone, Copy, mpj::Datatype)]\n#[repr(u8)]\npub enum E { A, B }";
    expect_error(
        "enum",
        items,
        "world.send(&E::A, 1, 0)?;",
        &["send its discriminant as an integer", "TryFrom"],
    );
}

#[test]
fn derive_without_copy_is_one_error() {
    let items = "#[repr(C)]\n#[derive(mpj::Datatype)]\npub struct P { pub x: f64 }";
    let body = "let mut p = P { x: 1.0 }; world.send(&p, 1, 0)?; world.recv(&mut p, 1, 0)?;";
    expect_error(
        "copy",
        items,
        body,
        &["`P: Copy` is not satisfied", "consider annotating `P` with `#[derive(Copy)]`"],
    );
}
