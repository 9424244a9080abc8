//! `Box`, `Arc`, references, structures and arrays of arrays as buffers; and conversions of errors.

use std::sync::Arc;

use crate::common::pass;
use mpj::{Datatype, ErrorClass, RecvBuf, SendBuf, View, ViewMut, World};

#[repr(C)]
#[derive(Clone, Copy, PartialEq, Debug, Datatype)]
struct Sample {
    on: bool,
    value: f64,
    name: [char; 3],
}

const SENT: Sample = Sample { on: true, value: -0.25, name: ['a', '\u{e9}', '\u{1d11e}'] };
const BLANK: Sample = Sample { on: false, value: 0.0, name: ['?'; 3] };

/// Sends `send` from rank 0, and receives it into `recv` at rank 1.
fn send_into<S: SendBuf, R: RecvBuf>(world: &World, send: S, mut recv: R, tag: i32) -> mpj::Result<R> {
    let status = pass(world, &send, &mut recv, tag)?;
    assert_eq!(status.is_some(), world.rank() == 1);
    Ok(recv)
}

fn by_reference(world: &World, send: &[u16], recv: &mut [u16]) -> mpj::Result<()> {
    pass(world, &send, &mut { recv }, 7).map(|_| ())
}

#[mpj::test(ranks = 2)]
fn pointers_to_buffers_are_buffers(world: World) -> mpj::Result<()> {
    let here = world.rank() == 1;
    assert_eq!(*send_into(&world, Box::new(5u32), Box::new(0u32), 1)?, if here { 5 } else { 0 });
    let boxed: Box<[i8]> = send_into(&world, vec![1i8, 2, 3].into_boxed_slice(), vec![0; 3].into(), 2)?;
    assert_eq!(boxed.iter().sum::<i8>(), if here { 6 } else { 0 });
    let unsized_buffer: Box<dyn SendBuf> = Box::new([1u64, 2, 3]);
    assert_eq!(send_into(&world, unsized_buffer, [0u64; 3], 3)?[2], if here { 3 } else { 0 });
    assert_eq!(send_into(&world, Arc::new([1.5f32; 4]), [0f32; 4], 4)?, [if here { 1.5 } else { 0.0 }; 4]);
    let shared: Arc<[char]> = Arc::from(vec!['x'; 2]);
    assert_eq!(send_into(&world, shared, ['y'; 2], 5)?, [if here { 'x' } else { 'y' }; 2]);
    let nested = send_into(&world, [[[1u8, 2], [3, 4]]; 3], Box::new([[[0u8; 2]; 2]; 3]), 6)?;
    assert_eq!(nested[2][1], if here { [3, 4] } else { [0, 0] });
    let mut got = [9u16; 5];
    let four = vec![1, 2, 3, 4];
    by_reference(&world, &four, &mut got[1..])?;
    assert_eq!(got, if here { [9, 1, 2, 3, 4] } else { [9; 5] });
    Ok(())
}

#[mpj::test(ranks = 2)]
fn one_structure_is_a_buffer_and_an_element(world: World) -> mpj::Result<()> {
    let here = world.rank() == 1;
    assert_eq!(send_into(&world, SENT, BLANK, 1)?, if here { SENT } else { BLANK });
    assert_eq!(send_into(&world, SENT, [BLANK], 2)?, [if here { SENT } else { BLANK }]);
    assert_eq!(
        send_into(&world, vec![SENT; 9], vec![BLANK; 9], 3)?,
        vec![if here { SENT } else { BLANK }; 9]
    );
    let mut one = BLANK;
    let other = 1 - world.rank();
    world.scope(|s| {
        let receiving = s.irecv(&mut one, other, 4)?;
        s.isend(&SENT, other, 4)?;
        receiving.wait().map(|_| ())
    })?;
    assert_eq!(one, SENT);
    let receiving = world.irecv(Box::new(BLANK), other, 5)?;
    let (_, sent) = (world.isend(SENT, other, 5)?.wait()?, receiving.wait()?);
    assert_eq!((*sent.0, sent.1.bytes()), (SENT, 21));
    Ok(())
}

#[mpj::test(ranks = 1)]
fn type_view_pack_and_pool_errors_convert_into_mpj_errors(world: World) -> mpj::Result<()> {
    let me = world.rank();
    let bad_type = || -> mpj::Result<()> {
        let column = Datatype::of::<f64>().vector(usize::MAX, 1, 4)?;
        world.send(&View::new(&[0.0], 0, &column, 1)?, me, 0)
    };
    assert_eq!(bad_type().unwrap_err().class(), ErrorClass::Type);
    let bad_view = || -> mpj::Result<()> {
        let two = Datatype::of::<u32>().vector(2, 1, 4)?;
        world.recv(&mut ViewMut::new(&mut [0u32; 4], 0, &two, 1)?, me, 0).map(|_| ())
    };
    let error = bad_view().unwrap_err();
    assert_eq!((error.class(), error.call()), (ErrorClass::Buffer, "view"));
    let bad_pack = || -> mpj::Result<usize> {
        Ok(mpj::Packer::new(&Datatype::of::<u32>(), &[0u8; 3], 0, 1)?.pack_into_bytes(&mut [0; 4]))
    };
    assert_eq!(bad_pack().unwrap_err().class(), ErrorClass::Buffer);
    let no_room = || -> mpj::Result<()> {
        mpj::pool::Pool::alloc(mpj::pool::global(), usize::MAX)?;
        Ok(())
    };
    assert_eq!(no_room().unwrap_err().class(), ErrorClass::NoMem);
    Ok(())
}
