//! The examples that must not compile fail with the error code that they name. A stable `rustdoc` does not check the codes.

#![cfg(not(miri))]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;

use crate::diagnostics::{compiler_messages, libraries};

const FENCE: &str = "```compile_fail,";

/// The folders of the crates, relative to this one, and the names of their libraries.
const CRATES: [(&str, &str); 5] = [
    ("src", "mpj"),
    ("../buffer/src", "mpj_buffer"),
    ("../datatypes/src", "mpj_datatypes"),
    ("../devices/src", "mpj_devices"),
    ("../pool/src", "mpj_pool"),
];

struct Example {
    /// The file and the line of the fence.
    place: String,
    library: &'static str,
    error_code: String,
    program: String,
}

fn sources(folder: &Path, files: &mut Vec<PathBuf>) {
    // In a package from a registry, the folders of the other crates do not exist.
    let Ok(entries) = folder.read_dir() else { return };
    for path in entries.map(|entry| entry.unwrap().path()) {
        match path.extension() {
            _ if path.is_dir() => sources(&path, files),
            Some(extension) if extension == "rs" => files.push(path),
            _ => (),
        }
    }
}

/// Returns a line of an example without the marks of comments and hidden lines.
fn plain_line(line: &str) -> &str {
    let line = line.trim_start();
    let line = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")).unwrap_or(line);
    let line = line.trim_start();
    line.strip_prefix("# ").unwrap_or(if line == "#" { "" } else { line })
}

fn examples(file: &Path, library: &'static str) -> Vec<Example> {
    let text = fs::read_to_string(file).unwrap();
    let (mut examples, mut lines) = (Vec::new(), text.lines().enumerate());
    while let Some((number, line)) = lines.next() {
        let Some((_, error_code)) = line.split_once(FENCE) else { continue };
        let body = lines.by_ref().map(|(_, line)| plain_line(line)).take_while(|line| *line != "```");
        let body = body.collect::<Vec<_>>().join("\n");
        let program = match body.trim_end() {
            body if body.contains("fn main") => body.to_owned(),
            body if body.ends_with("(())") => {
                format!(
                    "fn main() {{ fn f() -> Result<(), impl std::fmt::Debug> {{\n{body}\n}} drop(f()); }}"
                )
            }
            body => format!("fn main() {{\n{body}\n}}"),
        };
        let place = format!("{}:{}", file.display(), number + 1);
        examples.push(Example { place, library, error_code: error_code.trim().to_owned(), program });
    }
    examples
}

/// Compiles an example with one build of its library after the other until the compiler reports the example's error
/// code: a build might lack a feature that the example needs. If no build gives the code, returns the messages for the
/// newest build that the compiler can read; `None` without one.
fn unexpected_messages(number: usize, example: &Example) -> Option<String> {
    let (name, code) = (format!("example_{number}"), format!("error[{}]", example.error_code));
    let compile = |library: &PathBuf| compiler_messages(&name, &example.program, example.library, library);
    let mut newest = None;
    for said in libraries(example.library).iter().filter_map(compile) {
        if said.contains(&code) {
            return None;
        }
        newest.get_or_insert(said);
    }
    newest
}

#[test]
fn examples_are_rejected_with_their_codes() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut all = Vec::new();
    for (folder, library) in CRATES {
        let mut files = Vec::new();
        sources(&root.join(folder), &mut files);
        all.extend(files.iter().flat_map(|file| examples(file, library)));
    }
    assert!(all.len() > 30, "only {} examples", all.len());
    let queue = Mutex::new(all.iter().enumerate());
    let (wrong, threads) = (Mutex::new(Vec::new()), thread::available_parallelism().map_or(1, usize::from));
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let Some((number, example)) = queue.lock().unwrap().next() else { break };
                    if let Some(said) = unexpected_messages(number, example) {
                        wrong.lock().unwrap().push(format!(
                            "{}: expected {}, found\n{said}",
                            example.place, example.error_code
                        ));
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
