//! Named steps of the protocols, at which a test can have a process killed: `MPJ_KILL_AT=STEP:RANK:COUNT` kills the
//! process of that rank when it reaches the step for the count-th time. Only in debug builds with the feature `conformance`;
//! any other build has none of it.

/// A step that matters when the one who takes it dies there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
#[cfg_attr(not(feature = "conformance"), expect(unreachable_pub, reason = "tests see it, and no others"))]
pub enum KillPoint {
    /// An eager message is with the device.
    EagerSent,
    /// An eager message has met its receive.
    EagerMatched,
    /// A long message has been announced.
    RtsSent,
    /// An announcement has arrived, and nothing has been answered.
    RtsReceived,
    /// The body has been asked for.
    CtsSent,
    /// A piece of the body is with the device.
    PieceSent,
    /// A piece of the body has landed.
    PieceLanded,
    /// The sender has been told that its message was matched.
    FinSent,
    /// The rank has begun to close.
    Closing,
}

#[cfg(feature = "conformance")]
impl KillPoint {
    /// All steps.
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

/// Notes that `rank` has reached a step.
#[cfg(all(debug_assertions, feature = "conformance"))]
pub(crate) fn reach(step: KillPoint, rank: u32) {
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
        && *name == format!("{step:?}")
        && REACHED.fetch_add(1, Ordering::Relaxed) + 1 == *count
    {
        crate::sys::kill_me();
    }
}

/// Notes nothing.
#[cfg(not(all(debug_assertions, feature = "conformance")))]
#[inline(always)]
pub(crate) fn reach(_step: KillPoint, _rank: u32) {}
