//! README.md lists all element kinds.

use mpj_buffer::ElementKind;

#[test]
fn the_readme_names_every_kind_with_its_number() {
    let readme = include_str!("../../README.md");
    let words: Vec<&str> = readme.split([' ', ',', '.', '\n']).filter(|word| !word.is_empty()).collect();
    for kind in ElementKind::ALL {
        let (code, name) = ((kind as u8).to_string(), kind.to_string());
        let found = words.windows(2).any(|pair| pair == [code.as_str(), name.as_str()]);
        assert!(found, "README.md must list {code} {name}");
    }
}
