//! What the code that `#[derive(Datatype)]` writes rests on; not meant to be named by people.

use crate::{Datatype, Equivalent, Receivable};

/// The datatype of a structure with fields at these offsets.
///
/// # Panics
/// If the fields lie outside of the structure, or structures are nested hundreds of levels deep: the first cannot come
/// from the compiler's offsets, and the second does not compile.
#[must_use]
pub fn structure<T: Equivalent>(fields: &[(usize, Datatype)]) -> Datatype {
    let list: Vec<_> = fields.iter().map(|(offset, inner)| (1, *offset as i64, inner.clone())).collect();
    let size = size_of::<T>() as i64;
    let built = Datatype::structure(&list).and_then(|plain| {
        let same = plain.lb() == 0 && plain.extent() == size;
        if same { Ok(plain) } else { plain.resized(0, size) }
    });
    match built {
        Ok(datatype) => datatype,
        Err(why) => unreachable!("derived structure: {why}"),
    }
}

/// [`Receivable`] as a bound that the compiler looks at only when it is used.
pub trait Received<'received> {}

impl<T: Receivable> Received<'_> for T {}
