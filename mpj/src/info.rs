//! Hints: pairs of a key and a value.

use std::collections::BTreeMap;

use crate::error::{Error, ErrorClass, Result};

/// Hints for a communicator (MPI_Info): strings with string keys, in the order of the keys. The library uses none of
/// them.
///
/// ```
/// let mut info = mpj::Info::new();
/// info.set("mpi_assert_no_any_tag", "true")?;
/// assert_eq!((info.get("mpi_assert_no_any_tag"), info.len()), (Some("true"), 1));
/// # Ok::<(), mpj::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Info {
    entries: BTreeMap<String, String>,
}

/// MPI_MAX_INFO_KEY and MPI_MAX_INFO_VAL of the MPI 5.0 ABI, without the final zero of C.
const MAX_KEY_BYTES: usize = 255;
const MAX_VALUE_BYTES: usize = 1023;

impl Info {
    /// Returns an info without hints.
    pub const fn new() -> Self {
        Info { entries: BTreeMap::new() }
    }

    /// Returns information about this process under the keys of MPI_Info_create_env: `command` and `argv` from the
    /// words of the command line, `wdir`, `host`, `arch` and `thread_level`. Omits values that are empty or too long.
    ///
    /// ```
    /// let info = mpj::Info::of_process(["prog", "-n", "5"]);
    /// assert_eq!((info.get("command"), info.get("argv")), (Some("prog"), Some("-n 5")));
    /// assert_eq!(info.get("thread_level"), Some("MPI_THREAD_MULTIPLE"));
    /// ```
    pub fn of_process<'a>(command_line: impl IntoIterator<Item = &'a str>) -> Self {
        let mut words = command_line.into_iter();
        let command = words.next().map(str::to_owned);
        let arguments = words.collect::<Vec<_>>().join(" ");
        let directory = std::env::current_dir().ok().map(|path| path.to_string_lossy().into_owned());
        let system = rustix::system::uname();
        let mut info = Info::new();
        for (key, value) in [
            ("command", command),
            ("argv", Some(arguments)),
            ("wdir", directory),
            ("host", Some(system.nodename().to_string_lossy().into_owned())),
            ("arch", Some(system.machine().to_string_lossy().into_owned())),
            ("thread_level", Some("MPI_THREAD_MULTIPLE".to_owned())),
        ] {
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                let _ = info.set(key, &value);
            }
        }
        info
    }

    /// Sets a hint, and returns its old value.
    ///
    /// # Errors
    /// [`ErrorClass::InfoKey`] if the key is empty or longer than 255 bytes, [`ErrorClass::InfoValue`] if the value is
    /// longer than 1023 bytes.
    pub fn set(&mut self, key: &str, value: &str) -> Result<Option<String>> {
        let bytes = key.len();
        if bytes == 0 || bytes > MAX_KEY_BYTES {
            let why = format!("the key has {bytes} bytes, expected 1 to {MAX_KEY_BYTES}");
            return Err(Error::new(ErrorClass::InfoKey, "info", why));
        }
        let bytes = value.len();
        if bytes > MAX_VALUE_BYTES {
            let why = format!("the value of {key} has {bytes} bytes, expected at most {MAX_VALUE_BYTES}");
            return Err(Error::new(ErrorClass::InfoValue, "info", why));
        }
        Ok(self.entries.insert(key.to_owned(), value.to_owned()))
    }

    /// Returns a hint.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.entries.get(key).map(String::as_str)
    }

    /// Removes a hint, and returns it.
    pub fn remove(&mut self, key: &str) -> Option<String> {
        self.entries.remove(key)
    }

    /// Returns the number of hints.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether the info has no hints.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the hints, in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.entries.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }
}
