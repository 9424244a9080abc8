//! The check whether a datatype consists of whole elements of another.

use crate::node::Node;
use crate::{Datatype, TypeEnvelope};
use std::collections::HashSet;

impl Datatype {
    /// Returns whether the items of this type consist of whole items of `element`, at multiples of the element's extent
    /// from the origin. In a slice of elements they then contain whole elements only.
    ///
    /// The answer depends on how the type was built: from `element` itself, or from an equal type, which is recognised
    /// only if primitives, [`contiguous`](Self::contiguous), [`structure`](Self::structure) and
    /// [`resized`](Self::resized) built it. All other types with the same bytes are rejected. An empty type is
    /// accepted.
    ///
    /// ```
    /// use mpj_datatypes::Datatype;
    /// #[repr(C)]
    /// #[derive(Clone, Copy, Datatype)]
    /// struct Cell {
    ///     full: bool,
    ///     heat: f64,
    /// }
    /// let cell = Datatype::of::<Cell>();
    /// assert!(cell.vector(3, 1, 4)?.is_made_of(&cell));
    /// assert!(!cell.hvector(3, 1, 40)?.is_made_of(&cell), "from one cell into the next");
    /// assert!(!Datatype::of::<f64>().vector(3, 1, 8)?.is_made_of(&cell));
    /// # Ok::<(), mpj_datatypes::TypeError>(())
    /// ```
    #[must_use]
    pub fn is_made_of(&self, element: &Datatype) -> bool {
        MadeOf { element, step: element.extent(), cache: HashSet::new() }.is_whole(self)
    }
}

struct MadeOf<'a> {
    element: &'a Datatype,
    step: i64,
    /// Types known to be made of `element`. The same type can be a part of another one many times.
    cache: HashSet<*const Node>,
}

impl MadeOf<'_> {
    /// Returns whether contiguous items consist of whole elements if the first starts at an element.
    fn is_whole(&mut self, item: &Datatype) -> bool {
        if item.size() == 0 || self.cache.contains(&std::ptr::from_ref(item.node())) {
            return true;
        }
        let made = self.step > 0
            && self.is_multiple(item.extent())
            && (is_same(item, self.element) || self.places_elements(&item.node().envelope));
        if made {
            self.cache.insert(item.node());
        }
        made
    }

    /// Returns whether the inner types consist of elements, and the constructor places them at multiples of the
    /// element's extent.
    fn places_elements(&mut self, constructor: &TypeEnvelope) -> bool {
        match constructor {
            TypeEnvelope::Primitive(_) | TypeEnvelope::Pair { .. } => false,
            // Their displacements are multiples of the inner extent, and so of the step.
            TypeEnvelope::Contiguous { inner, .. }
            | TypeEnvelope::Vector { inner, .. }
            | TypeEnvelope::Indexed { inner, .. }
            | TypeEnvelope::IndexedBlock { inner, .. }
            | TypeEnvelope::Subarray { inner, .. }
            | TypeEnvelope::Darray { inner, .. }
            | TypeEnvelope::Dup { inner }
            // Resizing does not move items. `is_whole` checks the new extent of the resized type itself.
            | TypeEnvelope::Resized { inner, .. } => self.is_whole(inner),
            TypeEnvelope::HVector { stride_bytes, inner, .. } => {
                self.is_multiple(*stride_bytes) && self.is_whole(inner)
            }
            TypeEnvelope::HIndexed { blocks, inner } => {
                blocks.iter().all(|(_, at)| self.is_multiple(*at)) && self.is_whole(inner)
            }
            TypeEnvelope::HIndexedBlock { displacements, inner, .. } => {
                displacements.iter().all(|at| self.is_multiple(*at)) && self.is_whole(inner)
            }
            TypeEnvelope::Structure { fields } => {
                fields.iter().all(|(len, at, inner)| *len == 0 || self.is_multiple(*at) && self.is_whole(inner))
            }
        }
    }

    fn is_multiple(&self, distance: i64) -> bool {
        distance % self.step == 0
    }
}

/// Returns whether two types were built alike. For types with different nodes, compares only the constructors that
/// primitives, derived types and arrays use, and returns false for others.
fn is_same(one: &Datatype, other: &Datatype) -> bool {
    if std::ptr::eq(one.node(), other.node()) {
        return true;
    }
    match (&one.node().envelope, &other.node().envelope) {
        (TypeEnvelope::Primitive(one), TypeEnvelope::Primitive(other)) => one == other,
        (
            TypeEnvelope::Contiguous { count, inner },
            TypeEnvelope::Contiguous { count: number, inner: other },
        ) => count == number && is_same(inner, other),
        (TypeEnvelope::Structure { fields }, TypeEnvelope::Structure { fields: others }) => {
            let alike = |((len, at, inner), (number, place, other)): (&(_, _, _), &(_, _, _))| {
                len == number && at == place && is_same(inner, other)
            };
            fields.len() == others.len() && fields.iter().zip(others.iter()).all(alike)
        }
        (
            TypeEnvelope::Resized { lb, extent, inner },
            TypeEnvelope::Resized { lb: start, extent: len, inner: other },
        ) => lb == start && extent == len && is_same(inner, other),
        _ => false,
    }
}
