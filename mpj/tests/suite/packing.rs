//! Packed buffers, in the machine's form and in external32.

use crate::common::{ranks, samples};
use mpj::raw::{self, Buf};
use mpj::{
    Datatype, ErrorClass, Packed, Slices, View, ViewMut, pack, pack_external32, pack_size, unpack,
    unpack_external32,
};

#[repr(C)]
#[derive(Clone, Copy, PartialEq, Debug, mpj::Datatype)]
struct Mixed {
    kind: u8,
    value: f64,
    at: [i16; 3],
    flag: bool,
}

fn mixed(len: usize) -> Vec<Mixed> {
    let one = |at: usize| Mixed {
        kind: at as u8,
        value: at as f64 / 3.0,
        at: [at as i16, -1, 2],
        flag: at.is_multiple_of(2),
    };
    (0..len).map(one).collect()
}

#[test]
fn packed_items_have_no_gaps() -> mpj::Result<()> {
    let items = mixed(100);
    assert_eq!(pack_size(&items)?, 100 * 16);
    let (native, portable) = (pack(&items)?, pack_external32(&items)?);
    assert_eq!((native.len(), portable.len()), (1600, 1600));
    assert_eq!(native[16..][1..9], (1.0f64 / 3.0).to_ne_bytes());
    assert_eq!(portable[16..][1..9], (1.0f64 / 3.0).to_be_bytes());
    let empty = Mixed { kind: 0, value: 0.0, at: [0; 3], flag: false };
    let (mut got, mut portably) = (vec![empty; 100], vec![empty; 100]);
    assert_eq!((unpack(&native, &mut got)?, unpack_external32(&portable, &mut portably)?), (1600, 1600));
    assert_eq!((&got, &portably), (&items, &items));
    Ok(())
}

#[test]
fn views_and_slices_are_packed() -> mpj::Result<()> {
    let matrix: Vec<u32> = samples(0, 0, 12);
    let column = Datatype::of::<u32>().vector(4, 1, 3).expect("valid");
    let packed = pack(&View::new(&matrix, 1, &column, 1).expect("fits"))?;
    let expected: Vec<u32> = matrix.iter().skip(1).step_by(3).copied().collect();
    assert_eq!(packed, pack(&expected)?);
    let mut other = vec![0u32; 12];
    unpack(&packed, &mut ViewMut::new(&mut other, 2, &column, 1).expect("fits"))?;
    assert_eq!(other.iter().skip(2).step_by(3).copied().collect::<Vec<_>>(), expected);
    assert_eq!(other.iter().filter(|item| **item == 0).count(), 8);
    let pieces = Slices::new([&matrix[..5], &matrix[5..]]);
    assert_eq!(pack(&pieces)?, pack(&matrix)?);
    assert_eq!(pack_external32(&pieces).expect_err("pieces").class(), ErrorClass::Buffer);
    Ok(())
}

#[test]
fn short_input_and_invalid_values_are_errors() -> mpj::Result<()> {
    let mut numbers = [9u64; 3];
    for error in [
        unpack(&[0; 23], &mut numbers).expect_err("23"),
        unpack_external32(&[0; 23], &mut numbers).expect_err("23"),
    ] {
        assert!(error.class() == ErrorClass::Truncate && error.to_string().contains("24"), "{error}");
    }
    assert_eq!(numbers, [9; 3], "it is unchanged");
    assert_eq!(unpack(&[1; 100], &mut numbers)?, 24);
    for portable in [false, true] {
        let mut flags = [true; 3];
        let unpacked =
            if portable { unpack_external32(&[1, 7, 0], &mut flags) } else { unpack(&[1, 2, 0], &mut flags) };
        assert_eq!(unpacked.expect_err("no bool").class(), ErrorClass::Type);
        assert_eq!(flags, [true, false, false]);
    }
    let mut letters = ['x'; 2];
    assert!(unpack_external32(&[0xff; 8], &mut letters).is_err() && letters == ['\0'; 2]);
    assert_eq!(unpack(&[], &mut [0u8; 0])?, 0);
    assert_eq!(raw::pack_size(&Buf::in_place()).expect_err("no items").class(), ErrorClass::Buffer);
    Ok(())
}

/// MPJ Express matches a packed message only with a packed receive; MPI matches it with every type.
#[test]
fn packed_messages_match_every_type() {
    ranks(2, |world| {
        let (me, other) = (world.rank(), 1 - world.rank());
        let mut bytes = pack(&[me as f64, 0.5])?;
        bytes.extend(pack(&['a', 'b'])?);
        let packed = Packed(bytes);
        world.sendrecv_replace(&mut packed.clone(), other, 0, other, 0)?;
        let sending = world.isend(packed, other, 1)?;
        let mut got = Packed(vec![0; 24]);
        world.recv(&mut got, other, 1)?;
        sending.wait()?;
        let (mut numbers, mut letters) = ([0.0; 2], ['?'; 2]);
        let used = unpack(&got.0, &mut numbers)?;
        unpack(&got.0[used..], &mut letters)?;
        assert_eq!((numbers, letters), ([other as f64, 0.5], ['a', 'b']));
        world.send(&Packed(pack(&[me as u32; 4])?), other, 2)?;
        assert_eq!(world.recv_vec::<u32>(other, 2)?.0, [other as u32; 4]);
        world.send(&[me as u32; 4], other, 3)?;
        let mut as_bytes = Packed(vec![0; 16]);
        world.recv(&mut as_bytes, other, 3)?;
        assert_eq!(as_bytes.0, pack(&[other as u32; 4])?);
        Ok(())
    });
}
