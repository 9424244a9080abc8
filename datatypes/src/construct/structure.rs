//! The constructor of structures.

use super::TypeBuilder;
use crate::{Datatype, TypeEnvelope, TypeError};

impl Datatype {
    /// Returns the type of fields given as (number of items, displacement in bytes, type) (MPI 4.1 §5.1.2).
    ///
    /// # Errors
    /// [`TypeError`] if a count is too large, the size or the bounds overflow, or the type is nested too deeply.
    ///
    /// # Examples
    /// ```
    /// use mpj_datatypes::Datatype;
    /// // #[repr(C)] struct Particle { kind: u8, at: [f64; 3] }
    /// let particle =
    ///     Datatype::structure(&[(1, 0, Datatype::of::<u8>()), (3, 8, Datatype::of::<f64>())])?;
    /// assert_eq!(particle.size(), 25);
    /// assert_eq!(particle.extent(), 32);
    /// assert_eq!(particle.single_primitive(), None);
    /// # Ok::<(), mpj_datatypes::TypeError>(())
    /// ```
    pub fn structure(fields: &[(usize, i64, Datatype)]) -> Result<Datatype, TypeError> {
        let envelope = TypeEnvelope::Structure { fields: fields.into() };
        let mut build = TypeBuilder::new();
        for (len, displacement, inner) in fields {
            build.field(inner, *len, *displacement)?;
        }
        build.finish(envelope)
    }
}
