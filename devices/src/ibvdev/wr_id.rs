//! The ids of work requests. A completion has the id of its request.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WrId {
    /// A work request on a peer's queue pair, by its sequence number there.
    Sent(u64),
    /// A receive for a peer's message, by its chunk in the receive pool and its slot in that chunk.
    Received { chunk: u32, at: u32 },
    /// A hello that was sent, by its slot.
    HelloSent(u32),
    /// A receive for a hello, by its slot.
    HelloReceived(u32),
}

const KIND_SHIFT: u32 = 62;

impl WrId {
    /// Returns the 64-bit id. A process does not reach 2^62 work requests or 2^30 chunks.
    #[inline]
    pub(super) fn id(self) -> u64 {
        match self {
            WrId::Sent(number) => number,
            WrId::Received { chunk, at } => 1 << KIND_SHIFT | u64::from(chunk) << 32 | u64::from(at),
            WrId::HelloSent(at) => 2 << KIND_SHIFT | u64::from(at),
            WrId::HelloReceived(at) => 3 << KIND_SHIFT | u64::from(at),
        }
    }

    #[inline]
    pub(super) fn of(id: u64) -> Self {
        let (rest, at) = (id & ((1 << KIND_SHIFT) - 1), id as u32);
        match id >> KIND_SHIFT {
            0 => WrId::Sent(rest),
            1 => WrId::Received { chunk: (rest >> 32) as u32, at },
            2 => WrId::HelloSent(at),
            _ => WrId::HelloReceived(at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_round_trip() {
        for wr_id in [
            WrId::Sent(0),
            WrId::Sent((1 << 62) - 1),
            WrId::Received { chunk: (1 << 30) - 1, at: u32::MAX },
            WrId::Received { chunk: 0, at: 3 },
            WrId::HelloSent(u32::MAX),
            WrId::HelloReceived(17),
        ] {
            assert_eq!(WrId::of(wr_id.id()), wr_id);
        }
    }
}
