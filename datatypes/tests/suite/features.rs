//! Types of other crates, by feature.

#[cfg(feature = "half")]
#[test]
fn half_is_an_element() {
    use half::{bf16, f16};
    use mpj_datatypes::{Datatype, Equivalent, Packer, Primitive};
    assert_eq!(f16::PRIMITIVE, Some(Primitive::F16));
    assert_eq!(bf16::datatype().size(), 2);
    assert_ne!(Datatype::of::<f16>().signature(), Datatype::of::<bf16>().signature());
    let mut bytes = [0; 2];
    Packer::of_slice(&[f16::ONE]).unwrap().pack_external32_into(&mut bytes);
    assert_eq!(bytes, [0x3c, 0]);
}

#[cfg(feature = "num-complex")]
#[test]
fn complex_is_an_element() {
    use mpj_datatypes::{Datatype, Equivalent, Packer, Primitive, Unpacker};
    use num_complex::{Complex32, Complex64};
    assert_eq!(Complex64::PRIMITIVE, Some(Primitive::Complex64));
    assert_eq!(Complex32::datatype().size(), 8);
    assert_ne!(Datatype::of::<Complex32>().signature(), Datatype::of::<[f32; 2]>().signature());
    let mut bytes = [0; 16];
    Packer::of_slice(&[Complex64::new(1.0, -2.0)]).unwrap().pack_external32_into(&mut bytes);
    assert_eq!(bytes[..8], 1f64.to_be_bytes());
    assert_eq!(bytes[8..], (-2f64).to_be_bytes());
    let mut back = [Complex64::default()];
    Unpacker::of_slice(&mut back).unwrap().unpack_external32_from(&bytes).unwrap();
    assert_eq!(back[0], Complex64::new(1.0, -2.0));
}

#[cfg(feature = "ndarray")]
mod views {
    use mpj_datatypes::{Datatype, Packer, Unpacker};
    use ndarray::{Array, Array3, Axis, s};

    #[test]
    fn slices_of_arrays_match_ndarray() {
        let cube = Array3::from_shape_fn((4, 5, 6), |(i, j, k)| (100 * i + 10 * j + k) as u16);
        let mut turned = cube.clone();
        turned.swap_axes(0, 2);
        turned.invert_axis(Axis(1));
        let views =
            [cube.view(), cube.slice(s![1..3, ..;2, 1..;3]), cube.slice(s![..;-1, 2..2, ..]), turned.view()];
        for view in views {
            let want: Vec<u8> = view.iter().flat_map(|n| n.to_ne_bytes()).collect();
            let mut packer = Packer::view(view).unwrap();
            let mut got = vec![0; packer.remaining()];
            packer.pack_into_bytes(&mut got);
            assert_eq!(got, want);
            let mut back = Array::<u16, _>::zeros(view.raw_dim());
            let mut halves = back.view_mut();
            halves.swap_axes(0, 0);
            Unpacker::view(halves).unwrap().unpack_from(&got).unwrap();
            assert_eq!(back, view);
        }
    }

    #[test]
    fn interleaved_views_are_borrowed_separately() {
        let mut line = Array::<u32, _>::zeros(10);
        let (even, odd) = line.multi_slice_mut((s![..;2], s![1..;2]));
        let source: Vec<u32> = (1..6).collect();
        let (mut a, mut b) = (Unpacker::view(even).unwrap(), Unpacker::view(odd).unwrap());
        assert_eq!(Packer::of_slice(&source).unwrap().transpack(&mut a), 20);
        assert_eq!(Packer::of_slice(&source).unwrap().transpack(&mut b), 20);
        assert_eq!(line.to_vec(), [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]);
    }

    #[test]
    fn dimensions_without_a_second_element_cost_nothing() {
        let cell = Array::from_elem(vec![1; 1000], 7u8);
        let (one, plain) = (Datatype::of_array_view(&cell.view()).unwrap(), Datatype::of::<u8>());
        assert_eq!((one.size(), one.signature()), (1, plain.signature()));
        let none = Array::from_elem(vec![0; 1000], 7u8);
        assert_eq!(Datatype::of_array_view(&none.view()).unwrap().size(), 0);
    }

    #[test]
    fn repeated_elements_whose_size_overflows_are_errors() {
        let one = Array::from_elem(1, 7u64);
        let thrice = one.broadcast(3).unwrap();
        let mut got = [0; 24];
        Packer::view(thrice).unwrap().pack_into_bytes(&mut got);
        assert_eq!(got.as_chunks().0.iter().map(|b| u64::from_ne_bytes(*b)).sum::<u64>(), 21);
        assert!(Datatype::of_array_view(&one.broadcast(isize::MAX as usize).unwrap()).is_err());
    }

    #[test]
    fn views_of_types_that_need_validation_are_errors() {
        let mut flags = Array::from_elem(4, false);
        assert!(Unpacker::view(flags.view_mut()).is_err());
        assert!(Datatype::of_array_view(&flags.view()).unwrap().needs_validation());
    }
}

#[cfg(feature = "bytemuck")]
mod pods {
    use mpj_datatypes::{Datatype, Equivalent, Packer, PodElement, Primitive, Unpacker};

    #[repr(C)]
    #[derive(Clone, Copy, PartialEq, Debug, Default, bytemuck::Pod, bytemuck::Zeroable)]
    struct Foreign {
        at: [f32; 2],
        id: u32,
    }

    #[test]
    fn structures_of_other_crates_are_sent_as_bytes() {
        #[repr(C)]
        #[derive(Clone, Copy, PartialEq, Debug, Default, Datatype)]
        struct Own {
            flag: bool,
            foreign: PodElement<Foreign>,
        }
        let datatype = Datatype::of::<PodElement<Foreign>>();
        assert_eq!((datatype.size(), datatype.extent()), (12, 12));
        assert_eq!(
            (datatype.single_primitive(), PodElement::<Foreign>::PRIMITIVE),
            (Some(Primitive::Byte), None)
        );
        assert_eq!((Own::datatype().size(), Own::datatype().extent()), (13, 16));

        let sent = [Foreign { at: [0.5, -1.5], id: 7 }, Foreign { at: [2.5, 0.0], id: 8 }];
        let mut got = [Foreign::default(); 2];
        let mut packed = [0u8; 24];
        Packer::of_slice(PodElement::wrap_slice(&sent)).unwrap().pack_into_bytes(&mut packed);
        Unpacker::of_slice(PodElement::wrap_slice_mut(&mut got)).unwrap().unpack_from(&packed).unwrap();
        assert_eq!(got, sent);
    }
}
