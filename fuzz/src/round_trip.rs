use std::fmt::Debug;
use std::io::Write;

use bytemuck::cast_slice;
use mpj_buffer::{
    Buffer, ByteOrder, Element, Fixed, Overflow, Postcard, Raw, RawVec, ReadError, Reading, WriteError,
};
use mpj_pool::{DefaultBlock, Pool, RawBuffer};

use crate::input::Input;
use crate::reference_parser;

/// Writes to a buffer, and reads the values back from the buffer, from a copy of its bytes, and from the same message
/// in the other byte order. A model predicts the length of the static part.
pub fn round_trip(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let headroom = input.below(50);
    let start = headroom.next_multiple_of(16);
    let requested = start + 16 * (1 + input.below(80));
    let block = mpj_pool::global().alloc(requested).expect("memory");
    // A pool may return a larger block than was requested.
    let capacity = (block.capacity() - start) / 16 * 16;
    let mut buffer =
        Buffer::with_headroom(block, headroom).map_err(|refused| refused.error).expect("room for a header");
    let mut model = Model { capacity, len: 16, open: None, swapped: false };
    let mut written = Vec::new();
    for _ in 0..40 {
        if input.is_empty() {
            break;
        }
        let mut operation = Operation::choose(&mut input);
        let expected = model.write(&operation);
        assert_eq!(operation.write(&mut buffer), expected, "{operation:?}");
        assert_eq!(buffer.len(), model.len, "after {operation:?}");
        if expected.is_ok() {
            written.push((operation, model.swapped));
        }
    }
    let choices = input.rest();
    let local = buffer.commit();
    let wire = local.to_vec();
    assert_eq!((wire.len(), reference_parser::parse(&wire).is_some()), (local.len(), true));
    let swapped = reference_parser::swapped(&wire);
    let from = |bytes: &[u8]| {
        let block = mpj_pool::global().alloc(bytes.len()).expect("memory");
        Buffer::from_bytes(block, bytes).map_err(|refused| refused.error).expect("a valid message")
    };
    for (mut buffer, native) in [(local, true), (from(&wire), true), (from(&swapped), false)] {
        let mut choices = Input::new(choices);
        for (operation, swapped) in &written {
            operation.read(&mut buffer, native != *swapped, &mut choices);
        }
        assert_eq!((buffer.remaining(), buffer.peek()), (0, None));
        assert_eq!(buffer.skip_section(), Err(ReadError::End));
        buffer.rewind();
        while buffer.peek().is_some() {
            buffer.skip_section().expect("the section that peek returned");
        }
    }
}

#[derive(Debug)]
enum Operation {
    U8(Values<u8>),
    I16(Values<i16>),
    U32(Values<u32>),
    I64(Values<i64>),
    U128(Values<u128>),
    F32(Values<f32>),
    F64(Values<f64>),
    Bool(Values<bool>),
    Char(Values<char>),
    Bytes(Vec<u8>),
    Object(Vec<(u16, String)>),
    Fixed(Vec<Vec<u32>>),
    RawSlice(Vec<f64>),
    NewSection(usize),
}

#[derive(Debug)]
struct Values<T> {
    all: Vec<T>,
    method: usize,
}

impl<T: Element + Copy + PartialEq + Debug> Values<T> {
    fn choose<'a>(input: &mut Input<'a>, mut one: impl FnMut(&mut Input<'a>) -> T) -> Self {
        let count = input.below(24);
        Self { all: (0..count).map(|_| one(input)).collect(), method: input.below(6) }
    }

    fn dynamic(&self) -> bool {
        self.method == 5
    }

    /// Compares bit by bit, because NaN does not equal itself.
    fn equals(&self, other: &[T]) -> bool {
        cast_slice::<T, u8>(&self.all) == cast_slice::<T, u8>(other)
    }

    fn write(&self, buffer: &mut Buffer<DefaultBlock>) -> Result<(), Overflow> {
        let Self { all, method } = self;
        let count = all.len();
        match method {
            0 => buffer.write(all),
            1 => buffer.fill_with(count, |i| all[i]),
            2 => {
                let backwards: Vec<T> = all.iter().rev().copied().collect();
                let indices: Vec<u32> = (0..count as u32).rev().collect();
                only_overflow(buffer.gather(&backwards, &indices))
            }
            3 => {
                // Every third element of a longer slice, in reverse order.
                let mut longer = vec![all.first().copied(); 3 * count];
                all.iter().enumerate().for_each(|(i, x)| longer[3 * (count - 1 - i)] = Some(*x));
                let longer: Vec<T> = longer.into_iter().flatten().collect();
                let start = if count == 0 { 0 } else { 3 * (count - 1) };
                only_overflow(buffer.write_strided(&longer, start, &[(count, -3)]))
            }
            4 => {
                let rows = if count.is_multiple_of(2) { 2 } else { 1 };
                only_overflow(buffer.write_strided(
                    all,
                    0,
                    &[(rows, (count / rows) as isize), (count / rows, 1)],
                ))
            }
            _ => only_overflow(buffer.write_dynamic(all)),
        }
    }

    fn read(&self, buffer: &mut Buffer<DefaultBlock, Reading>, native: bool, choice: usize) {
        let count = self.all.len();
        if choice == 5 && (self.dynamic() || count > 0) {
            let past = ReadError::PastSection {
                needed: u64::MAX,
                available: buffer.peek().expect("a section").count,
            };
            assert_eq!(buffer.skip(u64::MAX), Err(past));
            return buffer.skip(if self.dynamic() { 1 } else { count as u64 }).expect("elements");
        }
        let mut room: Vec<T> = self.all.iter().rev().copied().collect();
        if self.dynamic() {
            match choice {
                0 => room = buffer.read_dynamic().expect("a slice"),
                1 => {
                    let shorter = room.len().saturating_sub(1);
                    let refused = buffer.read_dynamic_into(&mut room[..shorter]);
                    if count > 0 {
                        assert_eq!(refused, Err(ReadError::Length { expected: shorter, found: count }));
                        buffer.read_dynamic_into(&mut room).expect("a slice");
                    }
                }
                _ => match buffer.view_dynamic::<T>() {
                    Ok(view) => room = view.to_vec(),
                    Err(ReadError::ForeignOrder { .. }) => {
                        assert!(!native && size_of::<T>() > 1);
                        room = buffer.read_dynamic().expect("a slice");
                    }
                    // The elements need a larger alignment than records have, or are split over several blocks.
                    Err(ReadError::Misaligned { .. } | ReadError::Split { .. }) => {
                        room = buffer.read_dynamic().expect("a slice");
                    }
                    Err(error) => panic!("{error}"),
                },
            }
            return assert!(self.equals(&room));
        }
        match choice {
            0 => assert_eq!(buffer.read(&mut room), Ok(count)),
            1 => match buffer.view_n::<T>(count) {
                Ok(view) => room = view.to_vec(),
                Err(ReadError::ForeignOrder { .. }) if !native && size_of::<T>() > 1 => {
                    assert_eq!(buffer.read(&mut room), Ok(count));
                }
                Err(error) => panic!("{error}"),
            },
            2 => {
                let indices: Vec<i64> = (0..count as i64).collect();
                if let Some(first) = indices.first() {
                    let mut wrong = indices.clone();
                    wrong[count - 1] = -1 - first;
                    let (before, refused) = (room.clone(), buffer.scatter(&mut room, &wrong));
                    assert!(matches!(refused, Err(ReadError::Index(_))), "{refused:?}");
                    assert_eq!(cast_slice::<T, u8>(&room), cast_slice::<T, u8>(&before));
                }
                assert_eq!(buffer.scatter(&mut room, &indices), Ok(count));
            }
            3 => {
                let start = count.saturating_sub(1);
                assert_eq!(buffer.read_strided(&mut room, start, &[(count, -1)]), Ok(count));
                room.reverse();
            }
            _ => room.iter_mut().for_each(|x| assert_eq!(buffer.read(core::slice::from_mut(x)), Ok(1))),
        }
        if count == 0 && choice >= 4 {
            assert_eq!(buffer.read::<T>(&mut []), Ok(0));
        }
        assert!(self.equals(&room), "{:?} {room:?}", self.all);
    }
}

fn only_overflow(done: Result<(), WriteError>) -> Result<(), Overflow> {
    match done {
        Ok(()) => Ok(()),
        Err(WriteError::Overflow(overflow)) => Err(overflow),
        Err(error) => panic!("{error}"),
    }
}

const NEW_SECTION_CALLS: usize = 8;

const FOREIGN: ByteOrder = if cfg!(target_endian = "little") { ByteOrder::Big } else { ByteOrder::Little };

impl Operation {
    fn choose(input: &mut Input<'_>) -> Self {
        match input.below(14) {
            0 => Self::U8(Values::choose(input, Input::byte)),
            1 => Self::I16(Values::choose(input, |i| i.u16().cast_signed())),
            2 => Self::U32(Values::choose(input, Input::u32)),
            3 => Self::I64(Values::choose(input, |i| i.u64().cast_signed())),
            4 => Self::U128(Values::choose(input, |i| u128::from_le_bytes(i.array()))),
            5 => Self::F32(Values::choose(input, |i| f32::from_bits(i.u32()))),
            6 => Self::F64(Values::choose(input, |i| f64::from_bits(i.u64()))),
            7 => Self::Bool(Values::choose(input, Input::flag)),
            8 => Self::Char(Values::choose(input, |i| char::from_u32(i.u32() % 0x11_0000).unwrap_or('é'))),
            9 => {
                let count = input.below(60);
                Self::Bytes(input.bytes(count).to_vec())
            }
            10 => {
                Self::Object((0..input.below(5)).map(|_| (input.u16(), "é".repeat(input.below(9)))).collect())
            }
            11 => {
                // Sometimes the value does not fit into one block of the dynamic part.
                let factor = if input.below(16) == 0 { 700 } else { 1 };
                Self::Fixed((0..input.below(5)).map(|_| vec![input.u32(); factor * input.below(9)]).collect())
            }
            12 => Self::RawSlice(vec![f64::from_bits(input.u64()); input.below(200)]),
            _ => Self::NewSection(input.below(NEW_SECTION_CALLS)),
        }
    }

    /// Returns the section kind, the bytes of the elements in the static part (0 for `Bytes`, which writes only as much
    /// as fits), and whether the call always opens a section.
    fn shape(&self) -> (&'static str, usize, bool) {
        fn values<T: Element + Copy + PartialEq + Debug>(
            name: &'static str,
            dynamic: &'static str,
            values: &Values<T>,
        ) -> (&'static str, usize, bool) {
            let len = size_of_val(&values.all[..]);
            if values.dynamic() { (dynamic, 0, false) } else { (name, len, false) }
        }
        match self {
            Self::U8(v) => values("u8", "[u8]", v),
            Self::I16(v) => values("i16", "[i16]", v),
            Self::U32(v) => values("u32", "[u32]", v),
            Self::I64(v) => values("i64", "[i64]", v),
            Self::U128(v) => values("u128", "[u128]", v),
            Self::F32(v) => values("f32", "[f32]", v),
            Self::F64(v) => values("f64", "[f64]", v),
            Self::Bool(v) => values("bool", "[bool]", v),
            Self::Char(v) => values("char", "[char]", v),
            Self::Bytes(_) => ("u8", 0, false),
            Self::Object(_) => ("postcard", 0, false),
            Self::Fixed(_) | Self::RawSlice(_) => ("fixed", 0, false),
            Self::NewSection(which) => {
                (["u8", "f64", "char", "postcard", "u32", "f64", "char", "u8"][*which], 0, true)
            }
        }
    }

    fn write(&mut self, buffer: &mut Buffer<DefaultBlock>) -> Result<(), Overflow> {
        match self {
            Self::U8(v) => v.write(buffer),
            Self::I16(v) => v.write(buffer),
            Self::U32(v) => v.write(buffer),
            Self::I64(v) => v.write(buffer),
            Self::U128(v) => v.write(buffer),
            Self::F32(v) => v.write(buffer),
            Self::F64(v) => v.write(buffer),
            Self::Bool(v) => v.write(buffer),
            Self::Char(v) => v.write(buffer),
            Self::Bytes(bytes) => {
                let taken = buffer.byte_writer()?.write(bytes).expect("writes what fits");
                bytes.truncate(taken);
                Ok(())
            }
            Self::Object(value) => only_overflow(buffer.write_object_with::<Postcard, _>(value)),
            Self::Fixed(value) => only_overflow(buffer.write_object_with::<Fixed, _>(value)),
            Self::RawSlice(value) => only_overflow(buffer.write_object_with::<Fixed, _>(&Raw(value))),
            Self::NewSection(0) => buffer.section::<u8>(),
            Self::NewSection(1) => buffer.section::<f64>(),
            Self::NewSection(2) => buffer.section::<char>(),
            Self::NewSection(3) => buffer.object_section(),
            Self::NewSection(4) => buffer.section_with_order::<u32>(FOREIGN),
            Self::NewSection(5) => buffer.section_with_order::<f64>(FOREIGN),
            Self::NewSection(6) => buffer.section_with_order::<char>(FOREIGN),
            Self::NewSection(_) => buffer.section_with_order::<u8>(FOREIGN),
        }
    }

    fn read(&self, buffer: &mut Buffer<DefaultBlock, Reading>, native: bool, choices: &mut Input<'_>) {
        let choice = choices.below(6);
        match self {
            Self::U8(v) => v.read(buffer, native, choice),
            Self::I16(v) => v.read(buffer, native, choice),
            Self::U32(v) => v.read(buffer, native, choice),
            Self::I64(v) => v.read(buffer, native, choice),
            Self::U128(v) => v.read(buffer, native, choice),
            Self::F32(v) => v.read(buffer, native, choice),
            Self::F64(v) => v.read(buffer, native, choice),
            Self::Bool(v) => v.read(buffer, native, choice),
            Self::Char(v) => v.read(buffer, native, choice),
            Self::Bytes(bytes) => {
                let mut room = vec![0; bytes.len()];
                assert_eq!(buffer.read(&mut room), Ok(bytes.len()));
                assert_eq!(&room, bytes);
            }
            Self::Object(value) => {
                assert!(value.is_empty() || buffer.read_object::<u128>().is_err());
                assert_eq!(&buffer.read_object::<Vec<(u16, String)>>().expect("a value"), value);
            }
            Self::Fixed(value) => {
                assert_eq!(&buffer.read_object_with::<Fixed, Vec<Vec<u32>>>().expect("a value"), value);
            }
            Self::RawSlice(value) => {
                let RawVec(found) = buffer.read_object_with::<Fixed, RawVec<f64>>().expect("a value");
                assert_eq!(cast_slice::<f64, u8>(&found), cast_slice::<f64, u8>(value));
            }
            Self::NewSection(0 | 7) => drop(buffer.section::<u8>().expect("a section")),
            Self::NewSection(1 | 5) => drop(buffer.section::<f64>().expect("a section")),
            Self::NewSection(2 | 6) => drop(buffer.section::<char>().expect("a section")),
            Self::NewSection(4) => drop(buffer.section::<u32>().expect("a section")),
            Self::NewSection(_) => drop(buffer.object_section().expect("a section")),
        }
    }
}

/// Predicts the length of the static part.
struct Model {
    capacity: usize,
    len: usize,
    open: Option<&'static str>,
    /// Whether the byte order of the open section differs from that of the message.
    swapped: bool,
}

impl Model {
    fn write(&mut self, operation: &Operation) -> Result<(), Overflow> {
        let (kind, bytes, fresh) = operation.shape();
        let opens = fresh || self.open != Some(kind);
        let needed = bytes + if opens { self.len.next_multiple_of(16) - self.len + 16 } else { 0 };
        let left = self.capacity - self.len;
        if needed > left {
            return Err(Overflow { needed, available: left });
        }
        self.len += needed;
        self.open = Some(kind);
        if opens {
            self.swapped = matches!(operation, Operation::NewSection(4..=6));
        }
        if let Operation::Bytes(bytes) = operation {
            self.len += bytes.len().min(self.capacity - self.len);
        }
        Ok(())
    }
}
