//! Named points of the protocols at which a test can kill a process: `MPJ_KILL_AT=POINT:RANK:COUNT` kills the process
//! of that rank when it reaches the point for the count-th time. Only debug builds with the feature `conformance` read
//! the variable.

/// A point at which a test kills a rank; the other ranks must handle the death.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
#[cfg_attr(not(feature = "conformance"), expect(unreachable_pub, reason = "only tests export it"))]
pub enum KillPoint {
    /// The device has accepted an eager message.
    EagerSent,
    /// An arriving eager message has matched a posted receive.
    EagerMatched,
    /// The RTS of a message was posted or queued.
    RtsSent,
    /// An RTS has arrived, and no reply was sent yet.
    RtsReceived,
    /// The CTS, which requests the body, was posted or queued.
    CtsSent,
    /// The device has accepted a piece of the body.
    PieceSent,
    /// A piece of the body was received.
    PieceLanded,
    /// The FIN, which completes the operation of the sender, was posted or queued.
    FinSent,
    /// The rank is about to report that it is closing.
    Closing,
}

#[cfg(feature = "conformance")]
impl KillPoint {
    /// All points.
    pub const ALL: [KillPoint; 9] = [
        KillPoint::EagerSent,
        KillPoint::EagerMatched,
        KillPoint::RtsSent,
        KillPoint::RtsReceived,
        KillPoint::CtsSent,
        KillPoint::PieceSent,
        KillPoint::PieceLanded,
        KillPoint::FinSent,
        KillPoint::Closing,
    ];
}

#[cfg(all(debug_assertions, feature = "conformance"))]
pub(crate) fn kill_point(point: KillPoint, rank: u32) {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU32, Ordering};
    static ARMED: OnceLock<Option<(String, u32, u32)>> = OnceLock::new();
    static REACHED: AtomicU32 = AtomicU32::new(0);
    let armed = ARMED.get_or_init(|| {
        let text = std::env::var("MPJ_KILL_AT").ok()?;
        let mut parts = text.split(':');
        let name = parts.next()?.to_owned();
        Some((name, parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    });
    let Some((name, victim, count)) = armed else { return };
    if *victim == rank
        && *name == format!("{point:?}")
        && REACHED.fetch_add(1, Ordering::Relaxed) + 1 == *count
    {
        crate::sys::kill_self();
    }
}

#[cfg(not(all(debug_assertions, feature = "conformance")))]
#[inline(always)]
pub(crate) fn kill_point(_point: KillPoint, _rank: u32) {}
