//! Copies the hand-written declarations of `ibvdev`, so that `tests/abi.rs` can access their private fields.

use std::path::Path;
use std::{env, fs};

const VERBS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../src/ibvdev/verbs");

fn main() {
    println!("cargo:rerun-if-changed={VERBS}");
    let read = |file: &str| {
        let path = Path::new(VERBS).join(file);
        fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    };
    let out = env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    let write = |file: &str, text: String| {
        fs::write(Path::new(&out).join(file), text).expect("OUT_DIR can be written");
    };

    // `include!` does not accept an inner doc comment, so make it an ordinary comment.
    write("abi.rs", read("abi.rs").replace("//!", "//"));

    // The list of functions, each with the name of its symbol.
    let library = read("library.rs");
    let (_, list) = library.split_once("\nfunctions! {\n").expect("library.rs has a list of functions");
    let (list, _) = list.split_once("\n}\n").expect("the list of functions ends");
    let list: String = list.lines().map(|line| format!("    ibv_{}\n", line.trim())).collect();
    write("functions.rs", format!("functions! {{\n{list}}}\n"));
}
