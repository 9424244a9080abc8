//! The kinds of parameters: numbers, texts and choices.

use std::fmt;

/// The value of a parameter that was set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    /// The value of a [`Number`].
    Number(u64),
    /// The value of a [`Text`].
    Text(String),
    /// The index of the value of a [`Choice`].
    Choice(usize),
}

/// A run-time parameter: `MPJ_<NAME>` in the environment, `-x MPJ_<NAME>=VALUE` at the launcher.
///
/// It is a constant in the module that uses it, and is listed in a [group](super::ParameterGroup).
pub trait Parameter: Sync + fmt::Debug {
    /// Returns its name, in capitals, without the prefix.
    fn name(&self) -> &'static str;

    /// Returns its default value, as a user would write it.
    fn default(&self) -> String;

    /// Returns its permitted values, such as `0 to 7`.
    fn range(&self) -> String;

    /// Returns its purpose, in a sentence, with its unit.
    fn help(&self) -> &'static str;

    /// Parses a value that a user has written.
    ///
    /// # Errors
    /// The reason why it is invalid, such as `is not a number from 0 to 7`.
    fn parse(&self, text: &str) -> Result<Value, String>;
}

/// A parameter that is a number.
#[derive(Clone, Copy, Debug)]
pub struct Number {
    /// Its name, in capitals, without the prefix.
    pub name: &'static str,
    /// Its default value.
    pub default: u64,
    /// The smallest and the largest value.
    pub range: (u64, u64),
    /// Its purpose, in a sentence, with its unit.
    pub help: &'static str,
}

impl Number {
    pub(super) fn check(&self, value: u64) -> Result<Value, String> {
        let (low, high) = self.range;
        let is_inside = (low..=high).contains(&value);
        if is_inside { Ok(Value::Number(value)) } else { Err(self.expected()) }
    }

    fn expected(&self) -> String {
        format!("is not a number from {} to {}", self.range.0, self.range.1)
    }
}

impl Parameter for Number {
    fn name(&self) -> &'static str {
        self.name
    }

    fn default(&self) -> String {
        self.default.to_string()
    }

    fn range(&self) -> String {
        format!("{} to {}", self.range.0, self.range.1)
    }

    fn help(&self) -> &'static str {
        self.help
    }

    fn parse(&self, text: &str) -> Result<Value, String> {
        self.check(text.parse().map_err(|_| self.expected())?)
    }
}

/// A parameter that is a text of some form.
#[derive(Clone, Copy, Debug)]
pub struct Text {
    /// Its name, in capitals, without the prefix.
    pub name: &'static str,
    /// Its default value.
    pub default: &'static str,
    /// The form of the text for messages and help, such as `an address`.
    pub form: &'static str,
    /// Returns whether a text has that form.
    pub accepts: fn(&str) -> bool,
    /// Its purpose, in a sentence.
    pub help: &'static str,
}

impl Parameter for Text {
    fn name(&self) -> &'static str {
        self.name
    }

    fn default(&self) -> String {
        self.default.to_owned()
    }

    fn range(&self) -> String {
        self.form.to_owned()
    }

    fn help(&self) -> &'static str {
        self.help
    }

    fn parse(&self, text: &str) -> Result<Value, String> {
        let is_valid = (self.accepts)(text);
        if is_valid { Ok(Value::Text(text.to_owned())) } else { Err(format!("is not {}", self.form)) }
    }
}

/// A parameter that is one of a few words, each of which selects a `T`.
#[derive(Clone, Copy, Debug)]
pub struct Choice<T: 'static> {
    /// Its name, in capitals, without the prefix.
    pub name: &'static str,
    /// The words and their values; the first one is the default.
    pub values: &'static [(&'static str, T)],
    /// Its purpose, in a sentence.
    pub help: &'static str,
}

impl<T> Choice<T> {
    fn words(&self) -> String {
        self.values.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ")
    }
}

impl<T: Sync + fmt::Debug> Parameter for Choice<T> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn default(&self) -> String {
        self.values.first().map_or(String::new(), |(word, _)| (*word).to_owned())
    }

    fn range(&self) -> String {
        format!("one of {}", self.words())
    }

    fn help(&self) -> &'static str {
        self.help
    }

    fn parse(&self, text: &str) -> Result<Value, String> {
        let found = self.values.iter().position(|(word, _)| *word == text);
        found.map(Value::Choice).ok_or_else(|| format!("is not one of {}", self.words()))
    }
}
