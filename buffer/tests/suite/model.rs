//! Random operations, checked against a model: written values are read from the buffer and from a copy of its bytes.

use crate::common::Heap;
use mpj_buffer::{Buffer, ByteOrder, ElementKind, Overflow, ReadError, Reading, WriteError};
use proptest::collection::vec;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Operation {
    Bytes(Vec<u8>),
    Shorts(Vec<i16>),
    Ints(Vec<u32>),
    Longs(Vec<i64>),
    Wides(Vec<u128>),
    Doubles(Vec<f64>),
    Bools(Vec<bool>),
    Chars(Vec<char>),
    Object(String, Vec<u64>),
    NewBytes,
    NewDoubles,
    NewInts(ByteOrder),
    NewObjects,
}

fn operation() -> impl Strategy<Value = Operation> {
    use Operation::*;
    prop_oneof![
        vec(any::<u8>(), 0..40).prop_map(Bytes),
        vec(any::<i16>(), 0..20).prop_map(Shorts),
        vec(any::<u32>(), 0..20).prop_map(Ints),
        vec(any::<i64>(), 0..10).prop_map(Longs),
        vec(any::<u128>(), 0..5).prop_map(Wides),
        vec(-1e9..1e9f64, 0..10).prop_map(Doubles),
        vec(any::<bool>(), 0..40).prop_map(Bools),
        vec(any::<char>(), 0..20).prop_map(Chars),
        (".{0,20}", vec(any::<u64>(), 0..50)).prop_map(|(s, v)| Object(s, v)),
        ("[ab]", vec(any::<u64>(), 1000..3000)).prop_map(|(s, v)| Object(s, v)),
        Just(NewBytes),
        Just(NewDoubles),
        prop_oneof![Just(ByteOrder::Little), Just(ByteOrder::Big)].prop_map(NewInts),
        Just(NewObjects),
    ]
}

impl Operation {
    /// Returns the kind, the bytes of the elements, and whether the call always opens a section.
    fn shape(&self) -> (ElementKind, usize, bool) {
        use Operation::*;
        match self {
            Bytes(v) => (ElementKind::U8, v.len(), false),
            Shorts(v) => (ElementKind::I16, v.len() * 2, false),
            Ints(v) => (ElementKind::U32, v.len() * 4, false),
            Longs(v) => (ElementKind::I64, v.len() * 8, false),
            Wides(v) => (ElementKind::U128, v.len() * 16, false),
            Doubles(v) => (ElementKind::F64, v.len() * 8, false),
            Bools(v) => (ElementKind::Bool, v.len(), false),
            Chars(v) => (ElementKind::Char, v.len() * 4, false),
            Object(..) => (ElementKind::Object, 0, false),
            NewBytes => (ElementKind::U8, 0, true),
            NewDoubles => (ElementKind::F64, 0, true),
            NewInts(_) => (ElementKind::U32, 0, true),
            NewObjects => (ElementKind::Object, 0, true),
        }
    }

    fn write(&self, buffer: &mut Buffer<Heap>) -> Result<(), Overflow> {
        use Operation::*;
        match self {
            Bytes(v) => buffer.write(v),
            Shorts(v) => buffer.write(v),
            Ints(v) => buffer.write(v),
            Longs(v) => buffer.write(v),
            Wides(v) => buffer.write(v),
            Doubles(v) => buffer.write(v),
            Bools(v) => buffer.write(v),
            Chars(v) => buffer.write(v),
            Object(s, v) => buffer.write_object(&(s, v)).map_err(|error| match error {
                WriteError::Overflow(overflow) => overflow,
                other => panic!("{other}"),
            }),
            NewBytes => buffer.section::<u8>(),
            NewDoubles => buffer.section::<f64>(),
            NewInts(order) => buffer.section_with_order::<u32>(*order),
            NewObjects => buffer.object_section(),
        }
    }

    fn read(&self, buffer: &mut Buffer<Heap, Reading>) {
        use Operation::*;
        macro_rules! same {
            ($values:expr, $zero:expr) => {{
                let mut back = vec![$zero; $values.len()];
                assert_eq!(buffer.read(&mut back), Ok($values.len()));
                assert_eq!(&back, $values);
            }};
        }
        match self {
            Bytes(v) => same!(v, 0),
            Shorts(v) => same!(v, 0),
            Ints(v) => same!(v, 0),
            Longs(v) => same!(v, 0),
            Wides(v) => same!(v, 0),
            Doubles(v) => same!(v, 0.0),
            Bools(v) => same!(v, false),
            Chars(v) => same!(v, ' '),
            Object(s, v) => {
                assert_eq!(buffer.read_object::<(String, Vec<u64>)>(), Ok((s.clone(), v.clone())))
            }
            NewBytes => assert!(buffer.section::<u8>().is_ok()),
            NewDoubles => assert!(buffer.section::<f64>().is_ok()),
            NewInts(_) => assert!(buffer.section::<u32>().is_ok()),
            NewObjects => assert!(buffer.object_section().is_ok()),
        }
    }
}

#[derive(Debug)]
struct Model {
    capacity: usize,
    len: usize,
    open: Option<ElementKind>,
}

impl Model {
    fn write(&mut self, (kind, bytes, fresh): (ElementKind, usize, bool)) -> Result<(), Overflow> {
        let opens = fresh || self.open != Some(kind);
        let added = bytes + if opens { self.len.next_multiple_of(16) - self.len + 16 } else { 0 };
        let left = self.capacity - self.len;
        if added > left {
            return Err(Overflow { needed: added, available: left });
        }
        self.len += added;
        self.open = Some(kind);
        Ok(())
    }
}

fn cases(native: u32) -> ProptestConfig {
    let cases = if cfg!(miri) { 4 } else { native };
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases(512))]

    #[test]
    fn written_values_are_read(
        operations in vec(operation(), 0..40),
        capacity in 1usize..80,
        headroom in 0usize..50,
        skew in 0usize..2,
    ) {
        let start = headroom.next_multiple_of(16);
        let mut buffer = Buffer::with_headroom(Heap::skewed(start + capacity * 16, skew), headroom).unwrap();
        let mut model = Model { capacity: capacity * 16, len: 16, open: None };
        let mut written = Vec::new();
        for operation in operations {
            let expected = model.write(operation.shape());
            prop_assert_eq!(operation.write(&mut buffer), expected);
            prop_assert_eq!(buffer.len(), model.len);
            if expected.is_ok() {
                written.push(operation);
            }
        }
        let mut local = buffer.commit();
        let wire = local.to_vec();
        prop_assert_eq!(wire.len(), local.len());
        let mut remote = Buffer::from_bytes(Heap::skewed(wire.len(), skew), &wire).unwrap();
        prop_assert_eq!(&remote.to_vec(), &wire);
        for buffer in [&mut local, &mut remote] {
            for operation in &written {
                operation.read(buffer);
            }
            prop_assert_eq!(buffer.remaining(), 0);
            prop_assert_eq!(buffer.peek(), None);
            prop_assert_eq!(buffer.skip_section(), Err(ReadError::End));

            buffer.rewind();
            while buffer.peek().is_some() {
                buffer.skip_section().unwrap();
            }
        }
    }
}
