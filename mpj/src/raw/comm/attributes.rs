//! Attributes: values that programs and libraries attach to a communicator.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mpj_devices::{drop_deferred, drop_panic_payload};

use super::Comm;
use crate::error::{Error, ErrorClass, Result};

/// The value of an attribute. Its drop is the delete hook, which runs when the last handle is dropped: that of the
/// communicator, or one that [`Comm::attribute`], [`Comm::remove_attribute`] or [`Comm::set_attribute`] has returned.
pub type Attribute = Arc<dyn Any + Send + Sync>;

/// Returns the value for a duplicate of the communicator, if it gets one.
type CopyHook = dyn Fn(&Comm, &Attribute) -> Result<Option<Attribute>> + Send + Sync;

/// The identity of an attribute in all communicators (a keyval of MPI), and its copy hook.
#[derive(Clone)]
pub struct AttributeKey(Arc<KeyInner>);

struct KeyInner {
    copy: Option<Box<CopyHook>>,
}

impl AttributeKey {
    /// Creates a key whose attributes are not copied to duplicates (MPI_COMM_NULL_COPY_FN).
    pub fn new() -> Self {
        AttributeKey(Arc::new(KeyInner { copy: None }))
    }

    /// Creates a key whose attributes are copied by a hook when a communicator is duplicated. The hook gets the original
    /// communicator. It runs without locks, so it may call any function. If it fails or panics, the duplication fails
    /// on this rank.
    pub fn with_copy(
        copy: impl Fn(&Comm, &Attribute) -> Result<Option<Attribute>> + Send + Sync + 'static,
    ) -> Self {
        AttributeKey(Arc::new(KeyInner { copy: Some(Box::new(copy)) }))
    }

    fn is(&self, other: &AttributeKey) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Default for AttributeKey {
    fn default() -> Self {
        AttributeKey::new()
    }
}

impl fmt::Debug for AttributeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AttributeKey").field("has_copy_hook", &self.0.copy.is_some()).finish()
    }
}

/// The attributes of a communicator, in the order in which they were added.
#[derive(Default)]
pub(super) struct Attributes(Mutex<AttributeList>);

pub(super) type AttributeList = Vec<(AttributeKey, Attribute)>;

impl Attributes {
    fn entries(&self) -> MutexGuard<'_, AttributeList> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn len(&self) -> usize {
        self.entries().len()
    }

    pub(super) fn snapshot(&self) -> AttributeList {
        self.entries().clone()
    }

    pub(super) fn replace_all(&self, entries: AttributeList) {
        let old = std::mem::replace(&mut *self.entries(), entries);
        drop_in_reverse(old);
    }

    fn set(&self, key: &AttributeKey, value: Attribute) -> Option<Attribute> {
        let mut entries = self.entries();
        match entries.iter_mut().find(|(it, _)| it.is(key)) {
            Some((_, old)) => Some(std::mem::replace(old, value)),
            None => {
                entries.push((key.clone(), value));
                None
            }
        }
    }

    fn get(&self, key: &AttributeKey) -> Option<Attribute> {
        self.entries().iter().find(|(it, _)| it.is(key)).map(|(_, value)| Arc::clone(value))
    }

    fn remove(&self, key: &AttributeKey) -> Option<Attribute> {
        let mut entries = self.entries();
        let at = entries.iter().position(|(it, _)| it.is(key))?;
        Some(entries.remove(at).1)
    }
}

impl Drop for Attributes {
    fn drop(&mut self) {
        self.replace_all(Vec::new());
    }
}

/// Drops the attributes, the last one first. If one panics, the others are dropped during the unwinding.
fn drop_in_reverse(mut entries: AttributeList) {
    entries.reverse();
    if !entries.is_empty() {
        drop_deferred(entries);
    }
}

pub(super) fn copy_all(call: &'static str, comm: &Comm, snapshot: AttributeList) -> Result<AttributeList> {
    let mut copies = Vec::new();
    for (key, value) in snapshot {
        let Some(copy) = &key.0.copy else { continue };
        let copied = catch_unwind(AssertUnwindSafe(|| copy(comm, &value)));
        let copied = copied.unwrap_or_else(|thrown| {
            drop_panic_payload(thrown);
            Err(Error::new(ErrorClass::Other, call, "the copy hook of an attribute panicked"))
        });
        if let Some(copied) = copied.map_err(|error| error.with_call(call))? {
            copies.push((key, copied));
        }
    }
    Ok(copies)
}

impl Comm {
    /// Sets an attribute on this rank, and returns its old value (MPI_Comm_set_attr).
    ///
    /// # Errors
    /// The communicator was freed.
    pub fn set_attribute(&self, key: &AttributeKey, value: Attribute) -> Result<Option<Attribute>> {
        self.check_not_freed("set_attribute")?;
        Ok(self.extras_mut().attributes.set(key, value))
    }

    /// Returns an attribute of this rank (MPI_Comm_get_attr).
    pub fn attribute(&self, key: &AttributeKey) -> Option<Attribute> {
        self.extras()?.attributes.get(key)
    }

    /// Removes an attribute from this rank, and returns it (MPI_Comm_delete_attr).
    pub fn remove_attribute(&self, key: &AttributeKey) -> Option<Attribute> {
        self.extras()?.attributes.remove(key)
    }

    pub(super) fn drop_attributes(&self) {
        if let Some(extras) = self.extras() {
            extras.attributes.replace_all(Vec::new());
        }
    }
}
