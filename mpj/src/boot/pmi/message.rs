//! The messages of PMI-1, without I/O: lines of `key=value` fields that are separated by spaces.
//!
//! ```text
//!   rank                                       process manager
//!   cmd=init pmi_version=1 pmi_subversion=1  ─►
//!                                            ◄─  cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0
//!   cmd=get_my_kvsname                       ─►
//!                                            ◄─  cmd=my_kvsname kvsname=NAME
//!   cmd=put kvsname=NAME key=K value=V       ─►
//!                                            ◄─  cmd=put_result rc=0 msg=success
//!   cmd=barrier_in                           ─►
//!                                            ◄─  cmd=barrier_out            when all ranks have sent barrier_in
//!   cmd=get kvsname=NAME key=K               ─►
//!                                            ◄─  cmd=get_result rc=0 msg=success value=V
//!   cmd=finalize                             ─►
//!                                            ◄─  cmd=finalize_ack
//!   cmd=abort exitcode=N                     ─►                             no reply: the ranks are killed
//! ```
//! Replies are checked like messages of any peer: their order, their lengths and their numbers. Fields can come in any
//! order. Unknown ones are ignored, and `rc` and `msg` are optional, because they depend on the version.

/// The longest reply in bytes. Process managers limit a value to 1,024 or 4,096 bytes.
pub const MAX_LINE: usize = 16 << 10;

/// The longest request in bytes, its line feed included: Slurm reads requests into a buffer of 1,024 bytes.
pub const MAX_REQUEST: usize = 1000;

/// The longest field `value` in bytes, which includes a prefix `N:`. `PmiClient::put` cuts longer values into segments,
/// because some process managers truncate values without an error.
pub const MAX_VALUE_LEN: usize = 512;

/// The largest number of segments of a value.
pub const MAX_SEGMENTS: usize = 8;

/// Joins the segments of a value. `get` returns a segment, by its number: the number of segments, a colon, and a part
/// of the value.
///
/// # Errors
/// The error of `get`, or a segment has another form, or the value has too many segments.
pub fn join_segments(mut get: impl FnMut(usize) -> Result<String, String>) -> Result<String, String> {
    let (mut value, mut count) = (String::new(), 1);
    for at in 0..MAX_SEGMENTS {
        let segment = get(at)?;
        let parts = segment.split_once(':').and_then(|(of, text)| Some((of.parse::<usize>().ok()?, text)));
        let (of, text) = parts.ok_or("an invalid value")?;
        value.push_str(text);
        count = of;
        if at + 1 >= count {
            return Ok(value);
        }
    }
    Err(format!("a value with {count} segments"))
}

/// A reply: its fields, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PmiReply {
    fields: Vec<(String, String)>,
}

impl PmiReply {
    /// Parses a line without its line feed. A word without `=` belongs to the value before it: `msg` is a text.
    ///
    /// # Errors
    /// The line is not text, or does not begin with a field.
    pub fn parse(line: &[u8]) -> Result<PmiReply, String> {
        let text = str::from_utf8(line).map_err(|_| "a line that is not text".to_owned())?;
        let mut fields: Vec<(String, String)> = Vec::new();
        for word in text.split(' ').filter(|word| !word.is_empty()) {
            match (word.split_once('='), fields.last_mut()) {
                (Some((key, value)), _) => fields.push((key.to_owned(), value.to_owned())),
                (None, Some((_, value))) => {
                    value.push(' ');
                    value.push_str(word);
                }
                (None, None) => return Err(format!("'{}' instead of a field", excerpt(word))),
            }
        }
        Ok(PmiReply { fields })
    }

    /// Returns the value of a field.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
    }

    /// Returns the value of a field as a number.
    ///
    /// # Errors
    /// The field is missing, or is not a number of this type.
    pub fn number<T: std::str::FromStr>(&self, key: &str) -> Result<T, String> {
        let text = self.get(key).ok_or_else(|| format!("no {key}"))?;
        text.parse().map_err(|_| format!("{key}={}, which is not a valid number", excerpt(text)))
    }

    /// Checks that this is the successful reply `command`.
    ///
    /// # Errors
    /// The reply is another one, or reports an error.
    pub fn expect(&self, command: &str) -> Result<(), String> {
        match (self.get("cmd"), self.get("rc")) {
            (Some(cmd), None | Some("0")) if cmd == command => Ok(()),
            (Some(cmd), Some(code)) if cmd == command => {
                let why = self.get("msg").unwrap_or("no reason");
                Err(format!("error {} for {command}: {}", excerpt(code), excerpt(why)))
            }
            (Some(cmd), _) => Err(format!("'{}' instead of '{command}'", excerpt(cmd))),
            (None, _) => Err(format!("a line without a command instead of '{command}'")),
        }
    }
}

/// Returns the first bytes of a foreign text, for an error message.
fn excerpt(text: &str) -> &str {
    &text[..text.floor_char_boundary(60)]
}

/// Assembles lines from a stream of bytes.
#[derive(Debug, Default)]
pub struct LineDecoder {
    bytes: Vec<u8>,
    /// The number of bytes at the start of `bytes` that contain no line feed.
    searched: usize,
}

impl LineDecoder {
    /// Appends received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Takes the next complete line, without its line feed; `Ok(None)` if more bytes are needed.
    ///
    /// # Errors
    /// The line is longer than [`MAX_LINE`].
    pub fn take_line(&mut self) -> Result<Option<Vec<u8>>, String> {
        let found = self.bytes[self.searched..].iter().position(|byte| *byte == b'\n');
        let end = found.map(|at| self.searched + at);
        self.searched = end.unwrap_or(self.bytes.len());
        if self.searched > MAX_LINE {
            return Err(format!("a line of more than {MAX_LINE} bytes"));
        }
        let Some(end) = end else { return Ok(None) };
        let rest = self.bytes.split_off(end + 1);
        let mut line = std::mem::replace(&mut self.bytes, rest);
        line.pop();
        self.searched = 0;
        Ok(Some(line))
    }
}

/// Returns the line of a request with these fields.
///
/// # Errors
/// A value is empty or contains white space, a control character or `;`, or the line is longer than [`MAX_REQUEST`].
pub fn request(command: &str, fields: &[(&str, &str)]) -> Result<Vec<u8>, String> {
    let mut line = format!("cmd={command}");
    for (key, value) in fields {
        if value.is_empty() || value.contains(|c: char| c.is_whitespace() || c.is_control() || c == ';') {
            return Err(format!(
                "the value of {key} for {command} is empty or has a space, a control character or ';'"
            ));
        }
        line.push_str(&format!(" {key}={value}"));
    }
    line.push('\n');
    match line.len() <= MAX_REQUEST {
        true => Ok(line.into_bytes()),
        false => {
            Err(format!("the request {command} has {} bytes, but the limit is {MAX_REQUEST}", line.len()))
        }
    }
}
