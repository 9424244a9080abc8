//! The name, the hints and the attributes of a communicator.

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use super::Communicator;
use crate::error::Result;
use crate::info::Info;
use crate::raw::{Attribute, AttributeKey};

/// The key of an attribute: a value of type `T` that a program or a library attaches to communicators.
///
/// Clones are the same key. The drop of `T` is the delete hook: it runs when the attribute is removed or replaced, or
/// when its communicator is freed, as soon as no [`Arc`] of the value is left. A value that contains a handle of its
/// own communicator keeps it alive until [`free`](Communicator::free).
///
/// ```
/// use std::sync::LazyLock;
///
/// struct Cache(Vec<f64>);
/// // A duplicate starts with an empty cache of the same length.
/// static CACHE: LazyLock<mpj::Key<Cache>> =
///     LazyLock::new(|| mpj::Key::with_copy(|cache: &Cache| Some(Cache(vec![0.0; cache.0.len()]))));
///
/// # mpj::threads(2, |world| {
/// let comm = world.dup()?;
/// comm.set_attribute(&CACHE, Cache(vec![1.5; 10]))?;
/// let copy = comm.dup()?.attribute(&CACHE).expect("the hook copies it");
/// assert_eq!(copy.0, [0.0; 10]);
/// assert_eq!(comm.remove_attribute(&CACHE).expect("it was set").0, [1.5; 10]);
/// # Ok::<(), mpj::Error>(()) }).unwrap();
/// ```
pub struct Key<T> {
    raw: AttributeKey,
    value: PhantomData<fn(T) -> T>,
}

impl<T: Any + Send + Sync> Key<T> {
    /// Creates a key whose attributes are not copied to duplicates.
    pub fn new() -> Self {
        Key { raw: AttributeKey::new(), value: PhantomData }
    }

    /// Creates a key with a copy hook. When a communicator is duplicated, the hook gets its attribute, and returns the
    /// attribute of the duplicate, if any. It runs without locks. If it panics, the duplication fails on this rank.
    pub fn with_copy(copy: impl Fn(&T) -> Option<T> + Send + Sync + 'static) -> Self {
        let copy = move |_: &_, value: &Attribute| {
            let copied = value.downcast_ref::<T>().and_then(&copy);
            Ok(copied.map(|copied| Arc::new(copied) as Attribute))
        };
        Key { raw: AttributeKey::with_copy(copy), value: PhantomData }
    }

    /// Creates a key whose attributes a duplicate shares with its original.
    pub fn shared() -> Self {
        Key { raw: AttributeKey::with_copy(|_, value| Ok(Some(Arc::clone(value)))), value: PhantomData }
    }
}

impl<T: Any + Send + Sync> Default for Key<T> {
    fn default() -> Self {
        Key::new()
    }
}

impl<T> Clone for Key<T> {
    fn clone(&self) -> Self {
        Key { raw: self.raw.clone(), value: PhantomData }
    }
}

impl<T> fmt::Debug for Key<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key<{}>", std::any::type_name::<T>())
    }
}

/// Returns the value of a key's attribute. All values of a key have its type: its `AttributeKey` is private.
fn downcast<T: Any + Send + Sync>(value: Attribute) -> Option<Arc<T>> {
    value.downcast().ok()
}

impl<K> Communicator<K> {
    /// Sets an attribute on this rank, and returns its old value (MPI_Comm_set_attr).
    ///
    /// # Errors
    /// The communicator was freed.
    pub fn set_attribute<T: Any + Send + Sync>(&self, key: &Key<T>, value: T) -> Result<Option<Arc<T>>> {
        Ok(self.as_raw().set_attribute(&key.raw, Arc::new(value))?.and_then(downcast))
    }

    /// Returns an attribute of this rank (MPI_Comm_get_attr).
    pub fn attribute<T: Any + Send + Sync>(&self, key: &Key<T>) -> Option<Arc<T>> {
        self.as_raw().attribute(&key.raw).and_then(downcast)
    }

    /// Removes an attribute from this rank, and returns it (MPI_Comm_delete_attr).
    pub fn remove_attribute<T: Any + Send + Sync>(&self, key: &Key<T>) -> Option<Arc<T>> {
        self.as_raw().remove_attribute(&key.raw).and_then(downcast)
    }

    /// Returns the name (MPI_Comm_get_name). Without [`set_name`](Self::set_name), it says how the communicator was
    /// created, such as `world.dup 1`.
    pub fn name(&self) -> Arc<str> {
        self.as_raw().name()
    }

    /// Sets the name on this rank (MPI_Comm_set_name). Errors, wait reports and traces show it.
    ///
    /// ```
    /// # mpj::threads(1, |world| {
    /// let comm = world.dup()?;
    /// assert_eq!(&*comm.name(), "world.dup 1");
    /// comm.set_name("halo");
    /// let error = comm.send(&[1], 5, 0).unwrap_err().to_string();
    /// assert_eq!(error, "send on \"halo\": rank 5 is out of range: the communicator has only rank 0");
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    pub fn set_name(&self, name: &str) {
        self.as_raw().set_name(name);
    }

    /// Returns the hints (MPI_Comm_get_info).
    pub fn info(&self) -> Info {
        self.as_raw().info()
    }

    /// Replaces the hints on this rank (MPI_Comm_set_info). The library uses none. A duplicate has none, unless
    /// [`dup_with_info`](Self::dup_with_info) sets them.
    pub fn set_info(&self, info: Info) {
        self.as_raw().set_info(info);
    }

    /// Aborts the whole job (MPI_Abort): `mpjrun` terminates all processes; if the ranks are threads, all operations
    /// fail. The exit code of the job is the lowest eight bits of `code`, or 1 if these are 0 and `code` is not.
    /// If `code` is 0 and a rank fails for another reason, the exit code is that of this failure.
    /// After the rank has left the job, this has no effect.
    ///
    /// The call returns, so that the caller can clean up and exit. The caller must not wait for other ranks any more.
    pub fn abort(&self, code: i32, why: &str) {
        self.as_raw().abort(code, why);
    }
}
