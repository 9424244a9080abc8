//! A rank test that fails points to the user's lines, and not into the library.

use std::process::Command;

use mpj::World;

const ASSERTION: u32 = line!() + 5;

#[mpj::test(ranks = 2)]
#[ignore = "fails on purpose: another test runs it"]
fn assertion_fails(world: World) {
    assert_eq!(world.rank(), 0, "on purpose");
}

const ERROR: u32 = line!() + 2;

#[mpj::test(ranks = 2)]
#[ignore = "fails on purpose: another test runs it"]
fn error_is_returned(world: World) -> Result<(), String> {
    if world.rank() == 1 { Err("on purpose".to_owned()) } else { Ok(()) }
}

/// Runs one of the tests above in a separate process; returns its output.
fn output_of(test: &str) -> String {
    let module = module_path!().split_once("::").map_or(String::new(), |(_, module)| format!("{module}::"));
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args(["--ignored", "--exact", &format!("{module}{test}")]).env("RUST_BACKTRACE", "0");
    let output = command.output().expect("it runs");
    assert!(!output.status.success(), "{test} fails");
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

#[test]
fn failing_rank_tests_point_to_the_users_lines() {
    let output = output_of("assertion_fails");
    let at = format!("panicked at {}:{ASSERTION}:5:", file!());
    assert!(output.contains(&at) && output.contains("on purpose"), "no '{at}' in {output}");
    assert!(!output.contains("testing.rs"), "{output}");
    let output = output_of("error_is_returned");
    let at = format!("panicked at {}:{ERROR}:1:", file!());
    assert!(output.contains(&at), "no '{at}' in {output}");
    assert!(output.contains("rank 1 returned an error: \"on purpose\""), "{output}");
    assert!(!output.contains("testing.rs"), "{output}");
}
