//! Hellos: the datagrams that two ranks exchange until their queue pair is established.
//!
//! ```text
//!  0         4       5           8     16     20    24     64    68    72          104
//!  mark      state   reserved    job   from   to    card   qpn   psn   proof
//!  "MPJ" 1   u8                  u64   u32    u32   40 B   u32   u32   HMAC-SHA256
//! ```
//! Integers are little-endian. The proof is keyed with the job's secret. It covers all bytes before it and the nonce of
//! the addressee's card. So a process without the job's key cannot become a peer. A recorded hello is valid only
//! between the same two openings of the device, where a replay only repeats statements of its sender.
//!
//! The state has two bits. `READY`: the sender's queue pair is connected to the addressee's, and receives.
//! `WANTS_REPLY`: the sender does not know yet whether the addressee receives.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::card::{CARD, IbvCard};
use super::field_reader::FieldReader;
use crate::site::JobKey;

const MARK: [u8; 4] = *b"MPJ\x01";
const MAC: usize = 32;
const SIGNED: usize = 24 + CARD + 8;

pub(super) const HELLO: usize = SIGNED + MAC;

const READY: u8 = 1;
const WANTS_REPLY: u8 = 2;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Hello {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) is_ready: bool,
    pub(super) wants_reply: bool,
    pub(super) card: IbvCard,
    /// The number of the sender's queue pair for the addressee, and the sequence number of the first packet on it.
    pub(super) qpn: u32,
    pub(super) psn: u32,
}

impl Hello {
    /// Encodes and signs the datagram for the rank whose card has this nonce.
    pub(super) fn seal(&self, key: &JobKey, nonce: u64) -> Option<[u8; HELLO]> {
        let state = u8::from(self.is_ready) * READY + u8::from(self.wants_reply) * WANTS_REPLY;
        let fields: [&[u8]; 8] = [
            &MARK,
            &[state, 0, 0, 0],
            &key.job.to_le_bytes(),
            &self.from.to_le_bytes(),
            &self.to.to_le_bytes(),
            &self.card.to_bytes(),
            &self.qpn.to_le_bytes(),
            &self.psn.to_le_bytes(),
        ];
        let mut bytes = [0; HELLO];
        bytes[..SIGNED].copy_from_slice(&fields.concat());
        let proof = proof(key, nonce, &bytes[..SIGNED])?.finalize().into_bytes();
        bytes[SIGNED..].copy_from_slice(&proof);
        Some(bytes)
    }

    /// Parses a datagram that was sent to the rank whose card has this nonce. Returns `None` if its format, its job
    /// or its proof is wrong.
    pub(super) fn open(bytes: &[u8], key: &JobKey, nonce: u64) -> Option<Self> {
        let bytes: &[u8; HELLO] = bytes.try_into().ok()?;
        let mut reader = FieldReader(bytes);
        if reader.take()? != MARK {
            return None;
        }
        let [state, ..]: [u8; 4] = reader.take()?;
        let job = u64::from_le_bytes(reader.take()?);
        // `verify_slice` compares in constant time.
        if job != key.job || proof(key, nonce, &bytes[..SIGNED])?.verify_slice(&bytes[SIGNED..]).is_err() {
            return None;
        }
        Some(Hello {
            from: u32::from_le_bytes(reader.take()?),
            to: u32::from_le_bytes(reader.take()?),
            is_ready: state & READY != 0,
            wants_reply: state & WANTS_REPLY != 0,
            card: IbvCard::parse(&reader.take()?)?,
            qpn: u32::from_le_bytes(reader.take()?),
            psn: u32::from_le_bytes(reader.take()?),
        })
    }
}

fn proof(key: &JobKey, nonce: u64, signed: &[u8]) -> Option<Hmac<Sha256>> {
    // HMAC accepts a key of any length, so this does not fail.
    let mut mac = Hmac::<Sha256>::new_from_slice(&key.secret).ok()?;
    mac.update(b"mpj ibvdev");
    mac.update(&nonce.to_le_bytes());
    mac.update(signed);
    Some(mac)
}

#[cfg(test)]
mod tests {
    use super::super::card::tests::CARD_OF_7;
    use super::*;

    const HELLO_OF_7: Hello = Hello {
        from: 7,
        to: 3,
        is_ready: true,
        wants_reply: false,
        card: CARD_OF_7,
        qpn: 1234,
        psn: 0xfe_dcba,
    };

    fn key(secret: u8) -> JobKey {
        JobKey { job: 5, secret: [secret; 32] }
    }

    #[test]
    fn hello_opens_only_for_its_addressee() {
        for (is_ready, wants_reply) in [(true, false), (false, true), (true, true), (false, false)] {
            let hello = Hello { is_ready, wants_reply, ..HELLO_OF_7 };
            let bytes = hello.seal(&key(1), 99).unwrap();
            assert_eq!(Hello::open(&bytes, &key(1), 99), Some(hello));
            assert_eq!(Hello::open(&bytes, &key(1), 98), None, "sent to another opening");
            assert_eq!(Hello::open(&bytes, &key(2), 99), None, "sent by a stranger");
            let other = JobKey { job: 6, ..key(1) };
            assert_eq!(Hello::open(&bytes, &other, 99), None, "sent in another job");
        }
    }

    #[test]
    fn changed_or_truncated_hello_is_refused() {
        let bytes = HELLO_OF_7.seal(&key(1), 99).unwrap();
        for at in 0..HELLO {
            let mut bytes = bytes;
            bytes[at] ^= 1;
            assert_eq!(Hello::open(&bytes, &key(1), 99), None, "byte {at}");
        }
        for len in 0..HELLO {
            assert_eq!(Hello::open(&bytes[..len], &key(1), 99), None, "{len} bytes");
        }
        assert_eq!(Hello::open(&[&bytes[..], &[0]].concat(), &key(1), 99), None);
    }
}
