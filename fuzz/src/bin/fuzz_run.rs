//! Runs a target on the inputs in files or, when built by `fuzz/run`, under libFuzzer.
#![cfg_attr(fuzzing, no_main)]
#![cfg_attr(fuzzing, allow(unsafe_code, missing_docs, reason = "the code of libFuzzer's macro"))]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    static TARGET: std::sync::LazyLock<mpj_fuzz::Target> = std::sync::LazyLock::new(|| {
        let name = std::env::var("FUZZ_TARGET").expect("FUZZ_TARGET must name a target");
        mpj_fuzz::target(&name).unwrap_or_else(|| panic!("unknown fuzz target {name}"))
    });
    TARGET(bytes);
});

#[cfg(not(fuzzing))]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().ok_or("usage: fuzz_run TARGET FILE…")?;
    let target = mpj_fuzz::target(&name).ok_or_else(|| format!("unknown fuzz target {name}"))?;
    for file in arguments {
        target(&std::fs::read(file)?);
    }
    Ok(())
}
