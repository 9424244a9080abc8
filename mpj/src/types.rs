//! The types that can be sent and received.

#[cfg(feature = "ndarray")]
mod arrays;
mod blocks;
#[cfg(feature = "bytes")]
mod bytes;
mod pool_slice;

pub use pool_slice::PoolSlice;

use mpj_datatypes::{Equivalent, Receivable};

use crate::raw::Buf;

/// A buffer that can be sent:
///
/// * a slice, array or `Vec` of [`Equivalent`] elements: primitives, arrays of them, and structures with
///   `#[derive(Datatype)]`;
/// * one primitive, or one structure with [`#[derive(mpj::Datatype)]`](derive@crate::Datatype);
/// * parts of a slice: [`View`](crate::View), [`ViewMut`](crate::ViewMut), those of [`SplitViews`](crate::SplitViews);
/// * several slices, to send: [`Slices`](crate::Slices);
/// * packed bytes: [`Packed`](crate::Packed);
/// * a committed [`Buffer`](crate::buffer::Buffer), to send: see [`recv_buffer`](crate::Intracomm::recv_buffer);
/// * memory of a pool: a [`FilledBlock`](crate::pool::FilledBlock), or a [`PoolSlice`];
/// * with a [feature](crate#features): numbers of `half` and `num-complex`, `PodElement`, arrays of `ndarray` and views
///   of them, `Bytes` and `BytesMut`;
/// * a `Box`, `Arc` or reference of any of these.
///
/// A tuple is not a buffer, because Rust does not define the layout of its fields: the sender's and the receiver's
/// might differ. Use a structure with `#[repr(C)]`, or [`send_object`](crate::Intracomm::send_object).
/// ```compile_fail,E0277
/// # fn f(world: &mpj::World) -> mpj::Result<()> {
/// world.send(&(1u8, 2.5f64), 1, 0)
/// # }
/// ```
///
/// Other crates can implement it for their types. A buffer can also consist of several pieces, which are sent as one
/// message:
/// ```
/// use mpj::raw::{Buf, ChainSegment};
/// use mpj::{Primitive, RecvBuf, SendBuf};
///
/// /// A ring of bytes, in one or two pieces.
/// struct Ring(std::collections::VecDeque<u8>);
///
/// // SAFETY: both pieces are initialised, and do not move until the ring is changed.
/// unsafe impl SendBuf for Ring {
///     fn send_buf(&self) -> Buf {
///         let (front, back) = self.0.as_slices();
///         Buf::chain([front, back].map(ChainSegment::from), Primitive::U8)
///     }
/// }
///
/// /// The first `self.1` of eight bytes.
/// struct First(Box<[u8; 8]>, usize);
///
/// // SAFETY: the bytes are initialised, and on the heap. The slice is checked.
/// unsafe impl SendBuf for First {
///     fn send_buf(&self) -> Buf {
///         Buf::slice(&self.0[..self.1])
///     }
/// }
///
/// // SAFETY: as above, and any byte is valid.
/// unsafe impl RecvBuf for First {
///     fn recv_buf(&mut self) -> Buf {
///         Buf::slice_mut(&mut self.0[..self.1])
///     }
/// }
///
/// # mpj::threads(2, |world| {
/// if world.rank() == 0 {
///     let mut ring = Ring([3, 4].into());
///     ring.0.push_front(2);
///     world.send(&ring, 1, 0)?;
/// } else {
///     let mut got = First(Box::new([9; 8]), 4);
///     assert_eq!(world.recv(&mut got, 0, 0)?.bytes(), 3);
///     assert_eq!(*got.0, [2, 3, 4, 9, 9, 9, 9, 9]);
/// }
/// # Ok::<(), mpj::Error>(()) }).unwrap();
/// ```
/// # Safety
/// The items that the [`Buf`] describes are initialised, and stay where they are while `self` is neither moved nor
/// changed. If they are on the heap (`Vec`, `Box`), they also stay where they are when `self` is moved.
#[expect(unsafe_code, reason = "the engine reads through the pointer")]
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be sent as a buffer",
    note = "buffers are slices, arrays and `Vec`s of primitives and of structures with `#[derive(mpj::Datatype)]`, and views of them",
    note = "send a string with `.as_bytes()`, and any other serde value, such as a tuple, with `send_object`"
)]
pub unsafe trait SendBuf {
    /// Returns the address, the number and the type of the items.
    fn send_buf(&self) -> Buf;
}

/// A buffer that can be received into: a [`SendBuf`] of [`Receivable`] elements that is not shared.
///
/// # Safety
/// As for [`SendBuf`]. In addition, the items may be written, and every bit pattern is either valid or replaced by the
/// engine before the operation completes ([`Receivable`]).
#[expect(unsafe_code, reason = "the engine writes through the pointer")]
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be received into",
    note = "buffers are slices, arrays and `Vec`s of primitives and of structures with `#[derive(mpj::Datatype)]`, and mutable views",
    note = "receive any other serde value, such as a string or a tuple, with `recv_object`"
)]
pub unsafe trait RecvBuf: SendBuf {
    /// Returns the address, the number and the type of the items.
    fn recv_buf(&mut self) -> Buf;
}

// SAFETY: `Equivalent` guarantees that every byte of the type map is initialised; a slice does not move while it is
// borrowed.
unsafe impl<T: Equivalent> SendBuf for [T] {
    #[inline]
    fn send_buf(&self) -> Buf {
        Buf::slice(self)
    }
}

// SAFETY: as above, and `Receivable` allows the writes.
unsafe impl<T: Receivable> RecvBuf for [T] {
    #[inline]
    fn recv_buf(&mut self) -> Buf {
        Buf::slice_mut(self)
    }
}

macro_rules! by_slice {
    ($([$($generics:tt)*] $buffer:ty),* $(,)?) => {$(
        // SAFETY: its slice is a `SendBuf`. The elements move only when the array is moved or the `Vec` is changed.
        unsafe impl<T: Equivalent, $($generics)*> SendBuf for $buffer {
            #[inline]
            fn send_buf(&self) -> Buf {
                <[T]>::send_buf(self)
            }
        }

        // SAFETY: its slice is a `RecvBuf`.
        unsafe impl<T: Receivable, $($generics)*> RecvBuf for $buffer {
            #[inline]
            fn recv_buf(&mut self) -> Buf {
                <[T]>::recv_buf(self)
            }
        }
    )*};
}

by_slice!([const N: usize] [T; N], [] Vec<T>);

macro_rules! by_pointer {
    ($($pointer:ty),* $(,)?) => {$(
        // SAFETY: the target is a `SendBuf`, which moves and changes only through this pointer, or not at all.
        unsafe impl<B: SendBuf + ?Sized> SendBuf for $pointer {
            #[inline]
            fn send_buf(&self) -> Buf {
                B::send_buf(self)
            }
        }
    )*};
}

by_pointer!(Box<B>, std::sync::Arc<B>, &B, &mut B);

// SAFETY: a `RecvBuf` to which no other pointer exists.
unsafe impl<B: RecvBuf + ?Sized> RecvBuf for Box<B> {
    #[inline]
    fn recv_buf(&mut self) -> Buf {
        B::recv_buf(self)
    }
}

// SAFETY: as above.
unsafe impl<B: RecvBuf + ?Sized> RecvBuf for &mut B {
    #[inline]
    fn recv_buf(&mut self) -> Buf {
        B::recv_buf(self)
    }
}

macro_rules! single {
    ($($primitive:ty),* $(,)?) => {$(
        // SAFETY: one initialised element.
        unsafe impl SendBuf for $primitive {
            #[inline]
            fn send_buf(&self) -> Buf {
                std::slice::from_ref(self).send_buf()
            }
        }

        // SAFETY: one element of a `Receivable` type.
        unsafe impl RecvBuf for $primitive {
            #[inline]
            fn recv_buf(&mut self) -> Buf {
                std::slice::from_mut(self).recv_buf()
            }
        }
    )*};
}

#[cfg(feature = "half")]
single!(half::bf16, half::f16);
#[cfg(feature = "num-complex")]
single!(num_complex::Complex32, num_complex::Complex64);
single!(u8, i8, u16, i16, u32, i32, u64, i64, u128, i128, usize, isize, f32, f64, bool, char);

#[cfg(feature = "bytemuck")]
// SAFETY: one element, whose bytes are initialised.
unsafe impl<T> SendBuf for mpj_datatypes::PodElement<T>
where
    Self: Equivalent,
{
    fn send_buf(&self) -> Buf {
        std::slice::from_ref(self).send_buf()
    }
}

#[cfg(feature = "bytemuck")]
// SAFETY: one element of a `Receivable` type.
unsafe impl<T> RecvBuf for mpj_datatypes::PodElement<T>
where
    Self: Receivable,
{
    fn recv_buf(&mut self) -> Buf {
        std::slice::from_mut(self).recv_buf()
    }
}
