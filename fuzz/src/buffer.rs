//! Messages from a hostile peer.

use std::collections::BTreeMap;

use mpj_buffer::{Buffer, Kind, Reading};
use mpj_pool::{DefaultBlock, Pool};

fn open(bytes: &[u8]) -> Option<Buffer<DefaultBlock, Reading>> {
    let block = mpj_pool::global().alloc(bytes.len().max(64)).ok()?;
    Buffer::from_bytes(block, bytes).ok()
}

/// Reads every section of a message as what it says it is; returns how many there were.
pub fn walk_sections(bytes: &[u8]) -> usize {
    let Some(mut buffer) = open(bytes) else { return 0 };
    let mut sections = 0;
    macro_rules! read {
        ($buffer:expr, $type:ty, $zero:expr) => {{
            let mut room = [$zero as $type; 7];
            // A value that is none, or the end of the section, is an error; then the section is left.
            let _ = $buffer.read::<$type>(&mut room);
            $buffer.skip_section().is_ok()
        }};
    }
    // Every section takes at least its header of 16 bytes, so this ends.
    for _ in 0..=bytes.len() / 16 {
        let Some(kind) = buffer.kind() else { break };
        let left = match kind {
            Kind::I8 => read!(buffer, i8, 0),
            Kind::U8 => read!(buffer, u8, 0),
            Kind::I16 => read!(buffer, i16, 0),
            Kind::U32 => read!(buffer, u32, 0),
            Kind::F64 => read!(buffer, f64, 0.0),
            Kind::Bool => read!(buffer, bool, false),
            Kind::Char => read!(buffer, char, 'x'),
            _ => buffer.skip_section().is_ok(),
        };
        if !left {
            break;
        }
        sections += 1;
    }
    sections
}

/// Reads serde values of several shapes from a message; returns how many could be read.
pub fn read_objects(bytes: &[u8]) -> usize {
    let mut read = 0;
    if let Some(mut buffer) = open(bytes) {
        read += usize::from(buffer.read_object::<Vec<u64>>().is_ok());
        read += usize::from(buffer.read_object::<String>().is_ok());
        read += usize::from(buffer.read_object::<BTreeMap<String, Option<f32>>>().is_ok());
        read += usize::from(buffer.read_object::<(bool, char, [u16; 3])>().is_ok());
    }
    read
}

/// Makes a valid message with primitives and values in it, for tests to damage.
pub fn valid_message() -> Vec<u8> {
    let Ok(mut buffer) = Buffer::with_capacity(1024) else { return Vec::new() };
    let map = BTreeMap::from([("pi".to_string(), Some(3.25f32)), ("none".to_string(), None)]);
    let written = buffer.write(&[1.5f64, -2.5]).is_ok()
        && buffer.write(&[true, false, true]).is_ok()
        && buffer.write(&['ä', 'z']).is_ok()
        && buffer.write(&[7u32; 9]).is_ok()
        && buffer.write_object(&vec![1u64, 1 << 40]).is_ok()
        && buffer.write_object("text").is_ok()
        && buffer.write_object(&map).is_ok();
    if written { buffer.commit().to_vec() } else { Vec::new() }
}
