//! The card by which the agents of a job find the root, the agent of rank 0's host.

use std::fmt::Write as _;
use std::net::SocketAddr;

use mpj_devices::JobKey;

/// The addresses of a job's root and, unless all processes have it already, the key of the job. The root puts this card
/// into the store of the process manager.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::boot) struct RootCard {
    pub(in crate::boot) key: Option<JobKey>,
    pub(in crate::boot) addresses: Vec<SocketAddr>,
}

impl RootCard {
    /// Returns the card as a word of ASCII characters.
    pub(in crate::boot) fn to_text(&self) -> String {
        let mut text = String::from("4/");
        if let Some(key) = &self.key {
            // Writing to a string does not fail.
            let _ = write!(text, "{:016x}-", key.job);
            for byte in key.secret {
                let _ = write!(text, "{byte:02x}");
            }
        }
        for (at, address) in self.addresses.iter().enumerate() {
            let _ = write!(text, "{}{address}", if at == 0 { '/' } else { ',' });
        }
        text
    }

    /// Parses the text of a card.
    ///
    /// # Errors
    /// The text is not a card of this version.
    pub(in crate::boot) fn parse(text: &str) -> Result<RootCard, String> {
        let parse = || {
            let (key, addresses) = text.strip_prefix("4/")?.split_once('/')?;
            let addresses = addresses.split(',').map(|at| at.parse().ok()).collect::<Option<Vec<_>>>()?;
            if key.is_empty() {
                return Some(RootCard { key: None, addresses });
            }
            let (job, hex) = key.split_once('-')?;
            let mut secret = [0; 32];
            let (pairs, rest) = hex.as_bytes().as_chunks::<2>();
            if pairs.len() != secret.len() || !rest.is_empty() {
                return None;
            }
            for (byte, pair) in secret.iter_mut().zip(pairs) {
                *byte = u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok()?;
            }
            let key = JobKey { job: u64::from_str_radix(job, 16).ok()?, secret };
            Some(RootCard { key: Some(key), addresses })
        };
        parse().ok_or_else(|| {
            "the first rank has published an invalid card: use one version of mpj on all hosts".into()
        })
    }
}
