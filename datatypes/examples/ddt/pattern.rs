use mpj_datatypes::Datatype;

/// Copies one element from an arena to packed bytes, or back.
///
/// # Safety
/// `from` is valid for a read of an element, and `to` for a write.
#[inline(always)]
pub(crate) unsafe fn copy<T: Copy>(from: *const T, to: *mut T) {
    // SAFETY: the caller's promise.
    let element = unsafe { from.read() };
    // SAFETY: the caller's promise.
    unsafe { to.write(element) };
}

/// A layout, and hand-written loops that copy the same bytes.
///
/// # Invariants
/// 1. The bytes of both types at `base` lie in the arena, and the loops access no others there.
/// 2. The loops and the types have the same number of packed bytes. The caller passes page-aligned packed memory of
///    that length, outside of the arena.
pub(crate) struct Pattern {
    pub(crate) name: String,
    pub(crate) pack_type: Datatype,
    pub(crate) unpack_type: Datatype,
    /// Whether both types are the same, so that the program can compare their bytes.
    pub(crate) symmetric: bool,
    pub(crate) base: *mut u8,
    pub(crate) hand_pack: Box<dyn Fn(*mut u8)>,
    pub(crate) hand_unpack: Box<dyn Fn(*const u8)>,
    pub(crate) _arena: Arena,
}

impl Pattern {
    pub(crate) fn new(
        name: impl Into<String>,
        (arena, base): (Arena, *mut u8),
        datatype: Datatype,
        hand_pack: impl Fn(*mut u8) + 'static,
        hand_unpack: impl Fn(*const u8) + 'static,
    ) -> Pattern {
        Pattern {
            name: name.into(),
            unpack_type: datatype.clone(),
            pack_type: datatype,
            symmetric: true,
            base,
            hand_pack: Box::new(hand_pack),
            hand_unpack: Box::new(hand_unpack),
            _arena: arena,
        }
    }
}

#[repr(align(4096))]
#[derive(Clone, Copy)]
struct Page([u8; 4096]);

/// Page-aligned arrays in one allocation, filled with varying bytes.
pub(crate) struct Arena {
    pages: Vec<Page>,
    starts: Vec<usize>,
}

impl Arena {
    pub(crate) fn new(sizes: &[usize]) -> Arena {
        let mut starts = vec![0];
        for size in sizes {
            starts.push(starts[starts.len() - 1] + size.div_ceil(4096) * 4096);
        }
        let mut pages = vec![Page([0; 4096]); starts[sizes.len()] / 4096 + 1];
        for (i, page) in pages.iter_mut().enumerate() {
            for (j, byte) in page.0.iter_mut().enumerate() {
                *byte = (j * 131 + (j >> 8) * 7 + i * 29 + 1) as u8;
            }
        }
        Arena { pages, starts }
    }

    pub(crate) fn at(&mut self, i: usize) -> *mut u8 {
        self.pages.as_mut_ptr().cast::<u8>().wrapping_add(self.starts[i])
    }

    pub(crate) fn offset(&self, i: usize) -> usize {
        self.starts[i]
    }

    /// Returns the arena, and the position `by` bytes after the start of array 0.
    pub(crate) fn with_base(mut self, by: usize) -> (Arena, *mut u8) {
        let base = self.at(0).wrapping_add(by);
        (self, base)
    }
}

/// Blocks of `len` elements in two nested loops (count, distance in elements).
#[derive(Clone, Copy)]
pub(crate) struct Loops {
    pub(crate) outer: (usize, usize),
    pub(crate) inner: (usize, usize),
    pub(crate) len: usize,
}

impl Loops {
    pub(crate) fn pack<T: Copy>(self, base: *const T, out: *mut u8) {
        let mut out = out.cast::<T>();
        for i in 0..self.outer.0 {
            for j in 0..self.inner.0 {
                let from = base.wrapping_add(i * self.outer.1 + j * self.inner.1);
                for k in 0..self.len {
                    // SAFETY: both invariants of `Pattern`.
                    unsafe { copy(from.wrapping_add(k), out.wrapping_add(k)) };
                }
                out = out.wrapping_add(self.len);
            }
        }
    }

    pub(crate) fn unpack<T: Copy>(self, base: *mut T, input: *const u8) {
        let mut input = input.cast::<T>();
        for i in 0..self.outer.0 {
            for j in 0..self.inner.0 {
                let to = base.wrapping_add(i * self.outer.1 + j * self.inner.1);
                for k in 0..self.len {
                    // SAFETY: both invariants of `Pattern`.
                    unsafe { copy(input.wrapping_add(k), to.wrapping_add(k)) };
                }
                input = input.wrapping_add(self.len);
            }
        }
    }

    pub(crate) fn pattern<T: Copy + 'static>(
        self,
        name: String,
        place: (Arena, *mut u8),
        datatype: Datatype,
    ) -> Pattern {
        let base = place.1.cast::<T>();
        let (pack, unpack) = (move |out| self.pack(base, out), move |input| self.unpack(base, input));
        Pattern::new(name, place, datatype, pack, unpack)
    }
}
