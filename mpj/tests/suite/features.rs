//! Types of other crates as buffers. Each test needs the feature that is named after the crate.
#![cfg(any(
    feature = "bytemuck",
    feature = "bytes",
    feature = "half",
    feature = "ndarray",
    feature = "num-complex"
))]

use mpj::World;

#[cfg(feature = "half")]
#[mpj::test(ranks = 2)]
fn half_floats_are_buffers(world: World) -> mpj::Result<()> {
    use half::{bf16, f16};
    let other = 1 - world.rank();
    let (mut one, mut many) = (bf16::ZERO, [f16::ZERO; 5]);
    world.sendrecv(&bf16::from_f32(world.rank() as f32 + 0.5), other, 0, &mut one, other, 0)?;
    world.sendrecv(&[f16::from_f32(world.rank() as f32); 5], other, 1, &mut many, other, 1)?;
    assert_eq!((one.to_f32(), many[4].to_f32()), (other as f32 + 0.5, other as f32));
    let mismatch = world.sendrecv(&[f16::ONE], other, 2, &mut [bf16::ZERO], other, 2);
    assert_eq!(mismatch.expect_err("another format").class(), mpj::ErrorClass::Type);
    let mut buffer = mpj::buffer::Buffer::with_capacity(256)?;
    buffer.write(&[f16::ONE]).expect("room");
    assert_eq!(buffer.commit().view::<f16>().expect("a section of f16"), [f16::ONE]);
    Ok(())
}

#[cfg(feature = "num-complex")]
#[mpj::test(ranks = 2)]
fn complex_numbers_are_buffers(world: World) -> mpj::Result<()> {
    use num_complex::{Complex32, Complex64};
    let other = 1 - world.rank();
    let (mut one, mut many) = (Complex32::default(), vec![Complex64::default(); 3]);
    world.sendrecv(&Complex32::new(world.rank() as f32, -1.0), other, 0, &mut one, other, 0)?;
    world.sendrecv(&[Complex64::new(0.5, world.rank() as f64); 3], other, 1, &mut many, other, 1)?;
    assert_eq!((one, many[2]), (Complex32::new(other as f32, -1.0), Complex64::new(0.5, other as f64)));
    let mut buffer = mpj::buffer::Buffer::with_capacity(256)?;
    buffer.write(&many).expect("room");
    assert_eq!(buffer.commit().view::<Complex64>().expect("a section of complex numbers"), many);
    Ok(())
}

#[cfg(feature = "bytemuck")]
#[mpj::test(ranks = 2)]
fn pod_structures_are_buffers(world: World) -> mpj::Result<()> {
    use mpj::{Datatype, PodElement};

    #[repr(C)]
    #[derive(Clone, Copy, PartialEq, Debug, Default, bytemuck::Pod, bytemuck::Zeroable)]
    struct Foreign {
        at: [f32; 3],
        id: u32,
    }
    #[repr(C)]
    #[derive(Clone, Copy, PartialEq, Debug, Default, Datatype)]
    struct Own {
        alive: bool,
        foreign: PodElement<Foreign>,
    }
    let of = |rank: usize, id: u32| Foreign { at: [rank as f32; 3], id };
    let (me, other) = (world.rank(), 1 - world.rank());
    let mut many = [Foreign::default(); 4];
    let sent = [0, 1, 2, 3].map(|id| of(me, id));
    world.sendrecv(
        PodElement::wrap_slice(&sent),
        other,
        0,
        PodElement::wrap_slice_mut(&mut many),
        other,
        0,
    )?;
    assert_eq!(many, [0, 1, 2, 3].map(|id| of(other, id)));
    let mut one = PodElement(Foreign::default());
    world.sendrecv(&PodElement(of(me, 9)), other, 1, &mut one, other, 1)?;
    assert_eq!(one.0, of(other, 9));
    let mut own = Own::default();
    world.sendrecv(&Own { alive: true, foreign: PodElement(of(me, 5)) }, other, 2, &mut own, other, 2)?;
    assert_eq!(own, Own { alive: true, foreign: PodElement(of(other, 5)) });
    Ok(())
}

#[cfg(feature = "ndarray")]
mod arrays {
    use mpj::ErrorClass;
    use ndarray::{Array1, Array2, Array3, ArrayD, s};

    use super::World;

    fn cube(rank: usize) -> Array3<u32> {
        Array3::from_shape_fn((4, 5, 6), |(i, j, k)| (1000 * rank + 100 * i + 10 * j + k) as u32)
    }

    /// The received array has the sent elements at the same indices.
    #[mpj::test(ranks = 2)]
    fn ndarray_views_are_sent_in_index_order(world: World) -> mpj::Result<()> {
        let (mine, theirs, other) = (cube(world.rank()), cube(1 - world.rank()), 1 - world.rank());
        let mut got = Array3::<u32>::zeros((4, 5, 6));
        world.sendrecv(&mine, other, 0, &mut got, other, 0)?;
        assert_eq!(got, theirs);

        let part = s![1..3, ..;2, ..;-1];
        let mut small = Array3::<u32>::zeros((2, 3, 6));
        world.sendrecv(&mine.slice(part), other, 1, &mut small, other, 1)?;
        assert_eq!(small, theirs.slice(part));

        let mut turned = Array3::<u32>::zeros((6, 5, 4));
        world.sendrecv(&mine.view().reversed_axes(), other, 2, &mut turned, other, 2)?;
        assert_eq!(turned, theirs.view().reversed_axes());

        // Into a view: elements outside the view are unchanged.
        let mut into = Array3::<u32>::zeros((4, 5, 6));
        world.sendrecv(&mine.slice(part), other, 3, &mut into.slice_mut(part), other, 3)?;
        assert_eq!(into.slice(part), theirs.slice(part));
        assert_eq!(into.iter().filter(|n| **n != 0).count(), small.iter().filter(|n| **n != 0).count());

        // By value, in an order that differs from the memory layout.
        let (sending, receiving) = (
            world.isend(mine.clone().reversed_axes(), other, 4)?,
            world.irecv(Array3::<u32>::zeros((4, 5, 6)).reversed_axes(), other, 4)?,
        );
        assert_eq!(receiving.wait()?.0, theirs.view().reversed_axes());
        assert_eq!(sending.wait()?.0, mine.view().reversed_axes());
        Ok(())
    }

    #[mpj::test(ranks = 3)]
    fn collectives_accept_arrays(world: World) -> mpj::Result<()> {
        let mut table = Array2::from_elem((7, 3), world.rank() as f64);
        world.bcast(&mut table.slice_mut(s![.., 1]), 2)?;
        assert!(table.column(1).iter().all(|x| *x == 2.0));
        assert!(table.column(0).iter().all(|x| *x == world.rank() as f64));
        let mut sum = Array1::<f64>::zeros(7);
        world.allreduce(&table.column(0), &mut sum, mpj::Op::Sum)?;
        assert!(sum.iter().all(|x| *x == 3.0));
        Ok(())
    }

    /// The view repeats one element more often than a message can count.
    #[mpj::test(ranks = 2)]
    fn blocks_of_an_overlong_view_can_be_scattered(world: World) -> mpj::Result<()> {
        let one = Array1::from_elem(1, 7u64);
        let endless = one.broadcast(isize::MAX as usize).expect("one element, often");
        let comm = world.dup()?;
        let mut wide = [0u128];
        let refused = world.scatterv(&endless, &[1, 1], &[0, 1 << 40], &mut wide, 0).expect_err("no u128");
        assert_eq!((refused.class(), wide), (ErrorClass::Count, [0]));
        let mut mine = [0u64];
        comm.scatterv(&endless, &[1, 1], &[0, 1 << 40], &mut mine, 0)?;
        assert_eq!(mine, [7]);
        Ok(())
    }

    /// Views with too many elements to count are an error. Empty views, views with more dimensions than datatypes can
    /// nest, and views of `bool`s are not.
    #[mpj::test(ranks = 2)]
    fn views_of_any_shape_are_sent_or_rejected(world: World) -> mpj::Result<()> {
        let one = Array1::from_elem(1, 7u64);
        let endless = one.broadcast(isize::MAX as usize).expect("one element, often");
        assert_eq!(
            world.send(&endless, 1 - world.rank(), 0).expect_err("too much").class(),
            ErrorClass::Count
        );
        let (none, deep) = (ArrayD::<u8>::zeros(vec![0; 300]), ArrayD::from_elem(vec![1; 300], 5u8));
        let (mut nothing, mut single) = (none.clone(), ArrayD::<u8>::zeros(vec![1; 300]));
        let other = 1 - world.rank();
        world.sendrecv(&none, other, 1, &mut nothing, other, 1)?;
        world.sendrecv(&deep, other, 2, &mut single, other, 2)?;
        assert_eq!(single, deep);
        let mut flags = Array2::from_elem((3, 3), true);
        world.sendrecv(&[true, false, true], other, 3, &mut flags.column_mut(0), other, 3)?;
        assert_eq!(flags.column(0).to_vec(), [true, false, true]);
        Ok(())
    }
}

#[cfg(feature = "bytes")]
#[mpj::test(ranks = 2)]
fn bytes_are_buffers(world: World) -> mpj::Result<()> {
    use bytes::{Bytes, BytesMut};
    let other = 1 - world.rank();
    let whole = Bytes::from(vec![world.rank() as u8; 100_000]);
    let sending = world.isend(whole.slice(10..90_010), other, 0)?;
    let mut got = BytesMut::zeroed(90_000);
    world.recv(&mut got, other, 0)?;
    assert!(got.iter().all(|b| *b == other as u8));
    assert_eq!(sending.wait()?.0, whole.slice(10..90_010));
    let (shared, mut back) = (got.freeze(), [0u8; 90_000]);
    world.sendrecv(&shared, other, 1, &mut back, other, 1)?;
    assert!(back.iter().all(|b| *b == world.rank() as u8));
    Ok(())
}
