//! The statement of a PMIx server about a job: the reply to the first request of a client.
//!
//! ```text
//!   reply = namespace: string, key and value of the job, ...
//!   a value of key pmix.pblob = a buffer: rank, key and value of the rank, ...
//! ```

use std::collections::HashMap;

use mpj_devices::{HostId, Hosts};

use super::buffer::{Unpacker, Value};

/// The host of a rank. Both parts are compared: Slurm 22.05 gives all ranks the same number, and hosts of Open MPI can
/// have the same name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
struct Host<'a> {
    number: Option<u64>,
    name: Option<&'a [u8]>,
}

/// Returns the map of ranks to hosts from the reply of a server.
///
/// # Errors
/// The reply is invalid, or does not give the host of every rank.
pub fn parse(reply: &[u8]) -> Result<Hosts, String> {
    let mut reply = Unpacker::new(reply);
    reply.string()?;
    let (mut size, mut placed) = (None, Vec::new());
    while !reply.is_empty() {
        match reply.kval()? {
            (b"pmix.job.size", Value::Number(number)) => size = Some(number),
            (b"pmix.pblob", Value::Object(bytes)) => placed.extend(parse_rank(bytes)?),
            _ => {}
        }
    }
    let size = size.ok_or("no number of ranks (pmix.job.size)")?;
    placed.sort_unstable_by_key(|(rank, _)| *rank);
    place(size, &placed)
}

/// Returns a rank and its host, if the server gives the host.
fn parse_rank(bytes: &[u8]) -> Result<Option<(u32, Host<'_>)>, String> {
    let mut buffer = Unpacker::new(bytes);
    let rank = buffer.rank()?;
    let mut host = Host::default();
    while !buffer.is_empty() {
        match buffer.kval()? {
            (b"pmix.nodeid", Value::Number(number)) => host.number = Some(number),
            (b"pmix.hname", Value::Text(name)) => host.name = Some(name),
            _ => {}
        }
    }
    Ok((host != Host::default()).then_some((rank, host)))
}

/// Numbers the hosts in the order of their first rank.
fn place(size: u64, placed: &[(u32, Host<'_>)]) -> Result<Hosts, String> {
    // `placed` has no more elements than the reply has bytes, so `size` needs no limit.
    let is_complete = placed.iter().enumerate().all(|(at, (rank, _))| *rank as usize == at);
    if !is_complete || placed.len() as u64 != size {
        return Err(format!(
            "{} hosts of ranks (pmix.nodeid, pmix.hname), expected one for each of {size} ranks",
            placed.len()
        ));
    }
    let mut numbers = HashMap::new();
    let runs = placed.iter().map(|(_, host)| {
        let next = numbers.len() as u32;
        (HostId(*numbers.entry(*host).or_insert(next)), 1)
    });
    Hosts::from_runs(runs).map_err(|e| e.to_string())
}
