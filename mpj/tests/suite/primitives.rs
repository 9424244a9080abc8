//! Every primitive with a Rust type can be sent and received as a single value and, except for `usize` and `isize`, has
//! a buffer section of the same name. If a primitive is added, the `match` in this file does not compile.

use mpj::buffer::{Element, ElementKind};
use mpj::{Equivalent, Primitive, RecvBuf, SendBuf, World};

/// Sends and receives one value of the primitive's type, as a single value and in a slice.
fn assert_arrives<T>(world: &World, primitive: Primitive, value: T)
where
    T: SendBuf + RecvBuf + mpj::Receivable + Default + PartialEq + std::fmt::Debug,
{
    assert_eq!(T::PRIMITIVE, Some(primitive));
    assert_eq!((size_of::<T>(), align_of::<T>()), (primitive.size(), primitive.align()), "{primitive:?}");
    let other = 1 - world.rank();
    let (mut one, mut two) = (T::default(), [T::default(); 2]);
    world.sendrecv(&value, other, 0, &mut one, other, 0).unwrap();
    world.sendrecv(&[value; 2], other, 0, &mut two, other, 0).unwrap();
    assert_eq!((one, two), (value, [value; 2]));
}

fn assert_has_section_kind<T: Element + Equivalent>() {
    let primitive = T::PRIMITIVE.expect("a primitive");
    assert_eq!(T::KIND.to_string(), primitive.name());
    assert_eq!(T::KIND.size(), primitive.size());
    assert!(ElementKind::ALL.contains(&T::KIND));
}

macro_rules! row {
    ($world:ident, $primitive:ident, $type:ty, $value:expr) => {{
        assert_arrives::<$type>(&$world, $primitive, $value);
        assert_has_section_kind::<$type>();
    }};
}

#[mpj::test(ranks = 2)]
fn every_primitive_is_a_buffer_and_a_section_kind(world: World) -> mpj::Result<()> {
    for primitive in Primitive::ALL {
        match primitive {
            Primitive::I8 => row!(world, primitive, i8, -1),
            Primitive::U8 => row!(world, primitive, u8, 255),
            Primitive::I16 => row!(world, primitive, i16, -2),
            Primitive::U16 => row!(world, primitive, u16, 3),
            Primitive::I32 => row!(world, primitive, i32, -4),
            Primitive::U32 => row!(world, primitive, u32, 5),
            Primitive::I64 => row!(world, primitive, i64, -6),
            Primitive::U64 => row!(world, primitive, u64, 7),
            Primitive::I128 => row!(world, primitive, i128, -8),
            Primitive::U128 => row!(world, primitive, u128, 9),
            Primitive::F32 => row!(world, primitive, f32, 0.5),
            Primitive::F64 => row!(world, primitive, f64, 0.25),
            Primitive::Bool => row!(world, primitive, bool, true),
            Primitive::Char => row!(world, primitive, char, 'x'),
            // The width of these types depends on the machine, so they have no section.
            Primitive::Usize => assert_arrives(&world, primitive, 10usize),
            Primitive::Isize => assert_arrives(&world, primitive, -11isize),
            // Message types without a Rust type.
            Primitive::Byte | Primitive::Packed => {}
            #[cfg(feature = "half")]
            Primitive::F16 => row!(world, primitive, half::f16, half::f16::ONE),
            #[cfg(feature = "half")]
            Primitive::Bf16 => row!(world, primitive, half::bf16, half::bf16::ONE),
            #[cfg(not(feature = "half"))]
            Primitive::F16 | Primitive::Bf16 => {}
            #[cfg(feature = "num-complex")]
            Primitive::Complex32 => {
                row!(world, primitive, num_complex::Complex32, num_complex::Complex32::I)
            }
            #[cfg(feature = "num-complex")]
            Primitive::Complex64 => {
                row!(world, primitive, num_complex::Complex64, num_complex::Complex64::I)
            }
            #[cfg(not(feature = "num-complex"))]
            Primitive::Complex32 | Primitive::Complex64 => {}
        }
    }
    Ok(())
}

#[test]
fn every_kind_is_an_object_or_has_a_primitive_of_its_name() {
    for kind in ElementKind::ALL {
        let primitive = Primitive::ALL.into_iter().find(|primitive| primitive.name() == kind.to_string());
        match primitive {
            Some(primitive) => assert_eq!(primitive.size(), kind.size()),
            None => assert_eq!(kind, ElementKind::Object),
        }
    }
}
