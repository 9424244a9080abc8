//! Tests of the parameter table.

use std::collections::BTreeSet;

use mpj::config::{Config, ParameterNames, parameters};

#[test]
fn every_parameter_has_a_valid_default_and_a_help_text() {
    for parameter in parameters() {
        let (name, default) = (parameter.name(), parameter.default());
        assert!(name.bytes().all(|b| b.is_ascii_uppercase() || b == b'_'), "{name}");
        assert!(parameter.help().len() > 10 && !parameter.range().is_empty(), "{name}");
        Config::default().set_text(parameter, &default).expect(name);
    }
}

#[test]
fn parameter_names_are_unique() {
    let all = parameters();
    let names: BTreeSet<&str> = all.iter().map(|parameter| parameter.name()).collect();
    assert_eq!(names.len(), all.len(), "{names:?}");
    for name in names {
        assert_eq!(ParameterNames::of(&all).suggestion(name), None, "{name}");
    }
}
