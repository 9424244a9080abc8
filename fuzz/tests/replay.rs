//! Replays the corpus: inputs that cover the code, and inputs that once failed.

use std::path::Path;

#[test]
fn corpus_inputs_pass() {
    for (name, target) in mpj_fuzz::TARGETS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
        let mut files = 0;
        for file in std::fs::read_dir(&folder).unwrap() {
            let path = file.unwrap().path();
            let bytes = std::fs::read(&path).unwrap();
            // Catch the panic to name the input.
            let failed = std::panic::catch_unwind(|| target(&bytes)).is_err();
            assert!(!failed, "{}", path.display());
            files += 1;
        }
        assert!(files > 0, "{} is empty", folder.display());
    }
}
