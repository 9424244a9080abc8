//! The reply of a server to the request for a value of another rank, without I/O.
//!
//! A server that has the value sends it in the encoding of the client. A server of PMIx 4 or later that first requests
//! the value from the server of another host sends it in its own encoding:
//! ```text
//!   number   = groups of 7 bits, the lowest first; the high bit of a byte says that another group follows, and the
//!              ninth byte has 8 bits
//!   signed   = number: twice the value, or one less than twice the absolute value if it is negative
//!   item     = number of elements: signed, here 1; the element
//!   string   = length with the NUL: signed, or 0 for no string; bytes; NUL
//!   proc     = namespace: string, rank: number
//!   kval     = key: string, type: number, data of that type
//!   object   = length: number, bytes
//! ```

use super::buffer::{Unpacker, Value, kind};

/// Returns the value of `key`, a string.
///
/// # Errors
/// The reply is invalid, or does not have the key.
pub fn find(reply: &[u8], key: &str) -> Result<String, String> {
    let mut reply = Unpacker::new(reply);
    reply.status()?;
    let value = match reply.has_item() {
        true => find_in_client_encoding(Unpacker::new(reply.object()?), key)?,
        false => find_in_server_encoding(ServerUnpacker(reply), key)?,
    };
    let value = value.ok_or_else(|| format!("no value of {key}"))?;
    String::from_utf8(value.to_vec()).map_err(|_| format!("a value of {key} that is no text"))
}

fn find_in_client_encoding<'a>(mut owner: Unpacker<'a>, key: &str) -> Result<Option<&'a [u8]>, String> {
    owner.proc()?;
    while !owner.is_empty() {
        if let (name, Value::Text(value)) = owner.kval()?
            && name == key.as_bytes()
        {
            return Ok(Some(value));
        }
    }
    Ok(None)
}

fn find_in_server_encoding<'a>(mut reply: ServerUnpacker<'a>, key: &str) -> Result<Option<&'a [u8]>, String> {
    reply.one()?;
    let len = reply.number()?;
    let mut owner = ServerUnpacker(Unpacker::new(reply.take(len)?));
    owner.one()?;
    owner.text()?;
    owner.number()?;
    while !owner.0.is_empty() {
        owner.one()?;
        let name = owner.text()?;
        let kind = owner.number()?;
        if kind != u64::from(kind::STRING) {
            return Err(format!("a value of type {kind} instead of a string"));
        }
        let value = owner.text()?;
        if name == key.as_bytes() {
            return Ok(Some(value));
        }
    }
    Ok(None)
}

/// Reads the encoding of servers.
struct ServerUnpacker<'a>(Unpacker<'a>);

impl<'a> ServerUnpacker<'a> {
    fn take(&mut self, len: u64) -> Result<&'a [u8], String> {
        self.0.take(usize::try_from(len).unwrap_or(usize::MAX))
    }

    fn byte(&mut self) -> Result<u8, String> {
        Ok(self.take(1)?[0])
    }

    fn number(&mut self) -> Result<u64, String> {
        let mut number = 0;
        for shift in (0..56).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Ok(number | u64::from(self.byte()?) << 56)
    }

    /// Reads a signed number that must not be negative.
    fn count(&mut self) -> Result<u64, String> {
        let number = self.number()?;
        match number & 1 {
            0 => Ok(number >> 1),
            _ => Err(format!("the length -{}", (number >> 1) + 1)),
        }
    }

    fn one(&mut self) -> Result<(), String> {
        match self.count()? {
            1 => Ok(()),
            count => Err(format!("an item with {count} elements instead of one")),
        }
    }

    fn text(&mut self) -> Result<&'a [u8], String> {
        let len = self.count()?;
        if len == 0 {
            return Ok(&[]);
        }
        match self.take(len)? {
            [text @ .., 0] => Ok(text),
            _ => Err("a string without a NUL at its end".into()),
        }
    }
}
