//! Tests of a program that depends on `mpj`, not on the crates below it, and forbids unsafe code.
#![cfg(test)]
#![forbid(unsafe_code)]

use mpj::{ArrayOrder, Datatype, Packer, View, World};

#[repr(C)]
#[derive(Clone, Copy, PartialEq, Debug, Datatype)]
struct Particle {
    kind: u8,
    at: [f64; 3],
    marks: [[bool; 2]; 2],
}

#[repr(C)]
#[derive(Clone, Copy, PartialEq, Debug, mpj::Datatype)]
struct Pair<A, B> {
    first: A,
    second: B,
}

const PARTICLE: Particle = Particle { kind: 7, at: [0.5, 1.5, -2.5], marks: [[true, false], [false, true]] };

#[mpj::test(ranks = 2)]
fn derived_structure_is_an_element_and_a_buffer(world: World) -> mpj::Result<()> {
    let other = 1 - world.rank();
    let mut one = Particle { kind: 0, at: [0.0; 3], marks: [[false; 2]; 2] };
    let mut many = [one; 5];
    world.sendrecv(&PARTICLE, other, 0, &mut one, other, 0)?;
    world.sendrecv(&[PARTICLE; 5], other, 0, &mut many, other, 0)?;
    assert_eq!((one, many), (PARTICLE, [PARTICLE; 5]));
    let mine = Pair { first: world.rank() as u32, second: PARTICLE };
    let mut theirs = mine;
    world.sendrecv(&mine, other, 0, &mut theirs, other, 0)?;
    assert_eq!(theirs, Pair { first: other as u32, second: PARTICLE });
    Ok(())
}

#[mpj::test(ranks = 2)]
fn blocks_of_arrays_and_packers_need_no_other_crate(world: World) -> mpj::Result<()> {
    let grid: Vec<u16> = (0..20).collect();
    let inner = Datatype::of::<u16>().subarray(&[4, 5], &[2, 3], &[1, 1], ArrayOrder::C)?;
    let mut got = [0u16; 6];
    if world.rank() == 0 {
        world.send(&View::new(&grid, 0, &inner, 1)?, 1, 0)?;
    } else {
        world.recv(&mut got, 0, 0)?;
        assert_eq!(got, [6, 7, 8, 11, 12, 13]);
    }
    let bytes: Vec<u8> = (0..20).collect();
    let mut packed = [0u8; 10];
    let every_second = Datatype::of::<u8>().vector(10, 1, 2)?;
    assert_eq!(Packer::new(&every_second, &bytes, 0, 1)?.pack_into_bytes(&mut packed), 10);
    assert_eq!(packed, [0, 2, 4, 6, 8, 10, 12, 14, 16, 18]);
    Ok(())
}

mod through_modules {
    use mpj::datatypes::{Datatype, Primitive};

    #[repr(transparent)]
    #[derive(Clone, Copy, Datatype)]
    struct Metres(f32);

    #[test]
    fn lower_crates_are_modules_of_mpj() {
        assert_eq!(Datatype::of::<Metres>().single_primitive(), Some(Primitive::F32));
        let block = mpj::pool::Pool::alloc(mpj::pool::global(), 100).expect("a hundred bytes");
        let mut buffer = mpj::buffer::Buffer::new(block).expect("room for the header");
        buffer.write(&[1u32, 2]).expect("room for two numbers");
    }
}

#[test]
fn readme_shows_the_program() {
    let (_, program) = include_str!("ring.rs").split_once("\n\n").expect("a blank line after the attributes");
    assert!(include_str!("../../README.md").contains(program), "README.md differs from ring.rs");
}
