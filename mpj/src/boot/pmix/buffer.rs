//! The encoding `v21` of PMIx, without I/O: buffers whose items do not state their type. Numbers are in network byte
//! order.
//!
//! ```text
//!   item     = number of elements: i32, here 1; the element
//!   string   = length with the NUL: i32, or 0 for no string; bytes; NUL
//!   size     = type of the number: u16; number             int, unsigned int and pid have this form, too
//!   value    = type: u16, data of that type
//!   proc     = namespace: string, rank: u32
//!   info     = key: string, flags: u32, value
//!   kval     = key: string, value
//!   object   = length: size, bytes
//!   buffer   = kind: u8, length: size, bytes
//!   array    = type: u16, number of elements: size, elements; only the type if it is 0
//! ```
//! If the type of a value or of an array is later than `kind::LAST`, the server omits the data or the elements.

/// Types of this encoding; [`fixed_width`] has more.
pub(super) mod kind {
    pub(in crate::boot::pmix) const UNDEFINED: u16 = 0;
    pub(in crate::boot::pmix) const BOOL: u16 = 1;
    pub(in crate::boot::pmix) const STRING: u16 = 3;
    pub(in crate::boot::pmix) const SIZE: u16 = 4;
    pub(in crate::boot::pmix) const PID: u16 = 5;
    pub(in crate::boot::pmix) const INT: u16 = 6;
    pub(in crate::boot::pmix) const UINT: u16 = 11;
    pub(in crate::boot::pmix) const UINT32: u16 = 14;
    pub(in crate::boot::pmix) const UINT64: u16 = 15;
    pub(in crate::boot::pmix) const FLOAT: u16 = 16;
    pub(in crate::boot::pmix) const DOUBLE: u16 = 17;
    pub(in crate::boot::pmix) const VALUE: u16 = 21;
    pub(in crate::boot::pmix) const PROC: u16 = 22;
    pub(in crate::boot::pmix) const INFO: u16 = 24;
    pub(in crate::boot::pmix) const BYTE_OBJECT: u16 = 27;
    pub(in crate::boot::pmix) const KVAL: u16 = 28;
    pub(in crate::boot::pmix) const PROC_INFO: u16 = 38;
    pub(in crate::boot::pmix) const ARRAY: u16 = 39;
    pub(in crate::boot::pmix) const COMPRESSED_STRING: u16 = 42;
    /// The last type that the encoding has.
    pub(in crate::boot::pmix) const LAST: u16 = 44;
}

/// The kind of buffers whose items do not state their type.
pub(super) const UNDESCRIBED: u8 = 1;

/// The deepest nesting of arrays. Those of known servers do not contain arrays.
const MAX_DEPTH: u32 = 8;

/// Returns the number of bytes of a type whose values all have the same length.
fn fixed_width(kind: u16) -> Option<usize> {
    match kind {
        // bool, byte, i8, u8, persistence, pointer, scope, range, command, state, allocation directive
        1 | 2 | 7 | 12 | 30..=34 | 37 | 43 => Some(1),
        // i16, u16, type
        8 | 13 | 36 => Some(2),
        // i32, u32, status, flags, rank
        9 | 14 | 20 | 35 | 40 => Some(4),
        // i64, u64, time
        10 | 15 | 19 => Some(8),
        // seconds and microseconds
        18 => Some(16),
        _ => None,
    }
}

/// Returns whether a value of this type consists of the type of a number and this number.
fn is_system_integer(kind: u16) -> bool {
    [kind::SIZE, kind::PID, kind::INT, kind::UINT].contains(&kind)
}

/// A value of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value<'a> {
    /// The bits of an integer.
    Number(u64),
    /// A string without its NUL.
    Text(&'a [u8]),
    /// The bytes of an object, often a buffer.
    Object(&'a [u8]),
    /// A value of another type.
    Other,
}

/// Reads a buffer. All results borrow from it, so no length in it causes an allocation.
#[derive(Clone, Copy, Debug)]
pub struct Unpacker<'a> {
    rest: &'a [u8],
}

impl<'a> Unpacker<'a> {
    /// Reads `bytes` from the start.
    pub fn new(bytes: &'a [u8]) -> Unpacker<'a> {
        Unpacker { rest: bytes }
    }

    /// Returns whether all bytes were read.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn take(&mut self, len: usize) -> Result<&'a [u8], String> {
        let parts = self.rest.split_at_checked(len);
        let (taken, rest) = parts.ok_or_else(|| {
            format!("a message with {} bytes where {len} bytes were expected", self.rest.len())
        })?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        self.take(N).map(|bytes| std::array::from_fn(|at| bytes[at]))
    }

    fn u8(&mut self) -> Result<u8, String> {
        Ok(u8::from_be_bytes(self.array()?))
    }

    fn u16(&mut self) -> Result<u16, String> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    fn u32(&mut self) -> Result<u32, String> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    /// Returns whether an item of this encoding follows.
    pub(super) fn has_item(&self) -> bool {
        self.rest.starts_with(&1u32.to_be_bytes())
    }

    /// Reads the number of elements of an item, which must be 1.
    fn one(&mut self) -> Result<(), String> {
        match self.u32()? {
            1 => Ok(()),
            count => Err(format!("an item with {count} elements instead of one")),
        }
    }

    /// Reads a status as an item: 0, or the negative number of an error.
    ///
    /// # Errors
    /// The buffer does not have one here.
    pub fn status(&mut self) -> Result<i32, String> {
        self.one()?;
        Ok(i32::from_be_bytes(self.array()?))
    }

    /// Reads a rank as an item.
    ///
    /// # Errors
    /// The buffer does not have one here.
    pub fn rank(&mut self) -> Result<u32, String> {
        self.one()?;
        self.u32()
    }

    /// Reads a string as an item.
    ///
    /// # Errors
    /// The buffer does not have one here.
    pub fn string(&mut self) -> Result<&'a [u8], String> {
        self.one()?;
        self.text()
    }

    /// Reads the namespace and the rank of a process as an item.
    ///
    /// # Errors
    /// The buffer does not have them here.
    pub fn proc(&mut self) -> Result<(&'a [u8], u32), String> {
        self.one()?;
        Ok((self.text()?, self.u32()?))
    }

    /// Reads an object as an item.
    ///
    /// # Errors
    /// The buffer does not have one here.
    pub fn object(&mut self) -> Result<&'a [u8], String> {
        self.one()?;
        self.bytes()
    }

    /// Reads a key and its value as an item.
    ///
    /// # Errors
    /// The buffer does not have them here, or the value has an unknown type.
    pub fn kval(&mut self) -> Result<(&'a [u8], Value<'a>), String> {
        self.one()?;
        let key = self.text()?;
        let value =
            self.value(0).map_err(|why| format!("{why}, in the value of {}", String::from_utf8_lossy(key)));
        Ok((key, value?))
    }

    fn text(&mut self) -> Result<&'a [u8], String> {
        let len = self.u32()?;
        if len == 0 {
            return Ok(&[]);
        }
        let len = i32::try_from(len).map_err(|_| format!("a string of {} bytes", len.cast_signed()))?;
        match self.take(len as usize)? {
            [text @ .., 0] => Ok(text),
            _ => Err("a string without a NUL at its end".into()),
        }
    }

    fn bytes(&mut self) -> Result<&'a [u8], String> {
        let len = self.system_integer()?;
        self.take(usize::try_from(len).unwrap_or(usize::MAX))
    }

    fn number(&mut self, width: usize) -> Result<u64, String> {
        Ok(self.take(width)?.iter().fold(0, |number, byte| (number << 8) | u64::from(*byte)))
    }

    /// Reads the type of a number; returns its width in bytes.
    fn width(&mut self) -> Result<usize, String> {
        let kind = self.u16()?;
        fixed_width(kind)
            .filter(|width| *width <= 8)
            .ok_or_else(|| format!("a number of type {kind}, which is not an integer"))
    }

    fn system_integer(&mut self) -> Result<u64, String> {
        let width = self.width()?;
        self.number(width)
    }

    fn value(&mut self, depth: u32) -> Result<Value<'a>, String> {
        let kind = self.u16()?;
        Ok(match (kind, fixed_width(kind)) {
            (_, Some(width @ ..=8)) => Value::Number(self.number(width)?),
            (kind::STRING, _) => Value::Text(self.text()?),
            (kind::BYTE_OBJECT, _) => Value::Object(self.bytes()?),
            (kind::UNDEFINED, _) => Value::Other,
            _ if is_system_integer(kind) => Value::Number(self.system_integer()?),
            _ => {
                self.skip(kind, 1, depth)?;
                Value::Other
            }
        })
    }

    /// Skips `count` elements of a type. Each has at least one byte, so the length of the buffer limits the time.
    fn skip(&mut self, kind: u16, count: u64, depth: u32) -> Result<(), String> {
        if is_system_integer(kind) && count > 0 {
            // The type of the numbers occurs once, before all of them.
            let width = self.width()?;
            return self.skip_fixed(width, count);
        }
        if let Some(width) = fixed_width(kind) {
            return self.skip_fixed(width, count);
        }
        if kind > kind::LAST {
            return Ok(());
        }
        for _ in 0..count {
            self.skip_element(kind, depth)?;
        }
        Ok(())
    }

    fn skip_fixed(&mut self, width: usize, count: u64) -> Result<(), String> {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        self.take(width.saturating_mul(count)).map(drop)
    }

    fn skip_element(&mut self, kind: u16, depth: u32) -> Result<(), String> {
        match kind {
            kind::STRING | kind::FLOAT | kind::DOUBLE => self.text().map(drop),
            kind::BYTE_OBJECT | kind::COMPRESSED_STRING => self.bytes().map(drop),
            kind::VALUE => self.value(depth).map(drop),
            kind::PROC => {
                self.text()?;
                self.u32().map(drop)
            }
            kind::INFO => {
                self.text()?;
                self.u32()?;
                self.value(depth).map(drop)
            }
            kind::KVAL => {
                self.text()?;
                self.value(depth).map(drop)
            }
            kind::PROC_INFO => {
                self.skip_element(kind::PROC, depth)?;
                self.text()?;
                self.text()?;
                self.system_integer()?;
                self.u8().map(drop)
            }
            kind::ARRAY if depth < MAX_DEPTH => match self.u16()? {
                kind::UNDEFINED => Ok(()),
                element => {
                    let count = self.system_integer()?;
                    self.skip(element, count, depth + 1)
                }
            },
            kind::ARRAY => Err(format!("arrays in more than {MAX_DEPTH} arrays")),
            _ => Err(format!("a value of type {kind}, which mpj does not read")),
        }
    }
}
