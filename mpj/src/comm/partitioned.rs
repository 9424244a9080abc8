//! Partitioned messages.

use std::sync::Arc;

use mpj_datatypes::{Equivalent, Receivable};

use super::Intracomm;
use crate::address::{IntoDest, IntoSource};
use crate::error::Result;
use crate::raw;
use crate::request::{PartBuffer, PartitionedRecv, PartitionedSend};

impl Intracomm {
    /// Creates a partitioned send of items in `parts` parts of the same length, which many threads can fill
    /// (MPI_Psend_init): see the example of [`PartitionedSend`].
    ///
    /// It matches a [`precv_init`](Self::precv_init) of the receiver with the same tag, in the order of creation, and no
    /// other receive.
    ///
    /// # Errors
    /// As [`send_init`](Self::send_init), or the receiver has exited; [`ErrorClass::Arg`](crate::ErrorClass::Arg) if
    /// `parts` is 0 or above 65,536; [`ErrorClass::Count`](crate::ErrorClass::Count) if it does not divide the number of
    /// items.
    pub fn psend_init<T: Equivalent + Send + Sync>(
        &self,
        items: impl Into<Box<[T]>>,
        parts: usize,
        dest: impl IntoDest,
        tag: i32,
    ) -> Result<PartitionedSend<T>> {
        let buffer = PartBuffer::new(items.into(), parts);
        let (buf, keep, dest) = (buffer.buf(), Arc::clone(&buffer), dest.into_dest().number());
        let raw = raw::psend_init(self.as_raw(), buf, parts, dest, tag, Some(keep))?;
        Ok(PartitionedSend::new(raw, buffer, parts))
    }

    /// Creates a partitioned receive of items in `parts` parts of the same length (MPI_Precv_init): see
    /// [`psend_init`](Self::psend_init). The sender may have another number of parts.
    ///
    /// # Errors
    /// As [`psend_init`](Self::psend_init), for the sender; the source is a wildcard.
    pub fn precv_init<T: Receivable + Send + Sync>(
        &self,
        items: impl Into<Box<[T]>>,
        parts: usize,
        source: impl IntoSource,
        tag: i32,
    ) -> Result<PartitionedRecv<T>> {
        let buffer = PartBuffer::new(items.into(), parts);
        let (buf, keep, source) = (buffer.buf(), Arc::clone(&buffer), source.into_source().number());
        let raw = raw::precv_init(self.as_raw(), buf, parts, source, tag, Some(keep))?;
        Ok(PartitionedRecv::new(raw, buffer))
    }
}
