//! A test of a program that depends on `mpj` under another name, and on no other crate of this project.
#![cfg(test)]
#![forbid(unsafe_code)]

use message_passing as mp;

#[repr(C)]
#[derive(Clone, Copy, PartialEq, Debug, mp::Datatype)]
#[datatype(crate = mp)]
struct Sample {
    time: u64,
    value: f32,
}

#[mp::test(ranks = 2, crate = mp)]
fn macros_use_the_given_crate_name(world: mp::World) -> mp::Result<()> {
    let mine = Sample { time: world.rank() as u64, value: 0.5 };
    let mut theirs = mine;
    let other = 1 - world.rank();
    world.sendrecv(&mine, other, 0, &mut theirs, other, 0)?;
    assert_eq!(theirs, Sample { time: other as u64, value: 0.5 });
    Ok(())
}
