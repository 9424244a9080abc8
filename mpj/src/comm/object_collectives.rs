//! Collectives of serde values of any length. Each value is a message of its own, whose length is sent first. A rank's
//! value for itself is not encoded.

use mpj_collectives::Operation;
use mpj_devices::Buf;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Intracomm;
use super::buffer_collectives::{ReceivedMessage, bcast_message, bytes, gather, scatter};
use super::object::{decode_error, encode};
use crate::address::number;
use crate::collective::blocking::BlockingCall;
use crate::collective::call_id::CallDigest;
use crate::error::{Error, ErrorClass, Result};
use crate::types::SendBuf;

/// Collectives of serde values. If a value cannot be serialized on one rank, the call fails on all ranks: on those that
/// have already completed it, at a later one.
impl Intracomm {
    /// Gathers the values of all ranks at `root`, in order of rank. Other ranks get `None`.
    ///
    /// ```
    /// # mpj::threads(3, |world| {
    /// let words = world.gather_object("ab".repeat(world.rank()), 0)?;
    /// assert_eq!(words.is_some(), world.rank() == 0);
    /// if let Some(words) = words {
    ///     assert_eq!(words, ["", "ab", "abab"]);
    /// }
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`bcast_object`](Self::bcast_object).
    pub fn gather_object<T: Serialize + DeserializeOwned>(
        &self,
        value: T,
        root: usize,
    ) -> Result<Option<Vec<T>>> {
        const CALL: &str = "gather_object";
        let received = self.as_raw().collective(CALL, |blocking| {
            let root = self.as_raw().check_rank(CALL, ErrorClass::Root, number(root))?;
            gather_encoded(blocking, Operation::GatherObject, CALL, &value, root)
        })?;
        let values = || decoded(CALL, received, self.rank(), value).collect();
        (self.rank() == root).then(values).transpose().map_err(|error| self.as_raw().named(error))
    }

    /// Scatters the values of `root`: rank `r` gets `values[r]`. The `values` of other ranks are ignored.
    ///
    /// ```
    /// # mpj::threads(3, |world| {
    /// let parts = if world.rank() == 1 { vec![vec![1u8], vec![], vec![2, 3]] } else { Vec::new() };
    /// let mine = world.scatter_object(parts, 1)?;
    /// assert_eq!(mine, [&[1][..], &[], &[2, 3]][world.rank()]);
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`bcast_object`](Self::bcast_object); [`ErrorClass::Count`] on all ranks if the number of the root's values is
    /// not the number of ranks.
    pub fn scatter_object<T: Serialize + DeserializeOwned>(
        &self,
        mut values: Vec<T>,
        root: usize,
    ) -> Result<T> {
        const CALL: &str = "scatter_object";
        let received = self.as_raw().collective(CALL, |blocking| {
            let rank = blocking.rank() as usize;
            let root = self.as_raw().check_rank(CALL, ErrorClass::Root, number(root))?;
            let mut messages = Vec::new();
            if blocking.rank() == root {
                check_one_per_rank(CALL, values.len(), blocking.size())?;
                for (to, value) in values.iter().enumerate() {
                    // The root keeps its own value.
                    messages.push(if to == rank { encode(CALL, &())? } else { encode(CALL, value)? });
                }
            }
            scatter(blocking, CallDigest::new(Operation::ScatterObject, root.into()), CALL, &messages, root)
        })?;
        if self.rank() == root {
            return Ok(values.swap_remove(root));
        }
        received.decode(CALL).map_err(|error| self.as_raw().named(error))
    }

    /// Gathers the values of all ranks on every rank, in order of rank.
    ///
    /// ```
    /// # mpj::threads(3, |world| {
    /// let names = world.allgather_object(format!("rank {}", world.rank()))?;
    /// assert_eq!(names, ["rank 0", "rank 1", "rank 2"]);
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`bcast_object`](Self::bcast_object).
    pub fn allgather_object<T: Serialize + DeserializeOwned>(&self, value: T) -> Result<Vec<T>> {
        const CALL: &str = "allgather_object";
        let received = self.as_raw().collective(CALL, |blocking| {
            let digest = CallDigest::new(Operation::AllgatherObject, 0);
            let mine = encode(CALL, &value)?;
            let lens = blocking.allgather_words(digest, &[bytes(CALL, &mine.send_buf())?])?;
            let (received, mut bufs) = alloc_all(CALL, lens, blocking.rank())?;
            bufs[blocking.rank() as usize] = mine.send_buf();
            // SAFETY: this rank's own message lives until the call returns; the other blocks are ours, and have the
            // lengths of the messages.
            unsafe { blocking.allgather_bufs(digest, &bufs) }?;
            Ok(received)
        })?;
        let values: Result<Vec<T>> = decoded(CALL, received, self.rank(), value).collect();
        values.map_err(|error| self.as_raw().named(error))
    }

    /// Sends `values[r]` to each rank `r`. Returns the values that this rank gets, in order of rank.
    ///
    /// ```
    /// # mpj::threads(3, |world| {
    /// let mine = world.alltoall_object((0..3).map(|to| format!("{} to {to}", world.rank())).collect())?;
    /// assert_eq!(mine[2], format!("2 to {}", world.rank()));
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`bcast_object`](Self::bcast_object); [`ErrorClass::Count`] on all ranks if the number of values is not the
    /// number of ranks.
    pub fn alltoall_object<T: Serialize + DeserializeOwned>(&self, mut values: Vec<T>) -> Result<Vec<T>> {
        const CALL: &str = "alltoall_object";
        let received = self.as_raw().collective(CALL, |blocking| {
            let (digest, rank) = (CallDigest::new(Operation::AlltoallObject, 0), blocking.rank() as usize);
            check_one_per_rank(CALL, values.len(), blocking.size())?;
            let (mut messages, mut lens) = (Vec::new(), Vec::new());
            for (_, value) in values.iter().enumerate().filter(|(to, _)| *to != rank) {
                let message = encode(CALL, value)?;
                lens.push(bytes(CALL, &message.send_buf())?);
                messages.push(message);
            }
            let mut bufs: Vec<Buf> = messages.iter().map(SendBuf::send_buf).collect();
            lens.insert(rank, 0);
            bufs.insert(rank, Buf::empty());
            let (received, into) = alloc_all(CALL, blocking.alltoall_words(digest, &lens)?, blocking.rank())?;
            bufs.extend(into);
            // SAFETY: the messages live until the call returns; the blocks are ours, and have the lengths of the messages.
            unsafe { blocking.alltoall_bufs(digest, &bufs) }?;
            Ok(received)
        })?;
        let own = values.swap_remove(self.rank());
        let values: Result<Vec<T>> = decoded(CALL, received, self.rank(), own).collect();
        values.map_err(|error| self.as_raw().named(error))
    }

    /// Combines the values of all ranks at `root`: `combine(… combine(combine(v0, v1), v2) …)`, in order of rank. Other
    /// ranks get `None`, and do not call `combine`. It need be neither commutative nor associative.
    ///
    /// ```
    /// use std::collections::BTreeMap;
    ///
    /// # mpj::threads(3, |world| {
    /// let words = BTreeMap::from([("each".to_string(), 1u64), (format!("rank {}", world.rank()), 1)]);
    /// let all = world.reduce_object(
    ///     words,
    ///     |mut all, more| {
    ///         more.into_iter().for_each(|(word, count)| *all.entry(word).or_default() += count);
    ///         all
    ///     },
    ///     0,
    /// )?;
    /// assert_eq!(all.map(|all| (all.len(), all["each"])), (world.rank() == 0).then_some((4, 3)));
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`bcast_object`](Self::bcast_object). A message that is not a value of this type is an error on all ranks. If
    /// `combine` panics, the call fails on the other ranks, and the panic continues at the root.
    pub fn reduce_object<T: Serialize + DeserializeOwned>(
        &self,
        value: T,
        combine: impl FnMut(T, T) -> T,
        root: usize,
    ) -> Result<Option<T>> {
        const CALL: &str = "reduce_object";
        self.as_raw().collective(CALL, |blocking| {
            let root = self.as_raw().check_rank(CALL, ErrorClass::Root, number(root))?;
            reduce_encoded(blocking, Operation::ReduceObject, CALL, value, combine, root)
        })
    }

    /// Combines the values of all ranks as [`reduce_object`](Self::reduce_object) does, and gives every rank the result.
    /// Only rank 0 calls `combine`.
    ///
    /// ```
    /// # mpj::threads(3, |world| {
    /// let path = world.allreduce_object(format!("/{}", world.rank()), |path, name| path + &name)?;
    /// assert_eq!(path, "/0/1/2");
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`reduce_object`](Self::reduce_object), for the root 0.
    pub fn allreduce_object<T: Serialize + DeserializeOwned>(
        &self,
        value: T,
        combine: impl FnMut(T, T) -> T,
    ) -> Result<T> {
        const CALL: &str = "allreduce_object";
        let (total, received) = self.as_raw().collective(CALL, |blocking| {
            let operation = Operation::AllreduceObject;
            let total = reduce_encoded(blocking, operation, CALL, value, combine, 0)?;
            let message = total.as_ref().map(|total| encode(CALL, total)).transpose()?;
            let received = bcast_message(blocking, CallDigest::new(operation, 0), CALL, message.as_ref(), 0)?;
            Ok((total, received))
        })?;
        match (total, received) {
            (Some(total), _) => Ok(total),
            (None, Some(received)) => received.decode(CALL).map_err(|error| self.as_raw().named(error)),
            (None, None) => Err(Error::new(ErrorClass::Intern, CALL, "no result has arrived")),
        }
    }
}

impl ReceivedMessage {
    fn decode<T: DeserializeOwned>(self, call: &'static str) -> Result<T> {
        let rank = self.source();
        self.parse(call)?.read_object().map_err(|error| decode_error::<T>(call, rank, &error))
    }
}

pub(super) fn check_one_per_rank(call: &'static str, values: usize, size: u32) -> Result<()> {
    if values != size as usize {
        return Err(Error::new(ErrorClass::Count, call, format!("{values} values for {size} ranks")));
    }
    Ok(())
}

/// Allocates blocks for messages of these lengths from all ranks. That of this rank is empty.
fn alloc_all(call: &'static str, lens: Vec<u64>, own: u32) -> Result<(Vec<ReceivedMessage>, Vec<Buf>)> {
    let len = |(rank, len)| (rank, if rank == own { 0 } else { len });
    (0..).zip(lens).map(len).map(|(rank, len)| ReceivedMessage::alloc(call, rank, len)).collect()
}

/// Sends the encoded values of all ranks to `root`.
fn gather_encoded<T: Serialize>(
    blocking: &mut BlockingCall<'_>,
    operation: Operation,
    call: &'static str,
    value: &T,
    root: u32,
) -> Result<Vec<ReceivedMessage>> {
    let mine = (blocking.rank() != root).then(|| encode(call, value)).transpose()?;
    gather(blocking, CallDigest::new(operation, root.into()), call, mine.as_ref(), root)
}

/// Returns the values of all ranks, in order of rank; `own` replaces the value in this rank's message.
fn decoded<T: DeserializeOwned>(
    call: &'static str,
    received: Vec<ReceivedMessage>,
    rank: usize,
    own: T,
) -> impl Iterator<Item = Result<T>> {
    let mut own = Some(own);
    received.into_iter().enumerate().map(move |(from, message)| match own.take_if(|_| from == rank) {
        Some(own) => Ok(own),
        None => message.decode(call),
    })
}

/// Combines the values of all ranks at `root`.
fn reduce_encoded<T: Serialize + DeserializeOwned>(
    blocking: &mut BlockingCall<'_>,
    operation: Operation,
    call: &'static str,
    value: T,
    mut combine: impl FnMut(T, T) -> T,
    root: u32,
) -> Result<Option<T>> {
    let received = gather_encoded(blocking, operation, call, &value, root)?;
    if blocking.rank() != root {
        return Ok(None);
    }
    let mut total = None;
    for value in decoded(call, received, root as usize, value) {
        let value = value?;
        total = Some(match total {
            None => value,
            Some(total) => combine(total, value),
        });
    }
    Ok(total)
}
