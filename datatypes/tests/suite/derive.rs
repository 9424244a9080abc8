//! `#[derive(Datatype)]`: layouts, padding, generics.
#![cfg(feature = "derive")]

use core::marker::PhantomData;
use mpj_datatypes::{Datatype, Equivalent, Packer, Primitive, Receivable, Run, Unpacker};

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Datatype)]
struct Particle {
    kind: u8,
    at: [f64; 3],
    charge: i16,
    cell: Cell,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Datatype)]
struct Cell {
    index: [u16; 3],
    ghost: bool,
    mark: char,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Datatype)]
struct Numbers {
    small: u8,
    large: u64,
    middle: [u16; 3],
}

#[repr(C)]
#[derive(Clone, Copy, Datatype)]
struct Pair<A, B, const N: usize> {
    first: A,
    second: [B; N],
    _kind: PhantomData<(A, B)>,
}

#[repr(transparent)]
#[derive(Clone, Copy, Datatype)]
struct Metres(f32);

#[repr(C, packed(2))]
#[derive(Clone, Copy, Datatype)]
struct Packed(u8, u64);

#[repr(C, align(32))]
#[derive(Clone, Copy, Datatype)]
struct Aligned {
    one: u8,
}

#[repr(C)]
#[derive(Clone, Copy, Datatype)]
struct Empty;

/// Can be sent, but not received, because most bytes are not a variant.
#[repr(u8)]
#[derive(Clone, Copy)]
#[allow(dead_code)]
enum Color {
    Red = 1,
}

#[allow(unsafe_code)]
// SAFETY: an enum of one byte, always initialised.
unsafe impl Equivalent for Color {
    const PRIMITIVE: Option<Primitive> = None;

    fn datatype() -> Datatype {
        u8::datatype().dup().unwrap()
    }
}

#[repr(C)]
#[derive(Clone, Copy, Datatype)]
struct Painted {
    color: Color,
}

mod elsewhere {
    pub(super) mod name {
        pub(in super::super) use mpj_datatypes::*;
    }

    #[repr(C)]
    #[derive(Clone, Copy, name::Datatype)]
    #[datatype(crate = name)]
    pub(super) struct Renamed(pub(super) u32);
}

#[allow(dead_code, non_upper_case_globals)]
mod alike {
    pub(super) mod core {}
    pub(super) mod std {}
    pub(super) mod mpj_datatypes {}
    const DATATYPE: u8 = 1;
    const this: u8 = 1;
    trait Equivalent {
        fn datatype() {}
        fn derived_received() {}
    }
    impl<T> Equivalent for T {}

    macro_rules! structure {
        ($name:ident, $($field:ident: $type:ty),*) => {
            #[repr(C, packed)]
            #[derive(Clone, Copy, ::mpj_datatypes::Datatype)]
            pub(super) struct $name<T: Copy, const N: usize>
            where
                T: PartialEq,
            {
                $($field: $type,)*
                rest: [T; N],
            }
        };
    }
    structure!(Local, this: u8, structure: [u16; 3], letter: char);
}

fn received<T: Receivable>() -> Datatype {
    T::datatype()
}

#[test]
fn derived_layouts_are_those_of_the_compiler() {
    let particle = received::<Particle>();
    assert_eq!(particle.extent() as usize, size_of::<Particle>());
    assert_eq!(particle.size(), 1 + 24 + 2 + 6 + 1 + 4);
    assert!(particle.needs_validation());
    let runs: Vec<Run> = received::<Numbers>().runs(1).collect();
    // The alignment of `u64` and `f64` is 8, or 4 on some 32-bit processors.
    let second = align_of::<f64>() as i64;
    assert_eq!(runs, [Run { offset: 0, len: 1 }, Run { offset: second, len: 14 }]);

    let pair = received::<Pair<i8, f32, 5>>();
    assert_eq!((pair.size(), pair.extent()), (21, 24));
    assert_eq!(received::<Pair<u8, u8, 3>>().extent(), 4);

    assert_eq!(Metres::PRIMITIVE, Some(Primitive::F32));
    assert_eq!(received::<Metres>().single_primitive(), Some(Primitive::F32));
    let packed = received::<Packed>();
    assert_eq!((packed.size(), packed.extent()), (9, size_of::<Packed>() as i64));
    assert_eq!(received::<Aligned>().extent(), 32);
    assert_eq!(received::<Empty>().size(), 0);
    assert_eq!(received::<elsewhere::Renamed>().size(), 4);
    let _ = elsewhere::Renamed(1).0;
    assert_eq!(received::<alike::Local<bool, 2>>().size(), 13);
    assert_eq!(Datatype::of::<Painted>().size(), 1);
    assert_eq!(Datatype::of::<[Particle; 4]>().element_count(), 4 * received::<Particle>().element_count());
}

#[test]
fn derived_structures_round_trip() {
    let sent: Vec<Numbers> =
        (0..100).map(|i| Numbers { small: i, large: u64::from(i) << 40, middle: [i.into(); 3] }).collect();
    let mut packer = Packer::of_slice(&sent).unwrap();
    let mut bytes = vec![0; packer.remaining()];
    assert_eq!(bytes.len(), 1500);
    packer.pack_into_bytes(&mut bytes);
    let mut back = vec![Numbers { small: 0, large: 0, middle: [0; 3] }; 100];
    Unpacker::of_slice(&mut back).unwrap().unpack_from(&bytes).unwrap();
    assert_eq!(back, sent);
}
