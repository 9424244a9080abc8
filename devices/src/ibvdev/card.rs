//! The card: the address that a rank publishes, with all that a peer needs to connect to it.

use super::field_reader::FieldReader;
use super::verbs::Route;
use crate::device::Address;

const VERSION: u8 = 2;

const ETHERNET: u8 = 1;
const BIG_ENDIAN: u8 = 2;

pub(super) const CARD: usize = 1 + 1 + 2 + 16 + 4 + 8 + 4 + 2 + 1 + 1;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct IbvCard {
    /// Whether the link layer of the rank's port is Ethernet (RoCE).
    pub(super) is_ethernet: bool,
    pub(super) is_big_endian: bool,
    pub(super) lid: u16,
    pub(super) gid: [u8; 16],
    /// The number of the queue pair that receives hellos.
    pub(super) qpn: u32,
    /// A random number that identifies this opening of the device. A hello is valid only for one nonce.
    pub(super) nonce: u64,
    /// The maximum length of a message in bytes.
    pub(super) max_message: u32,
    /// The number of receives that the rank posts for the frames of each peer.
    pub(super) window: u16,
    /// The verbs code of the MTU.
    pub(super) mtu: u8,
    /// The number of RDMA reads that each peer may have in progress from the rank's memory.
    pub(super) reads: u8,
}

impl IbvCard {
    pub(super) fn to_bytes(self) -> [u8; CARD] {
        let mut bytes = [0; CARD];
        let fields: [&[u8]; 10] = [
            &[VERSION],
            &[u8::from(self.is_ethernet) * ETHERNET + u8::from(self.is_big_endian) * BIG_ENDIAN],
            &self.lid.to_le_bytes(),
            &self.gid,
            &self.qpn.to_le_bytes(),
            &self.nonce.to_le_bytes(),
            &self.max_message.to_le_bytes(),
            &self.window.to_le_bytes(),
            &[self.mtu],
            &[self.reads],
        ];
        bytes.copy_from_slice(&fields.concat());
        bytes
    }

    pub(super) fn parse(bytes: &[u8; CARD]) -> Option<Self> {
        let mut reader = FieldReader(bytes);
        if reader.take()? != [VERSION] {
            return None;
        }
        let [flags] = reader.take()?;
        if flags & !(ETHERNET | BIG_ENDIAN) != 0 {
            return None;
        }
        let card = IbvCard {
            is_ethernet: flags & ETHERNET != 0,
            is_big_endian: flags & BIG_ENDIAN != 0,
            lid: u16::from_le_bytes(reader.take()?),
            gid: reader.take()?,
            qpn: u32::from_le_bytes(reader.take()?),
            nonce: u64::from_le_bytes(reader.take()?),
            max_message: u32::from_le_bytes(reader.take()?),
            window: u16::from_le_bytes(reader.take()?),
            mtu: reader.take::<1>()?[0],
            reads: reader.take::<1>()?[0],
        };
        let is_sound = card.window > 0 && (1..=5).contains(&card.mtu) && card.reads > 0;
        is_sound.then_some(card)
    }

    pub(super) fn of(address: &Address) -> Option<Self> {
        Self::parse(address.0.as_slice().try_into().ok()?)
    }

    /// Returns the route to this rank from a rank whose own route is `own`.
    pub(super) fn route(&self, own: &Route) -> Route {
        Route { dgid: self.gid, lid: self.lid, ..*own }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) const CARD_OF_7: IbvCard = IbvCard {
        is_ethernet: true,
        is_big_endian: false,
        lid: 0x0102,
        gid: [9; 16],
        qpn: 77,
        nonce: u64::MAX - 7,
        max_message: 8300,
        window: 32,
        mtu: 5,
        reads: 16,
    };

    #[test]
    fn cards_round_trip_and_invalid_ones_are_refused() {
        let bytes = CARD_OF_7.to_bytes();
        assert_eq!(IbvCard::of(&Address(bytes.to_vec())), Some(CARD_OF_7));
        let other = IbvCard { is_ethernet: false, is_big_endian: true, ..CARD_OF_7 };
        assert_eq!(other.to_bytes()[1], 2);
        assert_eq!(IbvCard::parse(&other.to_bytes()), Some(other));
        for cut in [0, 1, CARD - 1] {
            assert_eq!(IbvCard::of(&Address(bytes[..cut].to_vec())), None);
        }
        for (at, value) in [(0, VERSION - 1), (1, 4), (36, 0), (38, 0), (38, 6), (39, 0)] {
            let mut bytes = bytes;
            bytes[at] = value;
            // The window has two bytes.
            bytes[37] = 0;
            assert_eq!(IbvCard::parse(&bytes), None, "byte {at}");
        }
    }
}
