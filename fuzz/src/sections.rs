use mpj_buffer::{Buffer, ByteOrder, ElementKind, Fixed, ReadError, Reading};
use mpj_pool::{DefaultBlock, Pool};
use num_complex::{Complex32, Complex64};

use crate::input::Input;
use crate::reference_parser::{self, Message};

/// Reads messages, some of them with changed fields. The buffer accepts exactly those that a second parser accepts.
pub fn sections(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let bytes = message(&mut input);
    let block = mpj_pool::global().alloc(bytes.len()).expect("memory for a short message");
    let found = reference_parser::parse(&bytes);
    let mut stream = bytes.as_slice();
    let streamed = Buffer::read_from(&mut stream, mpj_pool::global(), bytes.len());
    match (Buffer::from_bytes(block, &bytes), found) {
        (Ok(mut buffer), Some(message)) => {
            assert!(streamed.is_ok(), "a stream of the same bytes is rejected");
            drain(&mut buffer, &message);
        }
        (Err(refused), None) => assert!(!refused.error.to_string().is_empty()),
        (Ok(_), None) => panic!("accepted: {bytes:02x?}"),
        (Err(refused), Some(message)) => panic!("{}: {message:?}", refused.error),
    }
}

/// Returns a message in which a few fields may be changed.
pub(crate) fn message(input: &mut Input<'_>) -> Vec<u8> {
    let big = input.flag();
    let put = |bytes: &mut Vec<u8>, number: u64, width: usize| {
        let number = if big { number.to_be_bytes() } else { number.to_le_bytes() };
        bytes.extend(if big { &number[8 - width..] } else { &number[..width] });
    };
    let mut bytes = b"mpjb\x01".to_vec();
    bytes.extend([if big { b'>' } else { b'<' }, 0, 0]);
    bytes.extend([0; 8]);
    // Offsets of fields, which are changed more often than other bytes.
    let mut fields = vec![0, 4, 5, 6, 7, 8];
    let mut objects = 0;
    for _ in 0..input.below(6) {
        pad(&mut bytes, 16);
        let at = bytes.len();
        fields.extend([at, at + 1, at + 2, at + 3, at + 4, at + 8]);
        let count = input.below(12);
        let choice = input.below(44) as u8;
        match choice % 22 + 1 {
            // 19 to 22: a section of objects (kind 32); 19 permits the invalid codec 0.
            kind @ 19.. => {
                let (codec, schema) = (input.below(5) as u8, input.below(20) as u8);
                objects += count;
                bytes.extend([32, 1, codec.max(u8::from(kind > 19)), schema]);
                put(&mut bytes, 0, 4);
                put(&mut bytes, count as u64, 8);
            }
            kind => {
                let size = reference_parser::size(kind).expect("1 to 18");
                bytes.extend([kind, if choice < 22 || size == 1 { 0 } else { 2 }, 0, 0]);
                put(&mut bytes, size as u64, 4);
                put(&mut bytes, count as u64, 8);
                let payload = input.bytes(count * size);
                bytes.extend(payload);
                bytes.resize(at + 16 + count * size, 0);
            }
        }
    }
    if objects > 0 || input.below(8) == 7 {
        bytes[6] = 1;
        pad(&mut bytes, 16);
        let at = bytes.len();
        fields.extend([at, at + 1, at + 4, at + 8]);
        bytes.extend([33, 0, 0, 0]);
        put(&mut bytes, 1, 4);
        put(&mut bytes, 0, 8);
        for _ in 0..objects {
            pad(&mut bytes, 8);
            fields.push(bytes.len());
            let value = input.below(40);
            let value = input.bytes(value);
            put(&mut bytes, value.len() as u64, 8);
            bytes.extend(value);
        }
        let mut len = Vec::new();
        put(&mut len, (bytes.len() - at - 16) as u64, 8);
        bytes[at + 8..at + 16].copy_from_slice(&len);
    }
    let set_total_len = |bytes: &mut Vec<u8>| {
        let mut len = Vec::new();
        put(&mut len, bytes.len() as u64, 8);
        bytes[8..16].copy_from_slice(&len);
    };
    set_total_len(&mut bytes);
    for _ in 0..input.below(4) {
        match input.below(6) {
            0 => {
                let at = input.pick(&fields).min(bytes.len() - 1);
                bytes[at] = input.byte();
            }
            1 | 2 => {
                let (at, mut number) = (input.pick(&fields).min(bytes.len() - 8), Vec::new());
                put(&mut number, input.edge(), 8);
                bytes[at..at + 8].copy_from_slice(&number);
            }
            3 => {
                let at = input.u16() as usize % bytes.len();
                bytes[at] = input.byte();
            }
            4 => {
                bytes.truncate(16 + input.u16() as usize % bytes.len());
                set_total_len(&mut bytes);
            }
            _ => {
                bytes.extend(input.bytes(20));
                set_total_len(&mut bytes);
            }
        }
    }
    if input.below(16) == 15 {
        bytes.extend(input.rest());
    }
    bytes
}

fn pad(bytes: &mut Vec<u8>, unit: usize) {
    bytes.resize(bytes.len().next_multiple_of(unit), 0);
}

/// Compares the sections with the parsed ones, and reads each; a read past the end of a section must fail.
fn drain(buffer: &mut Buffer<DefaultBlock, Reading>, message: &Message) {
    let big = |order| order == ByteOrder::Big;
    let listed = |s: mpj_buffer::Section| (s.kind as u8, s.codec, s.schema, big(s.byte_order), s.count);
    let known = message.sections.iter().map(|p| (p.kind, p.codec, p.schema, p.big, p.count));
    assert!(buffer.sections().map(listed).eq(known));
    macro_rules! elements {
        ($foreign:ident, $type:ty, $zero:expr) => {{
            let count = buffer.section::<$type>().expect("the section that peek returned");
            let mut one: [$type; 1] = [$zero];
            let past = ReadError::PastSection { needed: count + 1, available: count };
            assert_eq!(buffer.scatter(&mut one, &vec![0usize; count as usize + 1]), Err(past));
            assert_eq!(buffer.read_strided(&mut one, 0, &[(count as usize + 1, 0)]), Err(past));
            let mut all: Vec<$type> = vec![$zero; count as usize];
            let viewed = buffer.view_n::<$type>(0).map(<[$type]>::len);
            let read = buffer.read(&mut all);
            assert!(read.is_ok() || matches!(read, Err(ReadError::Invalid { .. })), "{read:?}");
            match $foreign && size_of::<$type>() > 1 {
                true => assert!(matches!(viewed, Err(ReadError::ForeignOrder { .. })), "{viewed:?}"),
                false => assert_eq!(viewed, Ok(0)),
            }
            if read.is_err() {
                assert_eq!(all, vec![$zero; count as usize], "changed by a failed read");
                buffer.skip_section().expect("a section with elements");
            }
        }};
    }
    while let Some(section) = buffer.peek() {
        let foreign = section.byte_order != ByteOrder::NATIVE;
        match section.kind {
            ElementKind::I8 => elements!(foreign, i8, 0),
            ElementKind::U8 => elements!(foreign, u8, 0),
            ElementKind::I16 => elements!(foreign, i16, 0),
            ElementKind::U16 => elements!(foreign, u16, 0),
            ElementKind::I32 => elements!(foreign, i32, 0),
            ElementKind::U32 => elements!(foreign, u32, 0),
            ElementKind::I64 => elements!(foreign, i64, 0),
            ElementKind::U64 => elements!(foreign, u64, 0),
            ElementKind::I128 => elements!(foreign, i128, 0),
            ElementKind::U128 => elements!(foreign, u128, 0),
            ElementKind::F32 => elements!(foreign, f32, 0.0),
            ElementKind::F64 => elements!(foreign, f64, 0.0),
            ElementKind::Bool => elements!(foreign, bool, false),
            ElementKind::Char => elements!(foreign, char, ' '),
            ElementKind::F16 => elements!(foreign, half::f16, half::f16::ZERO),
            ElementKind::Bf16 => elements!(foreign, half::bf16, half::bf16::ZERO),
            ElementKind::Complex32 => elements!(foreign, Complex32, Complex32::ZERO),
            ElementKind::Complex64 => elements!(foreign, Complex64, Complex64::ZERO),
            _ => {
                let read = [
                    buffer.view_object_with::<Fixed, &str>().is_ok(),
                    buffer.read_object_with::<Fixed, Vec<Vec<u8>>>().is_ok(),
                    buffer.read_dynamic::<u64>().is_ok(),
                    buffer.view_dynamic::<char>().is_ok(),
                    buffer.read_dynamic_into(&mut [false; 3]).is_ok(),
                    buffer.read_object::<Vec<String>>().is_ok(),
                    buffer.read_object::<(u8, Vec<bool>)>().is_ok(),
                ];
                if !read.contains(&true) {
                    buffer.skip_section().expect("the section that peek returned");
                }
            }
        }
    }
    assert_eq!(buffer.skip_section(), Err(ReadError::End));
    buffer.rewind();
    for _ in &message.sections {
        buffer.skip_section().expect("a section that was parsed");
    }
    assert_eq!(buffer.skip_section(), Err(ReadError::End));
}
