//! The type of a value with an index, for `MPI_MINLOC` and `MPI_MAXLOC`.

use super::TypeBuilder;
use crate::{Datatype, Primitive, TypeEnvelope};

impl Datatype {
    /// Returns the type of a value followed by an index, laid out as a C structure: the type for `MPI_MINLOC` and
    /// `MPI_MAXLOC` (MPI 4.1 §6.9.4). `MPI_DOUBLE_INT` is `pair(F64, I32)`.
    ///
    /// ```
    /// use mpj_datatypes::{Datatype, Primitive};
    /// let double_int = Datatype::pair(Primitive::F64, Primitive::I32);
    /// assert_eq!((double_int.size(), double_int.extent()), (12, 16));
    /// let short_int = Datatype::pair(Primitive::I16, Primitive::I32);
    /// assert_eq!((short_int.size(), short_int.extent()), (6, 8));
    /// ```
    pub fn pair(value: Primitive, index: Primitive) -> Datatype {
        let offset = value.size().next_multiple_of(index.align()) as i64;
        let mut build = TypeBuilder::new();
        let fields = [(value, 0), (index, offset)];
        let added = fields.iter().try_for_each(|&(p, at)| build.add(&Datatype::primitive(p), 1, at, 1, 0));
        match added.and_then(|()| build.finish(TypeEnvelope::Pair { value, index })) {
            Ok(pair) => pair,
            Err(why) => unreachable!("pair type: {why}"),
        }
    }

    /// Returns the two primitives of an item, each with its offset in the item; `None` if an item has more or fewer.
    ///
    /// ```
    /// use mpj_datatypes::{Datatype, Primitive};
    /// let short_int = Datatype::pair(Primitive::I16, Primitive::I32);
    /// assert_eq!(short_int.pair_elements(), Some([(Primitive::I16, 0), (Primitive::I32, 4)]));
    /// assert_eq!(Datatype::of::<[f32; 3]>().pair_elements(), None);
    /// ```
    pub fn pair_elements(&self) -> Option<[(Primitive, i64); 2]> {
        if self.element_count() != 2 {
            return None;
        }
        let (first, second) = (self.primitive_at(0)?, self.primitive_at(1)?);
        if let Some((offset, _)) = self.node().plan.run() {
            return Some([(first, offset), (second, offset + first.size() as i64)]);
        }
        let mut runs = self.runs(1);
        let (one, other) = (runs.next()?, runs.next()?);
        Some([(first, one.offset), (second, other.offset)])
    }
}
