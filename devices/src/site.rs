//! The environment of a rank: the information that a driver has before it opens.

use std::fmt;
use std::sync::Arc;

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

use crate::biased::Bias;
use crate::doorbell::Doorbell;

/// The environment of one rank.
#[derive(Clone, Debug)]
pub struct Site {
    /// The rank in the world.
    pub rank: u32,
    /// The number of ranks in the world.
    pub size: u32,
    /// The number of ranks on this host, including this one; they share its cores.
    pub ranks_on_host: u32,
    /// Whether the ranks run on several machines, so that devices must use the network between them. All simulated
    /// hosts are on one machine.
    pub spans_machines: bool,
    /// The lane of the rank for which a device is opened.
    pub lane: Lane,
    /// The doorbell of this rank.
    pub bell: Arc<Doorbell>,
    /// The bias of the locks between a send and its receive, including those of the devices.
    pub(crate) bias: Arc<Bias>,
}

/// One of the lanes of a rank, which make progress concurrently. A device is opened once for each lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lane {
    /// The index of the lane, from 0 on. A lane connects to the lane with the same index at each peer.
    pub index: u32,
    /// The number of lanes, the same at all ranks. A device can divide the rank's resources among them.
    pub count: u32,
}

impl Lane {
    /// The lane of a rank that has only one.
    pub const ONLY: Lane = Lane { index: 0, count: 1 };
}

impl Site {
    /// Creates the site of rank `rank` of `size`, all of which share a host. Devices that are opened directly with it
    /// are fastest for the thread that calls this; an engine is fastest for the thread that opens it.
    pub fn new(rank: u32, size: u32, bell: Arc<Doorbell>) -> Self {
        Site {
            rank,
            size,
            ranks_on_host: size,
            spans_machines: false,
            lane: Lane::ONLY,
            bell,
            bias: Bias::new(),
        }
    }
}

/// A callback for one reply of the start-up service, which calls it on any thread. Without a reply, it is never called.
pub type Callback<T> = Box<dyn FnOnce(Result<T, String>) + Send>;

/// The identity of a job and the secret that its ranks share.
#[derive(Clone, PartialEq, Eq)]
pub struct JobKey {
    /// The number of the job.
    pub job: u64,
    /// Known only to the launcher and the ranks of the job.
    pub secret: [u8; 32],
}

impl JobKey {
    /// Derives a key from a secret of any length and from the parts of a context. Another secret or context gives
    /// another key. A key reveals nothing about the secret.
    pub fn derive(secret: &[u8], context: &[&[u8]]) -> JobKey {
        let derive = |purpose: u8| {
            let mut key = [0; 64];
            key[..32].copy_from_slice(&Sha256::digest(secret));
            let mut mac = Hmac::<Sha256>::new(&key.into());
            mac.update(&[purpose]);
            for part in context {
                mac.update(&(part.len() as u64).to_le_bytes());
                mac.update(part);
            }
            <[u8; 32]>::from(mac.finalize().into_bytes())
        };
        let mut job = [0; 8];
        job.copy_from_slice(&derive(0)[..8]);
        JobKey { job: u64::from_le_bytes(job), secret: derive(1) }
    }
}

impl fmt::Debug for JobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JobKey(job {:x})", self.job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derived_keys_depend_on_the_secret_and_each_part() {
        let keys = [
            JobKey::derive(b"secret", &[b"a", b"b"]),
            JobKey::derive(b"secret", &[b"a", b"c"]),
            JobKey::derive(b"secret", &[b"ab", b""]),
            JobKey::derive(b"secret", &[b"ab"]),
            JobKey::derive(b"secres", &[b"a", b"b"]),
            JobKey::derive(b"", &[b"a", b"b"]),
        ];
        for (at, key) in keys.iter().enumerate() {
            assert!(keys[..at].iter().all(|other| other.job != key.job && other.secret != key.secret));
            assert_ne!(key.secret[..8], key.job.to_le_bytes());
        }
        assert_eq!(keys[0], JobKey::derive(b"secret", &[b"a", b"b"]));
    }
}
